//! The suite `larger`: TPC-H with less memory than the tables take, in a memory cgroup, compared with DuckDB.

mod belady;
mod cgroup;
mod definition;
mod measure;
mod report;
pub mod side;
mod trace;
mod units;

use crate::suite;
use anyhow::Result;
use definition::Definition;

/// Options of the suite.
#[derive(Debug, clap::Args)]
pub struct Options {
    #[command(flatten)]
    common: suite::Options,
    /// Another scale factor than the suite's.
    #[arg(long)]
    scale: Option<f64>,
    /// Other limits of the cgroups, in MiB.
    #[arg(long, value_delimiter = ',', value_name = "MIB")]
    limits: Option<Vec<u64>>,
    /// Only these queries.
    #[arg(long, value_delimiter = ',')]
    queries: Option<Vec<usize>>,
}

/// Runs the suite and prints its report.
pub fn run(options: &Options) -> Result<()> {
    let mut definition: Definition = options.common.definition("larger")?;
    definition.is_quick = options.common.quick;
    definition.scale = options.scale.unwrap_or(definition.scale);
    if let Some(limits) = &options.limits {
        definition.limits_mib.clone_from(limits);
    }
    if let Some(queries) = &options.queries {
        definition.queries.clone_from(queries);
    }
    let results = measure::run(&definition)?;
    options.common.report(&results.head.date, "larger", &results, &report::text(&results))
}
