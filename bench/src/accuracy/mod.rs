//! The suite `sketch-accuracy`: errors of the sketches against exact counts, and the validity of their bounds.

mod data;
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
    /// Another number of seeds than the suite's.
    #[arg(long)]
    seeds: Option<u64>,
}

/// Runs the suite and prints its report.
pub fn run(options: &Options) -> Result<()> {
    let mut definition: Definition = options.common.definition("sketch-accuracy")?;
    definition.seeds = options.seeds.unwrap_or(definition.seeds).max(1);
    let results = measure::run(&definition)?;
    options.common.report(&results.head.date, "sketch-accuracy", &results, &report::text(&results))?;
    results.check()
}
