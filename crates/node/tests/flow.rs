//! Tests of flow control (a node sends rows only as far as the client has granted credit) and of fairness between
//! streams, with a client that grants exactly what a test says.

use crate::common::*;
use farpool_model::{LoadMode, limits};
use farpool_transfer::Pool;
use farpool_wire::{FrameKind, Message, Request, Response};
use tokio::time::timeout;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_sends_no_more_than_the_client_has_room_for() {
    let server = Server::start().await;
    load(&server.connect().await, "t", LoadMode::Create, 600_000).await.unwrap();
    let mut raw = Raw::connect(&server).await;
    raw.execute(1, "t").await;
    let window = u64::try_from(limits::STREAM_WINDOW_BYTES).unwrap();
    let received = timeout(PATIENCE, to_the_end(&mut raw, window)).await.expect("the program ends");
    assert!(received > 3 * window, "the test needs a larger table");
    eventually("the program ends", || server.programs_running() == 0).await;
}

/// Reads stream 1 until its receipt (the end of the result); returns the bytes of its batches. Grants `window` bytes of
/// credit whenever the node has used up its credit and sends nothing more.
async fn to_the_end(raw: &mut Raw, window: u64) -> u64 {
    let (mut received, mut largest, mut granted) = (0, 0, window);
    loop {
        // While there is credit, a message must arrive: rows, or the end. Without credit, nothing or the end may
        // arrive.
        let message = match received < granted {
            true => Some(raw.next().await.expect("the node is there")),
            false => raw.next_soon().await,
        };
        let Some(message) = message else {
            raw.send(1, &Request::Credit { bytes: window }).await;
            granted += window;
            continue;
        };
        match message.kind {
            FrameKind::Batch => {
                received += message.bytes_on_wire;
                largest = largest.max(message.bytes_on_wire);
                assert!(received < granted + largest, "{received} of {granted}");
            }
            FrameKind::Prepared => {}
            FrameKind::Receipt => return received,
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_does_not_read_stalls_only_itself() {
    let server = Server::start().await;
    let pool = server.connect().await;
    load(&pool, "t", LoadMode::Create, 600_000).await.unwrap();
    let mut stuck = Vec::new();
    for _ in 0..4 {
        let mut raw = Raw::connect(&server).await;
        for stream in 1..=20 {
            raw.execute(stream, "t").await;
            // More credit than the socket buffers hold. The node must not queue rows in memory that the client does not
            // read.
            raw.send(stream, &Request::Credit { bytes: 1 << 32 }).await;
        }
        stuck.push(raw);
    }
    eventually("all are under way", || server.programs_running() == 80).await;
    for _ in 0..20 {
        assert_eq!(counted(&pool, "t", 1000).await.unwrap().0, 1000);
    }
    let rows: usize = run(&pool, &scan("t")).await.unwrap().iter().map(|b| b.num_rows()).sum();
    assert_eq!(rows, 600_000);
    // All 80 programs are still running, so the node does not hold their whole results in memory.
    assert_eq!(server.programs_running(), 80);
    drop(stuck);
    eventually("their programs end", || server.programs_running() == 0).await;
}

/// All rows of the program are computed, and the last of them wait for credit. The program must end when the client
/// cancels the stream or disconnects.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_whose_rows_are_all_made_ends_with_its_stream() {
    let server = Server::start().await;
    let pool = server.connect().await;
    for rows in [100_000, 131_072, 140_000, 160_000, 196_608] {
        load(&pool, "t", LoadMode::Replace, rows).await.unwrap();
        for gone in [false, true] {
            let mut raw = Raw::connect(&server).await;
            raw.execute(1, "t").await;
            while raw.next_soon().await.is_some() {}
            if server.programs_running() == 0 {
                continue;
            }
            if !gone {
                raw.send(1, &Request::Cancel).await;
                eventually("the cancelled program ends", || server.programs_running() == 0).await;
            }
            drop(raw);
            eventually("the program of a client that is gone ends", || server.programs_running() == 0).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_of_one_connection_do_not_wait_for_one_another() {
    let server = Server::start().await;
    load(&server.connect().await, "t", LoadMode::Create, 600_000).await.unwrap();
    let mut raw = Raw::connect(&server).await;
    // The results on streams 1 and 2 use up their credit and stop. The small answer on stream 3 must arrive
    // nevertheless.
    raw.execute(1, "t").await;
    raw.execute(2, "t").await;
    while raw.next_soon().await.is_some() {}
    raw.send(3, &Request::Tables { tenant: None, with_schemas: true }).await;
    let message = answer_behind_rows(&mut raw).await;
    assert_eq!((message.kind, message.stream), (FrameKind::TableList, 3));
    raw.send(2, &Request::Cancel).await;
    eventually("one program ends", || server.programs_running() == 1).await;
    // A stream id may be reused as soon as the client has cancelled the stream.
    raw.send(2, &Request::Status).await;
    let message = answer_behind_rows(&mut raw).await;
    assert_eq!((message.kind, message.stream), (FrameKind::StatusInfo, 2));
}

/// Returns the next message that carries no rows.
async fn answer_behind_rows(raw: &mut Raw) -> Message {
    loop {
        let message = timeout(PATIENCE, raw.next()).await.expect("a word").expect("an answer");
        if message.kind != FrameKind::Batch {
            return message;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_many_requests_at_once_end_the_connection() {
    let server = Server::start().await;
    load(&server.connect().await, "t", LoadMode::Create, 600_000).await.unwrap();
    let mut raw = Raw::connect(&server).await;
    for stream in 1..=u32::try_from(limits::STREAMS_PER_CONNECTION_MAX).unwrap() + 1 {
        raw.execute(stream, "t").await;
    }
    let mut last = None;
    while let Some(message) = timeout(PATIENCE, raw.next()).await.expect("the node hangs up") {
        last = Some(message);
    }
    let last = last.expect("a message");
    assert_eq!((last.kind, last.stream), (FrameKind::Error, 0));
    let Response::Error(error) = Response::decode(&last, None).unwrap() else { panic!() };
    assert!(error.message.contains("64"), "{error}");
    eventually("everything ends", || server.programs_running() == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_beyond_the_credit_of_a_load_are_not_taken() {
    let server = Server::start().await;
    let mut raw = Raw::connect(&server).await;
    let schema = farpool_model::schema::canonical_schema(&batch(0, 0).schema()).unwrap();
    let begin = Request::LoadBegin {
        table: name("t"),
        options: LoadMode::Create.into(),
        schema,
        rows_hint: None,
        id: None,
    };
    raw.send(1, &begin).await;
    let part = frames(1, &Request::LoadBatch(canonical_batch(0, 50_000)));
    // Sends far more than the load's credit (its window), without reading answers. The node may disconnect in the
    // middle.
    for _ in 0..400 {
        if raw.socket.write_all(&part).await.is_err() {
            break;
        }
    }
    let mut kinds = Vec::new();
    while let Some(message) = timeout(PATIENCE, raw.next()).await.expect("the node hangs up") {
        kinds.push((message.kind, message.stream));
    }
    assert_eq!(kinds.last(), Some(&(FrameKind::Error, 0)));
    eventually("its pages come back", || server.memory_used() == 0).await;
    assert_eq!(server.connect().await.tables().await.unwrap(), vec![]);
}
