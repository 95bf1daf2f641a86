//! The queue of a node's background work (*chores*): merging small row groups, and computing profiles (statistics of a
//! table's columns). The chores of a tenant are done one after the other, in the order of [`Chore::order`], as one
//! scheduler task within the tenant's share of time. Reason: if tables took turns, all profiles would be in progress at
//! once, and each takes some 100 KiB of memory per column until it is complete.
//!
//! A chore that finds too little memory is set aside, so that chores that already hold memory can continue. When all
//! chores of a queue have been set aside, they are tried again. If the chores of all queues lack memory, that happens
//! after a short pause.

use crate::profiles::within_step;
use farpool_catalog::{Chore, StepOutcome};
use farpool_model::Clock;
use farpool_pipeline::{Class, End, Progress, Readiness, Region, Scheduler, Task};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counters that the chore queues of all tenants share.
#[derive(Default)]
pub(crate) struct ChoreCounters {
    /// Number of queues that have a task in the scheduler.
    active: AtomicUsize,
    /// Number of times that a queue found all its chores lacking memory, since a chore of any queue last made progress.
    futile: AtomicUsize,
}

impl ChoreCounters {
    /// Notes that all chores of one queue lack memory. Returns true if probably the chores of every queue lack memory,
    /// because no chore has made progress since as many queues have noted this as there are.
    fn all_lack(&self) -> bool {
        let futile = self.futile.fetch_add(1, Ordering::Relaxed) + 1;
        let all = futile >= self.active.load(Ordering::Relaxed);
        if all {
            self.futile.store(0, Ordering::Relaxed);
        }
        all
    }
}

/// The queue of one tenant's chores (background work).
pub(crate) struct ChoreQueue {
    scheduler: Arc<Scheduler>,
    region: Arc<Region>,
    counters: Arc<ChoreCounters>,
    state: Mutex<ChoreQueueState>,
}

#[derive(Default)]
struct ChoreQueueState {
    /// Chores to be done, by [`Chore::order`]. A chore that is submitted again replaces its earlier submission.
    chores: BTreeMap<(bool, u64), Chore>,
    /// Chores that lacked memory when they were last tried.
    lacking: BTreeMap<(bool, u64), Chore>,
    has_task: bool,
}

impl ChoreQueue {
    /// Creates an empty queue that shares `counters` with others. Its work is charged to `region`, the tenant's share
    /// of the workers' time.
    pub fn new(scheduler: Arc<Scheduler>, region: Arc<Region>, counters: Arc<ChoreCounters>) -> Self {
        ChoreQueue { scheduler, region, counters, state: Mutex::default() }
    }

    /// Adds a chore, and submits the queue's task to the scheduler if it has none.
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

    /// Returns the first chore; `None` if the queue is empty. In that case the queue's task must end, and the next
    /// [`Self::submit`] starts another.
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

/// The scheduler task that does the chores of a queue; it ends when the queue is empty.
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
            // The node shuts down; the remaining chores are dropped. What they would have computed is computed on
            // request.
            let left = mem::take(&mut *self.0.state.lock());
            drop(left);
        }
    }
}
