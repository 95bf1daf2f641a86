//! Clients over loopback TCP that run their queries again and again, and what each got.

use super::definition::{Definition, Flood, Shares, Small};
use crate::answers::{self, Answer};
use crate::limits::{self, Limits};
use crate::machine::{self, Machine};
use crate::{node, stats, suite, tables, text};
use anyhow::{Context, Result, bail};
use farpool::model::TenantName;
use farpool::node::{Access, Node, NodeConfig, Right, TenantLimits};
use farpool::{EmbeddedPool, LoadMode, Pool, Receipt, Session, SessionOptions, TableName};
use futures::future::try_join_all;
use futures::stream;
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// Memory of the node: the tables, of which each tenant has one.
const MEMORY_BYTES: usize = 8 << 30;

/// A run of the suite.
#[derive(Clone, Debug, Serialize)]
pub struct Results {
    pub suite: String,
    pub date: String,
    pub machine: Machine,
    pub limits: Limits,
    pub rows: u64,
    pub threads: usize,
    pub shares: Vec<SharesResult>,
    pub small: Vec<SmallResult>,
}

/// How the node was shared.
#[derive(Clone, Debug, Serialize)]
pub struct SharesResult {
    pub name: String,
    pub expected: Vec<f64>,
    /// The part of the CPU time that each client's programs had.
    pub measured: Vec<f64>,
    /// Programs that all clients ran to their end.
    pub programs: usize,
    pub within: f64,
}

/// What the client of small queries saw.
#[derive(Clone, Debug, Serialize)]
pub struct SmallResult {
    /// Beside what; `alone` first.
    pub beside: String,
    pub queries: usize,
    pub p50_ms: f64,
    pub p99_ms: f64,
    /// Time in which the node could have gone on with the query and had no worker for it.
    pub waited_p50_ms: f64,
    pub waited_p99_ms: f64,
    pub at_most: f64,
}

impl SharesResult {
    /// By how much of its share the client is off whose share is off most.
    pub fn off_by(&self) -> f64 {
        let off = |(measured, expected): (&f64, &f64)| (measured / expected - 1.0).abs();
        self.measured.iter().zip(&self.expected).map(off).fold(0.0, f64::max)
    }
}

/// A node and how to reach it.
struct Served {
    node: Arc<Node>,
    url: String,
}

/// Runs the whole suite.
pub fn run(definition: &Definition) -> Result<Results> {
    let limits = limits::measure()?;
    let runtime = suite::runtime(definition.threads)?;
    let mut shares = Vec::new();
    for case in &definition.shares {
        text::progress(&format!("{} ", case.name));
        shares.push(runtime.block_on(share(definition, case)).with_context(|| case.name.clone())?);
    }
    let small = runtime.block_on(small(definition))?;
    text::progress("");
    Ok(Results {
        suite: "clients".to_string(),
        date: machine::today(),
        machine: machine::machine(),
        limits,
        rows: definition.rows,
        threads: definition.threads,
        shares,
        small,
    })
}

impl Served {
    /// A node for tenants with these weights: `t0`, `t1`, …, whose tokens are their names.
    fn start(threads: usize, weights: &[u32]) -> Result<Self> {
        let names: Vec<String> = (0..weights.len()).map(|i| format!("t{i}")).collect();
        let mut access = Access::of_nobody();
        for (name, weight) in names.iter().zip(weights) {
            let (tenant, limits) =
                (TenantName::new(name)?, TenantLimits { weight: *weight, ..Default::default() });
            access = access.with_token(name, tenant.clone(), Right::Write).with_limits(tenant, limits);
        }
        let config =
            NodeConfig { memory_bytes: MEMORY_BYTES, workers: threads, access, ..NodeConfig::default() };
        let node = Node::start(config)?;
        let address = node::serve(node.clone(), threads)?;
        Ok(Served { node, url: format!("farpool://{address}") })
    }

    /// Loads a table for a tenant.
    async fn load(&self, tenant: usize, table: &str, definition: &Definition, rows: u64) -> Result<()> {
        let pool = EmbeddedPool::over(self.node.clone(), TenantName::new(format!("t{tenant}"))?);
        let batches: Vec<_> = tables::batches(&definition.table.columns(), rows).collect::<Result<_>>()?;
        let schema = batches.first().context("a table needs rows")?.schema();
        let name = TableName::new(table)?;
        let batches = Box::pin(stream::iter(batches.into_iter().map(Ok)));
        pool.load(&name, LoadMode::Replace, schema, Some(rows), batches).await?;
        suite::await_profile(&*pool, &name).await
    }

    /// A client of a tenant, with a connection of its own.
    async fn client(&self, tenant: usize, pushdown: bool) -> Result<Arc<Session>> {
        let options = SessionOptions { pushdown, target_partitions: Some(1), ..SessionOptions::default() };
        let session = Session::new(options);
        let pool = farpool::connect(&self.url, Some(&format!("t{tenant}"))).await?;
        session.register_pool("farpool", pool).await?;
        Ok(Arc::new(session))
    }
}

/// Clients that run a query until they are told to stop; what each run cost.
struct Flooding {
    stop: Arc<AtomicBool>,
    clients: Vec<JoinHandle<Result<Vec<Receipt>>>>,
}

