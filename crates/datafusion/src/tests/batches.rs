//! Batches of statements against the same statements one after the other.

use super::{fake::Fake, filled, rows, session, shown};
use crate::Session;
use crate::batch::Batch;
use farpool_model::{ErrorKind, Result};
use futures::TryStreamExt;
use proptest::prelude::*;

/// The rows of each statement.
async fn taken(mut batch: Batch) -> Vec<Result<Vec<String>>> {
    let mut all = Vec::new();
    while let Some(query) = batch.next().await {
        all.push(match query {
            Ok(query) => query.collect().await.map(|batches| shown(&batches)),
            Err(error) => Err(error),
        });
    }
    all
}

async fn explained(session: &Session, statements: &[&str]) -> Vec<String> {
    let mut batch = session.batch(statements.iter().copied());
    let mut all = Vec::new();
    while let Some(query) = batch.next().await {
        all.push(query.unwrap().explain());
    }
    all
}

const FILTERS: [&str; 3] = ["", "WHERE id < 1500 AND s LIKE 'b%'", "WHERE u > 100"];
const COLUMNS: [&str; 8] = [
    "count(*)",
    "sum(id), min(s)",
    "max(f), sum(id)",
    "avg(d), count(b)",
    "sum(id) FILTER (WHERE b)",
    "approx_distinct(u)",
    "min(ts), max(day)",
    "stddev(f)",
];
const OTHERS: [&str; 6] = [
    "SELECT s, k FROM t WHERE u > 100",
    "SELECT k, u FROM t WHERE u > 100 ORDER BY id LIMIT 7",
    "SELECT name, count(*) FROM t JOIN dim USING (k) WHERE u > 100 GROUP BY name",
    "SELECT a.k, b.name FROM dim a JOIN dim b ON a.name = b.name",
    "SELECT DISTINCT k FROM t WHERE u > 100",
    "SELECT id, row_number() OVER (PARTITION BY k ORDER BY id) FROM t",
];

/// A statement of few kinds, so that many have something in common.
fn statement() -> impl Strategy<Value = String> {
    let grouped =
        (0..COLUMNS.len(), 0..FILTERS.len(), any::<bool>()).prop_map(|(columns, filter, is_grouped)| {
            let (columns, filter) = (COLUMNS[columns], FILTERS[filter]);
            match is_grouped {
                true => format!("SELECT k, {columns} FROM t {filter} GROUP BY k"),
                false => format!("SELECT {columns} FROM t {filter}"),
            }
        });
    prop_oneof![2 => grouped, 1 => prop::sample::select(&OTHERS[..]).prop_map(str::to_string)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn a_batch_gives_the_answers_of_its_statements(
        statements in prop::collection::vec(statement(), 1..14),
        pushdown in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let pool = filled(Fake::default()).await;
            let session = session(&pool, pushdown).await;
            let together = taken(session.batch(statements.iter().map(String::as_str))).await;
            assert_eq!(together.len(), statements.len());
            for (statement, found) in statements.iter().zip(together) {
                let (mut found, mut expected) = (found.unwrap(), rows(&session, statement).await.unwrap());
                found.sort();
                expected.sort();
                assert_eq!(found, expected, "{statement}");
            }
        });
    }
}

#[tokio::test]
async fn what_several_read_alike_is_read_once() {
    let pool = filled(Fake::default()).await;
    let session = session(&pool, true).await;
    let statements = [
        "SELECT sum(id) FROM t WHERE u > 100",
        "SELECT k, min(u) FROM t WHERE u > 100 GROUP BY k",
        "SELECT max(id), count(*) FROM t WHERE u > 100",
        "SELECT sum(id) FROM t WHERE u > 101",
        "SELECT k, max(u), count(*) FROM t WHERE u > 100 GROUP BY k",
    ];
    let texts = explained(&session, &statements).await;
    let shared: Vec<bool> =
        texts.iter().map(|text| text.contains("shared     one program for 2 of this batch")).collect();
    assert_eq!(shared, [true, true, true, false, true]);
    pool.ran.lock().clear();
    for found in taken(session.batch(statements)).await {
        found.unwrap();
    }
    assert_eq!(pool.ran.lock().len(), 3, "{:?}", pool.ran.lock());
}

#[tokio::test]
async fn statements_that_change_something_keep_their_place() {
    let pool = filled(Fake::default()).await;
    let session = session(&pool, true).await;
    let found = taken(session.batch([
        "SELECT count(*) FROM t",
        "CREATE TABLE few AS SELECT id FROM t WHERE id < 10",
        "SELECT count(*) FROM few",
        "SELECT no FROM few",
        "DROP TABLE few",
        "SELECT count(*) FROM few",
    ]))
    .await;
    let counts: Vec<_> = [0, 2].map(|at: usize| found[at].as_ref().unwrap().clone()).into();
    assert_eq!(counts, [["2100"], ["10"]]);
    assert_eq!(found[3].as_ref().unwrap_err().kind, ErrorKind::NotFound);
    assert_eq!(found[5].as_ref().unwrap_err().kind, ErrorKind::NotFound);
}

/// Whoever takes statements and leaves their rows keeps no other from its rows.
#[tokio::test]
async fn rows_that_nobody_takes_stop_no_other_statement() {
    let pool = filled(Fake::default()).await;
    let session = session(&pool, true).await;
    let mut batch = session.batch([
        "SELECT * FROM t",
        "SELECT max(id) FROM t WHERE u > 100",
        "SELECT * FROM t a JOIN t b ON a.id = b.id",
        "SELECT min(id) FROM t WHERE u > 100",
    ]);
    let mut open = Vec::new();
    for _ in 0..3 {
        let query = batch.next().await.unwrap().unwrap();
        let mut rows = query.execute().await.unwrap();
        if open.is_empty() {
            rows.try_next().await.unwrap();
        }
        open.push((query, rows));
    }
    let last = batch.next().await.unwrap().unwrap();
    assert_eq!(last.collect().await.unwrap().len(), 1);
    let (_, rest) = open.pop().unwrap();
    let joined: usize =
        rest.try_collect::<Vec<_>>().await.unwrap().iter().map(|batch| batch.num_rows()).sum();
    assert_eq!(joined, 2100);
}

#[tokio::test]
async fn an_error_of_one_is_not_that_of_another() {
    let pool = filled(Fake::default()).await;
    let session = session(&pool, true).await;
    // Both sums would be computed by one program, which the first makes fail.
    let found = taken(session.batch([
        "SELECT sum(id * 9000000000000000) FROM t",
        "SELECT sum(id) FROM t",
        "SELECT 1 / (min(id) - min(id)) FROM t",
        "SELECT min(id) FROM t",
    ]))
    .await;
    let is_right: Vec<bool> = found.iter().map(Result::is_ok).collect();
    assert_eq!(is_right, [false, true, false, true]);
}
