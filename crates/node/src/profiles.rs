//! Profiles that clients wait for, as tasks of the scheduler. Whoever does not want to wait for what the background does
//! (`chores.rs`) asks, and has a profile made within his own share; for the memory that this takes he waits in line, for
//! a bounded time (`memory.rs`).

mod memory;

use crate::turns::Turn;
use farpool_model::{Clock, Error, Result, TableStatistics, limits};
use farpool_pipeline::{Cancel, End, Progress, Readiness, Task};
use farpool_store::{AwaitedProfile, AwaitedStatistics};
pub(crate) use memory::ProfileMemory;
use parking_lot::Mutex;
use std::sync::Arc;

/// Does what is to be done next of a profile that somebody waits for, until `is_stopped`; where it lacks memory, it
/// waits for `memory`.
///
/// # Errors
/// `OverLimit`, with sizes, when it has waited for memory in vain.
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

/// Whether a step that begins now may go on.
pub(crate) fn within_step(clock: &dyn Clock) -> impl Fn() -> bool {
    let begun_ns = clock.now_ns();
    move || clock.now_ns().saturating_sub(begun_ns) < limits::STEP_NS
}

type Then = Box<dyn FnOnce(Result<TableStatistics>) + Send>;

/// What the rows of a table hold, for a client that waits for it.
pub(crate) struct StatisticsTask {
    cancel: Cancel,
    /// `None` after the end.
    awaited: Mutex<Option<Arc<Awaited>>>,
    /// Why it is given up.
    refusal: Mutex<Option<Error>>,
    then: Mutex<Option<Then>>,
}

struct Awaited {
    statistics: AwaitedStatistics,
    turn: Turn,
    memory: ProfileMemory,
}

impl StatisticsTask {
    /// Begins when its `turn` has come, and ends with `cancel`; it waits in `memory` where it lacks some. `then` gets
    /// what comes of it.
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
        // The next one's turn comes before this one's client hears of its own.
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
