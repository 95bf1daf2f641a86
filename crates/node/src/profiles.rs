//! Profiles (statistics of a table's columns) that clients wait for, as tasks of the scheduler. A client that does not
//! wait for the background work (`chores.rs`) requests the profile, which is then computed within the client's own
//! share of time. If memory is short, the task waits for it, up to a time limit (`memory.rs`).

mod memory;

use crate::turns::Turn;
use farpool_catalog::{AwaitedProfile, AwaitedStatistics};
use farpool_model::{Clock, Error, Result, TableStatistics, limits};
use farpool_pipeline::{Cancel, End, Progress, Readiness, Task};
pub(crate) use memory::ProfileMemory;
use parking_lot::Mutex;
use std::sync::Arc;

/// Executes a step of computing a profile (statistics of a table's columns) that a client waits for; ends early when
/// `is_stopped` returns true. If memory is lacking, starts a wait for it in `memory`.
///
/// # Errors
/// `OverLimit`, with sizes in the message, when the wait for memory timed out.
pub(crate) fn step(
    profile: &AwaitedProfile,
    memory: &ProfileMemory,
    clock: &dyn Clock,
    is_stopped: impl Fn() -> bool,
) -> Result<Progress> {
    memory.give_to(profile)?;
    let goes_on = within_step(clock);
    if profile.step(&|| goes_on() && !is_stopped()) {
        return Ok(Progress::Worked);
    }
    if profile.is_settled() {
        return Ok(Progress::Done);
    }
    if let Some(bytes) = profile.bytes_lacking() {
        memory.wait_for(bytes);
    }
    Ok(Progress::Busy)
}

/// Returns a function that returns true until the maximum duration of a scheduler step that begins now has passed.
pub(crate) fn within_step(clock: &dyn Clock) -> impl Fn() -> bool {
    let begun_ns = clock.now_ns();
    move || clock.now_ns().saturating_sub(begun_ns) < limits::STEP_NS
}

type Then = Box<dyn FnOnce(Result<TableStatistics>) + Send>;

/// A scheduler task that computes a table's statistics for a client that waits for them.
pub(crate) struct StatisticsTask {
    cancel: Cancel,
    /// The computation; `None` after the end of the task.
    awaited: Mutex<Option<Arc<Awaited>>>,
    /// The error with which the task has failed, if any.
    refusal: Mutex<Option<Error>>,
    then: Mutex<Option<Then>>,
}

struct Awaited {
    statistics: AwaitedStatistics,
    turn: Turn,
    memory: ProfileMemory,
}

impl StatisticsTask {
    /// Creates a task that begins when its `turn` comes and ends early when `cancel` is set. If memory is lacking, it
    /// waits for it in `memory`. `then` is called with the result.
    pub fn new(
        statistics: AwaitedStatistics,
        turn: Turn,
        memory: ProfileMemory,
        cancel: Cancel,
        then: impl FnOnce(Result<TableStatistics>) + Send + 'static,
    ) -> Self {
        let awaited = Mutex::new(Some(Arc::new(Awaited { statistics, turn, memory })));
        StatisticsTask { cancel, awaited, refusal: Mutex::default(), then: Mutex::new(Some(Box::new(then))) }
    }

    fn awaited(&self) -> Option<Arc<Awaited>> {
        self.awaited.lock().clone()
    }
}

impl Task for StatisticsTask {
    fn readiness(&self) -> Readiness {
        match self.awaited() {
            Some(awaited) if !self.cancel.is_set() => match awaited.can_go_on() {
                true => Readiness::Ready,
                false => Readiness::Waiting,
            },
            _ => Readiness::Ended,
        }
    }

    fn step(&self, clock: &dyn Clock) -> Progress {
        let Some(awaited) = self.awaited() else { return Progress::Done };
        let Awaited { statistics, memory, .. } = &*awaited;
        step(statistics.profile(), memory, clock, || self.cancel.is_set()).unwrap_or_else(|error| {
            *self.refusal.lock() = Some(error);
            Progress::Done
        })
    }

    fn cancel(&self) {
        self.cancel.set();
    }

    fn finish(&self, end: End) {
        let awaited = self.awaited.lock().take();
        let settled = awaited.as_ref().filter(|awaited| awaited.statistics.profile().is_settled());
        let error = end.error.or(self.refusal.lock().take());
        let outcome = match (error, settled) {
            (Some(error), _) => Err(error),
            (None, Some(awaited)) => awaited.statistics.get(),
            (None, None) => Err(Error::cancelled()),
        };
        // Releases the turn (permission to compute a profile) to the next request before this client gets its result.
        drop(awaited);
        if let Some(then) = self.then.lock().take() {
            then(outcome);
        }
    }
}

impl Awaited {
    fn can_go_on(&self) -> bool {
        self.turn.has_come() && (self.statistics.profile().has_step() || self.memory.has_come())
    }
}

#[cfg(test)]
mod tests;
