//! Code that all suites share: their options, and the output of their results.

use crate::record;
use anyhow::{Context, Result};
use farpool::{Pool, TableName};
use serde::Serialize;
use std::path::PathBuf;
use tokio::runtime::Runtime;

/// Options of every suite.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Tiny data, one counted run: seconds. Answers are still checked.
    #[arg(long)]
    pub quick: bool,
    /// Other counted runs than the suite's.
    #[arg(long)]
    pub runs: Option<usize>,
    /// Writes all numbers to a file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Keeps the table and the numbers, dated, in bench/record/.
    #[arg(long)]
    record: bool,
}

impl Options {
    /// Prints the report, and writes it and the numbers to files if the options request that.
    pub fn report<T: Serialize>(&self, date: &str, name: &str, results: &T, text: &str) -> Result<()> {
        print!("{text}");
        if let Some(file) = &self.json {
            record::write(file, &record::json(results)?)?;
        }
        if self.record {
            record::keep(date, name, results, text)?;
        }
        Ok(())
    }
}

/// Waits until a table's profile is computed, so that computing it does not disturb measurements.
pub async fn await_profile(pool: &dyn Pool, table: &TableName) -> Result<()> {
    pool.statistics(table, None).await?;
    Ok(())
}

/// Creates the runtime of the compute side.
pub fn runtime(threads: usize) -> Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()
        .context("cannot start a runtime")
}
