//! The suite `tpch`: the 22 queries, with and without push-down, in-process and over TCP, compared with
//! DuckDB and LiquidCache.

pub mod data;

use crate::suite::queries::{self, Options, QuerySuite};
use anyhow::Result;

/// Runs the suite and prints its report.
pub fn run(options: &Options) -> Result<()> {
    let suite = QuerySuite { name: "tpch", tables: &data::TABLES, folder: data::folder };
    queries::run(&suite, options)
}
