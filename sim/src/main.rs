//! `cargo xtask simulate`: one seed, or many.

use clap::Parser;
use farpool_node::clock::Stopwatch;
use farpool_sim::{Failure, simulate, simulate_twice};
use std::io::{IsTerminal, Write, stderr};
use std::process::ExitCode;

/// Of so many seeds one is run twice, to see that it does the same again.
const TWICE_EVERY: u64 = 20;

/// Simulates a node and its clients, from seeds.
#[derive(Parser)]
#[command(name = "cargo xtask simulate")]
struct Arguments {
    /// Runs this seed only, as to repeat a failure.
    #[arg(long, conflicts_with_all = ["seeds", "first", "seconds"])]
    seed: Option<u64>,
    /// Runs so many seeds.
    #[arg(long, default_value_t = 200)]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 1)]
    first: u64,
    /// Begins no further seed after so many seconds.
    #[arg(long)]
    seconds: Option<u64>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match arguments.seed {
        Some(seed) => run_one(seed),
        None => run_many(&arguments),
    };
    match outcome {
        Ok(told) => println!("{told}"),
        Err((seed, failure)) => {
            let Failure { wrong, events } = failure;
            eprintln!("{events}\n\nerror: {wrong}\nrepeat it with: cargo xtask simulate --seed {seed}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn run_one(seed: u64) -> Result<String, (u64, Failure)> {
    let hash = simulate_twice(seed).map_err(|failure| (seed, failure))?;
    Ok(format!("seed {seed}: nothing wrong; all that happened hashes to {hash:016x}"))
}

/// Runs seeds until there are enough, time is over, or one fails.
fn run_many(arguments: &Arguments) -> Result<String, (u64, Failure)> {
    let start = Stopwatch::start();
    let is_over = || arguments.seconds.is_some_and(|seconds| start.elapsed_s() >= seconds);
    let mut done = 0;
    while done < arguments.seeds && !is_over() {
        let seed = arguments.first.wrapping_add(done);
        let simulate = if done.is_multiple_of(TWICE_EVERY) { simulate_twice } else { simulate };
        simulate(seed).map_err(|failure| (seed, failure))?;
        done += 1;
        show_progress(done, arguments.seeds);
    }
    Ok(format!("{done} seeds from {} on: nothing wrong", arguments.first))
}

fn show_progress(done: u64, seeds: u64) {
    if stderr().is_terminal() {
        let end = if done == seeds { "\n" } else { "\r" };
        // Progress that cannot be shown is no failure.
        drop(write!(stderr(), "{done} of {seeds} seeds{end}"));
    }
}
