//! Runs the parts of the suite one after the other.

use super::Part;
use super::clients::{self, ClientsResult};
use super::dashboards::{self, DashboardResult};
use super::definition::{Dashboard, Definition, Table};
use super::joins::{self, JoinsResult};
use super::link;
use super::pipelines::{self, ModeResult, PipelinesResult};
use super::scans::{self, ScansResult};
use super::stage::Stage;
use crate::limits::{self, Limits};
use crate::suite::{self, Head};
use crate::text;
use anyhow::Result;
use serde::Serialize;
use tokio::runtime::Runtime;

/// All numbers of a run of the suite.
#[derive(Debug, Serialize)]
pub struct Results {
    #[serde(flatten)]
    pub head: Head,
    pub runs: usize,
    pub limits: Limits,
    pub notes: Vec<String>,
    pub pipelines: Vec<PipelinesResult>,
    pub modes: Vec<ModeResult>,
    pub joins: Vec<JoinsResult>,
    pub dashboards: Vec<DashboardResult>,
    pub scans: Vec<ScansResult>,
    /// Results of the clients that run TPC-H; `None` if `--parts` left them out.
    pub clients: Option<ClientsResult>,
}

/// Runs the selected parts. `notes` are those that the report begins with.
pub fn run(definition: &Definition, parts: &[Part], notes: Vec<String>) -> Result<Results> {
    let runtime = suite::runtime(definition.threads)?;
    let mut results = Results {
        head: Head::of("groups"),
        runs: definition.runs,
        limits: limits::measure()?,
        notes,
        pipelines: Vec::new(),
        modes: Vec::new(),
        joins: Vec::new(),
        dashboards: Vec::new(),
        scans: Vec::new(),
        clients: None,
    };
    for (place, table) in definition.tables.iter().enumerate() {
        let of_table = definition.dashboards.iter().filter(|dashboard| dashboard.table == place);
        let has_dashboards = parts.contains(&Part::Dashboards) && of_table.clone().count() > 0;
        if !has_dashboards && !parts.contains(&Part::Pipelines) {
            continue;
        }
        let stage = Stage::start(definition)?;
        let column_bytes = runtime.block_on(stage.load("t", &table.columns(), table.rows))?;
        if parts.contains(&Part::Pipelines) {
            runtime.block_on(run_pipelines(&stage, table, &column_bytes, &mut results))?;
        }
        for dashboard in of_table.filter(|_| has_dashboards) {
            run_dashboard(&runtime, &stage, (dashboard, table), &mut results)?;
        }
    }
    if parts.contains(&Part::Joins) {
        results.joins = runtime.block_on(joins::run(definition))?;
    }
    if parts.contains(&Part::Scans) {
        results.scans =
            runtime.block_on(scans::run(&definition.scans, definition.runs, definition.threads))?;
    }
    if parts.contains(&Part::Clients) {
        let clients = clients::run(&definition.clients, definition.threads, &mut results.notes);
        results.clients = Some(runtime.block_on(clients)?);
    }
    text::progress("");
    Ok(results)
}

/// Runs the pipelines over one table: with each overlap in all ways, and with the first and the largest overlap in the
/// paper's modes.
async fn run_pipelines(
    stage: &Stage<'_>,
    table: &Table,
    column_bytes: &[u64],
    results: &mut Results,
) -> Result<()> {
    let overlaps = &stage.definition.pipelines.overlaps;
    for overlap in overlaps {
        text::progress(&format!("{}, overlap {overlap} ", table.name));
        results.pipelines.push(pipelines::ways(stage, table, *overlap, column_bytes).await?);
    }
    for overlap in [0, overlaps.last().copied().unwrap_or(0)] {
        text::progress(&format!("{}, modes, overlap {overlap} ", table.name));
        results.modes.push(pipelines::modes(stage, table, overlap).await?);
    }
    Ok(())
}

/// Runs a dashboard over loopback, and over the link with limited bandwidth. If the bandwidth cannot be limited, a note
/// says so.
fn run_dashboard(
    runtime: &Runtime,
    stage: &Stage<'_>,
    (dashboard, table): (&Dashboard, &Table),
    results: &mut Results,
) -> Result<()> {
    text::progress(&format!("dashboard {} ", dashboard.name));
    let run = |capped| runtime.block_on(dashboards::run(stage, dashboard, table, capped));
    results.dashboards.push(run(None)?);
    let mbit = Some(stage.definition.capped_mbit);
    if let Err(error) = link::cap(mbit) {
        results.notes.push(format!("without a capped link: {error:#}"));
        return Ok(());
    }
    let result = run(mbit);
    link::cap(None)?;
    results.dashboards.push(result?);
    Ok(())
}
