//! `cargo xtask simulate`: runs one seed, or many.

#![forbid(unsafe_code)]

use clap::Parser;
use farpool_node::clock::Stopwatch;
use farpool_sim::{Failure, Run, same_again, simulate};
use std::io::{IsTerminal, Write, stderr};
use std::process::{ExitCode, exit};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

/// One seed in this many is run twice, to check that both runs are the same.
const TWICE_EVERY: u64 = 20;

/// Real time after which a seed is considered to hang: about ten times the longest duration (of seeds with many scans,
/// on a busy machine), and hundreds of times the usual one.
const SEED_MAX: Duration = Duration::from_secs(if cfg!(debug_assertions) { 600 } else { 30 });

/// Simulates a node and its clients, from seeds.
#[derive(Parser)]
#[command(name = "cargo xtask simulate")]
struct Arguments {
    /// Runs this seed only, as to repeat a failure.
    #[arg(long, conflicts_with_all = ["seeds", "first", "seconds"])]
    seed: Option<u64>,
    /// Number of seeds to run.
    #[arg(long, default_value_t = 200)]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 1)]
    first: u64,
    /// Number of seconds after which no further seed is started.
    #[arg(long)]
    seconds: Option<u64>,
}

#[expect(clippy::disallowed_methods, reason = "a seed that hangs is noticed by a thread beside it")]
fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let (begin, begun) = channel();
    if let Err(error) = thread::Builder::new().spawn(move || watch(&begun)) {
        eprintln!("error: nobody would notice a seed that hangs: {error}");
        return ExitCode::FAILURE;
    }
    let outcome = match arguments.seed {
        Some(seed) => run_one(seed, &begin),
        None => run_many(&arguments, &begin),
    };
    match outcome {
        Ok(told) => println!("{told}"),
        Err((seed, Failure { wrong, events })) => {
            eprintln!("{events}");
            tell(seed, &wrong);
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn tell(seed: u64, wrong: &str) {
    eprintln!("\nerror: {wrong}\nrepeat it with: cargo xtask simulate --seed {seed}");
}

/// Ends the program if no further run begins for [`SEED_MAX`].
fn watch(begun: &Receiver<u64>) {
    let mut running = None;
    loop {
        match (begun.recv_timeout(SEED_MAX), running) {
            (Ok(seed), _) => running = Some(seed),
            (Err(RecvTimeoutError::Timeout), Some(seed)) => {
                tell(seed, &format!("it does not end within {} s", SEED_MAX.as_secs()));
                exit(1);
            }
            (Err(RecvTimeoutError::Timeout), None) => {}
            (Err(RecvTimeoutError::Disconnected), _) => return,
        }
    }
}

/// Runs a seed, once or twice, and notifies the watching thread when each run begins.
fn run(seed: u64, twice: bool, begin: &Sender<u64>) -> Result<Run, (u64, Failure)> {
    // Sending fails if there is no watching thread, which does not matter.
    let _ = begin.send(seed);
    let outcome = simulate(seed);
    let outcome = match twice {
        true => outcome.and_then(|first| {
            let _ = begin.send(seed);
            same_again(seed, &first)
        }),
        false => outcome,
    };
    outcome.map_err(|failure| (seed, failure))
}

fn run_one(seed: u64, begin: &Sender<u64>) -> Result<String, (u64, Failure)> {
    let hash = run(seed, true, begin)?.hash();
    Ok(format!("seed {seed}: nothing wrong; all that happened hashes to {hash:016x}"))
}

/// Runs seeds until there are enough, the time is over, or one fails.
fn run_many(arguments: &Arguments, begin: &Sender<u64>) -> Result<String, (u64, Failure)> {
    let start = Stopwatch::start();
    let is_over = || arguments.seconds.is_some_and(|seconds| start.elapsed_s() >= seconds);
    let mut done = 0;
    while done < arguments.seeds && !is_over() {
        let seed = arguments.first.wrapping_add(done);
        run(seed, done.is_multiple_of(TWICE_EVERY), begin)?;
        done += 1;
        show_progress(done, arguments.seeds);
    }
    Ok(format!("{done} seeds from {} on: nothing wrong", arguments.first))
}

fn show_progress(done: u64, seeds: u64) {
    if stderr().is_terminal() {
        let end = if done == seeds { "\n" } else { "\r" };
        // Failing to print progress is not an error.
        drop(write!(stderr(), "{done} of {seeds} seeds{end}"));
    }
}
