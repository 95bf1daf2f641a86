//! The computation of one profile (statistics of a table's rows) by several workers. Row groups are queued; each
//! is added to a partial profile (part), which one worker at a time owns. When all rows were added and the tap of the
//! rows before is settled (complete or failed), the partial profiles are merged. Workers take one step at a time and
//! return its result.
//!
//! When a task has all its rows, it does not begin with them before the task that it builds on is settled: of a chain
//! of appends only one has a profile in working memory.
//!
//! Invariants: no lock is held during a step; locks are taken from a task to the one that it builds on, never the other
//! way; a worker that panics settles the task with an error, so that no one waits for ever.

use super::memory::PartMemory;
use super::part::Wake;
use super::work::{ProfileStage, ProfileWork, StepResult, Stored, Waiter, WorkerKind};
use super::{CollectedProfile, KnownProfile, Outcome, Tap, defect};
use crate::durable::StoredProfile;
use crate::{Background, Chore};
use arrow_schema::SchemaRef;
use farpool_columns::{Encoder, RowGroup};
use farpool_memory::{Account, Reservation};
use farpool_model::cast::u64_from;
use farpool_model::{Error, TenantName, limits};
use parking_lot::{Condvar, Mutex};
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Maximum time that a thread waits for memory.
const PATIENCE: Duration = Duration::from_millis(limits::WORK_WAIT_MS_MAX);

/// Result of a step of background work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepOutcome {
    /// Work was done, and more may follow.
    Worked,
    /// No work was done, because memory for the next step is short; try again later.
    Lacked,
    /// There was no work to do.
    Nothing,
}

/// The state of a profile being computed, shared by its tap and its workers.
#[derive(Debug)]
pub struct ProfileTask {
    number: u64,
    tenant: TenantName,
    schema: SchemaRef,
    background: Arc<dyn Background>,
    work: Mutex<ProfileWork>,
    /// Signals waiting threads that there may be work to do, or that the profile is settled.
    changed: Condvar,
    abandoned: AtomicBool,
    /// Whether the task is in the queue of the background.
    submitted: AtomicBool,
}

impl ProfileTask {
    pub(super) fn new(
        number: u64,
        tenant: TenantName,
        schema: SchemaRef,
        background: Arc<dyn Background>,
        account: Option<Account>,
    ) -> ProfileTask {
        let memory = PartMemory::new(account, schema.clone());
        ProfileTask {
            number,
            tenant,
            schema,
            background,
            work: Mutex::new(ProfileWork { memory, ..ProfileWork::default() }),
            changed: Condvar::new(),
            abandoned: AtomicBool::new(false),
            submitted: AtomicBool::new(false),
        }
    }

    /// Returns the sequence number of the task among those of a catalog.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the tenant that owns the table.
    pub fn tenant(&self) -> &TenantName {
        &self.tenant
    }

    /// Does background work until `go_on` returns false, but at least on one column.
    pub fn step(self: &Arc<Self>, go_on: &dyn Fn() -> bool) -> StepOutcome {
        if self.work_on(WorkerKind::Background, go_on) {
            return StepOutcome::Worked;
        }
        let work = self.work.lock();
        let lacks = work.memory.lacking().is_some() && work.has_step(WorkerKind::Background);
        if lacks { StepOutcome::Lacked } else { StepOutcome::Nothing }
    }

    /// Marks the task as no longer in the queue of the background. It is submitted again when there is work.
    pub fn leave(self: &Arc<Self>) {
        self.submitted.store(false, Ordering::SeqCst);
        // Changes since the last step have not been announced to the background.
        self.announce();
    }

    pub(super) fn add(self: &Arc<Self>, group: Arc<RowGroup>) {
        {
            let mut work = self.work.lock();
            if work.failed.is_some() {
                return;
            }
            work.waiting.push_back(group);
        }
        self.announce();
    }

    pub(super) fn complete(self: &Arc<Self>, base: Option<Arc<Tap>>, encoder: Encoder) {
        self.work.lock().stage = ProfileStage::Complete { base, encoder };
        self.announce();
    }