impl Flooding {
    fn start(clients: Vec<Arc<Session>>, sql: &str, expected: &Answer) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let flood = |client: Arc<Session>| {
            let (stop, sql, expected) = (stop.clone(), sql.to_string(), expected.clone());
            tokio::spawn(async move {
                let mut receipts = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    receipts.push(ask(&client, &sql, &expected).await?);
                }
                Ok(receipts)
            })
        };
        let clients = clients.into_iter().map(flood).collect();
        Flooding { stop, clients }
    }

    async fn stop(self) -> Result<Vec<Vec<Receipt>>> {
        self.stop.store(true, Ordering::Relaxed);
        try_join_all(self.clients).await?.into_iter().collect()
    }
}

async fn share(definition: &Definition, case: &Shares) -> Result<SharesResult> {
    let weights: Vec<u32> = case.tenants.iter().map(|tenant| tenant.weight).collect();
    let served = Served::start(definition.threads, &weights)?;
    let mut clients = Vec::new();
    for (index, tenant) in case.tenants.iter().enumerate() {
        served.load(index, &definition.table.name, definition, definition.rows).await?;
        for _ in 0..tenant.clients {
            clients.push(served.client(index, true).await?);
        }
    }
    let expected = answer(&*served.client(0, false).await?, &case.sql).await?;
    let flooding = Flooding::start(clients, &case.sql, &expected);
    tokio::time::sleep(Duration::from_secs_f64(definition.window_s)).await;
    let receipts = flooding.stop().await?;
    // Only what ended counts: each client's last program ends a moment after the window.
    let cpu: Vec<f64> = receipts.iter().map(|own| own.iter().map(|r| r.cpu_ns as f64).sum()).collect();
    let all: f64 = cpu.iter().sum();
    Ok(SharesResult {
        name: case.name.clone(),
        expected: case.expected(),
        measured: cpu.iter().map(|own| own / all).collect(),
        programs: receipts.iter().map(Vec::len).sum(),
        within: case.within,
    })
}

/// The small client alone, then beside each flood. Those who flood are another tenant, as large as all its clients.
async fn small(definition: &Definition) -> Result<Vec<SmallResult>> {
    let served = Served::start(definition.threads, &[1, 1])?;
    let Small { table, rows, sql } = &definition.small;
    served.load(0, table, definition, (*rows).min(definition.rows)).await?;
    served.load(1, &definition.table.name, definition, definition.rows).await?;
    let client = served.client(0, true).await?;
    let expected = answer(&*served.client(0, false).await?, sql).await?;
    let queries = definition.small_queries;
    // Warms up, and does not count.
    time(&client, sql, &expected, queries / 4).await?;
    let mut results = vec![time(&client, sql, &expected, queries).await?.result("alone", 1.0)];
    for Flood { name, clients, sql: flood, at_most } in &definition.floods {
        text::progress(&format!("{name} "));
        let expected_of_flood = answer(&*served.client(1, false).await?, flood).await?;
        let sessions = try_join_all((0..*clients).map(|_| served.client(1, true))).await?;
        let flooding = Flooding::start(sessions, flood, &expected_of_flood);
        tokio::time::sleep(Duration::from_secs_f64(definition.window_s / 10.0)).await;
        let times = time(&client, sql, &expected, queries).await?;
        flooding.stop().await?;
        results.push(times.result(name, *at_most));
    }
    Ok(results)
}

#[derive(Default)]
struct Times {
    whole_ms: Vec<f64>,
    waited_ms: Vec<f64>,
}

impl Times {
    fn result(&self, beside: &str, at_most: f64) -> SmallResult {
        SmallResult {
            beside: beside.to_string(),
            queries: self.whole_ms.len(),
            p50_ms: stats::median(&self.whole_ms),
            p99_ms: stats::percentile(&self.whole_ms, 0.99),
            waited_p50_ms: stats::median(&self.waited_ms),
            waited_p99_ms: stats::percentile(&self.waited_ms, 0.99),
            at_most,
        }
    }
}

async fn time(client: &Session, sql: &str, expected: &Answer, queries: usize) -> Result<Times> {
    let mut times = Times::default();
    for _ in 0..queries {
        let start = Instant::now();
        let receipt = ask(client, sql, expected).await?;
        times.whole_ms.push(start.elapsed().as_secs_f64() * 1e3);
        times.waited_ms.push(receipt.waited_ns as f64 / 1e6);
    }
    Ok(times)
}

/// Runs a query and checks its answer.
async fn ask(client: &Session, sql: &str, expected: &Answer) -> Result<Receipt> {
    let query = client.sql(sql).await?;
    let batches = query.collect().await?;
    let columns = query.schema().fields().iter().map(|field| field.name().clone()).collect();
    let actual = Answer::from_batches(columns, &batches).map_err(anyhow::Error::msg)?;
    match answers::difference(expected, &actual) {
        Some(difference) => bail!("the answer differs from the one without push-down: {difference}"),
        None => Ok(query.receipt()),
    }
}

async fn answer(client: &Session, sql: &str) -> Result<Answer> {
    let query = client.sql(sql).await?;
    let batches = query.collect().await?;
    let columns = query.schema().fields().iter().map(|field| field.name().clone()).collect();
    Answer::from_batches(columns, &batches).map_err(anyhow::Error::msg)
}
