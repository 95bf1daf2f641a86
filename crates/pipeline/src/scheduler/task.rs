//! The interface between the scheduler and the work that it schedules ([`Task`]s, such as an execution of a
//! program).

use super::Region;
use farpool_model::{Clock, Error};
use std::sync::Arc;

/// Work that is done in steps of about a millisecond, by any worker, or by several at once if the task allows that.
pub trait Task: Send + Sync {
    /// Returns whether a step could make progress now. It is called with the scheduler's lock held, so it must not
    /// block or call the scheduler. Code outside the scheduler that makes a task ready or ends it must call
    /// [`super::Scheduler::wake`].
    fn readiness(&self) -> Readiness;

    /// Executes one step.
    fn step(&self, clock: &dyn Clock) -> Progress;

    /// Returns the encoded bytes that the task has read from the pool so far.
    fn bytes_read(&self) -> u64 {
        0
    }

    /// Adds the CPU time of a step, in nanoseconds, to the task's statistics.
    fn add_cpu(&self, _ns: u64) {}

    /// Returns the regions that pay for a step in equal parts; if there are none, the region of the task pays.
    fn payers(&self) -> Vec<Arc<Region>> {
        Vec::new()
    }

    /// Makes steps that are in progress return soon. Does not wait for them; [`Task::finish`] still follows.
    fn cancel(&self) {}

    /// Called once, after the last step, without any lock held.
    fn finish(&self, end: End);
}

/// Outcome of [`Task::readiness`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// A step could make progress.
    Ready,
    /// The task waits for an event outside the scheduler: for a client to read, or for rows to arrive.
    Waiting,
    /// The task has ended other than by a step's [`Progress::Done`], for example because it was cancelled. The scheduler
    /// begins no more steps of it, and calls [`Task::finish`] when the steps in progress have returned.
    Ended,
}

/// Outcome of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Progress was made, and more steps may follow.
    Worked,
    /// Other workers process all remaining work.
    Busy,
    /// The task is done; no further step may begin.
    Done,
}

/// Outcome of a task.
#[derive(Clone, Debug, Default)]
pub struct End {
    /// Why the task ended, if the task cannot know it: it panicked, or the scheduler was shut down.
    pub error: Option<Error>,
    /// Time in which the task was ready but no worker was free, in nanoseconds.
    pub waited_ns: u64,
}

/// Priority class of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Work that a client waits for.
    Foreground,
    /// Work that no client waits for. Workers that also do background work do it when there is no foreground work, but
    /// not while rows arrive.
    Background,
}
