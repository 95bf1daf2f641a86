//! Measures rounds of reading memory and scanning, with each number of threads; times count only if the
//! answers agree.

use super::definition::{Case, Definition};
use crate::answers::{self, Answer};
use crate::limits::{self, Limits};
use crate::machine::{self, Machine};
use crate::{node, stats, suite, tables, text};
use anyhow::{Context, Result, bail};
use farpool::model::TenantName;
use farpool::{EmbeddedPool, LoadMode, Pool, Query, Session, SessionOptions, TableInfo, TableName};
use futures::stream;
use serde::Serialize;
use std::sync::Arc;
use std::time::Instant;
use tokio::runtime::Runtime;

/// Bytes of a value in plain form.
const VALUE_BYTES: u64 = 8;

/// Size of the plain memory in lengths of two columns: each part is read once before the first is read again, so that
/// reads come from memory and not from a cache.
const MEMORY_PARTS: u64 = 4;

/// A run of the suite.
#[derive(Clone, Debug, Serialize)]
pub struct Results {
    pub suite: String,
    pub date: String,
    pub machine: Machine,
    pub rows: u64,
    pub runs: usize,
    pub limits: Limits,
    pub bytes_plain: u64,
    pub bytes_encoded: u64,
    pub cases: Vec<CaseResult>,
}

/// Results of a case with a number of threads.
#[derive(Clone, Debug, Serialize)]
pub struct CaseResult {
    pub name: String,
    pub threads: usize,
    /// Bytes of the columns that are read, 8 for each value.
    pub bytes_logical: u64,
    /// Encoded bytes that were scanned.
    pub bytes_scanned: u64,
    /// Every counted time of the scan.
    pub times_ms: Vec<f64>,
    /// Every counted time of reading `bytes_logical` of plain memory.
    pub memory_times_ms: Vec<f64>,
    pub median_ms: f64,
    pub memory_median_ms: f64,
    /// Share of the memory's read bandwidth that the scan reaches, in logical bytes.
    pub of_bandwidth: f64,
    /// The minimal share that the scan should reach.
    pub goal: f64,
}

/// A pool, and a session and a runtime for each number of threads.
struct Scanner {
    plain: Session,
    sessions: Vec<(usize, Runtime, Arc<Session>)>,
    /// Plain memory of [`MEMORY_PARTS`] times the length of two columns.
    words: Vec<u64>,
}

/// Runs the whole suite.
pub fn run(definition: &Definition) -> Result<Results> {
    let threads_max = definition.threads.iter().copied().max().unwrap_or(1);
    let limits = limits::measure()?;
    let pool = EmbeddedPool::over(node::start(0)?, TenantName::default());
    let (scanner, info) = suite::runtime(threads_max)?.block_on(prepare(definition, pool))?;
    let mut cases = Vec::new();
    for case in &definition.cases {
        text::progress(&format!("{} ", case.name));
        cases.extend(scanner.case(definition, case).with_context(|| case.name.clone())?);
    }
    text::progress("");
    Ok(Results {
        suite: "scan".to_string(),
        date: machine::today(),
        machine: machine::machine(),
        rows: definition.rows,
        runs: definition.runs,
        limits,
        bytes_plain: info.bytes_plain,
        bytes_encoded: info.bytes_encoded,
        cases,
    })
}

async fn prepare(definition: &Definition, pool: Arc<EmbeddedPool>) -> Result<(Scanner, TableInfo)> {
    let columns = definition.table.columns();
    let batches: Vec<_> = tables::batches(&columns, definition.rows).collect::<Result<_>>()?;
    let schema = batches.first().context("a table needs rows")?.schema();
    let name = TableName::new(&definition.table.name)?;
    let batches = Box::pin(stream::iter(batches.into_iter().map(Ok)));
    let info = pool.load(&name, LoadMode::Replace.into(), schema, Some(definition.rows), batches).await?;
    suite::await_profile(&*pool, &name).await?;
    let mut sessions = Vec::new();
    for &threads in &definition.threads {
        let session = session(pool.clone(), true, threads).await?;
        sessions.push((threads, suite::runtime(threads)?, Arc::new(session)));
    }
    let words = (0..MEMORY_PARTS * 2 * definition.rows).collect();
    Ok((Scanner { plain: session(pool, false, 1).await?, sessions, words }, info))
}

