//! Dashboards: statements that are sent one by one, and as a batch.

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

/// A dashboard over one link.
#[derive(Debug, Serialize)]
pub struct DashboardResult {
    pub name: String,
    pub link: String,
    pub statements: usize,
    pub apart: Cost,
    pub together: Cost,
}

/// Costs of a dashboard: medians.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Cost {
    pub seconds: f64,
    pub cpu_s: f64,
    pub bytes: u64,
}

/// Runs a dashboard in both ways, in turns. `capped` is the bandwidth of the link, in Mbit/s, if it is limited.
pub async fn run(
    stage: &Stage<'_>,
    dashboard: &Dashboard,
    table: &Table,
    capped: Option<u64>,
) -> Result<DashboardResult> {
    let statements = dashboard.statements(table);
    let threads = stage.definition.threads;
    let (mut answers, mut samples) = (Answers::default(), Samples::new(2));
    for turn in turns_after_warm_up(2, stage.definition.runs) {
        let is_apart = turn.side == 0;
        let pool: Arc<dyn Pool> =
            if is_apart { stage.remote().await? } else { stage.near(Nearness::Auto).await? };
        let session = session(&pool, true, threads).await?;
        let cost = match is_apart {
            true => cost(stage, &mut answers, sequentially(&session, &statements)).await?,
            false => cost(stage, &mut answers, batch(&session, &statements)).await?,
        };
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

/// Returns the costs of both processes.
async fn cost(
    stage: &Stage<'_>,
    answers: &mut Answers,
    work: impl Future<Output = Result<Ran>>,
) -> Result<Cost> {
    let cpu = || {
        let node = machine::cpu_seconds_of(&stage.node.id().to_string()).unwrap_or(f64::NAN);
        node + machine::cpu_seconds().unwrap_or(f64::NAN)
    };
    let before = cpu();
    let (seconds, bytes) = answers.check(work.await?)?;
    Ok(Cost { seconds, cpu_s: cpu() - before, bytes })
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
