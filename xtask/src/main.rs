//! The project's own commands, the same by hand and in CI: `cargo xtask` with `check`, `bench`, `simulate`,
//! `rivals`, `sanitize`, `emulate`, `logic-tests`, `redis-tests`, `dist`, `timings` or `edges`.
//!
//! Invariant: everything is built with the one profile and the one set of features ([`cargo::WORKSPACE`]), so
//! that checks, tests and benchmarks share build results. This crate does not depend on the project's
//! libraries, so that checks which need no build finish within seconds.

#![forbid(unsafe_code)]

mod built;
mod cargo;
mod check;
mod dist;
#[path = "../../crates/farpool/tests/edges.rs"]
mod edges;
mod emulate;
mod logic_tests;
mod programs;
mod redis_tests;
mod rivals;
mod sanitize;
mod timings;

use anyhow::{Result, bail};
use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Checks and benchmarks of farpool.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Format, rules of the tree, lints, tests with examples and doc tests, documentation.
    Check,
    /// Run a benchmark suite and print a table with ratios; `cargo xtask bench --help` has the options.
    #[command(disable_help_flag = true)]
    Bench {
        /// The suite and its options.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Simulate a node and its clients from seeds; `cargo xtask simulate --help` has the options.
    #[command(disable_help_flag = true)]
    Simulate {
        /// The seeds.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Install the programs that benchmarks compare with into a folder outside the tree.
    Rivals,
    /// Run the unit tests of the crates with `unsafe` code under AddressSanitizer.
    Sanitize,
    /// Run the unit tests of these crates for 64-bit ARM, by an emulator.
    Emulate,
    /// Run a fixed part of SQLite's SQL logic tests, which Maven fetches.
    LogicTests,
    /// Run Redis' own tests, and real clients of Redis, against a node.
    RedisTests(redis_tests::Options),
    /// Make packages for machines without Rust, and run each in an empty root file system.
    Dist(dist::Options),
    /// Build the program from nothing and print what each part of it costs.
    Timings,
    /// Only the rules of the tree: edges between crates, ARCHITECTURE.md, headers of files.
    Edges,
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Check => check::run(),
        Command::Bench { arguments } => cargo::run_program("farpool-bench", &["farpool"], &arguments),
        Command::Simulate { arguments } => cargo::run_program("farpool-sim", &[], &arguments),
        Command::Rivals => rivals::install(),
        Command::Sanitize => sanitize::run(),
        Command::Emulate => emulate::run(),
        Command::LogicTests => logic_tests::run(),
        Command::RedisTests(options) => redis_tests::run(&options),
        Command::Dist(options) => dist::run(&options),
        Command::Timings => timings::run(),
        Command::Edges => rules_of_the_tree(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Prints every broken rule.
pub(crate) fn rules_of_the_tree() -> Result<()> {
    let wrong = edges::violations(&cargo::root()).map_err(anyhow::Error::msg)?;
    wrong.iter().for_each(|line| eprintln!("{line}"));
    match wrong.len() {
        0 => Ok(()),
        count => bail!("{count} rules of the tree are broken (see above)"),
    }
}
