//! INSERT statements of one row on a schedule, alone and with a concurrent client that runs queries.
//!
//! The load is open: statements are due at fixed times regardless of earlier ones, and latencies are measured from
//! those times, so that a node that stalls for a second shows as a thousand late statements and not as one (G. Tene,
//! "How NOT to measure latency", 2015).

use super::definition::Definition;
use super::growing::{self, GROWING, LOADED, Memory, Pair, Watch};
use super::served::{self, Served, answer};
use crate::answers::{self, Answer, Cell};
use crate::pools::milliseconds;
use crate::{stats, text};
use anyhow::{Result, bail, ensure};
use farpool::Session;
use futures::future::try_join_all;
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// The tenant of the small table.
const SMALL: usize = 2;

/// Tolerance for reaching the rate: the maximal delay of the last answer, as a share of the planned duration.
const LATE: f64 = 0.01;

/// Results of the inserts, and of the concurrent queries.
#[derive(Clone, Debug, Serialize)]
pub struct InsertsResult {
    pub connections: usize,
    pub per_second: u64,
    pub inserts: Vec<InsertResult>,
    pub queries: Vec<QueriesResult>,
}

/// Results of inserts with another concurrent load.
#[derive(Clone, Debug, Serialize)]
pub struct InsertResult {
    /// Name of the other load; `alone` first.
    pub beside: String,
    pub inserts: usize,
    /// Seconds from the time when the first insert was due until all were answered.
    pub elapsed_s: f64,
    pub latency: Latency,
    /// Whether the inserts were answered at the rate at which they were due.
    pub is_rate_reached: bool,
    pub memory: Memory,
}

/// Results of a client that runs queries all the time.
#[derive(Clone, Debug, Serialize)]
pub struct QueriesResult {
    pub over: String,
    pub alone: Latency,
    pub beside: Latency,
}

/// Latencies of answers.
#[derive(Clone, Debug, Serialize)]
pub struct Latency {
    pub count: usize,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub most_ms: f64,
}

impl Latency {
    fn of(ms: &[f64]) -> Self {
        Latency {
            count: ms.len(),
            p50_ms: stats::median(ms),
            p99_ms: stats::percentile(ms, 0.99),
            most_ms: stats::percentile(ms, 1.0),
        }
    }
}

/// The expected result of a query over a table.
#[derive(Clone)]
enum Expected {
    /// Always the same.
    Answer(Answer),
    /// The number of rows in the first column: at least those inserted before the query began, at most those sent by
    /// its end.
    Rows(Arc<Progress>),
}

/// Numbers of inserts that have been sent, and that were answered.
#[derive(Debug, Default)]
struct Progress {
    sent: AtomicU64,
    answered: AtomicU64,
}

/// Runs all cases.
pub async fn measure(definition: &Definition) -> Result<InsertsResult> {
    let served = Arc::new(Served::start(definition.threads, &[1, 1, 1])?);
    let (mut inserts, mut queries) = (Vec::new(), Vec::new());

    text::progress("inserts alone ");
    inserts.push(round(definition, &served, "alone", None).await?.0);

    let name = "queries of the same table";
    text::progress(&format!("inserts beside {name} "));
    let sql = &definition.inserts.sql;
    let (result, beside) = round(definition, &served, name, Some((GROWING, sql, None))).await?;
    let last = Expected::Answer(answer(&*served.client(LOADED, false).await?, sql).await?);
    let alone = query_alone(definition, &served, GROWING, sql, &last).await?;
    inserts.push(result);
    queries.push(QueriesResult { over: "the same table".to_string(), alone, beside });

    let name = "queries of another table";
    text::progress(&format!("inserts beside {name} "));
    let small = &definition.small;
    served.load(SMALL, &small.table, &definition.table, small.rows.min(definition.rows)).await?;
    let fixed = Expected::Answer(answer(&*served.client(SMALL, false).await?, &small.sql).await?);
    let alone = query_alone(definition, &served, SMALL, &small.sql, &fixed).await?;
    let (result, beside) = round(definition, &served, name, Some((SMALL, &small.sql, Some(fixed)))).await?;
    inserts.push(result);
    queries.push(QueriesResult { over: "another table".to_string(), alone, beside });

    let (connections, per_second) = (definition.inserts.connections, definition.inserts.per_second);
    Ok(InsertsResult { connections, per_second, inserts, queries })
}

/// Runs all inserts into an empty table, while a client of a tenant runs a statement. If no expected result is
/// given, the statement counts the inserted rows.
async fn round(
    definition: &Definition,
    served: &Arc<Served>,
    beside: &str,
    reader: Option<(usize, &str, Option<Expected>)>,
) -> Result<(InsertResult, Latency)> {
    let inserts = &definition.inserts;
    let seconds = if reader.is_some() { inserts.beside_s } else { inserts.alone_s };
    let pair = Pair::make(served, &definition.growing, inserts.rows(seconds)).await?;
    let statements = Arc::new(pair.statements()?);
    let clients = try_join_all((0..inserts.connections).map(|_| served.client(GROWING, true))).await?;
    let progress = Arc::<Progress>::default();
    let stop = Arc::<AtomicBool>::default();
    let reading = match reader {
        Some((tenant, sql, expected)) => {
            let (client, sql, stop) = (served.client(tenant, true).await?, sql.to_string(), stop.clone());
            let expected = expected.unwrap_or_else(|| Expected::Rows(progress.clone()));
            Some(tokio::spawn(async move { read(&client, &sql, &expected, &stop).await }))
        }
        None => None,
    };
    let watch = Watch::start(served, GROWING);
    let gap = Duration::from_secs_f64(1.0 / inserts.per_second as f64);
    let inserted = insert_all(clients, &statements, gap, &progress).await;
    stop.store(true, Ordering::Relaxed);
    let most_bytes = watch.stop();
    let queries = match reading {
        Some(reading) => reading.await??,
        None => Vec::new(),
    };
    let (latencies, elapsed_s) = inserted?;
    ensure!(latencies.len() == statements.len(), "{} of {} inserts", latencies.len(), statements.len());
    let result = InsertResult {
        beside: beside.to_string(),
        inserts: latencies.len(),
        elapsed_s,
        latency: Latency::of(&latencies),
        is_rate_reached: elapsed_s <= (gap * statements.len() as u32).as_secs_f64() * (1.0 + LATE),
        memory: pair.compare(most_bytes).await?,
    };
    Ok((result, Latency::of(&queries)))
}

