//! Tests of `farpool sql --encrypt-results` from the command line: keys of nodes in files and data directories, tokens,
//! and refusals.

use crate::cli_support::*;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Returns the public key that a node printed at its start.
fn said_key(server: &Server) -> String {
    until("the node says its key", || server.said().contains("node key "));
    let said = server.said();
    let key = said.lines().find_map(|line| line.strip_prefix("node key ")).unwrap();
    assert!(key.len() == 64 && key.bytes().all(|byte| byte.is_ascii_hexdigit()), "{key}");
    key.to_string()
}

/// Runs a query with encrypted results, with `more` arguments.
fn sql(server: &Server, more: &[&str]) -> Done {
    let sql = ["sql", "--encrypt-results", "-c", "select city, count(*) from trips group by city order by 1"];
    server.run(&[&sql, more].concat())
}

fn loaded(folder: &Path, arguments: &[&str]) -> Server {
    let server = Server::start(arguments);
    server.load("trips", &trips_parquet(folder, "t.parquet", 3000));
    server
}

#[test]
fn results_come_encrypted_under_the_key_that_the_node_says() {
    let folder = tempfile::tempdir().unwrap();
    let server = loaded(folder.path(), &[]);
    let (key, plain) =
        (said_key(&server), server.run(&["sql", "-c", "select id, note from trips limit 3"]).ok());
    let receipt = folder.path().join("r.json");
    let seal = ["--encrypt-results", "--node-key", &key];
    for format in ["table", "csv", "json", "arrow"] {
        let ask = ["sql", "--format", format, "-c", "select * from trips where id < 700 order by id"];
        let expected = server.run(&ask).stdout_bytes;
        let came = server.run(&[&ask[..], &seal, &["--receipt", text(&receipt), "--explain"]].concat());
        assert!(came.stderr.contains("on the wire seen, encrypted for this client"), "{}", came.stderr);
        assert_eq!(came.stdout_bytes, expected, "{format}");
        assert!(!expected.is_empty());
        let written: serde_json::Value = serde_json::from_slice(&std::fs::read(&receipt).unwrap()).unwrap();
        assert!(written["encrypted"] == true && written["rows_returned"] == 700, "{written}");
    }
    // The node's public key may be given in a file, and all kinds of statements work.
    let file = folder.path().join("node.pub");
    std::fs::write(&file, format!("{key}\n")).unwrap();
    let statements = "create table d as select city, count(*) n from trips group by 1; update d set n = n + 1; \
                      create view v as select sum(n) s from d; insert into d values ('Bern', 4); select s from v; \
                      select count(*) from trips t join d on t.city = d.city; drop view v; drop table d";
    let ask = ["sql", "--format", "csv", "--encrypt-results", "--node-key", text(&file), "-c", statements];
    assert_eq!(server.run(&ask).ok(), "count\n3\n\ncount\n1\n\ns\n3007\n\ncount(*)\n3000\n");
    let error = server.run(&["sql", "--encrypt-results", "--node-key", &key, "-c", "select x from nowhere"]);
    error.fails(1, &["nowhere"]);
    assert!(!error.stderr.contains("in the clear"), "{}", error.stderr);
    assert!(!plain.is_empty());
}

#[test]
fn a_node_keeps_its_key_and_another_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("d");
    let server = loaded(folder.path(), &["--data-dir", text(&data)]);
    let key = said_key(&server);
    server.stop("TERM");
    let server = Server::start(&["--data-dir", text(&data)]);
    assert_eq!(said_key(&server), key);
    sql(&server, &["--node-key", &key]).ok();
    server.stop("KILL");
    farpool(&["check", "--data-dir", text(&data)]).ok();
    // The node uses a key pair that the operator provides.
    let own = folder.path().join("own.key");
    let public = farpool(&["node-key", "--new", text(&own)]).ok();
    assert_eq!(farpool(&["node-key", text(&own)]).ok(), public);
    farpool(&["node-key", "--new", text(&own)]).fails(1, &["exists"]);
    let server = Server::start(&["--data-dir", text(&data), "--node-key-file", text(&own)]);
    assert_eq!(said_key(&server), public.trim_end());
    sql(&server, &["--node-key", public.trim_end()]).ok();
    sql(&server, &["--node-key", &key]).fails(3, &["another key", public.trim_end()]);
    let short = folder.path().join("short");
    std::fs::write(&short, "abc").unwrap();
    farpool(&["node-key", text(&short)]).fails(3, &["read by others", "short"]);
    std::fs::set_permissions(&short, std::fs::Permissions::from_mode(0o600)).unwrap();
    farpool(&["node-key", text(&short)]).fails(1, &["short"]);
    farpool(&["serve", "--node-key-file", text(&folder.path().join("none"))])
        .fails(1, &["node key file", "none"]);
}

#[test]
fn what_would_promise_too_much_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let access = Tokens::new(folder.path());
    let token = access.add("ann", "write");
    let server = Server::start(&["--access", text(&access.path)]);
    let key = said_key(&server);
    let file = trips_parquet(folder.path(), "t.parquet", 3000);
    server.run(&["load", "--token", &token, "trips", text(&file)]).ok();
    sql(&server, &["--token", &token, "--node-key", &key]).ok();
    sql(&server, &["--token", &token]).fails(2, &["in the clear", "--node-key"]);
    sql(&server, &[]).fails(2, &["who the node is", "--node-key"]);
    sql(&server, &["--token", &token, "--node-key", "12345"]).fails(1, &["public key"]);
    server.run(&["sql", "--node-key", &key, "-c", "select 1"]).fails(2, &["--encrypt-results"]);
    farpool(&["sql", "--encrypt-results", "-c", "select 1"]).fails(2, &["--pool"]);
}
