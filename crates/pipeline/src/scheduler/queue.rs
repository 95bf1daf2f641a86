//! Queues of the scheduler: all tasks, and the choice of the next one. All of this is protected by the
//! scheduler's lock.
//!
//! Invariants: a task is queued in the tree of shares of its class (foreground or background), or parked (it waits
//! for an event), or busy (workers process all of its work), or ended. An ended task is removed exactly once, when
//! its last step in progress is settled. Example: a task ends while two workers execute steps of it. Only the second
//! [`Queue::settle`] returns it, so that `finish` is called once, after the last step.

use super::fair::{FairTree, ROOT};
use super::task::{Class, End, Progress, Readiness, Task};
use super::{BACKGROUND_PATIENCE_NS, REST_NS, Region, ShareUse, TaskId};
use farpool_model::Error;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// All tasks of a scheduler, with one tree of shares for each class.
pub(super) struct Queue {
    trees: [FairTree; 2],
    entries: BTreeMap<u64, QueuedTask>,
    /// Tasks that wait for an event outside the scheduler, as pairs of region id and task id.
    parked: BTreeSet<(u64, u64)>,
    ids_given: u64,
    /// Time at which a worker last got a background step, or background work first became possible.
    background_ns: u64,
    pub shut_down: bool,
}

struct QueuedTask {
    task: Arc<dyn Task>,
    region: Arc<Region>,
    class: Class,
    in_flight: usize,
    /// Whether other workers process all remaining work.
    is_busy: bool,
    ended: bool,
    error: Option<Error>,
    bytes_charged: u64,
    /// Expected cost of the next step: the cost of the last one.
    expected_ns: u64,
    /// Time since which the task has been ready while no worker processed it.
    ready_since_ns: Option<u64>,
    waited_ns: u64,
}

/// A step that a worker is to execute.
pub(super) struct Turn {
    pub id: u64,
    pub task: Arc<dyn Task>,
    charged_ns: u64,
}

/// The next thing that a worker does.
pub(super) enum Next {
    Step(Turn),
    Finish(Finished),
    /// There is nothing to do. If a time is given, queued background work becomes due then.
    Rest(Option<u64>),
    ShutDown,
}

/// A task that has ended and of which no step is in progress.
pub(super) struct Finished {
    pub task: Arc<dyn Task>,
    pub end: End,
    /// Dropped after the lock is released, like the task.
    #[expect(dead_code, reason = "held so that whoever finishes the task drops it")]
    pub region: Arc<Region>,
}

/// Cost of a step.
pub(super) struct Cost {
    pub cpu_ns: u64,
    /// Nanoseconds to charge for each byte that the task has read and was not charged for yet.
    pub ns_per_byte: f64,
    /// Shares that pay for the step in equal parts; if empty, the task's region pays.
    pub payers: Vec<u64>,
}

impl Queue {
    pub fn new() -> Self {
        Queue {
            trees: [FairTree::new(), FairTree::new()],
            entries: BTreeMap::new(),
            parked: BTreeSet::new(),
            ids_given: ROOT,
            background_ns: 0,
            shut_down: false,
        }
    }

    /// Adds a share below `parent`, in both classes.
    pub fn add_share(&mut self, parent: u64, weight: u32) -> u64 {
        let id = self.new_id();
        self.trees.iter_mut().for_each(|tree| tree.insert(id, parent, weight));
        id
    }

    /// Sets the weight of a share, in both classes.
    pub fn set_weight(&mut self, id: u64, weight: u32) {
        self.trees.iter_mut().for_each(|tree| tree.set_weight(id, weight));
    }

    /// Charges a share for work that was done outside of tasks, in nanoseconds.
    pub fn charge_share(&mut self, id: u64, ns: u64) {
        self.tree(Class::Foreground).charge(id, signed(ns));
    }

    pub fn remove_share(&mut self, id: u64) {
        self.trees.iter_mut().for_each(|tree| tree.remove(id));
    }

    /// Returns a new id, for a share or for a task that is then added by [`Queue::add`].
    pub fn new_id(&mut self) -> u64 {
        self.ids_given += 1;
        self.ids_given
    }

    pub fn add(&mut self, id: TaskId, region: Arc<Region>, class: Class, task: Arc<dyn Task>) {
        self.tree(class).insert(id.0, region.id, 1);
        let entry = QueuedTask {
            task,
            region,
            class,
            in_flight: 0,
            is_busy: false,
            ended: false,
            error: None,
            bytes_charged: 0,
            expected_ns: 1,
            ready_since_ns: None,
            waited_ns: 0,
        };
        let before = self.entries.insert(id.0, entry);
        assert!(before.is_none(), "a task has an id of its own");
    }

