//! Tests of a client whose node stops answering (the client gives up after a time limit), and whose node is slow but
//! answers pings (the client waits).

use super::fake::*;
use crate::Pool;
use crate::remote::connection::Patience;
use farpool_model::{ErrorKind, Listing};
use farpool_wire::{FrameKind, Response};
use std::time::Duration;

const SHORT: Duration = Duration::from_millis(20);
const LONG: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn a_node_that_does_not_even_answer_a_ping_is_given_up() {
    let patience = Patience { ping_after: SHORT, pong_max: SHORT, ..Patience::default() };
    let pool = pool_with(patience, |mut peer| async move {
        peer.receive_kind(FrameKind::Ping).await;
        assert!(peer.receive().await.is_none(), "one ping, and then nothing");
    })
    .await;
    let error = tokio::time::timeout(LONG, pool.tables()).await.expect("hangs").unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert!(error.message.contains("does not answer: nothing came for"), "{error}");
    assert!(error.advice.unwrap().contains("try again"));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_answers_pings_may_take_as_long_as_it_likes() {
    let patience = Patience { ping_after: SHORT, pong_max: LONG, ..Patience::default() };
    let pool = pool_with(patience, |mut peer| async move {
        let stream = peer.receive_kind(FrameKind::Tables).await.stream;
        for _ in 0..20 {
            peer.receive_kind(FrameKind::Ping).await;
            peer.send(0, &Response::Pong).await;
        }
        peer.send(stream, &Response::Tables(Listing { tables: vec![table()], ..Listing::default() })).await;
        peer.closed().await;
    })
    .await;
    assert_eq!(pool.tables().await.unwrap(), [table()]);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_answers_nothing_but_pings_is_given_up_in_the_end() {
    let patience = Patience { ping_after: SHORT, pong_max: LONG, answer_max: 10 * SHORT };
    for of_node in [true, false] {
        let pool = pool_with(patience, move |mut peer| async move {
            while peer.receive().await.is_some() {
                // Sleeps so that tokio's paused clock advances, which it does only while all tasks wait.
                tokio::time::sleep(SHORT / 10).await;
                let sent = if of_node { Response::Ping } else { Response::Pong };
                peer.send(0, &sent).await;
            }
        })
        .await;
        let error = tokio::time::timeout(LONG, pool.tables()).await.expect("hangs").unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unavailable);
        assert!(error.message.contains("not what it was asked"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_expected_of_a_node_that_was_asked_nothing() {
    let patience = Patience { ping_after: SHORT, pong_max: SHORT, ..Patience::default() };
    let pool = pool_with(patience, |mut peer| async move {
        let message = peer.receive().await.unwrap();
        assert_eq!(message.kind, FrameKind::Tables, "no ping");
        peer.send(message.stream, &Response::Tables(Listing::default())).await;
        peer.closed().await;
    })
    .await;
    tokio::time::sleep(10 * SHORT).await;
    assert_eq!(pool.tables().await.unwrap(), []);
}

#[tokio::test(start_paused = true)]
async fn the_client_answers_pings() {
    let pool = pool(|mut peer| async move {
        let stream = peer.receive_kind(FrameKind::Tables).await.stream;
        for _ in 0..3 {
            peer.send(0, &Response::Ping).await;
            assert_eq!(peer.receive().await.unwrap().kind, FrameKind::Pong);
        }
        peer.send(stream, &Response::Tables(Listing { tables: vec![table()], ..Listing::default() })).await;
        peer.closed().await;
    })
    .await;
    assert_eq!(pool.tables().await.unwrap(), [table()]);
}
