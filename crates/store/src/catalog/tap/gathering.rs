//! A profile in the making, shared by those who work on it: row groups wait, and are added each to a part of the
//! profile that one worker at a time has; when all are done and what comes before is settled, the parts are put
//! together. Workers take a step at a time and bring back what came of it.
//!
//! Rows that are complete are not looked at before what comes before them is settled: of a line of appends only one
//! holds a profile outside the pool.
//!
//! Invariants: no lock is held while somebody works; locks are taken from a gathering to the one before it, never the
//! other way; a worker that panics settles the gathering with an error, so that nobody waits for ever.

use super::memory::PartMemory;
use super::work::{Done, Stage, Waiter, Work, Worker};
use super::{Outcome, Tap, defect};
use crate::catalog::{Background, Chore};
use arrow_schema::SchemaRef;
use farpool_columns::{Encoder, RowGroup};
use farpool_memory::{Account, Reservation};
use farpool_model::{Error, TenantName, limits};
use farpool_statistics::Profile;
use parking_lot::{Condvar, Mutex};
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How long a thread waits for memory.
const PATIENCE: Duration = Duration::from_millis(limits::WORK_WAIT_MS_MAX);

/// What came of working on a profile in the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stepped {
    /// Something was done, and more may follow.
    Worked,
    /// There is too little memory for what is to be done next, which is to be tried again later.
    Lacked,
    /// There was nothing to do.
    Nothing,
}

/// See the file's comment.
#[derive(Debug)]
pub struct Gathering {
    number: u64,
    tenant: TenantName,
    schema: SchemaRef,
    background: Arc<dyn Background>,
    work: Mutex<Work>,
    /// Signals threads that wait that there may be more to do, or that it is settled.
    changed: Condvar,
    abandoned: AtomicBool,
    /// Whether the background has it.
    submitted: AtomicBool,
}

impl Gathering {
    pub(super) fn new(
        number: u64,
        tenant: TenantName,
        schema: SchemaRef,
        background: Arc<dyn Background>,
        account: Option<Account>,
    ) -> Gathering {
        // A schema that has no profile fails it when it is begun.
        let states_bytes = Profile::bytes_most(&schema).unwrap_or(0);
        let memory = PartMemory::new(account, states_bytes);
        Gathering {
            number,
            tenant,
            schema,
            background,
            work: Mutex::new(Work { memory, ..Work::default() }),
            changed: Condvar::new(),
            abandoned: AtomicBool::new(false),
            submitted: AtomicBool::new(false),
        }
    }

    /// A number that grows from one gathering of a catalog to the next.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Whose table it is.
    pub fn tenant(&self) -> &TenantName {
        &self.tenant
    }

    /// Works on it in the background, as long as `go_on` and by a column at least.
    pub fn step(self: &Arc<Self>, go_on: &dyn Fn() -> bool) -> Stepped {
        if self.work_on(Worker::Background, go_on) {
            return Stepped::Worked;
        }
        let work = self.work.lock();
        let lacks = work.memory.lacking().is_some() && work.has_step(Worker::Background);
        if lacks { Stepped::Lacked } else { Stepped::Nothing }
    }

    /// The background has let go of it, for there was nothing to do. It gets it again when there is.
    pub fn leave(self: &Arc<Self>) {
        self.submitted.store(false, Ordering::SeqCst);
        // What has changed meanwhile was not announced.
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
        self.work.lock().stage = Stage::Complete { base, encoder };
        self.announce();
    }

    pub(super) fn set_next(&self, next: Arc<Gathering>) {
        self.work.lock().next = Some(next);
    }

    pub(super) fn settled(&self) -> Option<Outcome> {
        match &self.work.lock().stage {
            Stage::Settled(outcome) => Some(outcome.clone()),
            Stage::Open | Stage::Complete { .. } | Stage::Settling(_) => None,
        }
    }

    /// Whether it is to be settled with an error.
    pub(super) fn has_failed(&self) -> bool {
        self.work.lock().failed.is_some()
    }

    /// Row groups that nobody has begun with.
    pub(super) fn groups_waiting(&self) -> usize {
        self.work.lock().waiting.len()
    }

    /// Rows that it has seen itself, and what comes before it and is not counted in yet.
    pub(super) fn rows_seen(&self) -> (u64, Option<Arc<Tap>>) {
        let work = self.work.lock();
        (work.rows_seen, work.base().cloned())
    }

