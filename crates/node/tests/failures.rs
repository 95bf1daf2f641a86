//! Tests of failures: clients and nodes that disappear without closing connections, peers that speak other protocols or
//! send random bytes, and loads larger than the memory. A failed request must leave nothing behind.

use crate::common::*;
use farpool_model::{Error, ErrorKind, LoadMode, Result, ResultForm};
use farpool_transfer::{ClientOptions, Pool, PoolUrl, RemotePool};
use farpool_wire::{PREFACE, Request};
use futures::StreamExt;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

// The clients of these tests request plain results, because packed results are so small that they would be sent as a
// whole before the client reads, and the programs would end.

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_stream_cancels_its_program() {
    let server = Server::start().await;
    let pool = server.connect().await.with_results(ResultForm::Plain);
    load(&pool, "t", LoadMode::Create, 600_000).await.unwrap();
    let mut execution = pool.execute(&scan("t"), 1).await.unwrap();
    execution.streams[0].next().await.unwrap().unwrap();
    assert_eq!(server.programs_running(), 1);
    drop(execution);
    eventually("the program ends", || server.programs_running() == 0).await;
    // Other requests on this connection still succeed.
    assert_eq!(counted(&pool, "t", 10).await.unwrap().0, 10);
    // The tenant's count of programs includes only programs that ran to their ends, so not the cancelled one.
    assert_eq!(pool.status().await.unwrap().tenants[0].programs, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_vanishes_takes_its_programs_along() {
    let server = Server::start().await;
    let other = server.connect().await;
    load(&other, "t", LoadMode::Create, 600_000).await.unwrap();
    let pool = server.connect().await.with_results(ResultForm::Plain);
    let executions = [pool.execute(&scan("t"), 1).await.unwrap(), pool.execute(&scan("t"), 1).await.unwrap()];
    assert_eq!(server.programs_running(), 2);
    other.drop_table(&name("t")).await.unwrap();
    assert!(server.memory_used() > 0, "running programs keep the table");
    drop(pool);
    drop(executions);
    eventually("the programs end", || server.programs_running() == 0).await;
    eventually("the table's pages come back", || server.memory_used() == 0).await;
    eventually("the connection is gone", || server.node.status().connections == 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_that_breaks_off_leaves_nothing_behind() {
    let server = Server::start().await;
    let pool = server.connect().await;
    load(&pool, "t", LoadMode::Create, 1000).await.unwrap();
    let before = server.memory_used();

    // The client's source of rows fails in the middle of a load.
    let mut parts = batches(300_000);
    parts.push(Err(Error::invalid("line 7 is wrong")));
    let schema = batch(0, 0).schema();
    let broken = pool.load(&name("u"), LoadMode::Create.into(), schema.clone(), None, stream(parts)).await;
    assert_eq!(broken.unwrap_err().message, "line 7 is wrong");
    eventually("the pages come back", || server.memory_used() == before).await;
    assert_eq!(pool.table(&name("u")).await.unwrap_err().kind, ErrorKind::NotFound);

    // The client disconnects in the middle of a load.
    let other = server.connect().await;
    let (sender, receiver) = futures_channel();
    let loading = tokio::spawn(async move {
        other.load(&name("t"), LoadMode::Replace.into(), schema, None, Box::pin(receiver)).await.map(drop)
    });
    for part in batches(300_000) {
        sender.send(part).await.unwrap();
    }
    eventually("the load takes pages", || server.memory_used() > before).await;
    loading.abort();
    eventually("the pages come back", || server.memory_used() == before).await;
    assert_eq!(counted(&pool, "t", 1 << 40).await.unwrap().0, 1000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_dies_in_the_middle_of_a_change_leaves_the_table_as_it_was() {
    let server = Server::start().await;
    let pool = server.connect().await;
    let version = load(&pool, "t", LoadMode::Create, 1000).await.unwrap().version;
    // Not counted: the memory for outcomes of loads, which the node remembers for a while.
    let used = || {
        let status = server.node.status();
        (status.memory_bytes_used, status.work_bytes_used - server.node.remembered_bytes())
    };
    eventually("nothing is under way", || server.node.scheduler().running() == 0).await;
    let before = used();
    let other = server.connect().await;
    let (sender, receiver) = futures_channel();
    let (change, schema) = (LoadMode::ReplaceVersion(version), batch(0, 0).schema());
    let changing = tokio::spawn(async move {
        other.load(&name("t"), change.into(), schema, None, Box::pin(receiver)).await.map(drop)
    });
    for part in batches(300_000) {
        sender.send(part).await.unwrap();
    }
    eventually("the change takes pages", || used().0 > before.0).await;
    // Aborting the task drops the client, which closes its connection.
    changing.abort();
    eventually("its connection is gone", || server.node.status().connections == 1).await;
    eventually("its memory comes back", || used() == before).await;
    assert_eq!(pool.table(&name("t")).await.unwrap().version, version);
    assert_eq!(counted(&pool, "t", 1 << 40).await.unwrap().0, 1000);
    // The table still has the version that the aborted change was based on, so the same change succeeds.
    assert_eq!(load(&pool, "t", change, 3).await.unwrap().rows, 3);
}

/// Returns a stream of batches for a load, and the sender by which a test feeds it.
fn futures_channel() -> (
    tokio::sync::mpsc::Sender<Result<arrow_array::RecordBatch>>,
    impl futures::Stream<Item = Result<arrow_array::RecordBatch>>,
) {
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    let stream = futures::stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|batch| (batch, receiver))
    });
    (sender, stream)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_takes_longer_than_its_client_allows_is_ended() {
    let server = Server::start().await;
    load(&server.connect().await, "t", LoadMode::Create, 600_000).await.unwrap();
    let before = server.memory_used();
    let timeout = Some(Duration::from_millis(300));
    let options = ClientOptions { timeout, ..ClientOptions::default() };
    let hasty = RemotePool::connect(&server.url(), options).await.unwrap().with_results(ResultForm::Plain);

    // A result that the client does not read in time.
    let mut execution = hasty.execute(&scan("t"), 1).await.unwrap();
    eventually("the program ends", || server.programs_running() == 0).await;
    let mut rows = execution.streams.remove(0);
    let error = loop {
        match rows.next().await.expect("a reason") {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind, ErrorKind::TimedOut, "{error}");
    assert!(error.message.contains("300ms"), "{error}");

    // A load whose source gives no rows before the client's timeout.
    let (_sender, rows) = futures_channel();
    let table = name("u");
    let loading = hasty.load(&table, LoadMode::Create.into(), batch(0, 0).schema(), None, Box::pin(rows));
    let error = tokio::time::timeout(PATIENCE, loading).await.expect("hangs").unwrap_err();
    assert_eq!(error.kind, ErrorKind::TimedOut, "{error}");
    eventually("the pages come back", || server.memory_used() == before).await;

    // Other requests on this connection still succeed.
    assert_eq!(counted(&hasty, "t", 10).await.unwrap().0, 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_beyond_the_memory_is_refused_with_the_sizes() {
    let server = Server::with(8 << 20, Access::of_everybody()).await;
    let pool = server.connect().await;
    load(&pool, "small", LoadMode::Create, 1000).await.unwrap();
    let before = server.memory_used();
    // The source of rows is endless, so that the load ends only when the node refuses it.
    let endless = futures::stream::iter(0..).map(|part: i64| Ok(batch(part * 50_000, (part + 1) * 50_000)));
    let schema = batch(0, 0).schema();
    let big = name("big");
    let load = pool.load(&big, LoadMode::Create.into(), schema, None, Box::pin(endless));
    let error = tokio::time::timeout(PATIENCE, load).await.expect("hangs").unwrap_err();
    assert_eq!(error.kind, ErrorKind::OverLimit, "{error}");
    assert!(error.message.contains("MiB"), "{error}");
    eventually("the pages come back", || server.memory_used() == before).await;
    assert_eq!(pool.tables().await.unwrap().len(), 1);
    assert_eq!(counted(&pool, "small", 1 << 40).await.unwrap().0, 1000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_there() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = RemotePool::connect(&address.to_string().parse().unwrap(), ClientOptions::default())
        .await
        .unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert!(error.message.contains(&format!("nothing listens at farpool://{address}")), "{error}");
    assert!(error.advice.unwrap().contains("farpool serve"));

    let url: PoolUrl = "no-such-host.invalid:1".parse().unwrap();
    let error = RemotePool::connect(&url, ClientOptions::default()).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert!(error.message.contains("no-such-host.invalid"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn somebody_else_there() {
    for (says, expected) in [
        (
            &b"HTTP/1.1 400 Bad Request\r\n\r\n"[..],
            "answers but does not speak farpool: it is an HTTP server",
        ),
        (b"-ERR unknown command\r\n", "it is a Redis server"),
        (b"\x00\x01\x02\x03\x04\x05\x06\x07\x08", "does not speak farpool"),
        (b"", "hangs up"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url: PoolUrl = listener.local_addr().unwrap().to_string().parse().unwrap();
        let stranger = tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.unwrap();
            drop(socket.read(&mut [0; 64]).await);
            socket.write_all(says).await.unwrap();
            socket.shutdown().await.unwrap();
        });
        let error = RemotePool::connect(&url, ClientOptions::default()).await.unwrap_err();
        stranger.await.unwrap();
        assert_eq!(error.kind, ErrorKind::Unavailable, "{error}");
        assert!(error.message.contains(expected), "{error}");
        assert!(error.message.contains(&url.to_string()), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_dies_in_the_middle_is_an_error_and_its_successor_is_used() {
    let mut server = Server::start().await;
    let pool = server.connect().await;
    load(&pool, "t", LoadMode::Create, 600_000).await.unwrap();
    let mut execution = pool.execute(&scan("t"), 1).await.unwrap();
    execution.streams[0].next().await.unwrap().unwrap();
    server.kill().await;
    let error = collect(execution).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert!(error.message.contains("went away while a query was running"), "{error}");
    let error = pool.tables().await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert!(error.message.contains("nothing listens"), "{error}");
    assert_eq!(server.programs_running(), 0);

    let successor = Server::at(&server.address.to_string(), 64 << 20, Access::of_everybody()).await;
    assert_eq!(pool.tables().await.unwrap(), vec![]);
    load(&pool, "t", LoadMode::Create, 10).await.unwrap();
    assert_eq!(counted(&pool, "t", 100).await.unwrap().0, 10);
    assert_eq!(successor.node.status().connections, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_connection_that_broke_is_not_noticed_by_the_next_request() {
    let mut server = Server::start().await;
    let pool = server.connect().await;
    assert_eq!(pool.tables().await.unwrap(), vec![]);
    server.kill().await;
    let _successor = Server::at(&server.address.to_string(), 64 << 20, Access::of_everybody()).await;
    assert_eq!(pool.tables().await.unwrap(), vec![]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_lets_queries_finish() {
    let mut server = Server::start().await;
    let pool = server.connect().await;
    load(&pool, "t", LoadMode::Create, 600_000).await.unwrap();
    let execution = pool.execute(&scan("t"), 1).await.unwrap();
    server.stop.take().unwrap().send(()).unwrap();
    let rows: usize = collect(execution).await.unwrap().iter().map(|b| b.num_rows()).sum();
    assert_eq!(rows, 600_000);
    tokio::time::timeout(PATIENCE, &mut server.serving).await.expect("hangs").unwrap().unwrap();
    assert_eq!(pool.tables().await.unwrap_err().kind, ErrorKind::Unavailable);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_other_servers_are_told_where_they_are() {
    let server = Server::start().await;
    for (first_words, answer) in [
        (&b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..], &b"HTTP/1.1 400 Bad Request\r\n"[..]),
        (b"*1\r\n$7\r\nCOMMAND\r\n", b"-ERR "),
        (b"SSH-2.0-OpenSSH_9.9\r\n", b"SSH-2.0-farpool\r\n"),
        (b"\0\0\0\x08\x04\xd2\x16\x2f\0\0\0\x14\0\x03\0\0user\0ann\0\0\0", b"NE\0\0\0"),
        (b"\0\0\0\x14\0\x03\0\0user\0ann\0\0\0", b"E\0\0\0"),
    ] {
        let reply = say(&server, first_words).await;
        assert!(reply.starts_with(answer), "{}", reply.escape_ascii());
        let shown = String::from_utf8_lossy(&reply);
        assert!(shown.contains("a farpool memory node"), "{shown}");
    }
}

/// Sends `bytes` to the server on a new connection; returns what the server sends before it closes the connection.
async fn say(server: &Server, bytes: &[u8]) -> Vec<u8> {
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    // An error is ignored, because the server may close the connection before it has read everything.
    drop(socket.write_all(bytes).await);
    drop(socket.shutdown().await);
    let mut reply = Vec::new();
    drop(tokio::time::timeout(PATIENCE, socket.read_to_end(&mut reply)).await.expect("hangs"));
    reply
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_ends_its_connection_and_nothing_else() {
    let server = Server::start().await;
    let pool = server.connect().await;
    load(&pool, "t", LoadMode::Create, 600_000).await.unwrap();
    let mut execution = pool.execute(&scan("t"), 1).await.unwrap();
    execution.streams[0].next().await.unwrap().unwrap();

    let mut random = 0x2545_F491_4F6C_DD1D_u64;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    for round in 0..150 {
        // Begins with nothing, with the preface (protocol identification), or with the preface and a hello. Then follow
        // random bytes, or a request with one wrong byte.
        let mut bytes = match round % 3 {
            0 => Vec::new(),
            1 => PREFACE.to_vec(),
            _ => hello(),
        };
        if round % 2 == 0 {
            bytes.extend((0..next() % 2000).map(|_| next() as u8));
        } else {
            let start = bytes.len();
            let request = Request::Execute {
                plan: (0..100).map(|_| next() as u8).collect(),
                schema: None,
                results: ResultForm::Auto,
            };
            bytes.extend(frames(1, &request));
            let place = start + (next() as usize) % (bytes.len() - start);
            bytes[place] ^= next() as u8;
        }
        say(&server, &bytes).await;
    }
    let rows: usize = collect(execution).await.unwrap().iter().map(|b| b.num_rows()).sum();
    assert!(rows > 500_000);
    assert_eq!(counted(&pool, "t", 10).await.unwrap().0, 10);
    eventually("their connections are gone", || server.node.status().connections == 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_breaks_the_rules_is_told() {
    let server = Server::start().await;
    let with_hello = |bytes: &[u8]| [&hello()[..], bytes].concat();
    for (bytes, expected) in [
        (with_hello(&[0xff; 12]), "damaged frame"),
        (with_hello(&frames(0, &Request::Tables { tenant: None, with_schemas: true })), "stream 0"),
        (
            with_hello(&frames(
                3,
                &Request::Hello {
                    version_min: 1,
                    version_max: 1,
                    token: None,
                    timeout_ms: None,
                    client: String::new(),
                },
            )),
            "Hello",
        ),
        ([&PREFACE[..], &frames(1, &Request::Tables { tenant: None, with_schemas: true })].concat(), "Hello"),
        (
            [
                &PREFACE[..],
                &frames(
                    0,
                    &Request::Hello {
                        version_min: 70,
                        version_max: 80,
                        token: None,
                        timeout_ms: None,
                        client: String::new(),
                    },
                ),
            ]
            .concat(),
            "version",
        ),
    ] {
        let reply = String::from_utf8_lossy(&say(&server, &bytes).await).into_owned();
        assert!(reply.contains(expected), "expected {expected}: {reply}");
    }
}
