//! What nobody waits for: merges of small row groups, and profiles. Those of a tenant's tables are done one after the
//! other, in their order ([`Chore::order`]), as one task within the tenant's share. Did its connections take turns, or its
//! tables, all profiles would be begun at once, and each holds some 100 KiB for a column until it is settled.
//!
//! A chore for which there is too little memory is set aside, so that those go on that hold some. When all are, they
//! are tried once more; where nothing else is done in the background, not before that has rested for a moment.

use crate::profiles::within_step;
use farpool_model::Clock;
use farpool_pipeline::{Class, End, Progress, Readiness, Region, Scheduler, Task};
use farpool_store::{Chore, Stepped};
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
    /// Times in a row that all chores of a line lacked memory.
    futile: AtomicUsize,
}

impl Lines {
    /// All chores of a line lack memory. Whether those of all lines do.
    fn all_lack(&self) -> bool {
        let futile = self.futile.fetch_add(1, Ordering::Relaxed) + 1;
        let all = futile >= self.active.load(Ordering::Relaxed);
        if all {
            self.futile.store(0, Ordering::Relaxed);
        }
        all
    }
}

/// The chores of a tenant's tables.
pub(crate) struct ChoreLine {
    scheduler: Arc<Scheduler>,
    region: Arc<Region>,
    lines: Arc<Lines>,
    state: Mutex<LineState>,
}

#[derive(Default)]
struct LineState {
    /// Those that have something to do, in their order: one that comes back has its place again.
    chores: BTreeMap<(bool, u64), Chore>,
    /// Chores for which there was too little memory when they were tried.
    lacking: BTreeMap<(bool, u64), Chore>,
    has_task: bool,
}

impl ChoreLine {
    /// One of `lines`, whose work is done within the share of `region`.
    pub fn new(scheduler: Arc<Scheduler>, region: Arc<Region>, lines: Arc<Lines>) -> Self {
        ChoreLine { scheduler, region, lines, state: Mutex::default() }
    }

    /// Takes in a chore that has something to do.
    pub fn submit(self: &Arc<Self>, chore: Chore) {
        let has_task = {
            let mut state = self.state.lock();
            state.chores.insert(chore.order(), chore);
            mem::replace(&mut state.has_task, true)
        };
        if !has_task {
            self.lines.active.fetch_add(1, Ordering::Relaxed);
            let task = Arc::new(LineTask(self.clone()));
            self.scheduler.submit(&self.region, Class::Background, task);
        }
    }

    /// The first in line; `None` when there is none, and the next one takes another task.
    fn first(&self) -> Option<Chore> {
        let mut state = self.state.lock();
        let state = &mut *state;
        if state.chores.is_empty() && !state.lacking.is_empty() {
            mem::swap(&mut state.chores, &mut state.lacking);
            if self.lines.all_lack() {
                self.scheduler.rest_in_background();
            }
        }
        let first = state.chores.first_key_value().map(|(_, chore)| chore.clone());
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
                state.chores.remove(&first.order());
                state.lacking.insert(first.order(), first);
            }
            Stepped::Nothing => {
                self.state.lock().chores.remove(&first.order());
                first.leave();
            }
        }
        Progress::Worked
    }
}

/// Ends when the line is empty.
struct LineTask(Arc<ChoreLine>);

impl Task for LineTask {
    fn readiness(&self) -> Readiness {
        Readiness::Ready
    }

    fn step(&self, clock: &dyn Clock) -> Progress {
        self.0.step(clock)
    }

    fn finish(&self, end: End) {
        if end.error.is_some() {
            // The node ends: what is left is done only for those who wait.
            let left = mem::take(&mut *self.0.state.lock());
            drop(left);
        }
    }
}
