//! The suite `farview`: the queries of the Farview paper on a remote pool, compared with engines with local data and
//! with remote ones.

mod bound;
mod definition;
mod goals;
mod measure;
mod remote;
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
    /// Rows of the largest table; the others shrink or grow with it, and only the largest size of each runs.
    #[arg(long)]
    rows: Option<u64>,
    /// Only cases whose names contain one of these.
    #[arg(long, value_delimiter = ',')]
    cases: Vec<String>,
    /// Only these rivals.
    #[arg(long, value_delimiter = ',')]
    rivals: Option<Vec<String>>,
}

/// Runs the suite and prints its report.
pub fn run(options: &Options) -> Result<()> {
    let mut definition: Definition = options.common.definition("farview")?;
    if let Some(rows) = options.rows.or(definition.scaled_rows) {
        definition.scale_to(rows);
    }
    if !options.cases.is_empty() {
        definition.cases.retain(|case| options.cases.iter().any(|part| case.name.contains(part)));
    }
    if let Some(rivals) = &options.rivals {
        definition.rivals.clone_from(rivals);
    }
    let results = suite::runtime(definition.threads)?.block_on(measure::run(&definition))?;
    options.common.report(&results.head.date, "farview", &results, &report::text(&results))
}