    /// Returns the use of each tenant's share by tasks of `class`.
    pub fn shares(&self, class: Class) -> Vec<ShareUse> {
        self.trees[class as usize].top().collect()
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether tasks of `class` are queued.
    pub fn has_ready(&self, class: Class) -> bool {
        self.trees[class as usize].has_ready()
    }

    /// Returns whether another worker would find work, judged by the queues alone: tasks are not asked for their
    /// readiness.
    pub fn has_next(&self, now_ns: u64, rows_came_ns: u64) -> bool {
        let [foreground, background] = &self.trees;
        foreground.has_ready() || background.has_ready() && self.background_due_ns(rows_came_ns) <= now_ns
    }

    /// Queues a task that may be ready. Returns true if it was not queued before and is now.
    pub fn wake(&mut self, id: u64, now_ns: u64) -> bool {
        let Some(entry) = self.entries.get_mut(&id).filter(|entry| !entry.ended) else { return false };
        self.parked.remove(&(entry.region.id, id));
        let class = entry.class;
        if self.trees[class as usize].is_ready(id) || entry.is_busy && entry.in_flight > 0 {
            return false;
        }
        entry.is_busy = false;
        if entry.in_flight == 0 {
            entry.ready_since_ns = Some(now_ns);
        }
        if class == Class::Background && !self.has_ready(class) {
            self.background_ns = now_ns;
        }
        self.tree(class).set_ready(id);
        true
    }

    /// Wakes the parked tasks of a region. Returns how many of them were queued.
    pub fn wake_region(&mut self, region: u64, now_ns: u64) -> usize {
        let parked: Vec<u64> =
            self.parked.range((region, 0)..=(region, u64::MAX)).map(|(_, id)| *id).collect();
        parked.into_iter().filter(|id| self.wake(*id, now_ns)).count()
    }

    /// Returns what a worker does next. It gets a background step only if there is no foreground work, or no background
    /// step was executed for [`BACKGROUND_PATIENCE_NS`].
    pub fn next_of_any(&mut self, now_ns: u64, rows_came_ns: u64) -> Next {
        let mut classes = [Class::Foreground, Class::Background];
        let is_late = self.background_ns + BACKGROUND_PATIENCE_NS <= now_ns;
        if is_late && self.has_ready(Class::Background) {
            classes.reverse();
        }
        match self.next(classes[0], now_ns, rows_came_ns) {
            Next::Rest(_) => self.next(classes[1], now_ns, rows_came_ns),
            next => next,
        }
    }

    /// Returns what a worker does next, considering only tasks of `class`. Background work pauses after rows have
    /// arrived.
    pub fn next(&mut self, class: Class, now_ns: u64, rows_came_ns: u64) -> Next {
        if self.shut_down {
            return Next::ShutDown;
        }
        let due_ns = self.background_due_ns(rows_came_ns);
        if class == Class::Background && due_ns > now_ns {
            return Next::Rest(self.has_ready(class).then_some(due_ns));
        }
        while let Some(id) = self.tree(class).next() {
            let Some(entry) = self.entries.get_mut(&id) else {
                self.tree(class).remove(id);
                continue;
            };
            match entry.task.readiness() {
                Readiness::Ready => return Next::Step(self.hand_out(id, now_ns)),
                Readiness::Waiting => self.park(id),
                Readiness::Ended => {
                    entry.ended = true;
                    self.tree(class).set_waiting(id);
                    if let Some(finished) = self.take_if_finished(id) {
                        return Next::Finish(finished);
                    }
                }
            }
        }
        Next::Rest(None)
    }

    /// Accounts for a step that was executed. Returns the task if it has ended and has no other step in progress, and
    /// whether it was queued again so that other workers may continue it.
    pub fn settle(
        &mut self,
        turn: Turn,
        outcome: Result<Progress, Error>,
        cost: Cost,
        now_ns: u64,
    ) -> (Option<Finished>, bool) {
        let Turn { id, task, charged_ns } = turn;
        let Some(entry) = self.entries.get_mut(&id) else { return (None, false) };
        let (region, class) = (entry.region.id, entry.class);
        assert!(entry.in_flight > 0, "a step is settled once");
        entry.in_flight -= 1;
        // The bytes of this step may have been charged to a step of another worker already.
        let bytes = task.bytes_read().saturating_sub(entry.bytes_charged);
        entry.bytes_charged += bytes;
        let cost_ns = cost.cpu_ns.max((bytes as f64 * cost.ns_per_byte) as u64).max(1);
        entry.expected_ns = cost_ns;
        match outcome {
            Ok(Progress::Worked) => entry.is_busy = false,
            Ok(Progress::Busy) => entry.is_busy = entry.in_flight > 0,
            Ok(Progress::Done) => entry.ended = true,
            Err(error) => {
                entry.ended = true;
                entry.error.get_or_insert(error);
            }
        }
        let (ended, is_busy) = (entry.ended, entry.is_busy);
        self.charge(class, id, region, (charged_ns, cost_ns), &cost.payers);
        if class == Class::Background {
            self.background_ns = now_ns;
        }
        if ended || is_busy {
            self.tree(class).set_waiting(id);
            return (self.take_if_finished(id), false);
        }
        (None, self.put_back(id, now_ns))
    }

    /// Ends all tasks. Returns those without a step in progress, whose `finish` must be called, and the others, which
    /// must be cancelled.
    pub fn shut_down(&mut self, error: &Error) -> (Vec<Finished>, Vec<Arc<dyn Task>>) {
        self.shut_down = true;
        let ids: Vec<u64> = self.entries.keys().copied().collect();
        for entry in self.entries.values_mut() {
            entry.ended = true;
            entry.error.get_or_insert_with(|| error.clone());
        }
        let finished = ids.iter().filter_map(|id| self.take_if_finished(*id)).collect();
        (finished, self.entries.values().map(|entry| entry.task.clone()).collect())
    }

    fn tree(&mut self, class: Class) -> &mut FairTree {
        &mut self.trees[class as usize]
    }

    /// Returns the time until which background work pauses.
    fn background_due_ns(&self, rows_came_ns: u64) -> u64 {
        match rows_came_ns {
            0 => 0,
            came_ns => (came_ns + REST_NS).min(self.background_ns + BACKGROUND_PATIENCE_NS),
        }
    }

    fn hand_out(&mut self, id: u64, now_ns: u64) -> Turn {
        let entry = self.entries.get_mut(&id).expect("the caller has found it");
        assert!(!entry.ended, "an ended task gets no further step");
        if let Some(since_ns) = entry.ready_since_ns.take() {
            entry.waited_ns += now_ns.saturating_sub(since_ns);
        }
        entry.in_flight += 1;
        let (class, charged_ns) = (entry.class, entry.expected_ns);
        let task = entry.task.clone();
        if class == Class::Background {
            self.background_ns = now_ns;
        }
        self.tree(class).charge(id, signed(charged_ns));
        Turn { id, task, charged_ns }
    }

    fn park(&mut self, id: u64) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        entry.ready_since_ns = None;
        let (region, class) = (entry.region.id, entry.class);
        self.parked.insert((region, id));
        self.tree(class).set_waiting(id);
    }