    /// What it waits for.
    pub(super) fn base(&self) -> Option<Arc<Tap>> {
        self.work.lock().base().cloned()
    }

    /// Leaves what is to do to whoever waits for it.
    pub(super) fn add_waiter(&self, waiter: Arc<Waiter>) {
        let mut work = self.work.lock();
        work.waiters.push(waiter);
        work.memory.try_again();
    }

    /// `waiter` no longer waits.
    pub(super) fn remove_waiter(self: &Arc<Self>, waiter: &Arc<Waiter>) {
        self.work.lock().waiters.retain(|other| !Arc::ptr_eq(other, waiter));
        self.announce();
    }

    /// Whether there is something to do for somebody who waits.
    pub(super) fn has_step(&self) -> bool {
        self.work.lock().has_step(Worker::Waiting)
    }

    /// Bytes of memory that it lacks, for somebody who waits for it to wait for them.
    pub(super) fn bytes_lacking(&self) -> Option<usize> {
        self.work.lock().memory.lacking()
    }

    /// Goes on with `memory`, of the tenant's account, that somebody has waited for.
    pub(super) fn give(self: &Arc<Self>, memory: Reservation) {
        let back = self.work.lock().memory.give(memory);
        drop(back);
        self.announce();
    }

    /// There is to be no profile, unless it is there, or nearly.
    pub(super) fn give_up(self: &Arc<Self>, why: &Error) {
        let held = {
            let mut work = self.work.lock();
            match work.stage {
                Stage::Open | Stage::Complete { .. } => work.fail_with(why.clone()),
                Stage::Settling(_) | Stage::Settled(_) => return,
            }
        };
        drop(held);
        self.announce();
    }

    /// Lets go of everything: nobody wants the profile any more.
    pub(super) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
        let mut work = self.work.lock();
        let busy = work.busy;
        let held = mem::replace(&mut *work, Work { busy, ..Work::default() });
        drop(work);
        // Pages, profiles and the taps before this one: not under the lock.
        drop(held);
    }

    /// The calling thread works on it until it is settled, or somebody has `refused` to wait for more memory: this
    /// thread, if it has waited for long.
    pub(super) fn work_until_settled(self: &Arc<Self>, refused: &OnceLock<Error>) {
        loop {
            while self.work_on(Worker::Waiting, &|| true) {}
            let mut work = self.work.lock();
            if matches!(work.stage, Stage::Settled(_)) || refused.get().is_some() {
                return;
            }
            if work.has_step(Worker::Waiting) {
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
                    // Of several threads one is enough to say so.
                    drop(refused.set(error));
                    self.announce();
                }
            }
        }
    }

    /// Does what there is to do as long as `go_on`. False when that is nothing.
    pub(super) fn work_on(self: &Arc<Self>, worker: Worker, go_on: &dyn Fn() -> bool) -> bool {
        let Some(step) = self.work.lock().take(worker) else { return false };
        let go_on = || go_on() && !self.abandoned.load(Ordering::Relaxed);
        let done = catch_unwind(AssertUnwindSafe(|| step.run(&self.schema, &go_on)));
        self.done(done.unwrap_or_else(|_| Err(defect())).unwrap_or_else(Done::Failed));
        true
    }

    /// Takes in what a step has brought, if anybody still wants it.
    fn done(self: &Arc<Self>, done: Done) {
        let mut work = self.work.lock();
        work.busy -= 1;
        // Let go when the lock is.
        let _held = match self.abandoned.load(Ordering::Relaxed) {
            true => (Some(done), None),
            false => (None, work.book(done)),
        };
        let next = if matches!(work.stage, Stage::Settled(_)) { work.next.take() } else { None };
        drop(work);
        self.announce();
        next.into_iter().for_each(|next| next.announce());
    }

    /// Tells everybody that there may be something to do.
    fn announce(self: &Arc<Self>) {
        let (waiters, is_for_background) = {
            let work = self.work.lock();
            (work.waiters.clone(), work.has_step(Worker::Background))
        };
        self.changed.notify_all();
        waiters.iter().for_each(|waiter| (waiter.wake)());
        if is_for_background && !self.submitted.swap(true, Ordering::SeqCst) {
            self.background.submit(Chore::Profile(self.clone()));
        }
    }
}
