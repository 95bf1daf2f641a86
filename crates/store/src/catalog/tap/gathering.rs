//! A profile in the making, shared by those who work on it: row groups wait, are taken one by one and added each to
//! a profile of its own worker; when all are done and what comes before is settled, one worker puts all together.
//!
//! Invariants: no lock is held while somebody works; locks are taken from a gathering to the one before it, never the
//! other way; a worker that panics settles the gathering with an error, so that nobody waits for ever.

use super::{Crew, Gathered, Outcome, Tap, observe};
use arrow_schema::SchemaRef;
use farpool_columns::{Encoder, RowGroup};
use farpool_model::cast::u64_from;
use farpool_model::{Error, Result};
use farpool_statistics::Profile;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// See the file's comment.
#[derive(Debug)]
pub(super) struct Gathering {
    schema: SchemaRef,
    crew: Arc<Crew>,
    work: Mutex<Work>,
    /// Signals whoever waits that there may be more to do, or that it is settled.
    changed: Condvar,
    abandoned: AtomicBool,
    /// Whether it stands in the crew's line.
    called: AtomicBool,
}

#[derive(Debug, Default)]
struct Work {
    waiting: VecDeque<Arc<RowGroup>>,
    /// Profiles that nobody adds to at the moment.
    idle: Vec<Profile>,
    /// Threads at work on it, and those of them that wait for it.
    busy: usize,
    busy_waiting: usize,
    /// Those before it counted once they are settled.
    rows_seen: u64,
    failed: Option<Error>,
    is_awaited: bool,
    stage: Stage,
    /// What comes behind this one and waits for it.
    next: Option<Arc<Gathering>>,
}

#[derive(Debug, Default)]
enum Stage {
    /// More rows may come.
    #[default]
    Open,
    /// All rows are there, behind those of `base`.
    Complete {
        base: Option<Arc<Tap>>,
        encoder: Encoder,
    },
    Settled(Outcome),
}

/// Something to do. Until it is done, the work counts it as busy.
#[expect(clippy::large_enum_variant, reason = "there is one at a time for each thread, moved twice")]
enum Task {
    Observe { group: Arc<RowGroup>, profile: Option<Profile> },
    Settle { base: Option<Outcome>, rows_before: u64, parts: Vec<Profile>, encoder: Encoder },
}

/// Who works on it.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Worker {
    Crew,
    Waiting,
}

impl Gathering {
    pub fn new(schema: SchemaRef, crew: Arc<Crew>) -> Gathering {
        let (work, changed) = (Mutex::default(), Condvar::new());
        let (abandoned, called) = (AtomicBool::new(false), AtomicBool::new(false));
        Gathering { schema, crew, work, changed, abandoned, called }
    }

    pub fn add(self: &Arc<Self>, group: Arc<RowGroup>) {
        self.work.lock().waiting.push_back(group);
        self.announce();
    }

    pub fn complete(self: &Arc<Self>, base: Option<Arc<Tap>>, encoder: Encoder) {
        self.work.lock().stage = Stage::Complete { base, encoder };
        self.announce();
    }

    pub fn set_next(&self, next: Arc<Gathering>) {
        self.work.lock().next = Some(next);
    }

    pub fn settled(&self) -> Option<Outcome> {
        match &self.work.lock().stage {
            Stage::Settled(outcome) => Some(outcome.clone()),
            Stage::Open | Stage::Complete { .. } => None,
        }
    }

    /// Threads that may work on it at once.
    pub fn threads_max(&self) -> usize {
        self.crew.size()
    }

    pub fn rows_seen(&self) -> u64 {
        let work = self.work.lock();
        let before = match &work.stage {
            Stage::Complete { base: Some(base), .. } => base.rows_seen(),
            _ => 0,
        };
        work.rows_seen + before
    }

    /// What it waits for.
    pub fn base(&self) -> Option<Arc<Tap>> {
        match &self.work.lock().stage {
            Stage::Complete { base, .. } => base.clone(),
            Stage::Open | Stage::Settled(_) => None,
        }
    }

    /// Leaves what is to do to whoever waits for it; how many row groups that is.
    pub fn await_by_others(&self) -> usize {
        let mut work = self.work.lock();
        work.is_awaited = true;
        work.waiting.len()
    }

