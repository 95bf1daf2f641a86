//! Runs the commands of `docs/tour.md`, and compares what they print with what the page shows.
//!
//! In a block marked `console`, a line that begins with `$ ` is a command for `sh`, and lines that begin with `> `
//! right behind it continue the command. What follows is its output, on both streams; a line `...` stands for any
//! lines. `farpool serve` is started on free ports and not compared; `kill -9 %1` kills it. A block that needs
//! redis-cli is left out where that is not installed.

use crate::cli_support::{Running, Server, program};
use std::path::Path;
use std::process::{Command, Stdio};

const PAGE: &str = include_str!("../../../docs/tour.md");

/// The node's address as the page writes it; it is replaced by that of the test's node.
const POOL: &str = "farpool://127.0.0.1:9797";

/// A command of the page, and the output lines that the page shows for it.
struct Step {
    command: String,
    shown: Vec<&'static str>,
}

fn steps(block: &'static str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for line in block.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            steps.push(Step { command: command.to_string(), shown: Vec::new() });
            continue;
        }
        let step = steps.last_mut().expect("a block begins with a command");
        match line.strip_prefix("> ") {
            Some(more) if step.shown.is_empty() => step.command.push_str(&format!("\n{more}")),
            _ => step.shown.push(line),
        }
    }
    steps
}

/// Starts the node as the page does, but on free ports.
fn serve(options: &str, folder: &Path) -> Server {
    let data = folder.join("pool.d").to_string_lossy().into_owned();
    let options = options.replace("pool.d", &data).replace(":6380", ":0");
    Server::start(&options.split_whitespace().collect::<Vec<_>>())
}

/// Runs a command for `sh` as the program is run in other tests; returns what it prints.
fn run(command: &str, folder: &Path, pool: Option<&str>) -> String {
    let farpool = program(&[]);
    let folder_of_program = Path::new(farpool.get_program()).parent().unwrap().display();
    let path = format!("{folder_of_program}:{}", std::env::var("PATH").unwrap_or_default());
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("exec 2>&1\n{command}")]).current_dir(folder);
    shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for (name, value) in farpool.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell.env("PATH", path).envs(pool.map(|url| ("FARPOOL_POOL", url)));
    Running::start(shell).wait().stdout
}

fn matches(shown: &[&str], printed: &[&str]) -> bool {
    match shown.split_first() {
        None => printed.is_empty(),
        Some((&"...", rest)) => (0..=printed.len()).any(|skipped| matches(rest, &printed[skipped..])),
        Some((line, rest)) => printed.first() == Some(line) && matches(rest, &printed[1..]),
    }
}

#[test]
fn the_tour_prints_what_its_page_shows() {
    let folder = tempfile::tempdir().unwrap();
    let has_redis = Command::new("redis-cli").arg("--version").output().is_ok();
    let (mut server, mut is_exported) = (None::<Server>, false);
    let blocks = PAGE.split("\n```").skip(1).step_by(2).filter_map(|block| block.strip_prefix("console\n"));
    let blocks = blocks.filter(|block| has_redis || !block.contains("redis-cli"));
    for Step { command, shown } in blocks.flat_map(steps) {
        if let Some(options) = command.strip_prefix("farpool serve ") {
            server = Some(serve(options.trim_end_matches(" &"), folder.path()));
        } else if command == "kill -9 %1" {
            server = None;
        } else if command == format!("export FARPOOL_POOL={POOL}") {
            is_exported = true;
        } else {
            let port = server.as_ref().and_then(|server| server.ready_line.trim_end().rsplit(':').next());
            let command = command.replace("-p 6380", &format!("-p {}", port.unwrap_or("6380")));
            let pool = server.as_ref().filter(|_| is_exported).map(|server| server.url.as_str());
            let printed = run(&command, folder.path(), pool).replace(pool.unwrap_or(POOL), POOL);
            let lines: Vec<&str> = printed.lines().map(str::trim_end).collect();
            assert!(matches(&shown, &lines), "$ {command}\n{printed}");
        }
    }
}
