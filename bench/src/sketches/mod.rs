//! The suite `sketches`: HyperLogLog, Count-Min and Fast-AGMS, alone and together, of a column in memory, in
//! a pool and at a node behind TCP, compared with a naive implementation and with engines that count distinct
//! values; and the cost of profiling during a load.

mod data;
mod definition;
mod ingest;
mod library;
mod measure;
mod naive;
mod pools;
mod report;
mod results;

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
    rows: Option<usize>,
}

/// Runs the suite and prints its report.
pub fn run(options: &Options) -> Result<()> {
    let mut definition: Definition = options.common.definition("sketches")?;
    definition.rows = options.rows.unwrap_or(definition.rows).max(1);
    let results = measure::run(&definition)?;
    options.common.report(&results.head.date, "sketches", &results, &report::text(&results))
}
