//! The interface between the scheduler and the work that it schedules.

use super::Region;
use farpool_model::{Clock, Error};
use std::sync::Arc;

/// Work done in steps of about a millisecond, by any worker, or by several at once if it allows that.
pub trait Task: Send + Sync {
    /// Returns whether a step could make progress now. Called with the scheduler's lock held: it must not block or call
    /// the scheduler. Code that makes a task ready or ended from outside must call [`super::Scheduler::wake`].
    fn readiness(&self) -> Readiness;

    /// Does one step.
    fn step(&self, clock: &dyn Clock) -> Progress;

    /// Returns the encoded bytes read from the pool so far.
    fn bytes_read(&self) -> u64 {
        0
    }

    /// Adds the CPU time of a step, in nanoseconds.
    fn add_cpu(&self, _ns: u64) {}

    /// Returns the regions that pay for a step in equal parts; if empty, the region of the task pays.
    fn payers(&self) -> Vec<Arc<Region>> {
        Vec::new()
    }

    /// Makes steps in progress return soon. [`Task::finish`] still follows.
    fn cancel(&self) {}

    /// Called once at the end, after the last step, without any lock held.
    fn finish(&self, end: End);
}

/// Outcome of [`Task::readiness`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// A step could make progress.
    Ready,
    /// Waits for an external event: for a client to read, or for rows to arrive.
    Waiting,
    /// No step must follow, because the task was stopped from outside.
    Ended,
}

/// Outcome of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Progress was made, and more steps may follow.
    Worked,
    /// Other workers hold all remaining work.
    Busy,
    /// The task is done; no step must follow.
    Done,
}

/// Outcome of a task.
#[derive(Clone, Debug, Default)]
pub struct End {
    /// Reason why the task ended, if the task cannot know it: it panicked, or the scheduler shut down.
    pub error: Option<Error>,
    /// Time in which the task was ready but no worker was free, in nanoseconds.
    pub waited_ns: u64,
}

/// Priority class of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Work that a client waits for.
    Foreground,
    /// Work that no client waits for. Workers that take background work do it when there is no foreground work, and not
    /// while rows arrive.
    Background,
}