    /// Lets go of everything: nobody wants the profile any more.
    pub fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
        let mut work = self.work.lock();
        let Work { busy, busy_waiting, .. } = *work;
        let held = std::mem::replace(&mut *work, Work { busy, busy_waiting, ..Work::default() });
        drop(work);
        // Pages, profiles and the taps before this one: not under the lock.
        drop(held);
    }

    /// Tells everybody that there may be something to do.
    fn announce(self: &Arc<Self>) {
        // What has changed may be something else's state: whoever has just looked is not to miss it.
        drop(self.work.lock());
        self.changed.notify_all();
        if !self.called.swap(true, Ordering::AcqRel) {
            self.crew.call(self.clone());
        }
    }

    /// What came of it, once it is settled. The caller works on it until then.
    pub fn work_until_settled(self: &Arc<Self>) -> Outcome {
        loop {
            let task = {
                let mut work = self.work.lock();
                loop {
                    if let Stage::Settled(outcome) = &work.stage {
                        return outcome.clone();
                    }
                    match work.take(Worker::Waiting, self.crew.size()) {
                        Some(task) => break task,
                        None => self.changed.wait(&mut work),
                    }
                }
            };
            self.carry_out(task, Worker::Waiting);
        }
    }

    /// Works as long as there is something to do. Whoever is the last to be done finds that it can be settled.
    pub fn work(self: &Arc<Self>, worker: Worker) {
        if worker == Worker::Crew {
            self.called.store(false, Ordering::Release);
        }
        while let Some(task) = self.take(worker) {
            self.carry_out(task, worker);
        }
    }

    fn take(&self, worker: Worker) -> Option<Task> {
        if worker == Worker::Crew {
            if !self.work.lock().has_task() {
                return None;
            }
            self.crew.rest();
        }
        self.work.lock().take(worker, self.crew.size())
    }

    fn carry_out(self: &Arc<Self>, task: Task, worker: Worker) {
        match task {
            Task::Observe { group, profile } => {
                let rows = u64_from(group.rows);
                let profile = guarded(|| self.observe(&group, profile));
                drop(group);
                self.done(worker, |work| {
                    work.rows_seen += rows;
                    match profile {
                        Ok(profile) => work.idle.push(profile),
                        Err(error) => work.failed = Some(error),
                    }
                });
            }
            Task::Settle { base, rows_before, parts, encoder } => {
                let outcome = guarded(|| self.settle(base, parts, &encoder));
                let held = self.done(worker, |work| {
                    work.rows_seen += rows_before;
                    (std::mem::replace(&mut work.stage, Stage::Settled(outcome)), work.next.take())
                });
                if let Some((_, Some(next))) = held {
                    next.announce();
                }
            }
        }
    }

    /// Takes in what a task has brought, if anybody still wants it.
    fn done<T>(&self, worker: Worker, with: impl FnOnce(&mut Work) -> T) -> Option<T> {
        let mut work = self.work.lock();
        work.busy -= 1;
        work.busy_waiting -= usize::from(worker == Worker::Waiting);
        let given = (!self.abandoned.load(Ordering::Relaxed)).then(|| with(&mut work));
        drop(work);
        self.changed.notify_all();
        given
    }

    fn observe(&self, group: &RowGroup, profile: Option<Profile>) -> Result<Profile> {
        let mut profile = profile.map_or_else(|| Profile::new(&self.schema), Ok)?;
        let wanted = || !self.abandoned.load(Ordering::Relaxed);
        observe::observe(&mut profile, group, &wanted).map(|()| profile)
    }

    fn settle(&self, base: Option<Outcome>, parts: Vec<Profile>, encoder: &Encoder) -> Outcome {
        let base = base.transpose()?;
        let mut parts = parts.into_iter();
        let first = parts.next().map_or_else(|| Profile::new(&self.schema), Ok)?;
        let whole = parts.try_fold(first, |mut whole, part| whole.merge(&part).map(|()| whole))?;
        let whole = match base {
            Some(base) => base.add_to(whole)?,
            None => whole,
        };
        Gathered::keep(&whole, encoder)
    }
}

impl Work {
    /// Whether there may be something to do for the crew.
    fn has_task(&self) -> bool {
        let may_settle = matches!(self.stage, Stage::Complete { .. }) && self.busy == 0;
        !self.is_awaited && (!self.waiting.is_empty() || may_settle)
    }

    /// Something to do, unless `waiting_max` threads that wait for it are at work already. Those of the crew are
    /// not counted: the system may let them stand for long.
    fn take(&mut self, worker: Worker, waiting_max: usize) -> Option<Task> {
        let full = match worker {
            Worker::Crew => self.is_awaited,
            Worker::Waiting => self.busy_waiting >= waiting_max,
        };
        if full {
            return None;
        }
        if self.failed.is_some() {
            self.waiting.clear();
        }
        let task = match self.waiting.pop_front() {
            Some(group) => Task::Observe { group, profile: self.idle.pop() },
            None => self.take_settling()?,
        };
        self.busy += 1;
        self.busy_waiting += usize::from(worker == Worker::Waiting);
        Some(task)
    }

    fn take_settling(&mut self) -> Option<Task> {
        let Stage::Complete { base, encoder } = &self.stage else { return None };
        if self.busy > 0 {
            return None;
        }
        let rows_before = base.as_ref().map_or(0, |base| base.rows_seen());
        let base = match (&self.failed, base) {
            (Some(error), _) => Some(Err(error.clone())),
            (None, Some(base)) => Some(base.settled()?),
            (None, None) => None,
        };
        let (parts, encoder) = (std::mem::take(&mut self.idle), encoder.clone());
        Some(Task::Settle { base, rows_before, parts, encoder })
    }
}

/// A defect fails the profile, not the thread.
fn guarded<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err(Error::internal("a defect stopped the profile of a table")))
}
