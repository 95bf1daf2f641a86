//! Tests that programs with lookups are sent to nodes only that take them.

use super::fake::{self, Peer};
use crate::Pool;
use farpool_model::{ErrorKind, Lookup, LookupKey, LookupKind, Program};
use farpool_wire::FrameKind;
use parking_lot::Mutex;
use std::sync::Arc;

fn with_lookup() -> Program {
    let lookup = Lookup {
        kind: LookupKind::Semi,
        program: fake::scan(),
        table_schema: fake::schema(),
        given: None,
        keys: vec![LookupKey { row: 0, result: 0 }],
        residual: None,
        mark: "mark".to_string(),
    };
    Program { lookups: vec![lookup], ..fake::scan() }
}

/// Answers every request, and records its kind.
async fn answer(mut peer: Peer, asked: Arc<Mutex<Vec<FrameKind>>>) {
    use farpool_wire::Response;
    while let Some(message) = peer.receive().await {
        asked.lock().push(message.kind);
        let response = match message.kind {
            FrameKind::Table => Response::Table(fake::table()),
            FrameKind::Prepare => fake::prepared(),
            _ => continue,
        };
        peer.send(message.stream, &response).await;
    }
}

#[tokio::test]
async fn a_node_that_does_not_take_lookups_is_never_sent_one() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let records = asked.clone();
    let pool = fake::pool(move |peer| answer(peer, records.clone())).await;
    assert!(!pool.takes_lookups());
    let errors = [
        pool.prepare(&with_lookup(), &fake::schema()).await.map(drop).unwrap_err(),
        pool.execute(&with_lookup(), 1).await.map(drop).unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind, ErrorKind::Invalid, "{error}");
        assert!(error.message.contains("does not know lookups") && error.advice.is_some(), "{error}");
    }
    // Other programs are sent.
    pool.prepare(&fake::scan(), &fake::schema()).await.unwrap();
    assert_eq!(*asked.lock(), [FrameKind::Table, FrameKind::Prepare]);
}

#[tokio::test]
async fn a_node_that_takes_lookups_is_sent_them() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let records = asked.clone();
    let pool = fake::pool_with_lookups(move |peer| answer(peer, records.clone())).await;
    assert!(pool.takes_lookups());
    pool.prepare(&with_lookup(), &fake::schema()).await.unwrap();
    assert_eq!(*asked.lock(), [FrameKind::Prepare]);
}
