//! The suite `clients`: what clients of one node do to one another. How CPU time is shared among tenants and
//! connections that always want more, and what floods do to a client of small queries.

mod definition;
mod measure;
mod report;

use crate::{places, suite};
use anyhow::Result;
use definition::Definition;

/// What can be chosen.
#[derive(Debug, clap::Args)]
pub struct Options {
    #[command(flatten)]
    common: suite::Options,
}

/// Runs the suite and prints its report.
pub fn run(options: &Options) -> Result<()> {
    let mut definition: Definition = places::definition("clients")?;
    if options.common.quick {
        definition.shrink_to_quick();
    }
    let results = measure::run(&definition)?;
    options.common.report(&results.date, "clients", &results, &report::text(&results))
}
