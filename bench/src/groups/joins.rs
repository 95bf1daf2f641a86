//! Groups of hash joins of one table. The client executes them, because nodes do not join: with the number of joins the
//! client's work grows, but not the bytes that are moved.

use super::definition::Definition;
use super::stage::{Stage, Ways};
use crate::text;
use anyhow::Result;
use serde::Serialize;

/// Costs of a number of joins in each of the ways of running them.
#[derive(Debug, Serialize)]
pub struct JoinsResult {
    /// Number of joins.
    pub joins: usize,
    #[serde(flatten)]
    pub ways: Ways,
}

/// Loads both tables into a new node, and measures groups of each number of joins that the definition lists.
pub async fn run(definition: &Definition) -> Result<Vec<JoinsResult>> {
    let stage = Stage::start(definition)?;
    let mut distinct_bytes = 0;
    for table in &definition.joins.tables {
        let column_bytes = stage.load(&table.name, &table.columns(), table.largest()).await?;
        // Each join reads all columns of both tables.
        distinct_bytes += column_bytes.iter().sum::<u64>();
    }
    let mut results = Vec::new();
    for joins in definition.joins.counts.iter().copied() {
        text::progress(&format!("{joins} joins "));
        let ways = stage.ways(&definition.joins.statements(joins), distinct_bytes).await?;
        results.push(JoinsResult { joins, ways });
    }
    Ok(results)
}
