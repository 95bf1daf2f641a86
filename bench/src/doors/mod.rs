//! The suite `doors`: queries, a large fetch and small statements through the protocols of other systems, beside
//! farpool's own client; compared with PostgreSQL behind the same clients, and with DuckDB behind its own.

mod definition;
mod goals;
mod measure;
mod report;
mod sides;
mod small;
mod tables;

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
    /// Another number of rows than the suite's.
    #[arg(long)]
    rows: Option<u64>,
}

/// A part of the suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// The ten queries.
    Queries,
    /// The fetch of all rows.
    Fetch,
    /// Small statements of one and more clients.
    Small,
}

/// Runs the suite and prints its report.
pub fn run(options: &Options) -> Result<()> {
    let mut definition: Definition = options.common.definition("doors")?;
    definition.rows = options.rows.unwrap_or(definition.rows);
    let parts = options.parts.as_deref().unwrap_or(Part::value_variants());
    let results = suite::runtime(definition.threads)?.block_on(measure::run(&definition, parts))?;
    let name = suite::name_of_parts("doors", options.parts.as_deref());
    options.common.report(&results.head.date, &name, &results, &report::text(&results))
}
