//! The suite `scan`: predicates and aggregates over one and two columns of a pool in this process, compared
//! with the memory's read bandwidth.

mod definition;
mod measure;
mod report;

use crate::suite;
use anyhow::Result;
use definition::Definition;

/// Options of the suite.
#[derive(Debug, clap::Args)]
pub struct Options {
    #[command(flatten)]
    common: suite::Options,
    /// Another number of rows than the suite's.
    #[arg(long)]
    rows: Option<u64>,
}

/// Runs the suite and prints its report.
pub fn run(options: &Options) -> Result<()> {
    let mut definition: Definition = options.common.definition("scan")?;
    definition.rows = options.rows.unwrap_or(definition.rows);
    let results = measure::run(&definition)?;
    options.common.report(&results.head.date, "scan", &results, &report::text(&results))
}
