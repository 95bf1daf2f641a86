//! Real clients of Redis, against a node: redis-cli, redis-benchmark, redis-py, Flask and Django with their sessions
//! and cache, Jedis, Express with its sessions, and go-redis. The scripts in `testdata/redis/clients/` check the values
//! that they have stored and read. Finally, porcupine checks that keys are linearizable.
//!
//! Packages, at pinned versions, are installed into the folder `redis-clients` of the cache.

use super::server::Server;
use crate::clients::Clients;
use crate::programs;
use anyhow::{Context, Result, bail, ensure};
use std::path::Path;
use std::process::{Command, Stdio};

const CLIENTS: Clients = Clients { cache: "redis-clients", scripts: "redis/clients" };

const PYTHON_PACKAGES: [&str; 4] = ["redis==8.1.0", "Flask==3.1.3", "Flask-Session==0.8.0", "Django==5.2.19"];
const PYTHON_SCRIPTS: [&str; 3] = ["redis_py.py", "sessions.py", "django_cache.py"];

/// Commands for redis-cli, and their expected output.
const CLI: [(&[&str], &str); 5] = [
    (&["set", "greeting", "hello", "ex", "60"], "OK"),
    (&["get", "greeting"], "hello"),
    (&["hset", "users:1", "name", "Ada", "city", "London"], "2"),
    (&["-3", "--json", "hgetall", "users:1"], r#"{"name":"Ada","city":"London"}"#),
    (&["--scan", "--pattern", "users:*"], "users:1"),
];

/// Runs every client against a separate node.
///
/// # Errors
/// Fails if a client fails, or cannot be installed.
pub fn run(program: &Path) -> Result<()> {
    cli(&Server::start(program)?)?;
    let python = CLIENTS.python(&PYTHON_PACKAGES.map(String::from))?;
    for script in PYTHON_SCRIPTS {
        let server = Server::start(program)?;
        finish(Command::new(&python).arg(CLIENTS.scripts().join(script)).arg(&server.port))?;
    }
    let classes = CLIENTS.java()?.join("*");
    let server = Server::start(program)?;
    let mut command = Command::new("java");
    finish(command.arg("-cp").arg(classes).arg(CLIENTS.scripts().join("Shop.java")).arg(&server.port))?;
    drop(server);
    let server = Server::start(program)?;
    let folder = CLIENTS.node_js(&["sessions.mjs"])?;
    finish(Command::new("node").current_dir(folder).args(["sessions.mjs", &server.port]))?;
    drop(server);
    let server = Server::start(program)?;
    finish(Command::new(CLIENTS.go("shop")?).arg(&server.port))?;
    linearizable(program, 1)
}

/// Lets many connections work on a few keys of a separate node, `times` times as long as the tests do, and porcupine
/// check the recorded history.
///
/// # Errors
/// Fails if the history is not linearizable, or the programs cannot be built.
pub fn linearizable(program: &Path, times: u32) -> Result<()> {
    finish(Command::new(CLIENTS.go("linearizable")?).arg(program).arg(times.to_string()))
}

fn cli(server: &Server) -> Result<()> {
    programs::install(&["redis-cli", "redis-benchmark"], &["redis-tools"])?;
    for (arguments, expected) in CLI {
        let mut command = Command::new("redis-cli");
        let done = command.args(["-p", &server.port]).args(arguments).output()?;
        let got = String::from_utf8_lossy(&done.stdout).trim_end().to_string();
        ensure!(got == expected, "redis-cli {}: {got:?} in place of {expected:?}", arguments.join(" "));
    }
    let benchmark = ["-t", "get,set,incr,hset,mset", "-P", "32", "-n", "20000", "-q"];
    let mut command = Command::new("redis-benchmark");
    let done = command.args(["-p", &server.port]).args(benchmark).stderr(Stdio::inherit()).output()?;
    let text = String::from_utf8_lossy(&done.stdout).to_lowercase();
    ensure!(done.status.success() && !text.contains("error"), "redis-benchmark: {text}");
    println!("redis-cli and redis-benchmark: strings, hashes, a scan, pipelines of 32");
    Ok(())
}

/// Runs a client, which prints a line about its work.
fn finish(command: &mut Command) -> Result<()> {
    let shown = format!("{command:?}");
    if !command.status().with_context(|| format!("cannot start {shown}"))?.success() {
        bail!("{shown} failed");
    }
    Ok(())
}
