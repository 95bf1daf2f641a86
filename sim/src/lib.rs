//! A simulation of a node and its clients on one thread, in which a seed decides everything: who asks for what,
//! how many bytes pass at a time, when the node works, what time it is. Every answer is checked against a model
//! of the tables, the node's accounts at every event, and in the end nothing may be left. (FoundationDB,
//! SIGMOD 2021, section 4; TigerBeetle's VOPR.)
//!
//! Invariant: the same seed does the same, to the byte, on every machine. So a failure is repeated with
//! `cargo xtask simulate --seed`.

#![forbid(unsafe_code)]

mod client;
mod clock;
mod loads;
mod log;
mod model;
mod query;
mod random;
mod rows;
mod world;

use log::Log;
use std::panic::{AssertUnwindSafe, catch_unwind};
use world::World;

/// What went wrong.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The first thing that was wrong.
    pub wrong: String,
    /// The events before it, a line each.
    pub events: String,
}

/// Runs the simulation of `seed`; gives a hash of all that happened.
///
/// # Errors
/// What the node did wrong.
pub fn simulate(seed: u64) -> Result<u64, Failure> {
    let mut log = Log::new();
    let outcome = catch_unwind(AssertUnwindSafe(|| run(seed, &mut log)));
    match outcome.unwrap_or_else(|panic| Err(panic_text(&*panic))) {
        Ok(()) => Ok(log.hash()),
        Err(wrong) => Err(Failure { wrong, events: log.shown() }),
    }
}

/// The same, twice: both must do the same.
///
/// # Errors
/// As [`simulate`]; when they differ.
pub fn simulate_twice(seed: u64) -> Result<u64, Failure> {
    let hashes = (simulate(seed)?, simulate(seed)?);
    if hashes.0 == hashes.1 {
        return Ok(hashes.0);
    }
    let wrong = format!("the seed did something else the second time: {:x} and {:x}", hashes.0, hashes.1);
    Err(Failure { wrong, events: String::new() })
}

fn run(seed: u64, log: &mut Log) -> Result<(), String> {
    // Timers are there for the code that sets them; none of them is reached.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let runtime = runtime.map_err(|error| format!("there is no runtime: {error}"))?;
    runtime.block_on(async { World::new(seed)?.run(log).await })
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
    format!("a panic: {}", text.unwrap_or_else(|| "without a text".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_find_nothing_wrong_and_do_the_same_again() {
        for seed in 0..20 {
            let outcome = simulate_twice(seed);
            assert!(outcome.is_ok(), "seed {seed}: {outcome:#?}");
        }
    }

    #[test]
    fn other_seeds_do_other_things() {
        let hashes = [1, 2, 3].map(|seed| simulate(seed).expect("nothing wrong"));
        assert!(hashes[0] != hashes[1] && hashes[1] != hashes[2]);
    }
}
