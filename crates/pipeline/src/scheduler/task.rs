//! What the scheduler asks of the work that it shares threads among.

use super::Region;
use farpool_model::{Clock, Error};
use std::sync::Arc;

/// Work that is done in steps of about a millisecond, by any worker, several of them at once if it can use several.
pub trait Task: Send + Sync {
    /// Whether a step could do something now. Called with the scheduler's lock held: it must return at once and call
    /// nothing of the scheduler. When it becomes ready or ended by itself, whoever made it so calls
    /// [`super::Scheduler::wake`].
    fn readiness(&self) -> Readiness;

    /// Does one step.
    fn step(&self, clock: &dyn Clock) -> Progress;

    /// Encoded bytes read from the pool so far.
    fn bytes_read(&self) -> u64 {
        0
    }

    /// A step of the task took so much CPU time.
    fn add_cpu(&self, _ns: u64) {}

    /// Clients whose shares pay for a step in equal parts; nobody in particular: that of the region the task is in.
    fn payers(&self) -> Vec<Arc<Region>> {
        Vec::new()
    }

    /// Has steps that are under way give up soon. [`Task::finish`] still follows.
    fn cancel(&self) {}

    /// The end; called once, after the last step, without any lock.
    fn finish(&self, end: End);
}

/// See [`Task::readiness`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// A step could do something.
    Ready,
    /// For a client to read, or for rows to come.
    Waiting,
    /// No step is to follow: it was stopped from outside.
    Ended,
}

/// What came of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Something was done, and more may follow.
    Worked,
    /// Everything that is to do is in other workers' hands.
    Busy,
    /// No step is to follow.
    Done,
}

/// How a task came to its end.
#[derive(Clone, Debug, Default)]
pub struct End {
    /// Why it ended, where the task does not know: a panic of its own, or the scheduler shuts down.
    pub error: Option<Error>,
    /// How long it could have been worked on and no worker had time, in nanoseconds.
    pub waited_ns: u64,
}

/// Which work comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Work that somebody waits for.
    Foreground,
    /// Work that nobody waits for. Those workers that work in the background do it when there is nothing else, and not
    /// while rows come in.
    Background,
}
