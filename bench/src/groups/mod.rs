//! The suite `groups`: work that concurrent queries share. Queries of one client that read the same columns fetch these
//! once, and clients of one node share the row groups that scans read from disk and the results of equal filters.

mod clients;
mod dashboards;
mod definition;
mod durable;
mod goals;
mod joins;
mod link;
mod measure;
mod pipelines;
mod report;
mod scans;
mod stage;
mod statements;

use crate::suite;
use anyhow::Result;
use clap::ValueEnum;
use definition::Definition;

/// Options of the suite.
#[derive(Debug, clap::Args)]
pub struct Options {
    #[command(flatten)]
    common: suite::Options,
    /// Only these parts.
    #[arg(long, value_delimiter = ',', value_enum)]
    parts: Option<Vec<Part>>,
    /// For pipelines and dashboards, only tables whose names have this in them.
    #[arg(long)]
    tables: Option<String>,
    /// Another scale factor of TPC-H than the suite's.
    #[arg(long)]
    scale: Option<f64>,
}

/// A part of the suite, which `--parts` selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Scans of one client with common columns.
    Pipelines,
    /// Statements one by one and as a batch.
    Dashboards,
    /// Hash joins of one client with common columns.
    Joins,
    /// Clients that scan the same table.
    Scans,
    /// Clients that go through the queries of TPC-H.
    Clients,
}

/// Runs the suite and prints its report.
pub fn run(options: &Options) -> Result<()> {
    let refused = link::enter();
    let mut definition = Definition::read(&options.common)?;
    definition.clients.scale = options.scale.unwrap_or(definition.clients.scale);
    if let Some(part) = &options.tables {
        definition.keep_tables(part);
    }
    let notes = refused.into_iter().map(|why| format!("without a network of its own: {why}")).collect();
    let parts = options.parts.as_deref().unwrap_or(Part::value_variants());
    let results = measure::run(&definition, parts, notes)?;
    let name = suite::name_of_parts("groups", options.parts.as_deref());
    options.common.report(&results.head.date, &name, &results, &report::text(&results, &definition))
}
