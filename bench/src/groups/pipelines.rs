//! The pipelines of the paper (Geyer et al., CIDR 2023): aggregates over one table, each over three columns, of which
//! all pipelines have some in common.

use super::definition::Table;
use super::stage::{Stage, Ways};
use super::statements::{Answers, concurrently, session};
use crate::suite::{Samples, turns};
use anyhow::Result;
use farpool::{Nearness, Pool};
use serde::Serialize;
use std::sync::Arc;

/// Costs of the pipelines over one table, with one overlap, by the place where columns and rows are processed.
#[derive(Debug, Serialize)]
pub struct PipelinesResult {
    pub table: String,
    /// Number of columns that all pipelines have in common.
    pub overlap: usize,
    #[serde(flatten)]
    pub ways: Ways,
}

/// Times of the pipelines over one table, with one overlap, in the paper's modes of execution: how many pipelines run
/// concurrently, and with how many threads. Everything runs at the client.
#[derive(Debug, Serialize)]
pub struct ModeResult {
    pub table: String,
    /// Number of columns that all pipelines have in common.
    pub overlap: usize,
    /// Median seconds: one pipeline after the other with one thread; one after the other with all threads; half of the
    /// pipelines concurrently, with two threads; all concurrently, with one thread.
    pub modes_s: [f64; 4],
}

/// Runs the pipelines with one overlap in each of the [`Ways`]. `column_bytes` has the encoded bytes of each of the
/// table's columns.
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

/// Runs the pipelines with one overlap in each of the paper's modes, in turns.
pub async fn modes(stage: &Stage<'_>, table: &Table, overlap: usize) -> Result<ModeResult> {
    let (statements, _) = stage.definition.pipelines.statements(overlap, table);
    let (all, threads) = (statements.len(), stage.definition.threads);
    // Pipelines that run concurrently, and threads of the session.
    let modes = [(1, 1), (1, threads), (all / 2, 2), (all, 1)];
    let (mut answers, mut samples) = (Answers::of(&statements), Samples::new(modes.len()));
    for turn in turns(modes.len(), stage.definition.runs) {
        let (at_once, threads) = modes[turn.side];
        let pool: Arc<dyn Pool> = stage.near(Nearness::Always).await?;
        let session = session(&pool, true, threads).await?;
        let ran = concurrently(&session, &statements, at_once).await?;
        answers.check(&format!("{at_once} at once with {threads} threads"), &ran.answers)?;
        samples.add(turn, ran.seconds);
    }
    let modes_s = std::array::from_fn(|mode| samples.median(mode, |seconds| *seconds));
    Ok(ModeResult { table: table.name.clone(), overlap, modes_s })
}