async fn session(pool: Arc<EmbeddedPool>, pushdown: bool, threads: usize) -> Result<Session> {
    let session = Session::new(SessionOptions {
        pushdown,
        target_partitions: Some(threads),
        ..SessionOptions::default()
    });
    session.register_pool("farpool", pool).await?;
    Ok(session)
}

impl Scanner {
    /// Runs one case with each number of threads, in turns.
    fn case(&self, definition: &Definition, case: &Case) -> Result<Vec<CaseResult>> {
        let (_, runtime, _) = self.sessions.first().context("there is no number of threads")?;
        let expected = runtime.block_on(async {
            let query = self.plain.sql(case.sql.as_str()).await?;
            answer(&query, &query.collect().await?)
        })?;
        let bytes_logical = VALUE_BYTES * definition.rows * case.columns.len() as u64;
        let mut parts = self.words.chunks_exact((bytes_logical / VALUE_BYTES) as usize).cycle();
        let empty = |(threads, _, _): &(usize, Runtime, Arc<Session>)| CaseResult {
            name: case.name.clone(),
            threads: *threads,
            bytes_logical,
            bytes_scanned: 0,
            times_ms: Vec::new(),
            memory_times_ms: Vec::new(),
            median_ms: f64::NAN,
            memory_median_ms: f64::NAN,
            of_bandwidth: f64::NAN,
            goal: case.at_least,
        };
        let mut results: Vec<CaseResult> = self.sessions.iter().map(empty).collect();
        // The first round is a warm-up and does not count.
        for round in 0..=definition.runs {
            for ((threads, runtime, session), result) in self.sessions.iter().zip(&mut results) {
                let words = parts.next().context("a part of memory")?;
                let start = Instant::now();
                limits::read(words, *threads);
                let memory_ms = milliseconds(start);
                let (ms, scanned) = scan(runtime, session, case, &expected)?;
                result.bytes_scanned = scanned;
                if round > 0 {
                    result.times_ms.push(ms);
                    result.memory_times_ms.push(memory_ms);
                }
            }
        }
        results.iter_mut().for_each(CaseResult::settle);
        Ok(results)
    }
}

impl CaseResult {
    fn settle(&mut self) {
        self.median_ms = stats::median(&self.times_ms);
        self.memory_median_ms = stats::median(&self.memory_times_ms);
        self.of_bandwidth = self.memory_median_ms / self.median_ms;
    }
}

/// Plans and then executes on the runtime's own threads; returns the milliseconds of executing, and the bytes scanned.
fn scan(runtime: &Runtime, session: &Arc<Session>, case: &Case, expected: &Answer) -> Result<(f64, u64)> {
    let (session, sql) = (session.clone(), case.sql.clone());
    let ran = runtime.spawn(async move {
        let query = session.sql(sql.as_str()).await?;
        let start = Instant::now();
        let batches = query.collect().await?;
        let ms = milliseconds(start);
        anyhow::Ok((ms, query.receipt().bytes_scanned, answer(&query, &batches)?))
    });
    let (ms, scanned, actual) = runtime.block_on(ran)??;
    match answers::difference(expected, &actual) {
        Some(difference) => bail!("the answer differs from the one without push-down: {difference}"),
        None => Ok((ms, scanned)),
    }
}

fn answer(query: &Query, batches: &[arrow::array::RecordBatch]) -> Result<Answer> {
    let columns = query.schema().fields().iter().map(|field| field.name().clone()).collect();
    Answer::from_batches(columns, batches).map_err(anyhow::Error::msg)
}

fn milliseconds(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}
