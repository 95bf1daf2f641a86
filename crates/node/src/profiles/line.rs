//! Profiles that nobody waits for: those of a tenant's tables are made in the order in which their loads began, as one
//! task within the tenant's share. Did its connections take turns, or its tables, all profiles would be begun at once, and
//! each holds some 100 KiB for a column until it is settled.
//!
//! A profile for which there is too little memory is set aside, so that those go on that hold some. When all are, they
//! are tried once more; where nothing else is done in the background, not before that has rested for a moment.

use super::within_step;
use farpool_model::Clock;
use farpool_pipeline::{Class, End, Progress, Readiness, Region, Scheduler, Task};
use farpool_store::{Gathering, Stepped};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The lines of all tenants of a node.
#[derive(Default)]
pub(crate) struct Lines {
    /// Lines that have a task.
    active: AtomicUsize,
    /// Times in a row that all profiles of a line lacked memory.
    futile: AtomicUsize,
}

impl Lines {
    /// All profiles of a line lack memory. Whether those of all lines do.
    fn all_lack(&self) -> bool {
        let futile = self.futile.fetch_add(1, Ordering::Relaxed) + 1;
        let all = futile >= self.active.load(Ordering::Relaxed);
        if all {
            self.futile.store(0, Ordering::Relaxed);
        }
        all
    }
}

/// The profiles of a tenant's tables that nobody waits for.
pub(crate) struct ProfileLine {
    scheduler: Arc<Scheduler>,
    region: Arc<Region>,
    lines: Arc<Lines>,
    state: Mutex<LineState>,
}

#[derive(Default)]
struct LineState {
    /// Those that have something to do, by their numbers: one that comes back has its place again.
    gatherings: BTreeMap<u64, Arc<Gathering>>,
    /// The same, for which there was too little memory.
    lacking: BTreeMap<u64, Arc<Gathering>>,
    has_task: bool,
}

impl ProfileLine {
    /// One of `lines`, whose work is done within the share of `region`.
    pub fn new(scheduler: Arc<Scheduler>, region: Arc<Region>, lines: Arc<Lines>) -> Self {
        ProfileLine { scheduler, region, lines, state: Mutex::default() }
    }

    /// Takes in a profile that has something to do.
    pub fn submit(self: &Arc<Self>, gathering: Arc<Gathering>) {
        let has_task = {
            let mut state = self.state.lock();
            state.gatherings.insert(gathering.number(), gathering);
            mem::replace(&mut state.has_task, true)
        };
        if !has_task {
            self.lines.active.fetch_add(1, Ordering::Relaxed);
            let task = Arc::new(LineTask(self.clone()));
            self.scheduler.submit(&self.region, Class::Background, task);
        }
    }

    /// The first in line; `None` when there is none, and the next one takes another task.
    fn first(&self) -> Option<Arc<Gathering>> {
        let mut state = self.state.lock();
        let state = &mut *state;
        if state.gatherings.is_empty() && !state.lacking.is_empty() {
            mem::swap(&mut state.gatherings, &mut state.lacking);
            if self.lines.all_lack() {
                self.scheduler.rest_in_background();
            }
        }
        let first = state.gatherings.first_key_value().map(|(_, gathering)| gathering.clone());
        if first.is_none() && mem::take(&mut state.has_task) {
            self.lines.active.fetch_sub(1, Ordering::Relaxed);
        }
        first
    }

    fn step(&self, clock: &dyn Clock) -> Progress {
        let Some(first) = self.first() else { return Progress::Done };
        match first.step(&within_step(clock)) {
            Stepped::Worked => self.lines.futile.store(0, Ordering::Relaxed),
            Stepped::Lacked => {
                let mut state = self.state.lock();
                state.gatherings.remove(&first.number());
                state.lacking.insert(first.number(), first);
            }
            Stepped::Nothing => {
                self.state.lock().gatherings.remove(&first.number());
                first.leave();
            }
        }
        Progress::Worked
    }
}

/// Ends when the line is empty.
struct LineTask(Arc<ProfileLine>);

impl Task for LineTask {
    fn readiness(&self) -> Readiness {
        Readiness::Ready
    }

    fn step(&self, clock: &dyn Clock) -> Progress {
        self.0.step(clock)
    }

    fn finish(&self, end: End) {
        if end.error.is_some() {
            // The node ends: what is left is made only for those who wait.
            let left = mem::take(&mut *self.0.state.lock());
            drop(left);
        }
    }
}
