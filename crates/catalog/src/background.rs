//! The interface for background work on tables. The catalog starts no threads; the node that contains it runs the work.

use super::merge::MergeTask;
use super::tap::{ProfileTask, StepOutcome};
use farpool_model::TenantName;
use parking_lot::{Condvar, Mutex};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Delay before a job that found no memory is retried. Reason: workers finish with their row groups within some
/// milliseconds and then free memory.
const WAIT: Duration = Duration::from_millis(3);

/// Runs background work on tables, on the threads of the node.
pub trait Background: fmt::Debug + Send + Sync {
    /// Queues `chore` to be run ([`Chore::step`]) when there is no other work. Does not block.
    fn submit(&self, chore: Chore);

    /// Called whenever rows of a load arrive, so that the implementation can pause other background work.
    fn rows_came(&self);

    /// Runs `job`, which blocks on the disk, one after the other with other such jobs, on a thread that no request
    /// depends on. The default runs it at once, which is correct only without a data directory: the thread that writes
    /// the log calls this, and the job may wait for that thread.
    fn write(&self, job: Box<dyn FnOnce() + Send>) {
        job();
    }

    /// Runs `job`, which reads from the disk, in parallel with other such jobs. The default implementation runs it
    /// at once.
    fn read(&self, job: Box<dyn FnOnce() + Send>) {
        job();
    }

    /// Runs `job` as [`Background::read`] does, after a delay in which memory may be freed. For a job that found too
    /// little memory.
    fn read_later(&self, job: Box<dyn FnOnce() + Send>) {
        self.read(after_a_moment(job));
    }
}

/// Returns a job that waits a few milliseconds and then runs `job`.
pub fn after_a_moment(job: Box<dyn FnOnce() + Send>) -> Box<dyn FnOnce() + Send> {
    Box::new(move || {
        let (moment, passed) = (Mutex::new(()), Condvar::new());
        passed.wait_for(&mut moment.lock(), WAIT);
        job();
    })
}

/// Background work on one table: a unit that the [`Background`] queues.
#[derive(Clone, Debug)]
pub enum Chore {
    /// Computes a profile.
    Profile(Arc<ProfileTask>),
    /// Merges small row groups into larger ones.
    Merge(Arc<MergeTask>),
}

impl Chore {
    /// Returns the priority of a chore among those of one tenant; it also identifies the chore. Merges come first,
    /// because they free memory and because profiles read their results. Profiles follow in the order in which their
    /// loads began.
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

    /// Works on the chore until `go_on` returns false, but at least on one column.
    pub fn step(&self, go_on: &dyn Fn() -> bool) -> StepOutcome {
        match self {
            Chore::Merge(merging) => merging.step(go_on),
            Chore::Profile(task) => task.step(go_on),
        }
    }

    /// Marks the chore as no longer queued, because the caller found nothing to do. It is submitted again when there is
    /// work.
    pub fn leave(&self) {
        match self {
            Chore::Merge(merging) => merging.leave(),
            Chore::Profile(task) => task.leave(),
        }
    }
}
