//! The suite `iopath`: the processing between memory and disk, compared with other libraries.

mod data;
mod definition;
mod farpool_packing;
mod farpool_side;
mod measure;
mod measure_packing;
mod mix;
mod packing;
mod report;
mod rounds;

use crate::suite;
use anyhow::Result;
use definition::Definition;

/// Options of the suite.
#[derive(Debug, clap::Args)]
pub struct Options {
    #[command(flatten)]
    common: suite::Options,
    /// Only the parts whose names contain this, such as AES-128-GCM, lz4 or mix.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
}

/// Runs the suite and prints its report.
pub fn run(options: &Options) -> Result<()> {
    let definition: Definition = options.common.definition("iopath")?;
    let wanted = options.only.as_deref().unwrap_or_default();
    let results = measure::run(&definition, wanted)?;
    options.common.report(&results.head.date, "iopath", &results, &report::text(&results))
}
