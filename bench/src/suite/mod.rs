//! The parts that all suites share: their options, the definitions that they read, the turns that their sides (farpool
//! and the systems that it is compared with) take, the answers that must agree, the goals, and the report with its
//! tables.

mod expected;
mod goals;
pub mod queries;
mod rivals;
mod table;
mod turns;

pub use expected::Expected;
pub use goals::{Bound, Goals};
pub use rivals::{RivalResult, list, start};
pub use table::Table;
pub use turns::{Samples, turns, turns_after_warm_up};

use crate::machine::{self, Machine};
use crate::{places, record};
use anyhow::{Context, Result};
use clap::ValueEnum;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Display;
use std::path::PathBuf;
use tokio::runtime::Runtime;

/// Options of every suite.
#[derive(Debug, clap::Args)]
// The options of a suite are a type of the same name, by which clap would name the group of its arguments again.
#[group(skip)]
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
    /// Returns the default options, or those of a quick run.
    #[cfg(test)]
    pub fn of(is_quick: bool) -> Options {
        Options { quick: is_quick, runs: None, json: None, record: false }
    }

    /// Reads the definition of a suite, with the settings of `--quick` and `--runs`.
    pub fn definition<T: DeserializeOwned>(&self, suite: &str) -> Result<T> {
        places::definition_for(suite, self.quick, self.runs)
    }

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

/// The beginning of every record: the suite, and when and where it ran.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Head {
    pub suite: String,
    pub date: String,
    pub machine: Machine,
}

impl Head {
    /// Returns the head of a suite that runs now.
    pub fn of(suite: &str) -> Head {
        Head { suite: suite.to_string(), date: machine::today(), machine: machine::machine() }
    }

    /// Formats the first two lines of a report: the suite and what it measures, and the machine.
    pub fn text(&self, about: impl Display) -> String {
        let Head { suite, date, machine } = self;
        format!("{suite} · {date} · {about}\n{machine}\n")
    }
}

/// Returns the name of the record of some parts of a suite, which must not replace that of the whole suite.
pub fn name_of_parts<P: ValueEnum>(suite: &str, parts: Option<&[P]>) -> String {
    let chosen = parts.unwrap_or_default().iter().filter_map(ValueEnum::to_possible_value);
    chosen.fold(suite.to_string(), |name, part| format!("{name}-{}", part.get_name()))
}

/// Creates the runtime of the compute side.
pub fn runtime(threads: usize) -> Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()
        .context("cannot start a runtime")
}
