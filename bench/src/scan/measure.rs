//! Measures rounds of reading memory and scanning, with each number of threads; times count only if the
//! answers agree.

use super::definition::{Case, Definition};
use crate::limits::{self, Limits};
use crate::pools::{self, Ran, milliseconds};
use crate::suite::{self, Expected, Head, Samples, turns_after_warm_up};
use crate::{node, stats, tables, text};
use anyhow::{Context, Result};
use farpool::model::TenantName;
use farpool::{EmbeddedPool, LoadMode, Session, TableInfo};
use serde::Serialize;
use std::sync::Arc;
use std::time::Instant;
use tokio::runtime::Runtime;

/// Bytes of a value in plain form.
const VALUE_BYTES: u64 = 8;

/// Size of the plain memory in lengths of two columns: each part is read once before the first is read again, so that
/// reads come from memory and not from a cache.
const MEMORY_PARTS: u64 = 4;

/// Results of a run of the suite.
#[derive(Clone, Debug, Serialize)]
pub struct Results {
    #[serde(flatten)]
    pub head: Head,
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
    plain: Arc<Session>,
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
        head: Head::of("scan"),
        rows: definition.rows,
        runs: definition.runs,
        limits,
        bytes_plain: info.bytes_plain,
        bytes_encoded: info.bytes_encoded,
        cases,
    })
}

async fn prepare(definition: &Definition, pool: Arc<EmbeddedPool>) -> Result<(Scanner, TableInfo)> {
    let table = &definition.table;
    let batches = tables::batches(&table.columns(), definition.rows).collect::<Result<_>>()?;
    let info = pools::load(&*pool, &table.name, LoadMode::Replace, batches).await?;
    pools::await_profile(&*pool, &table.name).await?;
    let mut sessions = Vec::new();
    for &threads in &definition.threads {
        let session = pools::session(pool.clone(), true, threads).await?;
        sessions.push((threads, suite::runtime(threads)?, session));
    }
    let words = (0..MEMORY_PARTS * 2 * definition.rows).collect();
    Ok((Scanner { plain: pools::session(pool, false, 1).await?, sessions, words }, info))
}

/// One round of a case with one number of threads: the times of the scan and of reading plain memory.
struct Sample {
    ms: f64,
    memory_ms: f64,
    bytes_scanned: u64,
}

impl Scanner {
    /// Runs one case with each number of threads, in turns.
    fn case(&self, definition: &Definition, case: &Case) -> Result<Vec<CaseResult>> {
        let (_, runtime, _) = self.sessions.first().context("there is no number of threads")?;
        let plain = runtime.block_on(pools::run(&self.plain, &case.sql))?;
        let mut expected = Expected::of("the scan without push-down", plain.answer()?);
        let bytes_logical = VALUE_BYTES * definition.rows * case.columns.len() as u64;
        let mut parts = self.words.chunks_exact((bytes_logical / VALUE_BYTES) as usize).cycle();
        let mut samples = Samples::new(self.sessions.len());
        for turn in turns_after_warm_up(self.sessions.len(), definition.runs) {
            let (threads, runtime, session) = &self.sessions[turn.side];
            let words = parts.next().context("a part of memory")?;
            let start = Instant::now();
            limits::read(words, *threads);
            let memory_ms = milliseconds(start);
            let ran = scan(runtime, session, case)?;
            expected.check("the scan", &ran.answer()?)?;
            samples.add(turn, Sample { ms: ran.ms, memory_ms, bytes_scanned: ran.receipt.bytes_scanned });
        }
        let result = |(side, (threads, ..)): (usize, &(usize, Runtime, Arc<Session>))| {
            CaseResult::of(case, *threads, bytes_logical, samples.of(side))
        };
        Ok(self.sessions.iter().enumerate().map(result).collect())
    }
}

impl CaseResult {
    fn of(case: &Case, threads: usize, bytes_logical: u64, samples: &[Sample]) -> CaseResult {
        let median_ms = stats::median_of(samples, |sample| sample.ms);
        let memory_median_ms = stats::median_of(samples, |sample| sample.memory_ms);
        CaseResult {
            name: case.name.clone(),
            threads,
            bytes_logical,
            bytes_scanned: samples.last().map_or(0, |sample| sample.bytes_scanned),
            times_ms: samples.iter().map(|sample| sample.ms).collect(),
            memory_times_ms: samples.iter().map(|sample| sample.memory_ms).collect(),
            median_ms,
            memory_median_ms,
            of_bandwidth: memory_median_ms / median_ms,
            goal: case.at_least,
        }
    }
}

/// Plans and then executes on the runtime's own threads; the time is that of executing.
fn scan(runtime: &Runtime, session: &Arc<Session>, case: &Case) -> Result<Ran> {
    let (session, sql) = (session.clone(), case.sql.clone());
    Ok(runtime.block_on(runtime.spawn(async move { pools::run_planned(&session, &sql).await }))??)
}
