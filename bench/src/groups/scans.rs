//! Concurrent scans of one table by clients of one node over a data directory, with and without shared scans: programs
//! that run concurrently then share the row groups that they read from disk, and the results of equal filters.

use super::definition::{COLUMNS, Scans};
use super::durable::{DurableNode, ROOM_BYTES, half_of};
use super::stage::load;
use super::statements::{Answers, session};
use crate::machine::Stopwatch;
use crate::stats::median_of;
use crate::suite::{Samples, turns_after_warm_up};
use crate::{pools, text};
use anyhow::Result;
use farpool::{Pool, Receipt, Session};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// Costs of one case with shared scans in the node, and without.
#[derive(Debug, Serialize)]
pub struct ScansResult {
    pub name: String,
    /// Number of concurrent clients.
    pub clients: usize,
    /// Encoded bytes of the columns that the statements read, each column counted once.
    pub distinct_bytes: u64,
    pub shared: ScanCost,
    pub unshared: ScanCost,
}

/// Costs of the statements of all clients: medians of the runs.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct ScanCost {
    /// Time from the start of the first client to the end of the last.
    pub seconds: f64,
    /// CPU time of the clients and the node together, which share this process.
    pub cpu_s: f64,
    /// Bytes that the node read from its data directory.
    pub bytes_read: u64,
    /// Number of rows whose filter result came from another program.
    pub rows_known: u64,
}

/// A case: what the clients scan, and when.
struct Case {
    name: &'static str,
    /// The statement of each client.
    statements: Vec<String>,
    /// Number of columns that the statements read: the first ones of the table.
    columns: usize,
    /// Number of times that each client runs its statement.
    turns: usize,
    /// Delay between the starts of two clients.
    apart: Duration,
    /// Whether the columns are larger than the pool, which then holds half of them.
    is_larger: bool,
}

/// Measures all cases over one table, with and without shared scans in turns.
pub async fn run(scans: &Scans, runs: usize, threads: usize) -> Result<Vec<ScansResult>> {
    let folder = tempfile::tempdir()?;
    let data_bytes = fill(folder.path(), scans, threads).await?;
    let different = |clients| (0..clients).map(|client| scans.statement(client)).collect::<Vec<_>>();
    let same = scans.same_filter();
    let at_once = |name, statements, columns, is_larger| Case {
        name,
        statements,
        columns,
        turns: 1,
        apart: Duration::ZERO,
        is_larger,
    };
    let mut cases = Vec::new();
    for clients in &scans.clients {
        cases.push(at_once("larger than the pool", different(*clients), 3, true));
        cases.push(at_once("in memory", different(*clients), 3, false));
    }
    cases.push(at_once("one", same[..1].to_vec(), COLUMNS, false));
    cases.push(at_once("same filter", same, COLUMNS, false));
    let later = at_once("one later than the other", different(scans.later), 3, true);
    cases.push(Case { apart: Duration::from_millis(scans.later_ms), ..later });
    let cyclic = at_once("again and again", different(scans.cyclic), 3, true);
    cases.push(Case { turns: scans.turns, ..cyclic });
    let mut results = Vec::new();
    for case in &cases {
        text::progress(&format!("scans: {}, {} clients ", case.name, case.statements.len()));
        let distinct_bytes = data_bytes[..case.columns].iter().sum::<u64>();
        let pool_bytes = if case.is_larger { half_of(distinct_bytes)? } else { ROOM_BYTES };
        let (mut answers, mut samples) = (Answers::of(&case.statements), Samples::new(2));
        for turn in turns_after_warm_up(2, runs) {
            let node = DurableNode::open(folder.path(), pool_bytes, turn.side == 0, threads)?;
            samples.add(turn, ask(&node, case, threads, &mut answers).await?);
        }
        let [shared, unshared] = [0, 1].map(|side| ScanCost::median(samples.of(side)));
        let (name, clients) = (case.name.to_string(), case.statements.len());
        results.push(ScansResult { name, clients, distinct_bytes, shared, unshared });
    }
    text::progress("");
    Ok(results)
}

/// Loads the table into a data directory. Returns the encoded bytes of each of its columns.
async fn fill(folder: &Path, scans: &Scans, threads: usize) -> Result<Vec<u64>> {
    let node = DurableNode::open(folder, ROOM_BYTES, true, threads)?;
    load(&*node.connect().await?, "t", &scans.columns(), scans.rows).await
}

/// Runs the statements of a case, each by a client with its own connection, and compares the answers.
async fn ask(node: &DurableNode, case: &Case, threads: usize, answers: &mut Answers) -> Result<ScanCost> {
    let mut sessions = Vec::new();
    for _ in &case.statements {
        let pool: Arc<dyn Pool> = node.connect().await?;
        sessions.push(session(&pool, true, threads).await?);
    }
    if !case.is_larger {
        // Reads all columns, so that they are in memory before the time starts.
        let columns: Vec<String> = (0..case.columns).map(|column| format!("sum(c{column} % 7)")).collect();
        pools::run(&sessions[0], &format!("select {} from t", columns.join(", "))).await?;
    }
    let watch = Stopwatch::start();
    let mut tasks = JoinSet::new();
    for (client, (session, statement)) in sessions.into_iter().zip(&case.statements).enumerate() {
        let (delay, statement, turns) = (case.apart * u32::try_from(client)?, statement.clone(), case.turns);
        tasks.spawn(async move {
            tokio::time::sleep(delay).await;
            anyhow::Ok((client, repeat(&session, &statement, turns).await?))
        });
    }
    let (mut whole, mut last) = (Receipt::default(), BTreeMap::new());
    while let Some(ended) = tasks.join_next().await {
        let (client, (receipt, ran)) = ended??;
        whole.merge(&receipt);
        last.insert(client, ran);
    }
    let (seconds, cpu_s) = watch.seconds();
    let results = last.values().map(pools::Ran::answer).collect::<Result<Vec<_>>>()?;
    answers.check("the scans of a node", &results)?;
    Ok(ScanCost { seconds, cpu_s, bytes_read: whole.bytes_from_disk, rows_known: whole.rows_known })
}

/// Runs a statement `turns` times, one after the other. Returns the execution statistics of all runs together, and the
/// last run.
async fn repeat(session: &Session, statement: &str, turns: usize) -> Result<(Receipt, pools::Ran)> {
    let mut last = pools::run(session, statement).await?;
    let mut whole = last.receipt.clone();
    for _ in 1..turns {
        last = pools::run(session, statement).await?;
        whole.merge(&last.receipt);
    }
    Ok((whole, last))
}

impl ScanCost {
    fn median(costs: &[ScanCost]) -> ScanCost {
        ScanCost {
            seconds: median_of(costs, |cost| cost.seconds),
            cpu_s: median_of(costs, |cost| cost.cpu_s),
            bytes_read: median_of(costs, |cost| cost.bytes_read as f64) as u64,
            rows_known: median_of(costs, |cost| cost.rows_known as f64) as u64,
        }
    }
}
