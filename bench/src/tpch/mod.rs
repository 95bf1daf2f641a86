//! The suite `tpch`: the 22 queries, with and without push-down, in-process and over TCP, compared with
//! DuckDB and LiquidCache.

pub mod data;
mod definition;
mod goals;
pub mod loading;
pub mod measure;
mod report;
mod results;
pub mod sides;

use crate::{places, suite};
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
    /// Only these queries.
    #[arg(long, value_delimiter = ',')]
    queries: Option<Vec<usize>>,
    /// Only these sides, such as `liquidcache,"remote on"`; the first sets the answer.
    #[arg(long, value_delimiter = ',')]
    sides: Option<Vec<String>>,
}

/// Runs the suite and prints its report.
pub fn run(options: &Options) -> Result<()> {
    let mut definition: Definition = options.common.definition("tpch")?;
    definition.scale = options.scale.unwrap_or(definition.scale);
    if let Some(queries) = &options.queries {
        definition.queries.clone_from(queries);
    }
    if let Some(sides) = &options.sides {
        definition.sides.clone_from(sides);
    }
    let results = suite::runtime(definition.threads)?.block_on(measure::run(&definition))?;
    let name = format!("tpch-sf{}", places::scale_name(results.scale));
    options.common.report(&results.head.date, &name, &results, &report::text(&results))
}
