//! Tests of a client whose node violates the protocol: the connection ends with an error that says so, and the client
//! holds little memory.

use super::fake::*;
use crate::Pool;
use crate::remote::RemotePool;
use crate::remote::connection::Patience;
use farpool_model::{Error, ErrorKind, Listing, LoadMode, limits};
use farpool_wire::{FrameKind, Response};
use std::time::Duration;
use tokio::time::timeout;

/// The longest that anything may take before a test counts as hanging.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns the error of a request whose node answers the first message of kind `request` with `answer`, on the stream
/// whose id is the request's plus `offset`.
async fn error_of(request: FrameKind, offset: u32, answer: Vec<Response>) -> Error {
    let pool = pool(move |mut peer| {
        let answer = answer.clone();
        async move {
            let stream = peer.receive_kind(request).await.stream;
            let bytes = answer.iter().flat_map(|response| frames(stream.wrapping_add(offset), response));
            peer.write(&bytes.collect::<Vec<u8>>()).await;
            timeout(PATIENCE, peer.closed()).await.expect("the client does not hang up");
        }
    })
    .await;
    let outcome = timeout(PATIENCE, ask(&pool, request)).await.expect("hangs");
    outcome.expect_err("the node broke the rules")
}

async fn ask(pool: &RemotePool, request: FrameKind) -> farpool_model::Result<()> {
    pool.schemas.lock().insert(table_name(), schema());
    match request {
        FrameKind::Execute => count(pool.execute(&scan(), 1).await?).await.map(drop),
        FrameKind::Prepare => pool.prepare(&scan(), &schema()).await.map(drop),
        FrameKind::Tables => pool.tables().await.map(drop),
        FrameKind::Status => pool.status().await.map(drop),
        FrameKind::Drop => pool.drop_table(&table_name()).await,
        FrameKind::LoadBegin => {
            let never = futures::stream::pending();
            pool.load(&table_name(), LoadMode::Create.into(), schema(), None, Box::pin(never)).await.map(drop)
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn answers_that_do_not_belong_where_they_come_are_errors() {
    let error = || Response::Error(Error::invalid("no"));
    let batch = || Response::Batch(rows(10));
    for (request, answer, expected) in [
        (FrameKind::Execute, vec![receipt()], "Receipt does not answer Execute"),
        (FrameKind::Execute, vec![batch()], "Batch does not answer Execute"),
        (FrameKind::Execute, vec![prepared(), prepared()], "Prepared where Execute goes on"),
        (FrameKind::Execute, vec![Response::Credit { bytes: 0 }], "Credit does not answer Execute"),
        (FrameKind::Prepare, vec![batch()], "Batch does not answer Prepare"),
        (FrameKind::Tables, vec![Response::Done(FrameKind::Dropped)], "Dropped does not answer Tables"),
        (FrameKind::Status, vec![receipt()], "Receipt does not answer Status"),
        (FrameKind::Drop, vec![Response::Loaded(table())], "Loaded does not answer Drop"),
        (FrameKind::LoadBegin, vec![Response::Loaded(table())], "Loaded does not answer LoadBegin"),
        (FrameKind::LoadBegin, vec![Response::Credit { bytes: 1 }], "of which only 0 were sent"),
    ] {
        let error = error_of(request, 0, answer).await;
        assert_eq!(error.kind, ErrorKind::Corrupt, "{error}");
        assert!(error.message.contains(expected), "{error}");
        assert!(error.message.contains("farpool://fake:1"), "{error}");
    }
    // A message after the last answer to a request ends the connection, and so all requests on it.
    for (answer, expected) in [
        (vec![prepared(), receipt(), receipt()], "Receipt after Execute had its last answer"),
        (vec![prepared(), error(), error()], "Error after Execute had its last answer"),
    ] {
        let pool = pool(move |mut peer| {
            let answer = answer.clone();
            async move {
                let other = peer.receive_kind(FrameKind::Tables).await.stream;
                assert_ne!(other, peer.receive_kind(FrameKind::Execute).await.stream);
                let bytes = answer.iter().flat_map(|response| frames(other + 1, response));
                peer.write(&bytes.collect::<Vec<u8>>()).await;
                peer.closed().await;
            }
        })
        .await;
        let (other, _) = tokio::join!(pool.tables(), ask(&pool, FrameKind::Execute));
        let other = other.unwrap_err();
        assert!(other.message.contains(expected), "{other}");
    }
}

#[tokio::test(start_paused = true)]
async fn streams_that_nobody_opened_are_errors() {
    let error = error_of(FrameKind::Execute, 7, vec![prepared()]).await;
    assert_eq!(error.kind, ErrorKind::Corrupt);
    assert!(error.message.contains("Prepared on stream 8, which is not open"), "{error}");
    // An answer on stream 0, which stands for the connection itself (the id wraps around).
    let error = error_of(FrameKind::Execute, u32::MAX, vec![prepared()]).await;
    assert!(error.message.contains("Prepared without a request"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn rows_beyond_the_credit_end_the_connection() {
    let pool = pool(|mut peer| async move {
        let stream = peer.receive_kind(FrameKind::Execute).await.stream;
        peer.send(stream, &prepared()).await;
        // The node sends far more rows than the client has granted credit for (flow control).
        let batch = frames(stream, &Response::Batch(rows(100_000)));
        let mut sent = 0;
        while sent < 64 * limits::STREAM_WINDOW_BYTES && peer.write(&batch).await {
            sent += batch.len();
        }
        peer.closed().await;
    })
    .await;
    pool.schemas.lock().insert(table_name(), schema());
    let execution = pool.execute(&scan(), 1).await.unwrap();
    // The connection ends although no task of the client reads the result.
    let another =
        async { while pool.tables().await.is_err_and(|e| !e.message.contains("beyond the credit")) {} };
    timeout(PATIENCE, another).await.expect("the client takes everything in");
    let error = count(execution).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Corrupt);
    assert!(error.message.contains("rows of a result beyond the credit"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn messages_that_never_end_are_bounded() {
    let pool = pool(|mut peer| async move {
        let stream = peer.receive_kind(FrameKind::Tables).await.stream;
        let mut part = frame(stream, FrameKind::TableList, &vec![0; limits::FRAME_BYTES_MAX]);
        part[5] = 1;
        while peer.write(&part).await {}
    })
    .await;
    let error = timeout(PATIENCE, pool.tables()).await.expect("hangs").unwrap_err();
    assert_eq!(error.kind, ErrorKind::OverLimit);
    assert!(error.message.contains("a TableList message may have"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_greeting_is_small() {
    let dialer = dialer(Patience::default(), |mut peer| async move {
        peer.write(&farpool_wire::PREFACE).await;
        let mut part = frame(1, FrameKind::Batch, &vec![0; limits::FRAME_BYTES_MAX]);
        part[5] = 1;
        while peer.write(&part).await {}
    });
    let error = timeout(PATIENCE, dialer.dial()).await.expect("hangs").unwrap_err();
    assert_eq!(error.kind, ErrorKind::Corrupt);
    assert!(error.message.contains("greets with Batch on stream 1"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn what_is_under_way_on_a_cancelled_stream_is_passed_over() {
    let pool = pool(|mut peer| async move {
        let stream = peer.receive_kind(FrameKind::Execute).await.stream;
        peer.send(stream, &prepared()).await;
        peer.receive_kind(FrameKind::Cancel).await;
        // Rows beyond the credit are ignored and no error here, because the client has cancelled the stream.
        for _ in 0..10 {
            peer.send(stream, &Response::Batch(rows(100_000))).await;
        }
        let stream = peer.receive_kind(FrameKind::Tables).await.stream;
        peer.send(stream, &Response::Tables(Listing { tables: vec![table()], ..Listing::default() })).await;
        peer.closed().await;
    })
    .await;
    pool.schemas.lock().insert(table_name(), schema());
    drop(pool.execute(&scan(), 1).await.unwrap());
    assert_eq!(pool.tables().await.unwrap(), [table()]);
}

#[tokio::test(start_paused = true)]
async fn a_load_stops_where_the_credit_of_the_node_ends() {
    let (tell, told) = tokio::sync::oneshot::channel();
    let tell = std::sync::Arc::new(parking_lot::Mutex::new(Some(tell)));
    let pool = pool(move |mut peer| {
        let tell = tell.clone();
        async move {
            let stream = peer.receive_kind(FrameKind::LoadBegin).await.stream;
            let mut received = 0;
            while received < limits::STREAM_WINDOW_BYTES as u64 {
                received += peer.receive_kind(FrameKind::LoadBatch).await.bytes_on_wire;
            }
            let more = timeout(Duration::from_millis(100), peer.receive()).await;
            tell.lock().take().unwrap().send(more.is_ok()).unwrap();
            peer.send(stream, &Response::Error(Error::over_limit("enough"))).await;
            peer.closed().await;
        }
    })
    .await;
    let endless = Box::pin(futures::stream::repeat_with(|| Ok(rows(60_000))));
    let table = table_name();
    let load = pool.load(&table, LoadMode::Create.into(), schema(), None, endless);
    let error = timeout(PATIENCE, load).await.expect("hangs").unwrap_err();
    assert_eq!(error.message, "enough");
    assert!(!told.await.unwrap(), "rows came beyond the credit");
}
