//! The interface for background work on tables: the store starts no threads for it, its host runs it.

use super::merge::MergeTask;
use super::tap::{ProfileTask, StepOutcome};
use farpool_model::TenantName;
use parking_lot::{Condvar, Mutex};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Delay before a job that found no memory is retried: workers finish with their row groups within some milliseconds.
const WAIT: Duration = Duration::from_millis(3);

/// Runs background work on tables. Implemented by the host of the store.
pub trait Background: fmt::Debug + Send + Sync {
    /// Queues `chore` to be worked on ([`Chore::step`]) when there is no other work.
    fn submit(&self, chore: Chore);

    /// Called whenever rows of a load arrive, so that other background work can pause meanwhile.
    fn rows_came(&self);

    /// Runs `job`, which waits for a disk, in turn with others, on a thread that no request waits for otherwise. The
    /// default runs it at once, which is only right without a data directory: the thread that writes the log calls this,
    /// and the job may wait for that thread.
    fn write(&self, job: Box<dyn FnOnce() + Send>) {
        job();
    }

    /// Runs `job`, which reads from a disk, beside others. Without threads for that it is run at once.
    fn read(&self, job: Box<dyn FnOnce() + Send>) {
        job();
    }

    /// Runs `job` as [`Background::read`] does, after a delay in which memory may be freed: for a job that found none.
    fn read_later(&self, job: Box<dyn FnOnce() + Send>) {
        self.read(after_a_moment(job));
    }
}

/// Returns a job that runs `job` after a short wait on its thread.
pub fn after_a_moment(job: Box<dyn FnOnce() + Send>) -> Box<dyn FnOnce() + Send> {
    Box::new(move || {
        let (moment, passed) = (Mutex::new(()), Condvar::new());
        passed.wait_for(&mut moment.lock(), WAIT);
        job();
    })
}

/// Background work on one table.
#[derive(Clone, Debug)]
pub enum Chore {
    /// Computes a profile.
    Profile(Arc<ProfileTask>),
    /// Merges small row groups into larger ones.
    Merge(Arc<MergeTask>),
}

impl Chore {
    /// Returns the key that identifies a chore and orders those of one tenant: merges first, since they make room and
    /// profiles read their results, then profiles in the order in which their loads began.
    pub fn order(&self) -> (bool, u64) {
        match self {
            Chore::Merge(merging) => (false, merging.number()),
            Chore::Profile(task) => (true, task.number()),
        }
    }

    /// Returns the tenant that owns the table.
    pub fn tenant(&self) -> &TenantName {
        match self {
            Chore::Merge(merging) => merging.tenant(),
            Chore::Profile(task) => task.tenant(),
        }
    }

    /// Works until `go_on` returns false, and on one column at least.
    pub fn step(&self, go_on: &dyn Fn() -> bool) -> StepOutcome {
        match self {
            Chore::Merge(merging) => merging.step(go_on),
            Chore::Profile(task) => task.step(go_on),
        }
    }

    /// Marks the chore as no longer queued. The caller found nothing to do; it is submitted again when there
    /// is.
    pub fn leave(&self) {
        match self {
            Chore::Merge(merging) => merging.leave(),
            Chore::Profile(task) => task.leave(),
        }
    }
}
