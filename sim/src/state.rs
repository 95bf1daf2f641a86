//! What everybody in a simulation shares: the models, the log, and what is known of the world.

use crate::checks::Checked;
use crate::log::Log;
use crate::model::{Model, Span};
use crate::random::Random;
use farpool_model::{Error, ErrorKind};
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::task::yield_now;

/// See the file's comment. Locked for moments only: all tasks are on one thread.
pub type Shared = Arc<Mutex<State>>;

/// See the file's comment.
#[derive(Debug)]
pub struct State {
    /// What has happened.
    pub log: Log,
    /// The tables of each tenant.
    pub models: Vec<Model>,
    /// What the world is like.
    pub weather: Weather,
    /// Everybody is to come to an end: nobody pauses any more.
    pub is_ending: bool,
}

/// Waits for a few events, now and then.
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

/// What may go wrong in a world by its own nature.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    /// The pool may be too small for the tables, or allocations fail at random.
    pub is_tight: bool,
    /// The memory for work is so small that requests wait for it, and may wait in vain.
    pub is_short: bool,
    /// So much time passes at once that peers give one another up.
    pub is_slow: bool,
}

impl State {
    /// From event `first` to now.
    pub fn span_since(&self, first: u64) -> Span {
        Span { first, last: self.log.step }
    }

    /// Whether a request over a table may have failed like this.
    pub fn explains(&self, error: &Error, tenant: usize, table: &str, span: Span) -> Checked {
        let may_be = match error.kind {
            // Where a version is held of a table that is not there, another one than that is stale.
            ErrorKind::NotFound | ErrorKind::Stale if !table.is_empty() => {
                self.models[tenant].was_absent_within(table, span)
            }
            _ => self.weather.explains(error),
        };
        if may_be { Ok(()) } else { Err(format!("it failed: {error}")) }
    }
}

impl Weather {
    /// Whether any request may have failed like this: because so much time has passed, or for want of memory.
    pub fn explains(&self, error: &Error) -> bool {
        let is_unread = error.message.contains("was not read for");
        match error.kind {
            ErrorKind::OverLimit => self.is_short || self.is_slow && is_unread,
            ErrorKind::Unavailable => self.may_part(),
            _ => false,
        }
    }

    /// Whether the node may hang up on a client that has done nothing wrong.
    pub fn may_part(&self) -> bool {
        self.is_slow || self.is_short
    }
}
