//! Runs the examples that `docs/clients.md` refers to, and checks their output.

use crate::cli_support::{Running, Server, text, trips_parquet};
use std::path::PathBuf;
use std::process::Command;

/// Runs an example; cargo builds the examples next to the tests.
fn example(name: &str, args: &[&str]) -> String {
    let tests = std::env::current_exe().unwrap();
    let profile = tests.parent().and_then(|deps| deps.parent()).unwrap();
    let path: PathBuf = profile.join("examples").join(name);
    let mut command = Command::new(path);
    command.args(args).stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    Running::start(command).wait().ok()
}

#[test]
fn the_embedded_example_loads_and_queries_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = trips_parquet(folder.path(), "t.parquet", 1234);
    let out = example("embedded", &[text(&file)]);
    assert!(out.contains("1234 rows") && out.contains("scanned"), "{out}");
}

#[test]
fn the_remote_example_speaks_to_a_node() {
    let folder = tempfile::tempdir().unwrap();
    let file = trips_parquet(folder.path(), "t.parquet", 1234);
    let server = Server::start(&[]);
    let out = example("remote", &[&server.url, text(&file)]);
    assert!(out.contains("1234 rows") && out.contains("crossed the network"), "{out}");
}

#[test]
fn the_example_of_another_engine_runs_plans_in_process_and_at_a_node() {
    let embedded = example("engine", &[]);
    assert!(embedded.contains("group     superset"), "{embedded}");
    let server = Server::start(&[]);
    let remote = example("engine", &[&server.url]);
    assert!(remote.contains("group     exact"), "{remote}");
    for out in [&embedded, &remote] {
        assert!(out.contains("project   refused  ") && out.contains("20000 rows"), "{out}");
    }
    // The example merges groups in the order of their group keys.
    assert!(embedded.contains("| 0        | 4     | 167.40 | 41.850000 |"), "{embedded}");
}
