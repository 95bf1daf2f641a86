//! The paper's pipelines: scans of one table that share some of their columns.

use super::definition::Table;
use super::stage::{Stage, Ways};
use super::statements::{Answers, concurrently, session};
use crate::suite::{Samples, turns};
use anyhow::Result;
use farpool::{Nearness, Pool};
use serde::Serialize;
use std::sync::Arc;

/// Pipelines over one table, with one overlap.
#[derive(Debug, Serialize)]
pub struct PipelinesResult {
    pub table: String,
    pub overlap: usize,
    #[serde(flatten)]
    pub ways: Ways,
}

/// The pipelines in one of the paper's modes of execution.
#[derive(Debug, Serialize)]
pub struct ModeResult {
    pub table: String,
    pub overlap: usize,
    /// In order: one thread in total; all threads for each pipeline in turn; half of the pipelines concurrently; all
    /// concurrently with a thread each.
    pub modes_s: [f64; 4],
}

/// Runs the pipelines with one overlap in each of the ways. `column_bytes` are the bytes of the table's columns.
pub async fn ways(
    stage: &Stage<'_>,
    table: &Table,
    overlap: usize,
    column_bytes: &[u64],
) -> Result<PipelinesResult> {
    let (statements, columns) = stage.definition.pipelines.statements(overlap, table);
    let ways = stage.ways(&statements, column_bytes.iter().take(columns).sum()).await?;
    Ok(PipelinesResult { table: table.name.clone(), overlap, ways })
}

/// Runs the pipelines with one overlap in each of the modes.
pub async fn modes(stage: &Stage<'_>, table: &Table, overlap: usize) -> Result<ModeResult> {
    let (statements, _) = stage.definition.pipelines.statements(overlap, table);
    let (all, threads) = (statements.len(), stage.definition.threads);
    let mut answers = Answers::default();
    let modes = [(1, 1), (1, threads), (all / 2, 2), (all, 1)];
    let mut samples = Samples::new(modes.len());
    for turn in turns(modes.len(), stage.definition.runs) {
        let (at_once, threads) = modes[turn.side];
        let pool: Arc<dyn Pool> = stage.near(Nearness::Always).await?;
        let session = session(&pool, true, threads).await?;
        samples.add(turn, answers.check(concurrently(&session, &statements, at_once).await?)?.0);
    }
    let modes_s = std::array::from_fn(|mode| samples.median(mode, |seconds| *seconds));
    Ok(ModeResult { table: table.name.clone(), overlap, modes_s })
}
