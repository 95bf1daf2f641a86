//! The suite `ssb`: the 13 queries of the Star Schema Benchmark, in-process and over TCP, compared with DuckDB.

mod columns;
mod data;
mod dates;
mod dimensions;
mod lineorder;
#[cfg(test)]
mod tests;

use crate::suite::queries::{self, Options, QuerySuite};
use anyhow::Result;

/// Runs the suite and prints its report.
pub fn run(options: &Options) -> Result<()> {
    let suite = QuerySuite { name: "ssb", tables: &data::TABLES, folder: data::folder };
    queries::run(&suite, options)
}
