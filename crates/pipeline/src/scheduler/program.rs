//! A [`Run`] as a task of the scheduler: its batches go to a [`Sink`].

use super::task::{End, Progress, Readiness, Task};
use crate::run::{HoldPolicy, Run, Step, Waker};
use arrow_array::RecordBatch;
use farpool_columns::RowGroup;
use farpool_model::{Clock, Error, Receipt, Result};
use parking_lot::Mutex;
use std::sync::{Arc, Weak};
use std::task::Wake;

/// Destination of the result of a run: a bounded queue towards one client.
pub trait Sink: Send + Sync {
    /// Returns true if there is room. Must not block. When it becomes true again, call [`super::Scheduler::wake`] or
    /// [`super::Scheduler::wake_region`]. Each worker may add the batches of one more step after the last `true`.
    fn ready(&self) -> bool;
    /// Receives a part of the result. Called by any worker, concurrently, in any order.
    fn batch(&self, batch: RecordBatch);
    /// Receives a part of the result as in [`Step::Encoded`], under the same rules. Only runs started by
    /// [`Run::start_shipping`] call it.
    fn encoded(&self, group: RowGroup);
    /// Receives the chunks of a row group as in [`Step::Fetched`], under the same rules. Only runs started by
    /// [`Run::start_fetching`] call it.
    fn fetched(&self, place: usize, group: RowGroup);
    /// Receives the outcome; no call follows.
    fn finish(&self, outcome: Result<Receipt>);
}

/// A run and its sink.
pub(super) struct ProgramTask {
    /// Dropped before the sink receives the outcome.
    run: Mutex<Option<Arc<Run>>>,
    sink: Arc<dyn Sink>,
    waker: std::task::Waker,
}

/// Waker that makes the scheduler check a run again.
struct RunWake(Weak<Run>);

impl Wake for RunWake {
    fn wake(self: Arc<Self>) {
        if let Some(run) = self.0.upgrade() {
            run.changed();
        }
    }
}

impl ProgramTask {
    pub fn new(run: Arc<Run>, sink: Arc<dyn Sink>) -> Self {
        let waker = Arc::new(RunWake(Arc::downgrade(&run))).into();
        ProgramTask { run: Mutex::new(Some(run)), sink, waker }
    }

    /// Sets a callback for when the run is stopped, or has more to do.
    pub fn on_change(&self, waker: Waker) {
        if let Some(run) = self.run() {
            run.on_change(waker);
        }
    }

    fn run(&self) -> Option<Arc<Run>> {
        self.run.lock().clone()
    }

    fn try_step(&self, run: &Run, clock: &dyn Clock) -> Result<Progress> {
        Ok(match run.step(clock)? {
            Step::Batches(batches) => {
                batches.into_iter().for_each(|batch| self.sink.batch(batch));
                Progress::Worked
            }
            Step::Encoded(group) => {
                self.sink.encoded(group);
                Progress::Worked
            }
            Step::Fetched(place, group) => {
                self.sink.fetched(place, group);
                Progress::Worked
            }
            Step::Worked => Progress::Worked,
            Step::Busy => Progress::Busy,
            Step::Done => Progress::Done,
        })
    }
}

impl Task for ProgramTask {
    fn readiness(&self) -> Readiness {
        match &*self.run.lock() {
            Some(run) if !run.is_cancelled() => {
                match self.sink.ready() && !run.waits_for_values() && !run.waits_for_rows(&self.waker) {
                    true => Readiness::Ready,
                    false => Readiness::Waiting,
                }
            }
            _ => Readiness::Ended,
        }
    }

    fn step(&self, clock: &dyn Clock) -> Progress {
        let Some(run) = self.run() else { return Progress::Done };
        // The run keeps its own error.
        let progress = self.try_step(&run, clock).unwrap_or(Progress::Done);
        // Values are released for a client that does not read: it may resume late, and others need the memory.
        run.keep_values(if self.sink.ready() { HoldPolicy::Everything } else { HoldPolicy::Nothing });
        progress
    }

    fn bytes_read(&self) -> u64 {
        self.run.lock().as_ref().map_or(0, |run| run.bytes_scanned())
    }

    fn add_cpu(&self, ns: u64) {
        if let Some(run) = self.run() {
            run.add_cpu(ns);
        }
    }

    fn cancel(&self) {
        if let Some(run) = self.run() {
            run.cancel();
        }
    }

    fn finish(&self, end: End) {
        let run = self.run.lock().take();
        let outcome = match &run {
            Some(run) => {
                run.add_wait(end.waited_ns);
                end.error.or_else(|| run.error()).map_or_else(|| Ok(run.receipt()), Err)
            }
            None => Err(Error::internal("a program ended twice")),
        };
        drop(run);
        self.sink.finish(outcome);
    }
}
