//! Runs the cases, all sides in turns.

use super::definition::{Dashboard, Definition, Table};
use super::link;
use super::scans::{self, ScansResult};
use crate::limits::{self, Limits};
use crate::machine::{self, Machine};
use crate::node::NodeProcess;
use crate::stats::median;
use crate::{suite, tables, text};
use anyhow::{Context, Result, bail};
use arrow::array::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use farpool::{
    ClientOptions, LoadMode, NearPool, Nearness, Pool, PoolUrl, RemotePool, Session, SessionOptions,
    TableName, WorkMemory,
};
use futures::StreamExt;
use serde::Serialize;
use std::sync::Arc;
use std::time::Instant;
use tokio::task::JoinSet;

/// Memory for what is no column at the client.
const WORK_BYTES: usize = 4 << 30;

/// Numbers that differ by less than this part are the same: sums of floats depend on the order of the rows.
const SAME: f64 = 1e-9;

/// All numbers of a run of the suite.
#[derive(Debug, Serialize)]
pub struct Results {
    pub date: String,
    pub runs: usize,
    pub machine: Machine,
    pub limits: Limits,
    pub notes: Vec<String>,
    pub pipelines: Vec<PipelinesResult>,
    pub modes: Vec<ModeResult>,
    pub dashboards: Vec<DashboardResult>,
    pub scans: Vec<ScansResult>,
}

/// Pipelines over one table, with one overlap.
#[derive(Debug, Serialize)]
pub struct PipelinesResult {
    pub table: String,
    pub overlap: usize,
    /// One after the other without push-down, with rows sent for each.
    pub rows_s: f64,
    pub rows_bytes: u64,
    /// One after the other at the client, with all columns of its own for each.
    pub isolated_s: f64,
    pub isolated_bytes: u64,
    /// At once, with columns sent once.
    pub grouped_s: f64,
    pub grouped_bytes: u64,
    /// Encoded bytes of the columns that are read.
    pub distinct_bytes: u64,
    /// The same, over columns that are at the client.
    pub local_s: f64,
    /// At once, with push-down as the cost model wants it.
    pub free_s: f64,
    pub free_bytes: u64,
}

/// The pipelines in one of the paper's modes of execution.
#[derive(Debug, Serialize)]
pub struct ModeResult {
    pub table: String,
    pub overlap: usize,
    /// In order: one thread in all; all threads for each in turn; half of them at once; all at once with a thread each.
    pub modes_s: [f64; 4],
}

/// A dashboard over one link.
#[derive(Debug, Serialize)]
pub struct DashboardResult {
    pub name: String,
    pub link: String,
    pub statements: usize,
    pub apart: Cost,
    pub together: Cost,
}

/// What a dashboard took: medians.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Cost {
    pub seconds: f64,
    pub cpu_s: f64,
    pub bytes: u64,
}

/// A node with one table, and the bytes of its columns.
struct Stage<'a> {
    definition: &'a Definition,
    node: NodeProcess,
    column_bytes: Vec<u64>,
}

pub fn run(definition: &Definition, mut notes: Vec<String>) -> Result<Results> {
    let runtime = suite::runtime(definition.threads)?;
    let mut results = Results {
        date: machine::today(),
        runs: definition.runs,
        machine: machine::machine(),
        limits: limits::measure()?,
        notes: Vec::new(),
        pipelines: Vec::new(),
        modes: Vec::new(),
        dashboards: Vec::new(),
        scans: Vec::new(),
    };
    for (place, table) in definition.tables.iter().enumerate() {
        let stage = runtime.block_on(Stage::with(definition, table))?;
        for overlap in &definition.pipelines.overlaps {
            text::progress(&format!("{}, overlap {overlap} ", table.name));
            results.pipelines.push(runtime.block_on(stage.pipelines(table, *overlap))?);
        }
        for overlap in [0, definition.pipelines.overlaps.last().copied().unwrap_or(0)] {
            text::progress(&format!("{}, modes, overlap {overlap} ", table.name));
            results.modes.push(runtime.block_on(stage.modes(table, overlap))?);
        }
        for dashboard in definition.dashboards.iter().filter(|dashboard| dashboard.table == place) {
            for capped in [None, Some(definition.capped_mbit)] {
                if let Some(mbit) = capped
                    && let Err(error) = link::cap(Some(mbit))
                {
                    notes.push(format!("without a capped link: {error:#}"));
                    continue;
                }
                text::progress(&format!("dashboard {} ", dashboard.name));
                let result = runtime.block_on(stage.dashboard(dashboard, table, capped));
                if capped.is_some() {
                    link::cap(None)?;
                }
                results.dashboards.push(result?);
            }
        }
    }
    if let Some(scans) = &definition.scans {
        results.scans = runtime.block_on(scans::run(scans, definition.runs, definition.threads))?;
    }
    text::progress("");
    results.notes = notes;
    Ok(results)
}

