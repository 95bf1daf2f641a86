//! Tests that batches of statements return the same as the statements run one after the other.

use super::{fake::Fake, filled, rows, session, session_at, shown};
use crate::Session;
use crate::batch::Batch;
use farpool_model::{ErrorKind, Result};
use farpool_planner::cost::Rates;
use futures::TryStreamExt;
use proptest::prelude::*;

/// Runs the batch, and returns the rows of each of its statements.
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

/// Filters of the generated statements: some overlap, some share expensive conditions, and some are NULL for some rows.
const FILTERS: [&str; 7] = [
    "",
    "WHERE id < 1500 AND s LIKE 'b%'",
    "WHERE u > 100",
    "WHERE u > 90",
    "WHERE s LIKE 'b%' AND (f > 3 OR b)",
    "WHERE id >= 1400 AND s LIKE 'b%'",
    "WHERE id < 0",
];
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
const OTHERS: [&str; 10] = [
    "SELECT s, k FROM t WHERE u > 100",
    "SELECT k, s FROM t WHERE u > 90",
    "SELECT s, d FROM t WHERE u > 80 AND b",
    "SELECT count(*) FROM (SELECT u FROM t WHERE u > 80 LIMIT 10000)",
    "SELECT median(f) FROM t WHERE s LIKE 'b%'",
    "SELECT k, u FROM t WHERE u > 100 ORDER BY id LIMIT 7",
    "SELECT name, count(*) FROM t JOIN dim USING (k) WHERE u > 100 GROUP BY name",
    "SELECT a.k, b.name FROM dim a JOIN dim b ON a.name = b.name",
    "SELECT DISTINCT k FROM t WHERE u > 100",
    "SELECT id, row_number() OVER (PARTITION BY k ORDER BY id) FROM t",
];

/// Generates statements of few kinds, so that many have something in common.
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

/// Rates of a pool that matches patterns so slowly that no other cost matters.
const SLOW_PATTERNS: Rates = Rates {
    pool_filter_rows: 1e15,
    pool_match_rows: 1e3,
    pool_group_rows: 1e15,
    pool_spread_rows: 1e15,
    pool_text_rows: 1e15,
    decode_bytes: 1e15,
    engine_group_rows: 1e2,
    engine_spread_rows: 1e2,
    engine_text_rows: 1e2,
    engine_top_rows: 1e2,
    pool_build_rows: 1e15,
    pool_probe_rows: 1e15,
    pool_joined_rows: 1e15,
    engine_build_rows: 1e2,
    engine_probe_rows: 1e2,
};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn a_batch_gives_the_answers_of_its_statements(
        statements in prop::collection::vec(statement(), 1..14),
        pushdown in any::<bool>(),
        remote in any::<bool>(),
        slow in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let pool = filled(Fake { remote, ..Fake::default() }).await;
            let rates = if slow { SLOW_PATTERNS } else { Rates::default() };
            let session = session_at(&pool, pushdown, rates).await;
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
        texts.iter().map(|text| text.contains("shared     one program for 2 statements: ")).collect();
    assert_eq!(shared, [true, true, true, false, true]);
    pool.ran.lock().clear();
    for found in taken(session.batch(statements)).await {
        found.unwrap();
    }
    let ran = pool.ran.lock().clone();
    assert_eq!(ran.len(), 3, "{ran:?}");
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

/// If a caller takes statements from a batch but does not read their rows, no other statement is blocked.
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
    // If one program computed the sums of the first two statements, the overflow of the first sum would fail both.
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

#[tokio::test]
async fn what_filters_have_in_common_is_evaluated_once() {
    let pool = filled(Fake { remote: true, ..Fake::default() }).await;
    let session = session_at(&pool, true, SLOW_PATTERNS).await;
    let statements = [
        "SELECT id, s FROM t WHERE s LIKE '%an%' AND u > 100",
        "SELECT s, id, row_number() OVER (ORDER BY id) FROM t WHERE u > 120 AND s LIKE '%an%'",
        "SELECT id FROM t WHERE s LIKE '%an%' AND u > 110",
    ];
    let texts = explained(&session, &statements).await;
    assert!(texts.iter().all(|text| text.contains("one program for 3 statements: ")), "{texts:?}");
    pool.ran.lock().clear();
    let mut batch = session.batch(statements);
    for statement in statements {
        let query = batch.next().await.unwrap().unwrap();
        let found = shown(&query.collect().await.unwrap());
        assert_eq!(sorted(found), sorted(rows(&session, statement).await.unwrap()), "{statement}");
        assert!(query.outcome().starts_with("one program for 3 statements: "), "{}", query.outcome());
    }
    let ran = pool.ran.lock();
    let (together, alone): (Vec<_>, Vec<_>) = ran.iter().partition(|line| line.contains(" OR "));
    assert_eq!((together.len(), alone.len()), (1, 3), "{ran:?}");
}

fn sorted(mut rows: Vec<String>) -> Vec<String> {
    rows.sort();
    rows
}

/// The pool is so slow that statements wait for concurrent ones. The statements of concurrent callers run as one
/// program; a single caller does not wait.
#[tokio::test]
async fn concurrent_callers_of_a_session_share() {
    let slow = Rates { pool_group_rows: 1e4, engine_group_rows: 1e2, ..Rates::default() };
    let pool = filled(Fake::default()).await;
    let session = session_at(&pool, true, slow).await;
    let sql = |n: usize| format!("SELECT k, sum(id) + {n} FROM t WHERE u > 100 GROUP BY k");
    let mut alone = Vec::new();
    for n in 0..4 {
        alone.push(sorted(rows(&session, &sql(n)).await.unwrap()));
    }
    assert_eq!(pool.ran.lock().len(), 4);
    let together = futures::future::join_all((0..4).map(|n| {
        let (session, sql) = (session.clone(), sql(n));
        async move { sorted(rows(&session, &sql).await.unwrap()) }
    }));
    assert_eq!(together.await, alone);
    // When the first statement started, no others were running, so that it did not wait; the others ran as one program.
    let ran = pool.ran.lock().clone();
    assert_eq!(ran.len(), 4 + 2, "{ran:?}");
    // Statements that are dropped while they wait for concurrent ones do not block these.
    let (first, second) =
        (session.sql(sql(0).as_str()).await.unwrap(), session.sql(sql(1).as_str()).await.unwrap());
    let other = session.sql("SELECT id FROM t").await.unwrap().execute().await.unwrap();
    let gone = tokio::time::timeout(std::time::Duration::from_micros(100), first.collect()).await;
    assert!(gone.is_err());
    assert_eq!(sorted(shown(&second.collect().await.unwrap())), alone[1]);
    drop(other);
}