/// Sends each statement when it is due, on the connections in turns; returns the milliseconds from then to each answer,
/// and the seconds to the last one.
async fn insert_all(
    clients: Vec<Arc<Session>>,
    statements: &Arc<Vec<String>>,
    gap: Duration,
    progress: &Arc<Progress>,
) -> Result<(Vec<f64>, f64)> {
    let (senders, receivers): (Vec<_>, Vec<_>) = clients.iter().map(|_| unbounded_channel()).unzip();
    let client = |(client, due): (Arc<Session>, UnboundedReceiver<(usize, Instant)>)| {
        tokio::spawn(insert_when_due(client, due, statements.clone(), progress.clone()))
    };
    let tasks: Vec<_> = clients.into_iter().zip(receivers).map(client).collect();
    let (start, count) = (Instant::now(), statements.len());
    // Runs on a separate thread: timers of the runtime are a millisecond late.
    let clock = std::thread::spawn(move || {
        for row in 0..count {
            let due = start + gap * row as u32;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            // After an error the receiver is gone; the error is reported by its task.
            if senders[row % senders.len()].send((row, due)).is_err() {
                break;
            }
        }
    });
    let latencies: Result<Vec<_>> = try_join_all(tasks).await?.into_iter().collect();
    let elapsed_s = start.elapsed().as_secs_f64();
    ensure!(clock.join().is_ok(), "the clock of the inserts failed");
    Ok((latencies?.concat(), elapsed_s))
}

async fn insert_when_due(
    client: Arc<Session>,
    mut due: UnboundedReceiver<(usize, Instant)>,
    statements: Arc<Vec<String>>,
    progress: Arc<Progress>,
) -> Result<Vec<f64>> {
    let mut latencies = Vec::new();
    while let Some((row, due)) = due.recv().await {
        progress.sent.fetch_add(1, Ordering::SeqCst);
        growing::insert(&client, &statements[row]).await?;
        progress.answered.fetch_add(1, Ordering::SeqCst);
        latencies.push(milliseconds(due));
    }
    Ok(latencies)
}

/// Measures a client of one statement while no rows are inserted.
async fn query_alone(
    definition: &Definition,
    served: &Served,
    tenant: usize,
    sql: &str,
    expected: &Expected,
) -> Result<Latency> {
    let (client, stop) = (served.client(tenant, true).await?, AtomicBool::new(false));
    let window = async {
        tokio::time::sleep(Duration::from_secs_f64(definition.window_s)).await;
        stop.store(true, Ordering::Relaxed);
    };
    let (times, ()) = tokio::join!(read(&client, sql, expected, &stop), window);
    Ok(Latency::of(&times?))
}

/// Runs a statement until it is stopped; returns the milliseconds of each run.
async fn read(client: &Session, sql: &str, expected: &Expected, stop: &AtomicBool) -> Result<Vec<f64>> {
    let mut times = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let before = expected.rows_answered();
        let start = Instant::now();
        let actual = served::run(client, sql).await?.0;
        times.push(milliseconds(start));
        expected.check(before, &actual)?;
    }
    Ok(times)
}

impl Expected {
    fn rows_answered(&self) -> u64 {
        match self {
            Expected::Answer(_) => 0,
            Expected::Rows(progress) => progress.answered.load(Ordering::SeqCst),
        }
    }

    /// Checks a result of a query that began when `answered_before` inserts had been answered.
    fn check(&self, answered_before: u64, actual: &Answer) -> Result<()> {
        let progress = match self {
            Expected::Answer(answer) => match answers::difference(answer, actual) {
                Some(difference) => bail!("a query beside the inserts is wrong: {difference}"),
                None => return Ok(()),
            },
            Expected::Rows(progress) => progress,
        };
        let sent = progress.sent.load(Ordering::SeqCst);
        match actual.rows.first().and_then(|row| row.first()) {
            Some(Cell::Exact { unscaled, scale: 0 })
                if (i128::from(answered_before)..=i128::from(sent)).contains(unscaled) =>
            {
                Ok(())
            }
            other => bail!("a query counts {other:?} rows, where {answered_before} to {sent} are inserted"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Expected, Progress};
    use crate::answers::{Answer, Cell};
    use std::sync::Arc;

    #[test]
    fn a_query_sees_what_was_answered_and_nothing_that_was_not_sent() {
        let progress = Progress { sent: 9.into(), answered: 8.into() };
        let expected = Expected::Rows(Arc::new(progress));
        let counted = |rows: i128| Answer {
            columns: vec!["count".to_string()],
            rows: vec![vec![Cell::Exact { unscaled: rows, scale: 0 }]],
        };
        let before = expected.rows_answered();
        let is_right = |rows| expected.check(before, &counted(rows)).is_ok();
        assert_eq!([7, 8, 9, 10].map(is_right), [false, true, true, false]);
        assert!(expected.check(before, &Answer::default()).is_err());
    }
}
