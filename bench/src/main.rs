//! `cargo xtask bench SUITE`: compares farpool with its rivals.
//!
//! Invariant: a time is recorded only if the answers of all sides agree, and every number is reported with the limits
//! of the machine it was measured on. See `bench/README.md` for the method.

#![forbid(unsafe_code)]
#![expect(clippy::disallowed_methods, reason = "a benchmark measures time and uses threads of its own")]

mod accuracy;
#[path = "../../crates/farpool/tests/support/answers.rs"]
mod answers;
mod caribou;
mod clients;
mod correlation;
mod dbms;
mod digest;
mod direct;
mod disk;
mod doors;
mod farview;
mod figures;
mod first_minute;
mod groups;
mod ibex;
mod iopath;
mod joins;
mod larger;
mod limits;
mod machine;
mod node;
mod parameters;
mod places;
mod pools;
mod process;
mod random;
mod record;
mod restart;
mod rival;
mod scan;
mod sketches;
mod ssb;
mod stats;
mod suite;
mod tables;
mod text;
mod threads;
mod tpch;

use anyhow::Result;
use clap::{CommandFactory, Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

/// The allocator is that of the `farpool` program, so that the shipped configuration is measured.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Runs a benchmark suite and prints a table with ratios.
#[derive(Parser)]
#[command(name = "cargo xtask bench", args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    suite: Option<Suite>,
    /// Draws the figures into docs/figures/, from FILE or from the newest record of every suite that has some.
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    figures: Option<Option<PathBuf>>,
}

#[derive(Subcommand)]
enum Suite {
    /// The 22 TPC-H queries, with and without push-down, in-process and over TCP, against DuckDB.
    Tpch(suite::queries::Options),
    /// The 13 queries of the Star Schema Benchmark, in-process and over TCP, against DuckDB.
    Ssb(suite::queries::Options),
    /// Joins of a large table with a smaller one, by its size, keys and payload and by the share of rows with a match,
    /// in-process and over TCP, against DuckDB, Polars and DataFusion.
    Joins(joins::Options),
    /// Selection, distinct, group by, projection, patterns: a remote pool against engines with local data.
    Farview(farview::Options),
    /// Predicates and aggregates over one and two columns, plain and packed, against memory bandwidth.
    Scan(scan::Options),
    /// HyperLogLog, Count-Min and Fast-AGMS of a column, in memory, in a pool and over TCP, against naive loops
    /// and engines; what finding out costs a load.
    Sketches(sketches::Options),
    /// Errors of the sketches against exact counts, over data sets and many seeds.
    SketchAccuracy(accuracy::Options),
    /// Interference between clients of one node: shares, and small queries during floods.
    Clients(clients::Options),
    /// The correlation coefficients of all pairs of columns, against numpy, DuckDB, Polars and a plain loop.
    Correlation(correlation::Options),
    /// Statements over files from the start of a process to its exit, against DuckDB and Polars.
    FirstMinute(first_minute::Options),
    /// TPC-H with less memory than the tables take, in a memory cgroup, against DuckDB with a database file.
    Larger(larger::Options),
    /// Starts of a node over a data directory that is not in the page cache, until it answers, against DuckDB opening
    /// its file.
    Restart(restart::Options),
    /// AES in all modes compared with OpenSSL, by size, direction and number of threads.
    Iopath(iopath::Options),
    /// Keys and values over the Redis protocol, against Redis and memcached: throughput, latency, memory, scans.
    Caribou(caribou::Options),
    /// Queries of one client that share columns, each for itself and at once; clients of one node that share scans, and
    /// go through TPC-H at the same time.
    Groups(groups::Options),
    /// Queries, a large fetch and small statements through the protocols of other systems, against PostgreSQL and DuckDB.
    Doors(doors::Options),
    /// The experiments of the Ibex paper through PostgreSQL: tables of a node against its own tables.
    Ibex(ibex::Options),
    /// A memory node for a suite: prints its address, serves until its input ends.
    #[command(hide = true)]
    Node {
        /// Threads that run queries.
        #[arg(long)]
        threads: usize,
        /// Loads do not profile their rows.
        #[arg(long)]
        without_taps: bool,
        /// Speak TLS, with the certificate and the key in these files.
        #[arg(long, num_args = 2)]
        tls: Option<Vec<PathBuf>>,
    },
    /// The load generator of the suite `caribou`: jobs as lines of JSON.
    #[command(hide = true)]
    Load,
    /// An embedded pool over a data directory, which speaks the protocol of the rivals' drivers.
    #[command(hide = true)]
    Driver(larger::side::Options),
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
    if let Some(file) = &arguments.figures {
        return figures::draw(file.as_deref());
    }
    match &arguments.suite {
        Some(Suite::Tpch(options)) => tpch::run(options),
        Some(Suite::Ssb(options)) => ssb::run(options),
        Some(Suite::Joins(options)) => joins::run(options),
        Some(Suite::Farview(options)) => farview::run(options),
        Some(Suite::Scan(options)) => scan::run(options),
        Some(Suite::Sketches(options)) => sketches::run(options),
        Some(Suite::SketchAccuracy(options)) => accuracy::run(options),
        Some(Suite::Clients(options)) => clients::run(options),
        Some(Suite::Correlation(options)) => correlation::run(options),
        Some(Suite::FirstMinute(options)) => first_minute::run(options),
        Some(Suite::Larger(options)) => larger::run(options),
        Some(Suite::Driver(options)) => larger::side::serve(options),
        Some(Suite::Restart(options)) => restart::run(options),
        Some(Suite::Iopath(options)) => iopath::run(options),
        Some(Suite::Caribou(options)) => caribou::run(options),
        Some(Suite::Groups(options)) => groups::run(options),
        Some(Suite::Doors(options)) => doors::run(options),
        Some(Suite::Ibex(options)) => ibex::run(options),
        Some(Suite::Load) => caribou::serve(),
        Some(Suite::Node { threads, without_taps, tls }) => {
            node::serve_until_input_ends(*threads, *without_taps, tls.as_deref())
        }
        None => Ok(Arguments::command().print_help()?),
    }
}
