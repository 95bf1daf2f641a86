//! `cargo xtask bench SUITE`: farpool side by side with its rivals.
//!
//! Invariant: a time is only kept after the answers of all sides agreed, and every number stands beside the
//! limits of the machine it was measured on. See `bench/README.md` for the method.

#![forbid(unsafe_code)]
#![expect(clippy::disallowed_methods, reason = "a benchmark measures time and uses threads of its own")]

#[path = "../../crates/farpool/tests/support/answers.rs"]
mod answers;
mod data;
mod definition;
mod duckdb;
mod goals;
mod limits;
mod loading;
mod machine;
mod measure;
mod places;
mod report;
mod results;
mod sides;

use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};
use definition::Definition;
use std::path::PathBuf;
use std::process::ExitCode;

/// As in the `farpool` program: what is measured is what is shipped.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Runs a benchmark suite and prints a table with ratios.
#[derive(Parser)]
#[command(name = "cargo xtask bench")]
struct Arguments {
    /// The suite.
    #[arg(value_enum)]
    suite: Suite,
    /// Tiny data, one counted run: seconds. Answers are still checked.
    #[arg(long)]
    quick: bool,
    /// Writes all numbers to a file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Keeps the table and the numbers, dated, in bench/record/.
    #[arg(long)]
    record: bool,
    /// Another scale factor than the suite's.
    #[arg(long)]
    scale: Option<f64>,
    /// Other counted runs than the suite's.
    #[arg(long)]
    runs: Option<usize>,
    /// Only these queries.
    #[arg(long, value_delimiter = ',')]
    queries: Option<Vec<usize>>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Suite {
    /// The 22 TPC-H queries, with and without push-down, in-process and over TCP, against DuckDB.
    Tpch,
}

impl Suite {
    fn name(self) -> &'static str {
        match self {
            Suite::Tpch => "tpch",
        }
    }
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let mut definition = Definition::read(arguments.suite.name(), arguments.quick)?;
    definition.scale = arguments.scale.unwrap_or(definition.scale);
    definition.runs = arguments.runs.unwrap_or(definition.runs).max(1);
    if let Some(queries) = &arguments.queries {
        definition.queries.clone_from(queries);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(definition.threads)
        .enable_all()
        .build()
        .context("cannot start a runtime")?;
    let results = runtime.block_on(measure::run(arguments.suite.name(), &definition))?;
    let text = report::text(&results);
    print!("{text}");
    if let Some(file) = &arguments.json {
        let json = serde_json::to_string_pretty(&results)?;
        std::fs::write(file, json).with_context(|| format!("cannot write {}", file.display()))?;
    }
    if arguments.record {
        results::record(&results, &text)?;
    }
    Ok(())
}