    pub(super) fn store(&self, profile: Arc<StoredProfile>, groups: Vec<Arc<RowGroup>>, encoder: Encoder) {
        let mut work = self.work.lock();
        work.rows_seen = groups.iter().map(|group| u64_from(group.rows)).sum();
        work.waiting = groups.into();
        work.stage = ProfileStage::Stored(Stored { profile, encoder, is_wanted: false, is_read: false });
    }

    pub(super) fn want(self: &Arc<Self>) {
        if !self.work.lock().want() {
            return;
        }
        let weak = Arc::downgrade(self);
        self.background.read(Box::new(move || {
            if let Some(task) = weak.upgrade() {
                task.read();
            }
        }));
    }

    pub(super) fn read(self: &Arc<Self>) {
        let Some((profile, encoder)) = self.work.lock().begin_reading() else { return };
        let read = || CollectedProfile::read(&profile, &self.schema, &encoder);
        let read = catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|_| Err(defect()));
        let mut work = self.work.lock();
        let held = work.end_reading(read);
        let next = if matches!(work.stage, ProfileStage::Settled(_)) { work.next.take() } else { None };
        drop(work);
        drop(held);
        self.announce();
        next.into_iter().for_each(|next| next.announce());
    }

    pub(super) fn known(&self) -> Option<KnownProfile> {
        match &self.work.lock().stage {
            ProfileStage::Settled(Ok(collected)) => Some(KnownProfile::Gathered(collected.clone())),
            ProfileStage::Stored(stored) => Some(KnownProfile::Stored(stored.profile.clone())),
            _ => None,
        }
    }

    pub(super) fn set_next(&self, next: Arc<ProfileTask>) {
        self.work.lock().next = Some(next);
    }

    pub(super) fn settled(&self) -> Option<Outcome> {
        match &self.work.lock().stage {
            ProfileStage::Settled(outcome) => Some(outcome.clone()),
            ProfileStage::Open
            | ProfileStage::Stored(_)
            | ProfileStage::Complete { .. }
            | ProfileStage::Settling(_) => None,
        }
    }

    /// Returns whether the profile has failed and will settle with an error.
    pub(super) fn has_failed(&self) -> bool {
        self.work.lock().failed.is_some()
    }

    /// Returns the number of row groups that no worker has begun.
    pub(super) fn groups_waiting(&self) -> usize {
        self.work.lock().waiting.len()
    }

    /// Returns the number of rows profiled by this task, and the tap before if its rows are not included in that number
    /// yet.
    pub(super) fn rows_seen(&self) -> (u64, Option<Arc<Tap>>) {
        let work = self.work.lock();
        (work.rows_seen, work.base().cloned())
    }

    /// Returns the tap that must be settled before this one; `None` if there is none.
    pub(super) fn base(&self) -> Option<Arc<Tap>> {
        self.work.lock().base().cloned()
    }

    /// Registers a waiter. While there is one, the background does not work on the task, because waiters do.
    pub(super) fn add_waiter(&self, waiter: Arc<Waiter>) {
        let mut work = self.work.lock();
        work.waiters.push(waiter);
        work.memory.try_again();
    }

    /// Removes a waiter. Without waiters the background may continue.
    pub(super) fn remove_waiter(self: &Arc<Self>, waiter: &Arc<Waiter>) {
        self.work.lock().waiters.retain(|other| !Arc::ptr_eq(other, waiter));
        self.announce();
    }

    /// Returns whether there is work to do for a waiter.
    pub(super) fn has_step(&self) -> bool {
        self.work.lock().has_step(WorkerKind::Waiting)
    }

    /// Returns the bytes of memory that the next step could not reserve, for a waiter to reserve; `None` if it was not
    /// refused memory.
    pub(super) fn bytes_lacking(&self) -> Option<usize> {
        self.work.lock().memory.lacking()
    }

    /// Continues with `memory`, which a waiter has reserved from the tenant's account.
    pub(super) fn give(self: &Arc<Self>, memory: Reservation) {
        let back = self.work.lock().memory.give(memory);
        drop(back);
        self.announce();
    }

    /// Fails the profile, unless it is settled, on disk, or its parts are already being merged.
    pub(super) fn give_up(self: &Arc<Self>, why: &Error) {
        let held = {
            let mut work = self.work.lock();
            match work.stage {
                ProfileStage::Open | ProfileStage::Complete { .. } => work.fail_with(why.clone()),
                ProfileStage::Stored(_) | ProfileStage::Settling(_) | ProfileStage::Settled(_) => return,
            }
        };
        drop(held);
        self.announce();
    }

    /// Drops all data, because the profile is no longer needed.
    pub(super) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
        let mut work = self.work.lock();
        let busy = work.busy;
        let held = mem::replace(&mut *work, ProfileWork { busy, ..ProfileWork::default() });
        drop(work);
        // Dropped outside the lock, since this frees pages, profiles and the taps of earlier rows.
        drop(held);
    }

    /// Works on the calling thread, and blocks, until the profile is settled or `refused` is set by the thread whose
    /// wait for memory timed out.
    pub(super) fn work_until_settled(self: &Arc<Self>, refused: &OnceLock<Error>) {
        loop {
            while self.work_on(WorkerKind::Waiting, &|| true) {}
            let mut work = self.work.lock();
            if matches!(work.stage, ProfileStage::Settled(_)) || refused.get().is_some() {
                return;
            }
            if work.has_step(WorkerKind::Waiting) {
                continue;
            }
            let Some((account, bytes)) = work.memory.wait_wanted() else {
                self.changed.wait(&mut work);
                continue;
            };
            drop(work);
            let memory = account.reserve_blocking(bytes, PATIENCE);
            self.work.lock().memory.has_waited();
            match memory {
                Ok(memory) => self.give(memory),
                Err(error) => {
                    // Only the first of several threads that time out sets the error.
                    drop(refused.set(error));
                    self.announce();
                }
            }
        }
    }

    /// Does one step, which ends when `go_on` returns false. Returns false if there is nothing to do.
    pub(super) fn work_on(self: &Arc<Self>, worker: WorkerKind, go_on: &dyn Fn() -> bool) -> bool {
        let Some(step) = self.work.lock().take(worker) else { return false };
        let go_on = || go_on() && !self.abandoned.load(Ordering::Relaxed);
        let weak = Arc::downgrade(self);
        let wake: Wake = Arc::new(move || {
            if let Some(task) = weak.upgrade() {
                task.announce();
            }
        });
        let done = catch_unwind(AssertUnwindSafe(|| step.run(&self.schema, &go_on, &wake)));
        self.done(done.unwrap_or_else(|_| Err(defect())).unwrap_or_else(StepResult::Failed));
        true
    }

    /// Records the result of a step, unless the profile was abandoned.
    fn done(self: &Arc<Self>, done: StepResult) {
        let mut work = self.work.lock();
        work.busy -= 1;
        // Values that the step no longer needs are dropped after the lock is released.
        let _held = match self.abandoned.load(Ordering::Relaxed) {
            true => (Some(done), None),
            false => (None, work.book(done)),
        };
        let next = if matches!(work.stage, ProfileStage::Settled(_)) { work.next.take() } else { None };
        drop(work);
        self.announce();
        next.into_iter().for_each(|next| next.announce());
    }

    /// Notifies waiters, and the background if it may work, that there may be something to do.
    fn announce(self: &Arc<Self>) {
        let (waiters, is_for_background) = {
            let work = self.work.lock();
            (work.waiters.clone(), work.has_step(WorkerKind::Background))
        };
        self.changed.notify_all();
        waiters.iter().for_each(|waiter| (waiter.wake)());
        if is_for_background && !self.submitted.swap(true, Ordering::SeqCst) {
            self.background.submit(Chore::Profile(self.clone()));
        }
    }
}
