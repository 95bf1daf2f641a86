//! Suites that run a list of queries over generated tables (`tpch`, `ssb`): all queries on all sides in turns, farpool
//! in-process and over TCP, compared with rivals.

mod definition;
mod goals;
mod loading;
mod measure;
mod report;
mod results;
mod sides;

pub use loading::{load_into_all, load_table};
pub use measure::in_turns;
pub use results::SideResult;
pub use sides::{Farpool, Sample, Side, open};

use super::runtime;
use crate::places;
use anyhow::Result;
use definition::Definition;
use std::path::PathBuf;

/// A suite of queries.
#[derive(Clone, Copy, Debug)]
pub struct QuerySuite {
    /// Name of the suite, and of its folder in `testdata/`.
    pub name: &'static str,
    /// Names of the tables; the last one is the largest.
    pub tables: &'static [&'static str],
    /// Returns the folder with the tables at a scale factor as Parquet files, and creates it if it does not exist.
    pub folder: fn(f64) -> Result<PathBuf>,
}

/// Options of a suite of queries.
#[derive(Debug, clap::Args)]
pub struct Options {
    #[command(flatten)]
    common: super::Options,
    /// Another scale factor than the suite's.
    #[arg(long)]
    scale: Option<f64>,
    /// Only these queries.
    #[arg(long, value_delimiter = ',')]
    queries: Option<Vec<String>>,
    /// Only these sides, such as `duckdb,"remote on"`; the first sets the answer.
    #[arg(long, value_delimiter = ',')]
    sides: Option<Vec<String>>,
}

/// Runs a suite and prints its report.
pub fn run(suite: &QuerySuite, options: &Options) -> Result<()> {
    let mut definition: Definition = options.common.definition(suite.name)?;
    definition.scale = options.scale.unwrap_or(definition.scale);
    if let Some(queries) = &options.queries {
        definition.queries.clone_from(queries);
    }
    if let Some(sides) = &options.sides {
        definition.sides.clone_from(sides);
    }
    let results = runtime(definition.threads)?.block_on(measure::run(suite, &definition))?;
    let name = format!("{}-sf{}", suite.name, places::scale_name(results.scale));
    options.common.report(&results.head.date, &name, &results, &report::text(&results))
}
