//! Clients of one node that scan the same table, with and without sharing row groups and results of filters.

use super::definition::{COLUMNS, Scans};
use super::durable::{DurableNode, ROOM_BYTES, half_of};
use super::stage::load;
use super::statements::{Answers, one, session};
use crate::stats::median_of;
use crate::suite::{Samples, turns_after_warm_up};
use crate::{machine, text};
use anyhow::Result;
use farpool::{Pool, Receipt};
use serde::Serialize;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Statements of concurrent clients.
#[derive(Debug, Serialize)]
pub struct ScansResult {
    pub name: String,
    pub clients: usize,
    /// Encoded bytes of the columns that the statements read.
    pub distinct_bytes: u64,
    pub shared: ScanCost,
    pub unshared: ScanCost,
}

/// Costs of the statements: medians.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct ScanCost {
    pub seconds: f64,
    /// CPU time of the clients and the node together.
    pub cpu_s: f64,
    /// Bytes that the node read from its data directory.
    pub bytes_read: u64,
    /// Rows for which another program had already evaluated the filter.
    pub rows_known: u64,
}

/// One of the cases.
struct Case {
    name: &'static str,
    statements: Vec<String>,
    columns: usize,
    /// Number of times that each client runs its statement.
    turns: usize,
    /// Delay between the starts of two clients.
    apart: Duration,
    is_larger: bool,
}

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
        let (mut answers, mut samples) = (Answers::default(), Samples::new(2));
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

/// Loads the table into a data directory. Returns the bytes of its columns.
async fn fill(folder: &Path, scans: &Scans, threads: usize) -> Result<Vec<u64>> {
    let node = DurableNode::open(folder, ROOM_BYTES, true, threads)?;
    load(&*node.connect().await?, "t", &scans.columns(), scans.rows).await
}

/// Runs each statement by a separate client, all concurrently, as often as the case requires.
async fn ask(node: &DurableNode, case: &Case, threads: usize, answers: &mut Answers) -> Result<ScanCost> {
    let mut sessions = Vec::new();
    for _ in &case.statements {
        let pool: Arc<dyn Pool> = node.connect().await?;
        sessions.push(session(&pool, true, threads).await?);
    }
    if !case.is_larger {
        // All data is in memory once it has been read.
        let columns: Vec<String> = (0..case.columns).map(|column| format!("sum(c{column} % 7)")).collect();
        one(&sessions[0], &format!("select {} from t", columns.join(", "))).await?;
    }
    let (start, cpu) = (Instant::now(), machine::cpu_seconds().unwrap_or(f64::NAN));
    let mut tasks = JoinSet::new();
    for (place, (session, statement)) in sessions.into_iter().zip(&case.statements).enumerate() {
        let (statement, turns) = (statement.clone(), case.turns);
        let later = case.apart * u32::try_from(place)?;
        tasks.spawn(async move {
            tokio::time::sleep(later).await;
            let (mut whole, mut rows) = (Receipt::default(), String::new());
            for _ in 0..turns {
                let (receipt, answer) = one(&session, &statement).await?;
                whole.merge(&receipt);
                rows = answer;
            }
            anyhow::Ok((place, whole, rows))
        });
    }
    let (mut whole, mut results) = (Receipt::default(), vec![String::new(); case.statements.len()]);
    while let Some(ended) = tasks.join_next().await {
        let (place, receipt, rows) = ended??;
        whole.merge(&receipt);
        results[place] = rows;
    }
    let (seconds, _) = answers.check((start.elapsed().as_secs_f64(), 0, results))?;
    let cpu_s = machine::cpu_seconds().unwrap_or(f64::NAN) - cpu;
    Ok(ScanCost { seconds, cpu_s, bytes_read: whole.bytes_from_disk, rows_known: whole.rows_known })
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
