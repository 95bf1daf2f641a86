//! Appends rows one by one as fast as the node accepts them, and compares scans of the table with one that was loaded
//! at once.

use super::definition::{Appends, Definition, Scan};
use super::growing::{GROWING, LOADED, Memory, Pair, Watch};
use super::served::{Served, answer, ask};
use crate::suite::{Samples, turns};
use crate::{pools, text};
use anyhow::Result;
use arrow::array::RecordBatch;
use farpool::{LoadMode, Pool, Session, TableName};
use futures::future::try_join_all;
use futures::stream;
use serde::Serialize;
use std::sync::Arc;
use std::time::Instant;

/// Results of the appends, and of the scans after them.
#[derive(Clone, Debug, Serialize)]
pub struct AppendsResult {
    pub connections: usize,
    pub rows: usize,
    /// Seconds from the first append to the last answer.
    pub elapsed_s: f64,
    pub memory: Memory,
    pub scans: Vec<ScanResult>,
}

/// Medians of a statement over both tables, in turns.
#[derive(Clone, Debug, Serialize)]
pub struct ScanResult {
    pub name: String,
    pub runs: usize,
    pub appended: Cost,
    pub loaded: Cost,
    pub at_most: f64,
}

/// Costs of a statement.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Cost {
    /// Time at the client in milliseconds.
    pub ms: f64,
    /// CPU time of its program at the node.
    pub cpu_ms: f64,
}

/// Appends all rows, and runs the scans.
pub async fn measure(definition: &Definition) -> Result<AppendsResult> {
    let Appends { connections, rows, runs, at_most, scans } = &definition.appends;
    text::progress("appends of one row ");
    let served = Arc::new(Served::start(definition.threads, &[1, 1])?);
    let pair = Pair::make(&served, &definition.growing, *rows).await?;
    let pools = try_join_all((0..*connections).map(|_| served.connect(GROWING))).await?;
    let watch = Watch::start(&served, GROWING);
    let start = Instant::now();
    append_all(pools, &TableName::new(&definition.growing.table.name)?, &pair.rows).await?;
    let elapsed_s = start.elapsed().as_secs_f64();
    let memory = pair.compare(watch.stop()).await?;
    let clients = [served.client(GROWING, true).await?, served.client(LOADED, true).await?];
    let mut results = Vec::new();
    for Scan { name, sql } in scans {
        text::progress(&format!("{name} after appends of one row "));
        let expected = answer(&*served.client(LOADED, false).await?, sql).await?;
        for client in &clients {
            ask(client, sql, &expected).await?;
        }
        let [appended, loaded] = time_in_turns(&clients, sql, *runs).await?;
        results.push(ScanResult { name: name.clone(), runs: *runs, appended, loaded, at_most: *at_most });
    }
    Ok(AppendsResult {
        connections: *connections,
        rows: pair.rows.num_rows(),
        elapsed_s,
        memory,
        scans: results,
    })
}

/// Appends every row by a separate load, using the connections in turns.
async fn append_all(pools: Vec<Arc<dyn Pool>>, table: &TableName, rows: &RecordBatch) -> Result<()> {
    let connections = pools.len();
    let append = |(connection, pool): (usize, Arc<dyn Pool>)| {
        let (table, rows) = (table.clone(), rows.clone());
        tokio::spawn(async move {
            for row in (connection..rows.num_rows()).step_by(connections) {
                let batches = Box::pin(stream::iter([Ok(rows.slice(row, 1))]));
                pool.load(&table, LoadMode::Append.into(), rows.schema(), Some(1), batches).await?;
            }
            anyhow::Ok(())
        })
    };
    try_join_all(pools.into_iter().enumerate().map(append)).await?.into_iter().collect()
}

/// Returns the medians of both clients, whose results have been compared before.
async fn time_in_turns(clients: &[Arc<Session>; 2], sql: &str, runs: usize) -> Result<[Cost; 2]> {
    let mut samples = Samples::new(clients.len());
    for turn in turns(clients.len(), runs) {
        let ran = pools::run(&clients[turn.side], sql).await?;
        samples.add(turn, Cost { ms: ran.ms, cpu_ms: ran.receipt.cpu_ns as f64 / 1e6 });
    }
    let median = |side, cost: fn(&Cost) -> f64| samples.median(side, cost);
    Ok([0, 1].map(|side| Cost { ms: median(side, |cost| cost.ms), cpu_ms: median(side, |cost| cost.cpu_ms) }))
}
