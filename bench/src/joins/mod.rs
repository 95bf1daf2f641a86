//! The suite `joins`: joins of a large table with a smaller one, in-process and over TCP, by size of the smaller table,
//! share of rows with a match, payload, rows for each key, and form of the key, compared with other engines.

mod data;
mod definition;
mod measure;
mod report;
mod results;
#[cfg(test)]
mod tests;

use crate::suite;
use anyhow::Result;
use definition::Definition;

/// Options of the suite.
#[derive(Debug, clap::Args)]
pub struct Options {
    #[command(flatten)]
    common: suite::Options,
    /// Other rows of the probe table than the suite's; build tables keep their sizes.
    #[arg(long)]
    rows: Option<u64>,
    /// Only points whose names contain one of these, such as "16 Mi","sparse".
    #[arg(long, value_delimiter = ',')]
    points: Vec<String>,
    /// Only these sides, such as `duckdb,"remote on"`; the first sets the answer.
    #[arg(long, value_delimiter = ',')]
    sides: Option<Vec<String>>,
}

/// Runs the suite and prints its report.
pub fn run(options: &Options) -> Result<()> {
    let mut definition: Definition = options.common.definition("joins")?;
    definition.rows = options.rows.unwrap_or(definition.rows);
    if let Some(sides) = &options.sides {
        definition.sides.clone_from(sides);
    }
    if !options.points.is_empty() {
        definition.retain(|name| options.points.iter().any(|part| name.contains(part)));
    }
    let results = suite::runtime(definition.threads)?.block_on(measure::run(&definition))?;
    options.common.report(&results.head.date, "joins", &results, &report::text(&results))
}
