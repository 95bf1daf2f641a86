//! A node that speaks the Redis protocol, from the outside.

#![expect(clippy::disallowed_methods, reason = "a test has sockets of its own")]

use crate::cli_support::*;
use std::io::{Read, Write};
use std::net::TcpStream;

fn ask(stream: &mut TcpStream, commands: &str, expected: &str) {
    stream.write_all(commands.as_bytes()).unwrap();
    let mut got = vec![0; expected.len()];
    stream.read_exact(&mut got).unwrap();
    assert_eq!(String::from_utf8_lossy(&got), expected);
}

#[test]
fn a_node_serves_clients_of_both_protocols() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&["--resp", "127.0.0.1:0", "--data-dir", text(folder.path())]);
    let redis = server.ready_line.trim_end().split("; redis://").nth(1).expect("it says where").to_string();
    let mut client = TcpStream::connect(&redis).unwrap();
    ask(&mut client, "SET a 1\r\nINCR a\r\nGET a\r\n", "+OK\r\n:2\r\n$1\r\n2\r\n");
    server.run(&["sql", "-c", "create table t as select 1 as a"]).ok();
    assert_eq!(server.csv("select a from t"), "a\n1\n");
    until("the warning", || server.said().contains("keys and values live in memory only"));
    let pool_used = |server: &Server| server.status()["memory_bytes_used"].as_u64().unwrap();
    assert!(pool_used(&server) >= 2 << 20, "keys lie in the pool");
    let (status, _) = server.stop("TERM");
    assert_eq!(status, Some(0));
    assert_eq!(client.read(&mut [0; 8]).unwrap_or(0), 0);
}

#[test]
fn an_address_for_the_redis_protocol_that_does_not_work_is_an_error() {
    farpool(&["serve", "--listen", "127.0.0.1:0", "--resp", "6380"]).fails(2, &["HOST:PORT", "--resp"]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    farpool(&["serve", "--listen", "127.0.0.1:0", "--resp", &address]).fails(3, &["cannot listen", &address]);
    farpool(&["serve", "--listen", "127.0.0.1:0", "--resp", "0.0.0.0:0"]).fails(2, &["--access"]);
}
