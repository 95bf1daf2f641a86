//! Tasks of the scheduler that execute a [`Run`] and send its batches to a [`Sink`].
//!
//! A *run* is an execution of a program. It is divided into steps, which any worker thread may execute.

use super::task::{End, Progress, Readiness, Task};
use crate::run::{HoldPolicy, Run, Step, Waker};
use arrow_array::RecordBatch;
use farpool_columns::RowGroup;
use farpool_model::{Clock, Error, Receipt, Result};
use parking_lot::Mutex;
use std::sync::{Arc, Weak};
use std::task::Wake;

/// Destination of the result of a run: a queue of limited length towards one client.
pub trait Sink: Send + Sync {
    /// Returns whether there is room for results. Must not block. When there is room again, [`super::Scheduler::wake`]
    /// or [`super::Scheduler::wake_region`] must be called. After the last `true`, each worker may add the batches of
    /// one more step.
    fn ready(&self) -> bool;
    /// Receives a part of the result. May be called by any worker, by several at once, and in any order.
    fn batch(&self, batch: RecordBatch);
    /// Receives a part of the result as [`Step::Encoded`], like [`Sink::batch`]. Called only for runs that
    /// [`Run::start_shipping`] created.
    fn encoded(&self, group: RowGroup);
    /// Receives the chunks of a row group as [`Step::Fetched`], like [`Sink::batch`]. Called only for runs that
    /// [`Run::start_fetching`] created.
    fn fetched(&self, place: usize, group: RowGroup);
    /// Receives the outcome: the execution statistics, or the error. No other call follows.
    fn finish(&self, outcome: Result<Receipt>);
}

/// A run and its sink.
pub(super) struct ProgramTask {
    /// Set to `None` before the sink receives the outcome, so that the run is dropped first.
    run: Mutex<Option<Arc<Run>>>,
    sink: Arc<dyn Sink>,
    waker: std::task::Waker,
}

/// Waker that makes the scheduler check the task of a run again.
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

    /// Sets a callback that is called when the run is stopped, or has more to do.
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
            Some(run) if !run.is_cancelled() => match self.sink.ready() && !run.waits(&self.waker) {
                true => Readiness::Ready,
                false => Readiness::Waiting,
            },
            _ => Readiness::Ended,
        }
    }

    fn step(&self, clock: &dyn Clock) -> Progress {
        let Some(run) = self.run() else { return Progress::Done };
        // The run keeps its error and reports it at the end, so that it is not needed here.
        let progress = self.try_step(&run, clock).unwrap_or(Progress::Done);
        // If the client does not read its results, values are released: the client may continue late, and others need
        // the memory.
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
