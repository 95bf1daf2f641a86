//! The project's own commands, the same by hand and in CI: `cargo xtask` with `check`, `bench`, `simulate`, `rivals`,
//! `sanitize`, `emulate`, `logic-tests`, `postgres-tests`, `redis-tests`, `doors`, `dist`, `timings`, `edges`, or one for
//! the Python package: `python-wheel`, `python-install`, `python-tests`.
//!
//! Invariant: everything is built with the one profile and the one set of features ([`cargo::WORKSPACE`]), so that
//! checks, tests and benchmarks share build results. This crate does not depend on the project's libraries, so that
//! checks which need no build finish within seconds.

#![forbid(unsafe_code)]

mod built;
mod cargo;
mod check;
mod clients;
mod debian;
mod dist;
mod doors;
#[path = "../../crates/farpool/tests/edges.rs"]
mod edges;
mod emulate;
mod logic_tests;
mod postgres;
mod postgres_tests;
mod programs;
mod python;
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
    /// Compare the recorded answers of queries with PostgreSQL's, which apt installs.
    PostgresTests,
    /// Run Redis' own tests, and real clients of Redis, against a node.
    RedisTests(redis_tests::Options),
    /// Run drivers and tools of PostgreSQL against a node, and the same against PostgreSQL.
    Doors(doors::Options),
    /// Make packages for machines without Rust, and run each in an empty root file system.
    Dist(dist::Options),
    /// Build the Python package, a wheel.
    PythonWheel,
    /// Build the Python package and install it into a virtual environment, which is made if it is not there.
    PythonInstall {
        /// The environment's folder.
        folder: std::path::PathBuf,
    },
    /// Run the tests of the Python package.
    PythonTests {
        /// Arguments for pytest.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Build the program from nothing and print what each part of it costs.
    Timings,
    /// Only the rules of the tree: edges between crates, ARCHITECTURE.md, headers of files.
    Edges,
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Check => check::run(),
        Command::Bench { arguments } => bench(&arguments),
        Command::Simulate { arguments } => cargo::run_program("farpool-sim", &[], &arguments),
        Command::Rivals => rivals::install(),
        Command::Sanitize => sanitize::run(),
        Command::Emulate => emulate::run(),
        Command::LogicTests => logic_tests::run(),
        Command::PostgresTests => postgres_tests::run(),
        Command::RedisTests(options) => redis_tests::run(&options),
        Command::Doors(options) => doors::run(&options),
        Command::Dist(options) => dist::run(&options),
        Command::PythonWheel => python::wheel().map(|wheel| println!("{}", wheel.display())),
        Command::PythonInstall { folder } => python::install(&folder),
        Command::PythonTests { arguments } => python::test(&arguments),
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

/// Runs a suite, with its requirements besides the program.
fn bench(arguments: &[String]) -> Result<()> {
    let needs_python = arguments.first().is_some_and(|suite| suite == "first-minute");
    let python = needs_python.then(python::for_tests).transpose();
    let python = python.unwrap_or_else(|error| {
        eprintln!("without the Python package: {error:#}");
        None
    });
    let environment = python.as_deref().map(|python| ("FARPOOL_PYTHON", python));
    cargo::run_program_with("farpool-bench", &["farpool"], arguments, environment.as_slice())
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
