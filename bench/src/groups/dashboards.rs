//! Dashboards: statements over one table that a client sends one by one, and as one batch.

use super::definition::{Dashboard, Table};
use super::stage::Stage;
use super::statements::{Answers, Ran, batch, sequentially, session};
use crate::machine;
use crate::stats::median_of;
use crate::suite::{Samples, turns_after_warm_up};
use anyhow::Result;
use farpool::{Nearness, Pool};
use serde::Serialize;
use std::sync::Arc;

/// Costs of a dashboard over one network link.
#[derive(Debug, Serialize)]
pub struct DashboardResult {
    pub name: String,
    /// The link: `loopback`, or its bandwidth limit, as in `1000 Mbit/s`.
    pub link: String,
    /// Number of statements.
    pub statements: usize,
    /// Costs of the statements one by one, without a column cache at the client.
    pub apart: Cost,
    /// Costs of the statements as one batch.
    pub together: Cost,
}

/// Costs of all statements of a dashboard.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Cost {
    /// Median of the elapsed time.
    pub seconds: f64,
    /// Median of the CPU time of the client and the node together.
    pub cpu_s: f64,
    /// Bytes on the wire in the last run.
    pub bytes: u64,
}

/// Runs a dashboard one by one and as a batch, in turns. `capped` is the bandwidth limit of the link in Mbit/s, if it
/// has one.
pub async fn run(
    stage: &Stage<'_>,
    dashboard: &Dashboard,
    table: &Table,
    capped: Option<u64>,
) -> Result<DashboardResult> {
    let statements = dashboard.statements(table);
    let threads = stage.definition.threads;
    let (mut answers, mut samples) = (Answers::of(&statements), Samples::new(2));
    for turn in turns_after_warm_up(2, stage.definition.runs) {
        let is_apart = turn.side == 0;
        let pool: Arc<dyn Pool> =
            if is_apart { stage.remote().await? } else { stage.near(Nearness::Auto).await? };
        let session = session(&pool, true, threads).await?;
        let (cost, ran) = match is_apart {
            true => cost(stage, sequentially(&session, &statements)).await?,
            false => cost(stage, batch(&session, &statements)).await?,
        };
        answers.check(if is_apart { "one by one" } else { "the batch" }, &ran.answers)?;
        samples.add(turn, cost);
    }
    Ok(DashboardResult {
        name: dashboard.name.clone(),
        link: capped.map_or("loopback".to_string(), |mbit| format!("{mbit} Mbit/s")),
        statements: statements.len(),
        apart: Cost::median(samples.of(0)),
        together: Cost::median(samples.of(1)),
    })
}

/// Runs `work`, and returns its costs with the CPU time of this process and the node's.
async fn cost(stage: &Stage<'_>, work: impl Future<Output = Result<Ran>>) -> Result<(Cost, Ran)> {
    let cpu = || {
        let node = machine::cpu_seconds_of(&stage.node.id().to_string()).unwrap_or(f64::NAN);
        node + machine::cpu_seconds().unwrap_or(f64::NAN)
    };
    let before = cpu();
    let ran = work.await?;
    Ok((Cost { seconds: ran.seconds, cpu_s: cpu() - before, bytes: ran.bytes }, ran))
}

impl Cost {
    fn median(costs: &[Cost]) -> Cost {
        Cost {
            seconds: median_of(costs, |cost| cost.seconds),
            cpu_s: median_of(costs, |cost| cost.cpu_s),
            bytes: costs.last().map_or(0, |cost| cost.bytes),
        }
    }
}
