//! Attacks on a node by clients that violate or exploit the native protocol: floods of requests, malformed frames,
//! silence. An honest client must get its answers during each attack, and the node must bound its memory.

#![expect(clippy::disallowed_methods, reason = "attackers have threads of their own: a flood must not pause")]

mod arrow;
mod loads;
mod plan;
mod plans;

use crate::common::*;
use farpool_model::{LoadMode, limits};
use farpool_transfer::Pool;
use farpool_wire::{FrameHeader, FrameKind, PREFACE, Request, Response};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

/// Attackers: clients that send the same bytes repeatedly, each from its own thread, until this value is dropped.
struct Flood {
    stop: Arc<AtomicBool>,
    bytes_sent: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Flood {
    fn start(address: SocketAddr, clients: usize, bytes: &[u8]) -> Self {
        let (stop, bytes_sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let attack = || {
            let (stop, sent, bytes) = (stop.clone(), bytes_sent.clone(), bytes.to_vec());
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    // If the node closes the connection, the attacker opens another.
                    drop(flood_once(address, &bytes, &stop, &sent));
                }
            })
        };
        let threads = (0..clients).map(|_| attack()).collect();
        Flood { stop, bytes_sent, threads }
    }

    fn bytes_sent(&self) -> u64 {
        self.bytes_sent.load(Ordering::Relaxed)
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

fn flood_once(address: SocketAddr, bytes: &[u8], stop: &AtomicBool, sent: &AtomicU64) -> std::io::Result<()> {
    let mut socket = TcpStream::connect(address)?;
    socket.write_all(&hello())?;
    // Answers are read, so that only the node itself slows the flood down.
    let mut reader = socket.try_clone()?;
    let reading = std::thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        while reader.read(&mut buffer).is_ok_and(|bytes| bytes > 0) {}
    });
    let mut outcome = Ok(());
    while outcome.is_ok() && !stop.load(Ordering::Relaxed) {
        outcome = socket.write_all(bytes);
        sent.fetch_add(bytes.len() as u64, Ordering::Relaxed);
    }
    drop(socket.shutdown(std::net::Shutdown::Both));
    reading.join().unwrap();
    outcome
}

/// Encodes the same request for each of `streams` streams; returns all frames in one buffer.
fn on_streams(streams: u32, request: &Request) -> Vec<u8> {
    (1..=streams).flat_map(|stream| frames(stream, request)).collect()
}

/// Floods the node with `bytes`. Checks that all queries of an honest client are answered, and that the node has read
/// far more of the flood than fits in socket buffers, so that the attack has reached it.
async fn beside(server: &Server, what: &str, bytes: &[u8]) {
    let pool = server.connect().await;
    let flood = Flood::start(server.address, 4, bytes);
    eventually("the flood is under way", || flood.bytes_sent() > 1 << 20).await;
    let before = flood.bytes_sent();
    let honest = async {
        for below in 0..50 {
            assert_eq!(counted(&pool, "t", below).await.unwrap().0, below, "beside a flood of {what}");
        }
        // New clients can connect during the flood, too.
        assert_eq!(server.connect().await.tables().await.unwrap().len(), 1);
    };
    tokio::time::timeout(PATIENCE, honest).await.unwrap_or_else(|_| panic!("no answers beside {what}"));
    // The honest client may be done before the attackers have their next turn.
    eventually("the attackers get their turns", || flood.bytes_sent() > before).await;
}

