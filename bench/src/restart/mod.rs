//! The suite `restart`: the time from the start of a node's process over a data directory, which is not in the page
//! cache, until it answers, compared with DuckDB opening a file of the same data.

mod definition;
mod measure;
mod report;
mod rival;
mod served;
mod stores;

use crate::suite;
use anyhow::Result;
use definition::Definition;

/// Options of the suite.
#[derive(Debug, clap::Args)]
pub struct Options {
    #[command(flatten)]
    common: suite::Options,
    /// Only stores whose names have this in them.
    #[arg(long)]
    stores: Option<String>,
}

/// Runs the suite and prints its report.
pub fn run(options: &Options) -> Result<()> {
    let mut definition = Definition::read(&options.common)?;
    if let Some(part) = &options.stores {
        definition.stores.retain(|store| store.name.contains(part));
    }
    let results = measure::run(&definition)?;
    options.common.report(&results.head.date, "restart", &results, &report::text(&results))
}
