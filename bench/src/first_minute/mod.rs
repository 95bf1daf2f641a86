//! The suite `first-minute`: the time of a statement over a file from the start of a process to its exit, compared with
//! DuckDB and Polars, whose processes run Python; and the Python package compared with DuckDB's ([`frames`]).

mod data;
mod definition;
mod frames;
mod measure;
mod report;
mod side;

use crate::suite;
use anyhow::Result;
use definition::Definition;

/// Options of the suite.
#[derive(Debug, clap::Args)]
pub struct Options {
    #[command(flatten)]
    common: suite::Options,
    /// Only these cases.
    #[arg(long, value_delimiter = ',')]
    cases: Option<Vec<String>>,
    /// Only the Python package.
    #[arg(long)]
    python: bool,
    /// Only files whose names have this in them.
    #[arg(long)]
    files: Option<String>,
}

/// Runs the suite and prints its report.
pub fn run(options: &Options) -> Result<()> {
    let mut definition: Definition = options.common.definition("first-minute")?;
    if let Some(cases) = &options.cases {
        definition.cases.retain(|case| cases.contains(&case.name));
    }
    if let Some(part) = &options.files {
        definition.files.retain(|file| file.name.contains(part));
    }
    if options.python {
        definition.cases.clear();
    }
    let results = measure::run(&definition)?;
    options.common.report(&results.head.date, "first-minute", &results, &report::text(&results))
}
