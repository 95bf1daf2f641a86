//! Runs clients over loopback TCP that repeat their queries, and measures the share and the latencies of each.

use super::Part;
use super::appends::{self, AppendsResult};
use super::changes::{self, ChangesResult};
use super::definition::{Definition, Flood, Shares, Small};
use super::inserts::{self, InsertsResult};
use super::served::{Served, answer, ask};
use crate::answers::Answer;
use crate::limits::{self, Limits};
use crate::pools::milliseconds;
use crate::suite::{self, Head};
use crate::{stats, text};
use anyhow::{Context, Result};
use farpool::{Receipt, Session};
use futures::future::try_join_all;
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// Results of a run of the suite.
#[derive(Clone, Debug, Serialize)]
pub struct Results {
    #[serde(flatten)]
    pub head: Head,
    pub limits: Limits,
    pub rows: u64,
    pub threads: usize,
    pub shares: Vec<SharesResult>,
    pub small: Vec<SmallResult>,
    pub inserts: Option<InsertsResult>,
    pub appends: Option<AppendsResult>,
    pub changes: Option<ChangesResult>,
}

/// Results of clients that share the node.
#[derive(Clone, Debug, Serialize)]
pub struct SharesResult {
    pub name: String,
    pub expected: Vec<f64>,
    /// The share of the CPU time that each client's programs got.
    pub measured: Vec<f64>,
    /// Number of programs that all clients ran to completion.
    pub programs: usize,
    pub within: f64,
}

/// Results of the client of small queries, with one concurrent load.
#[derive(Clone, Debug, Serialize)]
pub struct SmallResult {
    /// Name of the concurrent load; `alone` first.
    pub beside: String,
    pub queries: usize,
    pub p50_ms: f64,
    pub p99_ms: f64,
    /// Time during which the query was ready to run but had no worker.
    pub waited_p50_ms: f64,
    pub waited_p99_ms: f64,
    pub at_most: f64,
}

impl SharesResult {
    /// Returns the largest relative deviation of a client from its share.
    pub fn off_by(&self) -> f64 {
        let off = |(measured, expected): (&f64, &f64)| (measured / expected - 1.0).abs();
        self.measured.iter().zip(&self.expected).map(off).fold(0.0, f64::max)
    }
}

/// Runs the given parts of the suite.
pub fn run(definition: &Definition, parts: &[Part]) -> Result<Results> {
    let limits = limits::measure()?;
    let runtime = suite::runtime(definition.threads)?;
    let (mut shares, mut small_queries) = (Vec::new(), Vec::new());
    let (mut inserts, mut appends, mut changes) = (None, None, None);
    for part in parts {
        match part {
            Part::Shares => {
                for case in &definition.shares {
                    text::progress(&format!("{} ", case.name));
                    let result = runtime.block_on(share(definition, case));
                    shares.push(result.with_context(|| case.name.clone())?);
                }
            }
            Part::Floods => small_queries = runtime.block_on(small(definition)).context("floods")?,
            Part::Inserts => {
                inserts = Some(runtime.block_on(inserts::measure(definition)).context("inserts")?);
            }
            Part::Appends => {
                appends = Some(runtime.block_on(appends::measure(definition)).context("appends")?);
            }
            Part::Changes => {
                let measured = changes::measure(&definition.changes, definition.threads);
                changes = Some(runtime.block_on(measured).context("changes")?);
            }
        }
    }
    text::progress("");
    Ok(Results {
        head: Head::of("clients"),
        limits,
        rows: definition.rows,
        threads: definition.threads,
        shares,
        small: small_queries,
        inserts,
        appends,
        changes,
    })
}

/// Clients that run a query until they are stopped, and return the execution statistics (receipt) of each run.
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
        served.load(index, &definition.table.name, &definition.table, definition.rows).await?;
        for _ in 0..tenant.clients {
            clients.push(served.client(index, true).await?);
        }
    }
    let expected = answer(&*served.client(0, false).await?, &case.sql).await?;
    let flooding = Flooding::start(clients, &case.sql, &expected);
    tokio::time::sleep(Duration::from_secs_f64(definition.window_s)).await;
    let receipts = flooding.stop().await?;
    // Only programs that have ended count: each client's last program ends a moment after the window.
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

/// Measures the small client alone, then during each flood. The flooding clients are of another tenant.
async fn small(definition: &Definition) -> Result<Vec<SmallResult>> {
    let served = Arc::new(Served::start(definition.threads, &[1, 1])?);
    let Small { table, rows, sql } = &definition.small;
    served.load(0, table, &definition.table, (*rows).min(definition.rows)).await?;
    served.load(1, &definition.table.name, &definition.table, definition.rows).await?;
    let client = SmallClient {
        served: served.clone(),
        sql: sql.clone(),
        expected: answer(&*served.client(0, false).await?, sql).await?,
        queries: definition.small_queries,
    };
    let mut results = vec![client.times().await?.result("alone", 1.0)];
    for Flood { name, clients, sql: flood, at_most } in &definition.floods {
        text::progress(&format!("{name} "));
        let expected_of_flood = answer(&*served.client(1, false).await?, flood).await?;
        let sessions = try_join_all((0..*clients).map(|_| served.client(1, true))).await?;
        let flooding = Flooding::start(sessions, flood, &expected_of_flood);
        tokio::time::sleep(Duration::from_secs_f64(definition.window_s / 10.0)).await;
        let times = client.times().await?;
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

/// The client whose small queries are measured.
#[derive(Clone)]
struct SmallClient {
    served: Arc<Served>,
    sql: String,
    expected: Answer,
    queries: usize,
}

impl SmallClient {
    /// Measures the client's queries on a separate runtime, as in a separate process, so that floods are not planned on
    /// its threads.
    async fn times(&self) -> Result<Times> {
        let client = self.clone();
        let times = move || suite::runtime(1)?.block_on(client.ask_often());
        tokio::task::spawn_blocking(times).await?
    }

    async fn ask_often(&self) -> Result<Times> {
        let client = self.served.client(0, true).await?;
        let mut times = Times::default();
        // Warm-up queries, which do not count.
        for _ in 0..self.queries / 4 {
            ask(&client, &self.sql, &self.expected).await?;
        }
        for _ in 0..self.queries {
            let start = Instant::now();
            let receipt = ask(&client, &self.sql, &self.expected).await?;
            times.whole_ms.push(milliseconds(start));
            times.waited_ms.push(receipt.waited_ns as f64 / 1e6);
        }
        Ok(times)
    }
}