impl<'a> Stage<'a> {
    async fn with(definition: &'a Definition, table: &Table) -> Result<Stage<'a>> {
        text::progress(&format!("loading {} ", table.name));
        let node = NodeProcess::start(definition.threads)?;
        let pool = node.connect().await?;
        let batches = tables::batches(&table.columns(), table.rows)
            .map(|batch| batch.map_err(|error| farpool::Error::internal(format!("{error:#}"))))
            .collect::<Result<Vec<RecordBatch>, _>>()?;
        let schema = batches.first().context("a table without rows")?.schema();
        let name = TableName::new("t")?;
        let rows = futures::stream::iter(batches.into_iter().map(Ok)).boxed();
        pool.load(&name, LoadMode::Create.into(), schema, Some(table.rows), rows).await?;
        suite::await_profile(&*pool, &name).await?;
        let column_bytes =
            pool.table(&name).await?.columns.iter().map(|column| column.bytes_encoded).collect();
        Ok(Stage { definition, node, column_bytes })
    }

    async fn remote(&self) -> Result<Arc<RemotePool>> {
        let url: PoolUrl = self.node.url.parse()?;
        Ok(Arc::new(RemotePool::connect(&url, ClientOptions::default()).await?))
    }

    /// A pool of which nothing is at the client yet. With [`Nearness::Always`], nothing is done at the node.
    async fn near(&self, nearness: Nearness) -> Result<Arc<NearPool>> {
        let work = WorkMemory::new(WORK_BYTES);
        Ok(NearPool::open(self.remote().await?, self.definition.cache_mib << 20, work, nearness)?)
    }

    async fn pipelines(&self, table: &Table, overlap: usize) -> Result<PipelinesResult> {
        let (statements, columns) = self.definition.pipelines.statements(overlap, table);
        let threads = self.definition.threads;
        let (mut rows, mut isolated, mut grouped) = (vec![], vec![], vec![]);
        let (mut local, mut free) = (vec![], vec![]);
        let (mut rows_bytes, mut isolated_bytes, mut grouped_bytes, mut free_bytes) = (0, 0, 0, 0);
        let mut answers = Answers::default();
        // The first one does not count.
        for run in 0..=self.definition.runs {
            let remote: Arc<dyn Pool> = self.remote().await?;
            let session = session(&remote, false, threads).await?;
            let (as_rows, bytes) = answers.check(sequentially(&session, &statements).await?)?;
            rows_bytes = bytes;
            let (mut each, mut results) = ((0.0, 0), Vec::new());
            for statement in &statements {
                let near = self.near(Nearness::Always).await?;
                let pool: Arc<dyn Pool> = near.clone();
                let session = self::session(&pool, true, threads).await?;
                let (seconds, _, result) = sequentially(&session, std::slice::from_ref(statement)).await?;
                each = (each.0 + seconds, each.1 + near.bytes_fetched());
                results.extend(result);
            }
            let (alone, bytes) = answers.check((each.0, each.1, results))?;
            isolated_bytes = bytes;
            let near = self.near(Nearness::Always).await?;
            let pool: Arc<dyn Pool> = near.clone();
            let session = self::session(&pool, true, 1).await?;
            let (at_once, _) = answers.check(concurrently(&session, &statements, statements.len()).await?)?;
            grouped_bytes = near.bytes_fetched();
            let (again, _) = answers.check(concurrently(&session, &statements, statements.len()).await?)?;
            let pool: Arc<dyn Pool> = self.near(Nearness::Auto).await?;
            let session = self::session(&pool, true, threads).await?;
            let (chosen, bytes) = answers.check(batch(&session, &statements).await?)?;
            free_bytes = bytes;
            if run > 0 {
                rows.push(as_rows);
                isolated.push(alone);
                grouped.push(at_once);
                local.push(again);
                free.push(chosen);
            }
        }
        Ok(PipelinesResult {
            table: table.name.clone(),
            overlap,
            rows_s: median(&rows),
            rows_bytes,
            isolated_s: median(&isolated),
            isolated_bytes,
            grouped_s: median(&grouped),
            grouped_bytes,
            distinct_bytes: self.column_bytes.iter().take(columns).sum(),
            local_s: median(&local),
            free_s: median(&free),
            free_bytes,
        })
    }

    async fn modes(&self, table: &Table, overlap: usize) -> Result<ModeResult> {
        let (statements, _) = self.definition.pipelines.statements(overlap, table);
        let (all, threads) = (statements.len(), self.definition.threads);
        let mut answers = Answers::default();
        let mut times: [Vec<f64>; 4] = Default::default();
        for _ in 0..self.definition.runs {
            let modes = [(1, 1), (1, threads), (all / 2, 2), (all, 1)];
            for ((at_once, threads), times) in modes.into_iter().zip(&mut times) {
                let pool: Arc<dyn Pool> = self.near(Nearness::Always).await?;
                let session = session(&pool, true, threads).await?;
                times.push(answers.check(concurrently(&session, &statements, at_once).await?)?.0);
            }
        }
        Ok(ModeResult { table: table.name.clone(), overlap, modes_s: times.map(|times| median(&times)) })
    }

    async fn dashboard(
        &self,
        dashboard: &Dashboard,
        table: &Table,
        capped: Option<u64>,
    ) -> Result<DashboardResult> {
        let statements = dashboard.statements(table);
        let (mut apart, mut together) = (Vec::new(), Vec::new());
        let mut answers = Answers::default();
        for run in 0..=self.definition.runs {
            let pool: Arc<dyn Pool> = self.remote().await?;
            let alone = session(&pool, true, self.definition.threads).await?;
            let one_by_one = self.cost(&mut answers, sequentially(&alone, &statements)).await?;
            let near = self.near(Nearness::Auto).await?;
            let pool: Arc<dyn Pool> = near.clone();
            let session = session(&pool, true, self.definition.threads).await?;
            let at_once = self.cost(&mut answers, batch(&session, &statements)).await?;
            if run > 0 {
                apart.push(one_by_one);
                together.push(at_once);
            }
        }
        Ok(DashboardResult {
            name: dashboard.name.clone(),
            link: capped.map_or("loopback".to_string(), |mbit| format!("{mbit} Mbit/s")),
            statements: statements.len(),
            apart: Cost::median(&apart),
            together: Cost::median(&together),
        })
    }

    /// What something takes, of both processes.
    async fn cost(&self, answers: &mut Answers, work: impl Future<Output = Result<Ran>>) -> Result<Cost> {
        let cpu = || {
            let node = machine::cpu_seconds_of(&self.node.id().to_string()).unwrap_or(f64::NAN);
            node + machine::cpu_seconds().unwrap_or(f64::NAN)
        };
        let before = cpu();
        let (seconds, bytes) = answers.check(work.await?)?;
        Ok(Cost { seconds, cpu_s: cpu() - before, bytes })
    }
}

impl Cost {
    fn median(costs: &[Cost]) -> Cost {
        let of = |number: fn(&Cost) -> f64| median(&costs.iter().map(number).collect::<Vec<_>>());
        Cost {
            seconds: of(|cost| cost.seconds),
            cpu_s: of(|cost| cost.cpu_s),
            bytes: costs.last().map_or(0, |cost| cost.bytes),
        }
    }
}

/// What came of statements: the time, the bytes on the wire, and the results in the order of the statements.
pub type Ran = (f64, u64, Vec<String>);

/// The answers that all sides must give.
#[derive(Default)]
pub struct Answers(Option<Vec<String>>);

impl Answers {
    pub fn check(&mut self, (seconds, bytes, results): Ran) -> Result<(f64, u64)> {
        let expected = self.0.get_or_insert_with(|| results.clone());
        for (expected, result) in expected.iter().zip(&results) {
            let words = || expected.split_whitespace().zip(result.split_whitespace());
            let differ = |(a, b): (&str, &str)| match (a.parse::<f64>(), b.parse::<f64>()) {
                (Ok(a), Ok(b)) => (a - b).abs() > SAME * a.abs().max(b.abs()),
                _ => a != b,
            };
            if expected.split_whitespace().count() != result.split_whitespace().count() || words().any(differ)
            {
                bail!("two sides answer differently: {expected} and {result}");
            }
        }
        Ok((seconds, bytes))
    }
}

pub async fn session(pool: &Arc<dyn Pool>, pushdown: bool, threads: usize) -> Result<Arc<Session>> {
    let work = Some(WorkMemory::new(WORK_BYTES));
    let options =
        SessionOptions { pushdown, target_partitions: Some(threads), work, ..SessionOptions::default() };
    let session = Session::new(options);
    session.register_pool("farpool", pool.clone()).await?;
    Ok(Arc::new(session))
}

async fn one(session: Arc<Session>, statement: String) -> Result<(u64, String)> {
    let query = session.sql(statement.as_str()).await?;
    let rows = shown(&query.collect().await?)?;
    Ok((query.receipt().bytes_on_wire, rows))
}

async fn sequentially(session: &Arc<Session>, statements: &[String]) -> Result<Ran> {
    concurrently(session, statements, 1).await
}

/// Runs so many statements at once.
async fn concurrently(session: &Arc<Session>, statements: &[String], at_once: usize) -> Result<Ran> {
    let start = Instant::now();
    let mut results = vec![String::new(); statements.len()];
    let (mut tasks, mut bytes, mut next) = (JoinSet::new(), 0, statements.iter().enumerate());
    loop {
        while tasks.len() < at_once.max(1)
            && let Some((place, statement)) = next.next()
        {
            let one = one(session.clone(), statement.clone());
            tasks.spawn(async move { (place, one.await) });
        }
        let Some(ended) = tasks.join_next().await else { break };
        let (place, outcome) = ended?;
        let (moved, rows) = outcome?;
        bytes += moved;
        results[place] = rows;
    }
    Ok((start.elapsed().as_secs_f64(), bytes, results))
}

/// Runs statements as a batch.
async fn batch(session: &Session, statements: &[String]) -> Result<Ran> {
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

/// Rows as text.
pub fn shown(batches: &[RecordBatch]) -> Result<String> {
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
