//! A simulation of a node and its clients on one thread, in which a seed decides everything: who asks for what,
//! how many bytes pass at a time, when the node works, what time it is, which allocations fail and which connections
//! break. Every answer is checked against a model of the tables, the node's accounts at every event, shares of its time
//! and its memory for work at every step, and in the end nothing may be left. (FoundationDB, SIGMOD 2021, section 4; TigerBeetle's VOPR.)
//!
//! The clients are the real ones of `farpool-transfer`, as engines use them; others that take the protocol frame by
//! frame; and some that keep to none of its rules.
//!
//! Invariant: the same seed does the same, to the byte, on every machine. So a failure is repeated with
//! `cargo xtask simulate --seed`.

#![forbid(unsafe_code)]

mod checks;
mod client;
mod clock;
mod engine;
mod fairness;
mod hostile;
mod log;
mod model;
mod network;
mod panics;
mod query;
mod random;
mod rows;
mod state;
mod world;

use checks::Checked;
use log::Log;
use state::Shared;
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

/// A simulation in which nothing went wrong.
#[derive(Clone, Debug)]
pub struct Run(Log);

impl Run {
    /// The hash of all that happened.
    pub fn hash(&self) -> u64 {
        self.0.hash()
    }
}

/// Runs the simulation of `seed`.
///
/// # Errors
/// What the node, or a client, did wrong.
pub fn simulate(seed: u64) -> Result<Run, Failure> {
    let mut shared = None;
    let simulation = || catch_unwind(AssertUnwindSafe(|| run(seed, &mut shared)));
    let (outcome, panic) = panics::watched(simulation);
    let log = shared.map_or_else(Log::new, |shared| shared.lock().log.clone());
    // A panic that the node survived is a defect all the same.
    let wrong = match (panic, outcome) {
        (None, Ok(Ok(()))) => return Ok(Run(log)),
        (Some(panic), _) => panic,
        (None, Ok(Err(wrong))) => wrong,
        (None, Err(_)) => "a panic".into(),
    };
    Err(Failure { wrong, events: log.shown() })
}

/// Runs the simulation of `seed` once more, which has to do what it did at `first`.
///
/// # Errors
/// As [`simulate`]; when it did something else.
pub fn same_again(seed: u64, first: &Run) -> Result<Run, Failure> {
    let second = simulate(seed)?;
    if first.hash() == second.hash() {
        return Ok(second);
    }
    let events = first.0.shown_until_other(&second.0);
    Err(Failure { wrong: "the seed did something else the second time".into(), events })
}

/// Runs the world of `seed`, whose state is left in `seen`.
fn run(seed: u64, seen: &mut Option<Shared>) -> Checked {
    // Its time stands still but for what the simulation lets pass.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.map_err(|error| format!("there is no runtime: {error}"))?;
    runtime.block_on(async {
        let world = World::new(seed)?;
        *seen = Some(world.shared());
        world.run().await
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_find_nothing_wrong_and_do_the_same_again() {
        let mut runs = Vec::new();
        for seed in 0..30 {
            let twice = || simulate(seed).and_then(|first| same_again(seed, &first));
            let outcome = if seed % 3 == 0 { twice() } else { simulate(seed) };
            assert!(outcome.is_ok(), "seed {seed}: {outcome:#?}");
            runs.extend(outcome);
        }
        // They meet what they are for.
        for what in [
            "made v",
            "0 rows",
            "holds v",
            "has its answer",
            "is now None",
            "dropped in the middle",
            "given up",
            "breaks",
            "Exists",
            "NotFound",
            "Unavailable",
            "OverLimit",
            "its source failed",
            "hostile client",
        ] {
            assert!(runs.iter().any(|run| run.0.tells_of(what)), "nothing is {what:?}");
        }
    }

    #[test]
    fn other_seeds_do_other_things() {
        let hashes = [1, 2, 3].map(|seed| simulate(seed).expect("nothing wrong").hash());
        assert!(hashes[0] != hashes[1] && hashes[1] != hashes[2]);
    }
}
