//! Tests that nodes are sent only programs with parts that they take.

use super::fake::{self, Peer};
use crate::{Pool, Takes};
use farpool_model::{ErrorKind, Expr, Lookup, LookupKey, LookupKind, Output, Program};
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

/// A program with a condition on groups.
fn with_having() -> Program {
    let scan = fake::scan();
    let Output::Rows(keys) = scan.output else { unreachable!("a scan returns rows") };
    let having = Some(Expr::IsNull(Box::new(Expr::Column(0))));
    Program { output: Output::Aggregate { keys, aggregates: Vec::new() }, having, ..fake::scan() }
}

#[tokio::test]
async fn a_node_is_never_sent_what_it_does_not_take() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let records = asked.clone();
    let pool = fake::pool(move |peer| answer(peer, records.clone())).await;
    assert_eq!(pool.takes(), Takes::default());
    for (program, part) in [(with_lookup(), "lookups"), (with_having(), "conditions on groups")] {
        let errors = [
            pool.prepare(&program, &fake::schema()).await.map(drop).unwrap_err(),
            pool.execute(&program, 1).await.map(drop).unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.kind, ErrorKind::Invalid, "{error}");
            assert!(error.message.contains(&format!("does not know {part}")), "{error}");
            assert!(error.advice.is_some(), "{error}");
        }
    }
    // Other programs are sent.
    pool.prepare(&fake::scan(), &fake::schema()).await.unwrap();
    assert_eq!(*asked.lock(), [FrameKind::Table, FrameKind::Table, FrameKind::Prepare]);
}

#[tokio::test]
async fn a_lookup_with_a_part_that_the_node_does_not_take_is_not_sent() {
    let takes = Takes { lookups: true, having: false };
    let pool = fake::pool_that_takes(takes, |peer| answer(peer, Arc::default())).await;
    let mut program = with_lookup();
    program.lookups[0].program = with_having();
    let error = pool.prepare(&program, &fake::schema()).await.map(drop).unwrap_err();
    assert!(error.message.contains("conditions on groups"), "{error}");
}

#[tokio::test]
async fn a_node_is_sent_what_it_takes() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let records = asked.clone();
    let pool = fake::pool_that_takes(Takes::ALL, move |peer| answer(peer, records.clone())).await;
    assert_eq!(pool.takes(), Takes::ALL);
    let _first = pool.prepare(&with_lookup(), &fake::schema()).await.unwrap();
    let _second = pool.prepare(&with_having(), &fake::schema()).await.unwrap();
    assert_eq!(*asked.lock(), [FrameKind::Prepare, FrameKind::Prepare]);
}
