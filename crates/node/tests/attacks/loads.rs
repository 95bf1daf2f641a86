//! Hostile loads: messages of rows with wrong lengths, that decompress to gigabytes, with many rows and no bytes, or
//! without an end. Each is refused, and the node holds little memory for it.

use super::arrow;
use super::beside_an_honest_client;
use crate::common::*;
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_data::ByteView;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use farpool_model::{Compression, Error, ErrorKind, LoadMode, limits};
use farpool_wire::{FrameHeader, FrameKind, Outgoing, Request, Response, encode_batch};
use std::sync::Arc;

fn schema_of(data_type: DataType) -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("c", data_type, true)]))
}

/// Encodes a `LoadBatch` message (rows of a load) on stream 1, with any body.
fn rows(body: Vec<u8>) -> Vec<u8> {
    Outgoing::new(FrameKind::LoadBatch, vec![body.into()]).unwrap().frames(1).concat()
}

/// Sends a load with the message body `body`; returns whether the node accepts it. Panics if the connection does not
/// survive, or if an honest client does not get its answers in the meantime.
async fn loaded(server: &Server, what: &str, schema: SchemaRef, body: Vec<u8>) -> Result<(), Error> {
    let attack = async {
        let mut raw = Raw::connect(server).await;
        let begin = Request::LoadBegin {
            table: name("x"),
            options: LoadMode::Replace.into(),
            schema,
            rows_hint: None,
            id: None,
        };
        raw.send(1, &begin).await;
        raw.socket.write_all(&rows(body)).await.unwrap();
        raw.send(1, &Request::LoadEnd).await;
        let outcome = loop {
            let message = raw.next().await.expect("an answer");
            match Response::decode(&message, None).unwrap() {
                Response::Credit { .. } => {}
                Response::Loaded(_) => break Ok(()),
                Response::Error(error) => break Err(error),
                other => panic!("{what}: {other:?}"),
            }
        };
        raw.send(2, &Request::Status).await;
        assert_eq!(raw.next().await.expect("an answer").kind, FrameKind::StatusInfo, "after {what}");
        outcome
    };
    beside_an_honest_client(server, what, attack).await
}

async fn is_refused(server: &Server, what: &str, schema: &SchemaRef, body: Vec<u8>, kinds: &[ErrorKind]) {
    let error = loaded(server, what, schema.clone(), body).await.expect_err(what);
    assert!(kinds.contains(&error.kind), "{what}: {error}");
}

