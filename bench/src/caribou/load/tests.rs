//! Tests of the load generator against a minimal server in this process, which can return wrong replies.

use super::{Job, Mix, Outcome, Skew, run};
use crate::caribou::protocol::Protocol;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

type Keys = Arc<Mutex<BTreeMap<Vec<u8>, Vec<u8>>>>;

/// A change of a reply before it is sent.
type Lie = fn(Vec<u8>) -> Vec<u8>;

#[test]
fn operations_are_counted_and_checked() {
    let server = serve(|reply| reply);
    let loaded = job(server, Mix { insert: 100, ..Mix::default() }, 0, 300);
    let outcome = run(&loaded).expect("all replies are right");
    assert_eq!((outcome.operations, outcome.keys), (300, 300));
    let mixed = Mix { read: 40, update: 30, insert: 10, modify: 20, ..Mix::default() };
    let outcome = run(&job(server, mixed, 300, 500)).expect("all replies are right");
    // The updates of `modify` are counted in addition to the 500 operations.
    assert!(outcome.operations > 550 && outcome.keys > 310, "{outcome:?}");
    let outcome =
        run(&job(server, Mix { delete: 100, ..Mix::default() }, 300, 1000)).expect("each is there once");
    assert_eq!(outcome.operations, 300);
    let open = Job { rate: Some(2000.0), operations: None, seconds: 0.05, ..loaded };
    assert!(run(&open).expect("all replies are right").operations > 0);
}

#[test]
fn wrong_replies_are_errors() {
    let reads = Mix { read: 100, ..Mix::default() };
    let server = serve(|reply| reply);
    let error = run(&job(server, reads, 10, 10)).expect_err("the keys are not there");
    assert!(error.to_string().contains("a wrong reply to Read"), "{error}");
    let lies: [(Lie, &str); 2] = [
        (
            |mut reply| {
                let middle = reply.len() / 2;
                reply[middle] ^= 1;
                reply
            },
            "a wrong reply",
        ),
        (|_| b"-ERR no\r\n".to_vec(), "-ERR no"),
    ];
    for (lie, expected) in lies {
        let server = serve(lie);
        let outcome = run(&job(server, Mix { insert: 100, ..Mix::default() }, 0, 10));
        let error = outcome.expect_err("it is wrong").to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn runs_without_a_reply_are_read_again() {
    let nothing = Outcome { p50_us: f64::NAN, p99_us: f64::NAN, p999_us: f64::NAN, ..Outcome::default() };
    let text = serde_json::to_string(&nothing).expect("it is written");
    let read: Outcome = serde_json::from_str(&text).expect("it is read");
    assert!(read.p50_us.is_nan() && read.p999_us.is_nan());
}

#[test]
fn a_server_that_takes_no_connections_is_told() {
    let gone =
        TcpListener::bind("127.0.0.1:0").expect("a port is free").local_addr().expect("it has an address");
    let outcome = run(&job(gone, Mix { read: 100, ..Mix::default() }, 10, 10)).expect("it is no wrong reply");
    assert!(outcome.refused.is_some());
}

fn job(address: SocketAddr, mix: Mix, keys: u64, operations: u64) -> Job {
    Job {
        address,
        protocol: Protocol::Resp,
        process: std::process::id(),
        threads: 1,
        connections: 3,
        depth: 4,
        value_bytes: 64,
        prefixes: 1,
        mix,
        skew: Skew::Uniform,
        keys,
        operations: Some(operations),
        rate: None,
        warm_up_s: 0.0,
        seconds: 60.0,
        condition: None,
    }
}

fn serve(lie: Lie) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it has an address");
    let keys = Keys::default();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let keys = keys.clone();
            std::thread::spawn(move || answer(stream, &keys, lie));
        }
    });
    address
}

/// Answers requests until the client disconnects.
fn answer(stream: TcpStream, keys: &Keys, lie: Lie) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let mut stream = BufReader::new(stream);
    loop {
        let count = number(&mut stream)?;
        let mut arguments = Vec::new();
        for _ in 0..count {
            let mut argument = vec![0; number(&mut stream)? + 2];
            stream.read_exact(&mut argument).ok()?;
            argument.truncate(argument.len() - 2);
            arguments.push(argument);
        }
        let reply = lie(reply(&arguments, &mut *keys.lock().ok()?)?);
        stream.get_mut().write_all(&reply).ok()?;
    }
}

fn number(stream: &mut BufReader<TcpStream>) -> Option<usize> {
    let mut line = String::new();
    stream.read_line(&mut line).ok()?;
    line.trim_end().get(1..)?.parse().ok()
}

fn reply(arguments: &[Vec<u8>], keys: &mut BTreeMap<Vec<u8>, Vec<u8>>) -> Option<Vec<u8>> {
    Some(match (arguments[0].as_slice(), &arguments[1..]) {
        (b"SET", [key, value]) => {
            keys.insert(key.clone(), value.clone());
            b"+OK\r\n".to_vec()
        }
        (b"GET", [key]) => match keys.get(key) {
            Some(value) => [format!("${}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat(),
            None => b"$-1\r\n".to_vec(),
        },
        (b"DEL", [key]) => format!(":{}\r\n", u8::from(keys.remove(key).is_some())).into_bytes(),
        _ => return None,
    })
}