    /// Replaces the expected cost of a step, which was charged before, by its actual cost.
    fn charge(&mut self, class: Class, id: u64, region: u64, (charged, cost): (u64, u64), payers: &[u64]) {
        let tree = &mut self.trees[class as usize];
        if payers.is_empty() {
            return tree.charge(id, signed(cost) - signed(charged));
        }
        tree.charge(id, -signed(charged));
        let part = cost.div_ceil(payers.len() as u64);
        for payer in payers {
            // Charging the task also charges its region.
            tree.charge(if *payer == region { id } else { *payer }, signed(part));
        }
    }

    /// Queues a task that may continue. Returns true if it was not queued before. A parked task is queued, too, because
    /// the step may have caused the event that it waits for.
    fn put_back(&mut self, id: u64, now_ns: u64) -> bool {
        let Some(entry) = self.entries.get_mut(&id) else { return false };
        if entry.in_flight == 0 {
            entry.ready_since_ns = Some(now_ns);
        }
        let (region, class) = (entry.region.id, entry.class);
        self.parked.remove(&(region, id));
        if self.trees[class as usize].is_ready(id) {
            return false;
        }
        self.tree(class).set_ready(id);
        true
    }

    fn take_if_finished(&mut self, id: u64) -> Option<Finished> {
        let entry = self.entries.get(&id).filter(|entry| entry.ended && entry.in_flight == 0)?;
        let (class, region) = (entry.class, entry.region.id);
        self.tree(class).remove(id);
        self.parked.remove(&(region, id));
        let QueuedTask { task, region, error, waited_ns, .. } = self.entries.remove(&id)?;
        Some(Finished { task, end: End { error, waited_ns }, region })
    }
}

fn signed(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX / 2)
}