async fn server() -> Server {
    let server = Server::start().await;
    load(&server.connect().await, "t", LoadMode::Create, 1000).await.unwrap();
    server
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lengths_that_lie_are_refused() {
    let server = server().await;
    let schema = schema_of(DataType::Int64);
    let values = || (vec![7_u8; 80], 80);
    let sound = arrow::batch(10, &[(10, 0)], &[(vec![], 0), values()], &[]);
    loaded(&server, "ten rows", schema.clone(), sound).await.unwrap();
    let lies: [(&str, Vec<u8>); 8] = [
        ("a longer buffer", arrow::batch(10, &[(10, 0)], &[(vec![], 0), (vec![7; 80], 1 << 40)], &[])),
        ("a negative buffer", arrow::batch(10, &[(10, 0)], &[(vec![], 0), (vec![7; 80], -80)], &[])),
        ("more rows in the column", arrow::batch(10, &[(1 << 40, 0)], &[(vec![], 0), values()], &[])),
        ("more rows in the batch", arrow::batch(1 << 40, &[(10, 0)], &[(vec![], 0), values()], &[])),
        ("negative rows", arrow::batch(-1, &[(-1, 0)], &[(vec![], 0), values()], &[])),
        ("more NULLs than rows", arrow::batch(10, &[(10, 11)], &[(vec![0; 2], 2), values()], &[])),
        ("no column", arrow::batch(10, &[], &[(vec![], 0), values()], &[])),
        ("no buffers", arrow::batch(10, &[(10, 0)], &[], &[])),
    ];
    for (what, body) in lies {
        is_refused(&server, what, &schema, body, &[ErrorKind::Corrupt, ErrorKind::OverLimit]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_that_grow_are_counted_before_they_do() {
    let server = server().await;
    let zeros: ArrayRef = Arc::new(Int64Array::from(vec![0; 1 << 20]));
    let batch = RecordBatch::try_new(schema_of(DataType::Int64), vec![zeros]).unwrap();
    for form in [Compression::Lz4, Compression::Zstd] {
        let encoded = encode_batch(FrameKind::LoadBatch, &batch, Some(form)).unwrap();
        let message = encoded.messages.into_iter().next().unwrap();
        // The first piece is the frame header; the rest is the message body.
        let sound = message.frames(1)[1..].concat();
        assert!(sound.len() < 64 << 10, "{form:?}");
        let length = (8_u64 << 20).to_le_bytes();
        let at = sound.windows(8).position(|window| window == length).unwrap();
        for claimed in [300_u64 << 20, u64::MAX >> 1, 1 << 63, (8 << 20) - 1, (8 << 20) + 1, 200 << 20] {
            let mut bomb = sound.clone();
            bomb[at..at + 8].copy_from_slice(&claimed.to_le_bytes());
            let what = format!("{form:?} that says it has {claimed} bytes");
            let kinds = [ErrorKind::Corrupt, ErrorKind::OverLimit];
            is_refused(&server, &what, batch.schema_ref(), bomb, &kinds).await;
        }
        loaded(&server, "zeros", batch.schema(), sound).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strings_that_share_bytes_are_counted_each() {
    let server = server().await;
    let schema = schema_of(DataType::Utf8View);
    let text = vec![b'x'; 64 << 10];
    let shared = |rows: usize, start: u32, length: u32| {
        let view = ByteView::new(length, b"xxxx").with_offset(start).as_u128().to_le_bytes();
        let buffers = [(vec![], 0), (view.repeat(rows), 16 * rows as i64), (text.clone(), 64 << 10)];
        arrow::batch(rows as i64, &[(rows as i64, 0)], &buffers, &[1])
    };
    let rows = limits::MESSAGE_BYTES_MAX / text.len() + 1;
    let over = [ErrorKind::OverLimit];
    is_refused(&server, "4097 rows of the same 64 KiB", &schema, shared(rows, 0, 64 << 10), &over).await;
    let corrupt = [ErrorKind::Corrupt];
    is_refused(&server, "a string beyond its buffer", &schema, shared(3, 1, 64 << 10), &corrupt).await;
    is_refused(&server, "a string of 4 GiB", &schema, shared(3, 0, u32::MAX), &[corrupt[0], over[0]]).await;
    loaded(&server, "strings that overlap", schema.clone(), shared(20, 5, 1000)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_and_buffers_without_bytes_are_bounded() {
    let server = server().await;
    let schema = schema_of(DataType::Utf8View);
    let kinds = [ErrorKind::Corrupt, ErrorKind::OverLimit, ErrorKind::Invalid];
    let buffers = vec![(vec![], 0); limits::MESSAGE_BUFFERS_MAX + 2];
    let many = arrow::batch(1, &[(1, 0)], &buffers, &[limits::MESSAGE_BUFFERS_MAX as i64]);
    is_refused(&server, "buffers without bytes", &schema, many, &kinds).await;
    let uncounted = arrow::batch(1, &[(1, 0)], &[(vec![], 0), (vec![0; 16], 16)], &[i64::MAX]);
    is_refused(&server, "2^63 buffers", &schema, uncounted, &kinds).await;
    let rows = limits::MESSAGE_ROWS_MAX as i64 + 1;
    let rows = arrow::batch(rows, &[], &[], &[]);
    is_refused(&server, "rows without columns", &Arc::new(Schema::empty()), rows, &kinds).await;
}

/// A client that sends only the first byte of messages, on many streams, so that the node holds them all as incomplete.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_are_left_incomplete_are_bounded() {
    let server = server().await;
    let pool = server.connect().await;
    let part = |kind, stream: u32| {
        let header = FrameHeader { length: 1, kind, more: true, stream };
        [&header.encode()[..], &[0]].concat()
    };
    let mut silent = Vec::new();
    for kind in [FrameKind::Execute, FrameKind::Prepare, FrameKind::LoadBegin] {
        for _ in 0..20 {
            let raw = Raw::connect(&server).await;
            let streams = 1..=limits::STREAMS_PER_CONNECTION_MAX as u32 / 2;
            raw.socket
                .write_all(&streams.flat_map(|stream| part(kind, stream)).collect::<Vec<u8>>())
                .await
                .unwrap();
            silent.push(raw);
        }
        assert_eq!(counted(&pool, "t", 7).await.unwrap().0, 7, "beside {kind:?} without ends");
        // A client with more incomplete messages than the limit allows is disconnected.
        let mut raw = Raw::connect(&server).await;
        let parts: Vec<u8> = (1..10_000).flat_map(|stream| part(kind, stream)).collect();
        drop(raw.socket.write_all(&parts).await);
        let end = async { while raw.next().await.is_some() {} };
        tokio::time::timeout(PATIENCE, end).await.expect("messages without end are taken in without end");
    }
    drop((silent, pool));
    eventually("nothing is left of them", || server.node.status().connections == 0).await;
}
