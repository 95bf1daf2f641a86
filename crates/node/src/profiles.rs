//! Profiles as tasks of the scheduler: those that nobody waits for in the background, and those of clients that wait.
//!
//! In the background, the profiles of a tenant's tables are made in the order in which their loads began, as one task
//! within the tenant's share. Did its connections take turns, or its tables, all profiles would be begun at once, and
//! each holds some 100 KiB for a column until it is settled. Whoever does not want to wait for the others asks, and has
//! it made within his own share.

use crate::turns::Turn;
use farpool_model::{Clock, Error, Result, TableStatistics, limits};
use farpool_pipeline::{Cancel, Class, End, Progress, Readiness, Region, Scheduler, Task};
use farpool_store::{AwaitedProfile, AwaitedStatistics, Gathering};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;

/// The profiles of a tenant's tables that nobody waits for.
pub(crate) struct ProfileLine {
    scheduler: Arc<Scheduler>,
    region: Arc<Region>,
    state: Mutex<LineState>,
}

#[derive(Default)]
struct LineState {
    /// Those that have something to do, by their numbers: one that comes back has its place again.
    gatherings: BTreeMap<u64, Arc<Gathering>>,
    has_task: bool,
}

impl ProfileLine {
    /// A line whose work is done within the share of `region`.
    pub fn new(scheduler: Arc<Scheduler>, region: Arc<Region>) -> Self {
        ProfileLine { scheduler, region, state: Mutex::default() }
    }

    /// Takes in a profile that has something to do.
    pub fn submit(self: &Arc<Self>, gathering: Arc<Gathering>) {
        let has_task = {
            let mut state = self.state.lock();
            state.gatherings.insert(gathering.number(), gathering);
            mem::replace(&mut state.has_task, true)
        };
        if !has_task {
            let task = Arc::new(LineTask(self.clone()));
            self.scheduler.submit(&self.region, Class::Background, task);
        }
    }

    /// The first in line; `None` when there is none, and the next one takes another task.
    fn first(&self) -> Option<Arc<Gathering>> {
        let mut state = self.state.lock();
        let first = state.gatherings.first_key_value().map(|(_, gathering)| gathering.clone());
        state.has_task &= first.is_some();
        first
    }

    fn remove(&self, gathering: &Gathering) {
        self.state.lock().gatherings.remove(&gathering.number());
    }
}

/// Ends when the line is empty.
struct LineTask(Arc<ProfileLine>);

impl Task for LineTask {
    fn readiness(&self) -> Readiness {
        Readiness::Ready
    }

    fn step(&self, clock: &dyn Clock) -> Progress {
        let Some(first) = self.0.first() else { return Progress::Done };
        if !first.step(&within_step(clock)) {
            self.0.remove(&first);
            first.leave();
        }
        Progress::Worked
    }

    fn finish(&self, end: End) {
        if end.error.is_some() {
            // The node ends: what is left is made only for those who wait.
            let left = mem::take(&mut *self.0.state.lock());
            drop(left);
        }
    }
}

/// Does what is to be done next of a profile that somebody waits for, until `is_stopped`.
pub(crate) fn step(profile: &AwaitedProfile, clock: &dyn Clock, is_stopped: impl Fn() -> bool) -> Progress {
    let goes_on = within_step(clock);
    match profile.step(&|| goes_on() && !is_stopped()) {
        true => Progress::Worked,
        false if profile.is_settled() => Progress::Done,
        false => Progress::Busy,
    }
}

/// Whether a step that begins now may go on.
fn within_step(clock: &dyn Clock) -> impl Fn() -> bool {
    let begun_ns = clock.now_ns();
    move || clock.now_ns().saturating_sub(begun_ns) < limits::STEP_NS
}

type Then = Box<dyn FnOnce(Result<TableStatistics>) + Send>;

/// What the rows of a table hold, for a client that waits for it.
pub(crate) struct StatisticsTask {
    cancel: Cancel,
    /// `None` after the end.
    awaited: Mutex<Option<Arc<Awaited>>>,
    then: Mutex<Option<Then>>,
}

struct Awaited {
    statistics: AwaitedStatistics,
    turn: Turn,
}

impl StatisticsTask {
    /// Begins when its `turn` has come, and ends with `cancel`; `then` gets what comes of it.
    pub fn new(
        statistics: AwaitedStatistics,
        turn: Turn,
        cancel: Cancel,
        then: impl FnOnce(Result<TableStatistics>) + Send + 'static,
    ) -> Self {
        let awaited = Mutex::new(Some(Arc::new(Awaited { statistics, turn })));
        StatisticsTask { cancel, awaited, then: Mutex::new(Some(Box::new(then))) }
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
        step(awaited.statistics.profile(), clock, || self.cancel.is_set())
    }

    fn cancel(&self) {
        self.cancel.set();
    }

    fn finish(&self, end: End) {
        let awaited = self.awaited.lock().take();
        let settled = awaited.as_ref().filter(|awaited| awaited.statistics.profile().is_settled());
        let outcome = match (end.error, settled) {
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
        self.turn.has_come() && self.statistics.profile().has_step()
    }
}

#[cfg(test)]
mod tests;
