//! The state that all participants of a simulation share: the models, the log, and the kinds of trouble that may occur.

use crate::checks::Checked;
use crate::log::Log;
use crate::model::{Model, Span};
use crate::random::Random;
use farpool_model::{Error, ErrorKind};
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::task::yield_now;

/// Message of the errors by which simulated reads from the disk fail.
const READ_FAILS: &str = "simulated failure of a read";

/// The shared state. It is locked only briefly: all tasks are on one thread.
pub type Shared = Arc<Mutex<State>>;

/// The state that all participants share.
#[derive(Debug)]
pub struct State {
    /// The log of all events.
    pub log: Log,
    /// The model of each tenant's tables.
    pub models: Vec<Model>,
    /// The kinds of trouble that may occur in this world, such as a lack of memory.
    pub weather: Weather,
    /// Whether the simulation is ending, so that clients no longer pause.
    pub is_ending: bool,
}

/// Sometimes waits for a few events.
pub async fn pause(shared: &Shared, random: &mut Random) {
    if random.chance(70) {
        return;
    }
    let until = shared.lock().log.step + random.magnitude(64) as u64;
    let is_over = || {
        let state = shared.lock();
        state.is_ending || state.log.step >= until
    };
    while !is_over() {
        yield_now().await;
    }
}

/// The kinds of trouble that may occur in a world.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    /// Whether the pool may be too small for the tables, or allocations fail at random.
    pub is_tight: bool,
    /// Whether the memory for work (queries and messages) is so small that requests wait for it and may time out.
    pub is_short: bool,
    /// Whether time may jump so far that peers time out.
    pub is_slow: bool,
    /// Whether reads from the disk may fail.
    pub has_bad_reads: bool,
    /// Whether the pool is so small that values which are not in a segment yet, or are in use, may leave no memory for
    /// values that are read.
    pub is_crowded: bool,
}

impl State {
    /// Returns the span of events from `first` to now.
    pub fn span_since(&self, first: u64) -> Span {
        Span { first, last: self.log.step }
    }

    /// Checks whether a request over a table may have failed with `error`; fails the simulation if not.
    pub fn explains(&self, error: &Error, tenant: usize, table: &str, span: Span) -> Checked {
        let may_be = match error.kind {
            // A version of a table that has since been dropped is reported as stale.
            ErrorKind::NotFound | ErrorKind::Stale if !table.is_empty() => {
                self.models[tenant].was_absent_within(table, span)
            }
            _ => self.weather.explains(error),
        };
        if may_be { Ok(()) } else { Err(format!("it failed: {error}")) }
    }
}

impl Weather {
    /// Returns whether any request may have failed with this error: because of a timeout, or for lack of memory.
    pub fn explains(&self, error: &Error) -> bool {
        let is_unread = error.message.contains("was not read for");
        match error.kind {
            ErrorKind::OverLimit => {
                let has_no_room = error.message.starts_with("the pool cannot give");
                self.is_short || self.is_slow && is_unread || self.is_crowded && has_no_room
            }
            ErrorKind::Unavailable if error.message.contains(READ_FAILS) => self.has_bad_reads,
            ErrorKind::Unavailable => self.may_part(),
            _ => false,
        }
    }

    /// Returns whether the node may close the connection of a client that has done nothing wrong, because of such
    /// trouble.
    pub fn may_part(&self) -> bool {
        self.is_slow || self.is_short
    }
}
