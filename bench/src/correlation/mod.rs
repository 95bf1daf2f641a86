//! The suite `correlation`: the coefficients of all pairs of columns, compared with numpy, engines and a
//! plain loop.

mod definition;
mod measure;
mod report;
mod values;

use crate::suite;
use anyhow::Result;
use definition::Definition;

/// Options of the suite.
#[derive(Debug, clap::Args)]
pub struct Options {
    #[command(flatten)]
    common: suite::Options,
    /// Only the cases whose names contain this.
    #[arg(long, value_name = "TEXT")]
    case: Option<String>,
}

/// Runs the suite and prints its report.
pub fn run(options: &Options) -> Result<()> {
    let mut definition: Definition = options.common.definition("correlation")?;
    if let Some(wanted) = &options.case {
        definition.cases.retain(|case| case.name.contains(wanted));
    }
    let results = measure::run(&definition)?;
    options.common.report(&results.head.date, "correlation", &results, &report::text(&results))
}
