//! Runs the statements of a session one by one, concurrently and as a batch, and compares the answers of all ways.

use crate::pools;
use crate::suite::{Compared, Expected};
use anyhow::Result;
use arrow::array::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use farpool::{Pool, Receipt, Session, SessionOptions, WorkMemory};
use std::sync::Arc;
use std::time::Instant;
use tokio::task::JoinSet;

/// Memory of a session for everything but cached columns.
pub const WORK_BYTES: usize = 4 << 30;

/// Relative difference up to which numbers are equal: sums of floats depend on the order of the rows.
const SAME: f64 = 1e-9;

/// Results of statements: the time, the bytes on the wire, and the results in the order of the statements.
pub type Ran = (f64, u64, Vec<String>);

/// The results of statements as text, of which numbers must be about equal.
#[derive(Clone)]
struct Shown(Vec<String>);

impl Compared for Shown {
    fn difference(&self, actual: &Shown) -> Option<String> {
        let differ = |(a, b): (&str, &str)| match (a.parse::<f64>(), b.parse::<f64>()) {
            (Ok(a), Ok(b)) => (a - b).abs() > SAME * a.abs().max(b.abs()),
            _ => a != b,
        };
        let differ = |(expected, actual): &(&String, &String)| {
            let (expected, actual) = (expected.split_whitespace(), actual.split_whitespace());
            expected.clone().count() != actual.clone().count() || expected.zip(actual).any(differ)
        };
        let (expected, actual) = self.0.iter().zip(&actual.0).find(differ)?;
        Some(format!("{actual}, not {expected}"))
    }
}

/// The answers that all ways must return.
#[derive(Default)]
pub struct Answers(Expected<Shown>);

impl Answers {
    pub fn check(&mut self, (seconds, bytes, results): Ran) -> Result<(f64, u64)> {
        self.0.check("one way of running statements", &Shown(results))?;
        Ok((seconds, bytes))
    }
}

/// Opens a session with a separate memory budget.
pub async fn session(pool: &Arc<dyn Pool>, pushdown: bool, threads: usize) -> Result<Arc<Session>> {
    session_within(pool, pushdown, threads, WorkMemory::new(WORK_BYTES)).await
}

/// Opens a session that takes its memory from `work`.
pub async fn session_within(
    pool: &Arc<dyn Pool>,
    pushdown: bool,
    threads: usize,
    work: Arc<WorkMemory>,
) -> Result<Arc<Session>> {
    let (target_partitions, work) = (Some(threads), Some(work));
    let options = SessionOptions { pushdown, target_partitions, work, ..SessionOptions::default() };
    pools::session_with(pool.clone(), options).await
}

/// Runs one statement.
pub async fn one(session: &Session, statement: &str) -> Result<(Receipt, String)> {
    let ran = pools::run(session, statement).await?;
    Ok((ran.receipt, shown(&ran.batches)?))
}

pub async fn sequentially(session: &Arc<Session>, statements: &[String]) -> Result<Ran> {
    concurrently(session, statements, 1).await
}

/// Runs statements, at most `at_once` concurrently.
pub async fn concurrently(session: &Arc<Session>, statements: &[String], at_once: usize) -> Result<Ran> {
    let start = Instant::now();
    let mut results = vec![String::new(); statements.len()];
    let (mut tasks, mut bytes, mut next) = (JoinSet::new(), 0, statements.iter().enumerate());
    loop {
        while tasks.len() < at_once.max(1)
            && let Some((place, statement)) = next.next()
        {
            let (session, statement) = (session.clone(), statement.clone());
            tasks.spawn(async move { (place, one(&session, &statement).await) });
        }
        let Some(ended) = tasks.join_next().await else { break };
        let (place, outcome) = ended?;
        let (receipt, rows) = outcome?;
        bytes += receipt.bytes_on_wire;
        results[place] = rows;
    }
    Ok((start.elapsed().as_secs_f64(), bytes, results))
}

/// Runs statements as a batch.
pub async fn batch(session: &Session, statements: &[String]) -> Result<Ran> {
    let start = Instant::now();
    let mut batch = session.batch(statements.iter().map(String::as_str));
    let (mut results, mut bytes) = (Vec::new(), 0);
    while let Some(query) = batch.next().await {
        let query = query?;
        results.push(shown(&query.collect().await?)?);
        bytes += query.receipt().bytes_on_wire;
    }
    Ok((start.elapsed().as_secs_f64(), bytes, results))
}

/// Formats rows as text.
fn shown(batches: &[RecordBatch]) -> Result<String> {
    let mut text = String::new();
    for batch in batches {
        let columns =
            batch.columns().iter().map(|column| ArrayFormatter::try_new(column, &FormatOptions::new()));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        for row in 0..batch.num_rows() {
            columns.iter().for_each(|column| text.push_str(&format!("{} ", column.value(row))));
        }
    }
    Ok(text)
}
