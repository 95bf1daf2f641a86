//! Tests that expensive statements, each of which would compute for minutes, end at their time limit, by an interrupt,
//! and when their rows are dropped. The tests assert no durations; a statement that does not end fails after [`GUARD`].

#![expect(
    clippy::disallowed_methods,
    reason = "a statement that does not end must not keep the thread of the test"
)]

use crate::{Interrupt, Session, SessionOptions};
use farpool_memory::WorkMemory;
use farpool_model::ErrorKind;
use futures::StreamExt;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// Duration after which a statement is considered not to end, so that its test fails.
const GUARD: Duration = Duration::from_secs(120);

/// Duration for which a statement runs before it is stopped.
const BEGUN: Duration = Duration::from_millis(30);

const BIG: &str = "(SELECT value v, 'k' || (value % 5000) s, sin(value::double) f FROM range(400000))";

/// Returns statements over many pairs of rows, with large states, in all kinds of joins, sorts, windows, sets and
/// recursion.
fn heavy() -> Vec<String> {
    let pairs = [
        "SELECT count(*) FROM BIG a, BIG b",
        "SELECT count(*) FROM BIG a CROSS JOIN BIG b CROSS JOIN BIG c",
        "SELECT sum(a.v + b.v) FROM BIG a, BIG b",
        "SELECT max(a.f * b.f) FROM BIG a, BIG b",
        "SELECT a.v FROM BIG a, BIG b WHERE a.f + b.f > 9",
        "SELECT count(*) FROM BIG a JOIN BIG b ON a.s LIKE '%' || b.s || '%'",
        "SELECT count(*) FROM BIG a JOIN BIG b ON a.s ~ b.s",
        "SELECT count(*) FROM BIG a JOIN BIG b ON a.f < b.f - 9",
        "SELECT count(*) FROM BIG a JOIN BIG b ON a.f <> b.f AND a.s > b.s || 'z'",
        "SELECT count(*) FROM BIG a LEFT JOIN BIG b ON a.f > b.f + 9",
        "SELECT count(*) FROM BIG a FULL JOIN BIG b ON a.v + b.v = -1",
        "SELECT count(*) FROM BIG a WHERE EXISTS (SELECT 1 FROM BIG b WHERE b.f > a.f + 9)",
        "SELECT count(*) FROM BIG a WHERE NOT EXISTS (SELECT 1 FROM BIG b WHERE b.f > a.f + 9)",
        "SELECT count(*) FROM BIG a JOIN BIG b ON a.v % 2 = b.v % 2",
        "SELECT count(*) FROM BIG a JOIN BIG b ON a.v % 2 = b.v % 2 AND a.f > b.f + 9",
        "SELECT count(*) FROM BIG a JOIN BIG b ON a.v % 2 = b.v % 2 AND a.s LIKE b.s || 'z'",
        "SELECT a.s, count(*) FROM BIG a JOIN BIG b ON a.v % 7 = b.v % 7 GROUP BY a.s",
        "SELECT DISTINCT a.s || b.s FROM BIG a, BIG b WHERE a.v < 10000",
        "SELECT count(DISTINCT a.f * b.f) FROM BIG a, BIG b WHERE b.v < 1000",
        "SELECT a.v FROM BIG a, BIG b ORDER BY a.f * b.f LIMIT 5",
        "SELECT a.v, row_number() OVER (PARTITION BY a.s ORDER BY b.f) FROM BIG a, BIG b WHERE b.v < 3000",
        "SELECT sum(x) FROM (SELECT a.v x FROM BIG a, BIG b UNION ALL SELECT a.v FROM BIG a, BIG b)",
        "SELECT count(*) FROM (SELECT a.v FROM BIG a, BIG b INTERSECT SELECT a.v FROM BIG a, BIG b)",
        "SELECT count(*) FROM (SELECT a.v FROM BIG a, BIG b EXCEPT SELECT v FROM BIG a)",
        "SELECT median(a.f * b.v) FROM BIG a, BIG b WHERE b.v < 10",
        "SELECT approx_distinct(a.f * b.f) FROM BIG a, BIG b",
        "SELECT corr(a.f, b.f) FROM BIG a, BIG b",
        "SELECT count(*) FILTER (WHERE a.s = b.s) FROM BIG a, BIG b",
        "SELECT a.v % 10, b.v % 10, count(*) FROM BIG a, BIG b GROUP BY CUBE(1, 2)",
        "SELECT CASE WHEN a.f > b.f THEN a.s ELSE b.s END, count(*) FROM BIG a, BIG b GROUP BY 1",
        "SELECT a.v FROM BIG a, BIG b UNION SELECT a.v + 1 FROM BIG a, BIG b",
        "SELECT count(*) FROM BIG a RIGHT JOIN BIG b ON a.f > b.f + 9",
        "SELECT count(*) FROM BIG a JOIN BIG b ON abs(a.f - b.f) > 9",
        "SELECT count(*) FROM BIG a JOIN BIG b ON a.s ILIKE '%z' || b.s",
        "SELECT count(*) FROM BIG a WHERE a.f NOT IN (SELECT b.f + 9 FROM BIG b WHERE b.v <> a.v)",
        "SELECT a.v, (SELECT count(*) FROM BIG b WHERE b.f > a.f) FROM BIG a",
        "SELECT count(*) FROM generate_series(1, 10000000000000) t(i) WHERE i % 7 = 9",
        "SELECT sum(sin(i)) FROM range(10000000000000) t(i)",
        "SELECT sum(x) FROM (SELECT unnest(range(0, 100000)) x FROM BIG a)",
        "WITH RECURSIVE r AS (SELECT 1 n UNION ALL SELECT n + 1 FROM r) SELECT count(*) FROM r",
        "WITH RECURSIVE r AS (SELECT v n FROM BIG a UNION ALL SELECT n + 1 FROM r) SELECT max(n) FROM r",
        "SELECT max(regexp_replace(a.s || b.s, '(k)+', 'z', 'g')) FROM BIG a, BIG b",
        "SELECT max(levenshtein(repeat(a.s, 50), repeat(b.s, 50))) FROM BIG a, BIG b",
        "SELECT max(md5(a.s || b.s)) FROM BIG a, BIG b",
        "SELECT mode((a.v + b.v) % 1000) FROM BIG a, BIG b",
        "SELECT var_pop(a.f + b.f), regr_slope(a.f, b.f) FROM BIG a, BIG b",
        "SELECT sum(f) OVER (ORDER BY f ROWS BETWEEN 300000 PRECEDING AND CURRENT ROW EXCLUDE CURRENT ROW) FROM BIG a",
        "SELECT a.v FROM BIG a, BIG b OFFSET 100000000000",
        "SELECT DISTINCT ON (a.v % 10) a.v FROM BIG a, BIG b ORDER BY a.v % 10, b.f",
        "EXPLAIN ANALYZE SELECT count(*) FROM BIG a, BIG b WHERE a.f + b.f > 9",
    ];
    pairs.iter().map(|text| text.replace("BIG", BIG)).collect()
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn session(timeout: Option<Duration>) -> Session {
    let work = Some(WorkMemory::new(1 << 30));
    Session::new(SessionOptions { work, timeout, target_partitions: Some(2), ..SessionOptions::default() })
}

/// Runs `work` on a separate thread, and fails after [`GUARD`]: a statement that does not end would block this thread.
fn guarded(text: &str, work: impl FnOnce() + Send + 'static) {
    let (sender, ended) = channel();
    let thread = thread::spawn(move || {
        work();
        let _ = sender.send(());
    });
    match ended.recv_timeout(GUARD) {
        Ok(()) => {}
        Err(RecvTimeoutError::Timeout) => panic!("does not end: {text}"),
        Err(RecvTimeoutError::Disconnected) => {
            let _ = thread.join();
            panic!("{text}");
        }
    }
}

/// Waits until the runtime has no tasks left, so that nothing of a stopped statement continues to compute.
fn assert_at_rest(runtime: &Runtime, text: &str) {
    let looks = GUARD.as_millis() / 5;
    for _ in 0..looks {
        if runtime.metrics().num_alive_tasks() == 0 {
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
    panic!("{} tasks are left: {text}", runtime.metrics().num_alive_tasks());
}

async fn run(session: &Session, text: &str) -> farpool_model::Result<()> {
    session.sql(text).await?.collect().await.map(drop)
}

#[test]
fn heavy_statements_end_at_their_time_limit() {
    for text in heavy() {
        guarded(&text.clone(), move || {
            let runtime = runtime();
            let error = runtime.block_on(async { run(&session(Some(BEGUN)), &text).await.unwrap_err() });
            assert_eq!(error.kind, ErrorKind::TimedOut, "{text}: {error}");
            assert_at_rest(&runtime, &text);
        });
    }
}

#[test]
fn one_interrupt_ends_heavy_statements() {
    for text in heavy() {
        guarded(&text.clone(), move || {
            let runtime = runtime();
            let interrupt = Interrupt::default();
            let within = interrupt.clone();
            let named = text.clone();
            let task = runtime.spawn(async move {
                within.run(async { run(&session(None), &text).await.unwrap_err() }).await
            });
            thread::sleep(BEGUN);
            interrupt.stop();
            let error = runtime.block_on(task).unwrap();
            assert_eq!(error.kind, ErrorKind::Cancelled, "{named}: {error}");
            assert_at_rest(&runtime, &named);
        });
    }
}

#[test]
fn heavy_statements_end_when_their_rows_are_dropped() {
    for text in heavy() {
        guarded(&text.clone(), move || {
            let runtime = runtime();
            let named = text.clone();
            let task = runtime.spawn(async move {
                let Ok(query) = session(None).sql(text.as_str()).await else { return };
                let Ok(mut rows) = query.execute().await else { return };
                while let Some(Ok(_)) = rows.next().await {}
            });
            thread::sleep(BEGUN);
            task.abort();
            let _ = runtime.block_on(task);
            assert_at_rest(&runtime, &named);
        });
    }
}

#[test]
fn planning_is_bounded() {
    let casts = |count: usize| {
        format!("SELECT {}value{} FROM range(3)", "cast(".repeat(count), " as bigint)".repeat(count))
    };
    let brackets = |count: usize| format!("SELECT {}1{}", "(".repeat(count), ")".repeat(count));
    let calls =
        |count: usize| format!("SELECT {}value +{} FROM range(3)", "abs(".repeat(count), ")".repeat(count));
    let tables = |count: usize| format!("SELECT * FROM {}range(3){}", "(".repeat(count), ")".repeat(count));
    let queries = |count: usize| {
        format!("SELECT * FROM {}range(3){}", "(SELECT * FROM ".repeat(count), ")".repeat(count))
    };
    let doubled = |count: usize, each: &str| {
        let more = (1..count).map(|i| format!(", c{i} AS ({})", each.replace('?', &format!("c{}", i - 1))));
        format!(
            "WITH c0 AS (SELECT value x FROM range(3)){} SELECT * FROM c{}",
            more.collect::<String>(),
            count - 1
        )
    };
    let joins = |count: usize| {
        let joins = (1..count).map(|i| format!(" JOIN range(50) t{i} ON t{i}.value = t0.value"));
        format!("SELECT count(*) FROM range(50) t0{}", joins.collect::<String>())
    };
    let exclusive_ors = (0..12).fold("value".to_string(), |each, _| format!("({each} # {each})"));
    let columns = (0..16).map(|i| format!("value % {}", i + 2)).collect::<Vec<_>>().join(", ");
    let texts = [
        casts(200),
        casts(49),
        brackets(300),
        calls(40),
        calls(200),
        tables(40),
        tables(200),
        queries(60),
        doubled(24, "SELECT * FROM ? UNION ALL SELECT * FROM ?"),
        "EXPLAIN ".to_string() + &doubled(24, "SELECT * FROM ? UNION ALL SELECT * FROM ?"),
        format!("COPY ({}) TO '/nowhere/x.csv'", doubled(24, "SELECT * FROM ? UNION ALL SELECT * FROM ?")),
        doubled(24, "SELECT a.x FROM ? a JOIN ? b ON a.x = b.x"),
        doubled(24, "SELECT x + x AS x FROM ?"),
        doubled(24, "SELECT x + x AS x FROM ?") + " WHERE x > 1 AND x < 100",
        doubled(40, "SELECT x::varchar || x::varchar AS x FROM ?"),
        format!("SELECT count(*) FROM range(3) GROUP BY CUBE({columns})"),
        joins(60),
        format!("SELECT {exclusive_ors} FROM range(3)"),
    ];
    for text in texts {
        guarded(&text.chars().take(200).collect::<String>(), move || {
            // Whether the statement succeeds or is refused does not matter, as long as it ends.
            let _ = runtime().block_on(run(&session(None), &text));
        });
    }
}