/// Runs an attack and returns its result. Checks that an honest client gets the answers to its queries in the meantime.
async fn beside_an_honest_client<T>(server: &Server, what: &str, attack: impl Future<Output = T>) -> T {
    let pool = server.connect().await;
    let honest = async {
        for below in 0..20 {
            assert_eq!(counted(&pool, "t", below).await.unwrap().0, below, "beside {what}");
        }
    };
    let both = async { tokio::join!(honest, attack).1 };
    tokio::time::timeout(PATIENCE, both).await.unwrap_or_else(|_| panic!("no answers beside {what}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn floods_of_small_frames_stop_nobody() {
    let server = Server::start().await;
    load(&server.connect().await, "t", LoadMode::Create, 100_000).await.unwrap();
    let many = 5_000;
    beside(&server, "Cancel", &on_streams(many, &Request::Cancel)).await;
    beside(&server, "Credit", &on_streams(many, &Request::Credit { bytes: 1 })).await;
    beside(&server, "Ping", &frames(0, &Request::Ping).repeat(many as usize)).await;
    beside(&server, "Status", &on_streams(many, &Request::Status)).await;
    beside(
        &server,
        "Table",
        &on_streams(many, &Request::Table { name: name("t"), known: None, or_view: true }),
    )
    .await;
    eventually("their connections are gone", || server.node.status().connections == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn programs_that_are_cancelled_at_once_stop_nobody() {
    let server = Server::start().await;
    load(&server.connect().await, "t", LoadMode::Create, 100_000).await.unwrap();
    let pair = |stream| [frames(stream, &execute("t")), frames(stream, &Request::Cancel)].concat();
    let pairs: Vec<u8> = (1..=200).flat_map(pair).collect();
    beside(&server, "Execute and Cancel", &pairs).await;
    eventually("all programs end", || server.programs_running() == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_without_a_reader_end_their_connection() {
    let server = Server::start().await;
    let raw = Raw::connect(&server).await;
    // The client does not read answers. So the socket fills up, requests stay open, and in the end the node disconnects
    // the client because the connection has too many open requests.
    let requests = on_streams(5_000, &Request::Status);
    let flood = async { while raw.socket.write_all(&requests).await.is_ok() {} };
    tokio::time::timeout(PATIENCE, flood).await.expect("the node takes requests without end");
    drop(raw);
    eventually("the connection is gone", || server.node.status().connections == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_leave_clients_their_places() {
    let local = Local::start();
    let mut strangers = Vec::new();
    let mut clients = Vec::new();
    for round in 0..2_000_u32 {
        let stranger = local.dial();
        // Some send nothing, others the beginning of a preface.
        if round % 2 == 0 {
            stranger.write_all(&PREFACE[..round as usize % PREFACE.len()]).await.unwrap();
        }
        strangers.push(Raw::silent(stranger));
        if round % 100 == 0 {
            clients.push(local.connect().await);
        }
    }
    for client in &mut clients {
        client.send(1, &Request::Status).await;
        assert_eq!(client.next().await.unwrap().kind, FrameKind::StatusInfo);
    }
    assert_eq!(local.connections(), clients.len() as u64, "strangers do not count");
    // The oldest unauthenticated connections were closed for newer ones; the newest are still connected.
    let mut buffer = bytes::BytesMut::new();
    let sent_away = strangers.len() - limits::GREETINGS_MAX;
    for stranger in &mut strangers[..sent_away] {
        assert_eq!(stranger.socket.read(&mut buffer).await.unwrap(), 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_beyond_the_limit_are_told_and_strangers_are_not_counted() {
    let local = Local::start();
    let _strangers: Vec<_> = (0..limits::GREETINGS_MAX / 2).map(|_| local.dial()).collect();
    let mut clients = Vec::new();
    for _ in 0..limits::CONNECTIONS_MAX {
        clients.push(local.connect().await);
    }
    let mut late = Raw::silent(local.dial());
    late.socket.write_all(&hello()).await.unwrap();
    late.expect_preface().await;
    let Response::Error(error) = Response::decode(&late.next().await.unwrap(), None).unwrap() else {
        panic!()
    };
    assert!(error.message.contains("1024 connections"), "{error}");
    clients.pop();
    eventually("a place is free", || local.connections() < limits::CONNECTIONS_MAX as u64).await;
    local.connect().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hellos_that_come_a_byte_at_a_time_hold_up_nobody() {
    let server = Server::start().await;
    let bytes = hello();
    let mut slow = Vec::new();
    for _ in 0..100 {
        slow.push(TcpStream::connect(server.address).unwrap());
    }
    for byte in &bytes[..bytes.len() - 1] {
        for socket in &mut slow {
            socket.write_all(&[*byte]).unwrap();
        }
        assert_eq!(server.connect().await.tables().await.unwrap().len(), 0);
    }
    eventually("the slow ones do not count", || server.node.status().connections == 0).await;
    drop(slow);
}

/// Returns the header of a frame of `length` bytes.
fn header(kind: FrameKind, length: u32) -> [u8; 12] {
    FrameHeader { length, kind, more: false, stream: 1 }.encode()
}

#[tokio::test]
async fn half_a_frame_is_not_waited_for_without_end() {
    let local = Local::fast();
    let other = local.connect().await;
    let mut raw = local.connect().await;
    raw.socket.write_all(&header(FrameKind::Execute, 100_000)).await.unwrap();
    raw.socket.write_all(&[7; 10]).await.unwrap();
    // The client gets a ping, does not answer, and is told why it is disconnected.
    assert_eq!(raw.next_of_any_kind().await.unwrap().kind, FrameKind::Ping);
    let message = raw.next_of_any_kind().await.unwrap();
    let Response::Error(error) = Response::decode(&message, None).unwrap() else { panic!() };
    assert_eq!(message.stream, 0);
    assert!(error.message.contains("does not answer: nothing came from it for 90 s"), "{error}");
    assert!(raw.next_of_any_kind().await.is_none());
    drop(other);
    eventually("the connections are gone", || local.connections() == 0).await;
}

#[tokio::test]
async fn a_client_that_answers_is_never_cut_off() {
    let local = Local::fast();
    let mut raw = local.connect().await;
    for _ in 0..20 {
        assert_eq!(raw.next_of_any_kind().await.unwrap().kind, FrameKind::Ping);
        raw.send(0, &Request::Pong).await;
    }
    raw.send(1, &Request::Status).await;
    assert_eq!(raw.next().await.unwrap().kind, FrameKind::StatusInfo);
}

#[tokio::test]
async fn pings_are_answered_whatever_is_under_way() {
    let local = Local::fast();
    let mut raw = local.connect().await;
    raw.load(1, "t", 300_000).await;
    raw.execute(3, "t").await;
    let mut batches = 0;
    while batches < 2 {
        batches += u32::from(raw.next().await.unwrap().kind == FrameKind::Batch);
    }
    raw.send(0, &Request::Ping).await;
    while raw.next().await.expect("a Pong").kind != FrameKind::Pong {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_number_that_is_used_again_leaves_nothing_behind() {
    let server = Server::start().await;
    for _ in 0..20 {
        let mut raw = Raw::connect(&server).await;
        let begin = Request::LoadBegin {
            table: name("t"),
            options: LoadMode::Replace.into(),
            schema: canonical_schema(),
            rows_hint: None,
            id: None,
        };
        // The stream id of a cancelled request is reused by a load, so that the node may try to answer the old request
        // on the new stream.
        let all = [execute("none"), Request::Cancel, begin].map(|request| frames(1, &request)).concat();
        raw.socket.write_all(&all).await.unwrap();
        raw.send(2, &Request::Status).await;
        while raw.next_of_any_kind().await.is_some_and(|message| message.stream != 2) {}
    }
    eventually("nothing is held", || server.node.status().work_bytes_used == 0).await;
}

/// The client stays connected but neither reads nor writes, as if its machine had lost the network.
#[tokio::test]
async fn a_peer_that_vanishes_in_the_middle_of_a_result_takes_its_programs_along() {
    let local = Local::fast();
    let mut raw = local.connect().await;
    raw.load(1, "t", 300_000).await;
    for stream in 2..10 {
        raw.execute(stream, "t").await;
        raw.send(stream, &Request::Credit { bytes: 1 << 30 }).await;
    }
    eventually("its programs wait for it to read", || local.programs_running() == 8).await;
    eventually("its programs end", || local.programs_running() == 0).await;
    eventually("its connection is gone", || local.connections() == 0).await;
    drop(raw);
}

#[tokio::test]
async fn a_result_that_is_not_read_ends_with_an_error_and_its_connection_goes_on() {
    let local = Local::fast();
    let mut raw = local.connect().await;
    raw.load(1, "t", 300_000).await;
    raw.execute(3, "t").await;
    // The client answers pings and reads, but gives no credit.
    let error = loop {
        let message = raw.next().await.expect("the connection goes on");
        match message.kind {
            FrameKind::Prepared | FrameKind::Batch => assert_eq!(message.stream, 3),
            _ => break Response::decode(&message, None).unwrap(),
        }
    };
    let Response::Error(error) = error else { panic!("{error:?}") };
    assert!(error.message.contains("not read for 10 minutes"), "{error}");
    eventually("its program ends", || local.programs_running() == 0).await;
    raw.send(4, &Request::Status).await;
    assert_eq!(raw.next().await.unwrap().kind, FrameKind::StatusInfo);
}

#[tokio::test]
async fn sixty_four_results_that_nobody_reads_end_with_their_connection() {
    let local = Local::fast();
    let mut raw = local.connect().await;
    raw.load(1, "t", 200_000).await;
    for stream in 2..66 {
        raw.execute(stream, "t").await;
    }
    eventually("all are under way", || local.programs_running() == 64).await;
    let mut honest = local.connect().await;
    honest.execute(1, "t").await;
    honest.send(1, &Request::Credit { bytes: 1 << 30 }).await;
    while honest.next().await.expect("a result").kind != FrameKind::Receipt {}
    eventually("all end", || local.programs_running() == 0).await;
    drop(raw);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_finish_in_time_at_a_shutdown_is_told() {
    let mut local = Local::start();
    let mut raw = local.connect().await;
    raw.load(1, "t", 300_000).await;
    raw.execute(3, "t").await;
    // The result waits for credit (flow control) that the client does not give. The test waits until the node has read
    // the request, because an unread request would not delay the shutdown.
    eventually("it is under way", || local.programs_running() == 1).await;
    local.stop.take().unwrap().send(()).unwrap();
    let error = loop {
        let message = raw.next().await.expect("a reason");
        if message.kind == FrameKind::Error {
            break Response::decode(&message, None).unwrap();
        }
    };
    let Response::Error(error) = error else { panic!("{error:?}") };
    assert!(error.message.contains("shutting down"), "{error}");
    tokio::time::timeout(PATIENCE, &mut local.serving).await.expect("hangs").unwrap().unwrap();
    eventually("its program ends", || local.programs_running() == 0).await;
}
