//! The background work of a node: merges of small row groups, and profiles. The chores of a tenant are done
//! one after the other, in their order ([`Chore::order`]), as one task within the tenant's share. If
//! connections or tables took turns instead, all profiles would be begun at once, and each holds some 100 KiB
//! per column until it is settled.
//!
//! A chore that finds too little memory is set aside, so that chores that hold some can continue. When all have been
//! set aside they are tried again; if no other background work is done, only after a short pause.

use crate::profiles::within_step;
use farpool_catalog::{Chore, StepOutcome};
use farpool_model::Clock;
use farpool_pipeline::{Class, End, Progress, Readiness, Region, Scheduler, Task};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counters shared by the chore queues of all tenants of a node.
#[derive(Default)]
pub(crate) struct ChoreCounters {
    /// Number of queues that have a task in the scheduler.
    active: AtomicUsize,
    /// Number of times in a row that all chores of a queue lacked memory.
    futile: AtomicUsize,
}

impl ChoreCounters {
    /// Records that all chores of a queue lack memory. Returns whether this holds for all queues.
    fn all_lack(&self) -> bool {
        let futile = self.futile.fetch_add(1, Ordering::Relaxed) + 1;
        let all = futile >= self.active.load(Ordering::Relaxed);
        if all {
            self.futile.store(0, Ordering::Relaxed);
        }
        all
    }
}

/// The queue of chores of one tenant.
pub(crate) struct ChoreQueue {
    scheduler: Arc<Scheduler>,
    region: Arc<Region>,
    counters: Arc<ChoreCounters>,
    state: Mutex<ChoreQueueState>,
}

#[derive(Default)]
struct ChoreQueueState {
    /// Chores to be worked on, by order: one that is submitted again gets its former place.
    chores: BTreeMap<(bool, u64), Chore>,
    /// Chores that lacked memory when they were last tried.
    lacking: BTreeMap<(bool, u64), Chore>,
    has_task: bool,
}

impl ChoreQueue {
    /// Creates a queue that shares `counters` and works within the share of `region`.
    pub fn new(scheduler: Arc<Scheduler>, region: Arc<Region>, counters: Arc<ChoreCounters>) -> Self {
        ChoreQueue { scheduler, region, counters, state: Mutex::default() }
    }

    /// Adds a chore that has work to do.
    pub fn submit(self: &Arc<Self>, chore: Chore) {
        let has_task = {
            let mut state = self.state.lock();
            state.chores.insert(chore.order(), chore);
            mem::replace(&mut state.has_task, true)
        };
        if !has_task {
            self.counters.active.fetch_add(1, Ordering::Relaxed);
            let task = Arc::new(ChoreQueueTask(self.clone()));
            self.scheduler.submit(&self.region, Class::Background, task);
        }
    }

    /// Returns the first chore, or `None` when the queue is empty; its task then ends, and the next submit starts
    /// another.
    fn first(&self) -> Option<Chore> {
        let mut state = self.state.lock();
        let state = &mut *state;
        if state.chores.is_empty() && !state.lacking.is_empty() {
            mem::swap(&mut state.chores, &mut state.lacking);
            if self.counters.all_lack() {
                self.scheduler.rest_in_background();
            }
        }
        let first = state.chores.first_key_value().map(|(_, chore)| chore.clone());
        if first.is_none() && mem::take(&mut state.has_task) {
            self.counters.active.fetch_sub(1, Ordering::Relaxed);
        }
        first
    }

    fn step(&self, clock: &dyn Clock) -> Progress {
        let Some(first) = self.first() else { return Progress::Done };
        match first.step(&within_step(clock)) {
            StepOutcome::Worked => self.counters.futile.store(0, Ordering::Relaxed),
            StepOutcome::Lacked => {
                let mut state = self.state.lock();
                state.chores.remove(&first.order());
                state.lacking.insert(first.order(), first);
            }
            StepOutcome::Nothing => {
                self.state.lock().chores.remove(&first.order());
                first.leave();
            }
        }
        Progress::Worked
    }
}

/// The scheduler task of a queue; ends when the queue is empty.
struct ChoreQueueTask(Arc<ChoreQueue>);

impl Task for ChoreQueueTask {
    fn readiness(&self) -> Readiness {
        Readiness::Ready
    }

    fn step(&self, clock: &dyn Clock) -> Progress {
        self.0.step(clock)
    }

    fn finish(&self, end: End) {
        if end.error.is_some() {
            // The node shuts down; remaining chores are done only on request.
            let left = mem::take(&mut *self.0.state.lock());
            drop(left);
        }
    }
}
