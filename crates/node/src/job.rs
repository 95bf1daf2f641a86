//! A scheduler task that consists of a single step, for requests that a worker thread executes at once. (Other tasks,
//! such as programs, take many short steps.)

use farpool_model::{Clock, Error, Result};
use farpool_pipeline::{Cancel, End, Progress, Readiness, Task};
use parking_lot::Mutex;

type Work<T> = Box<dyn FnOnce() -> Result<T> + Send>;
type Then<T> = Box<dyn FnOnce(Result<T>) + Send>;

/// A function to be called by a worker, its result, and the callback that receives the result.
pub(crate) struct Job<T> {
    cancel: Cancel,
    work: Mutex<Option<Work<T>>>,
    outcome: Mutex<Option<Result<T>>>,
    then: Mutex<Option<Then<T>>>,
}

impl<T: Send> Job<T> {
    /// Creates a job that calls `work`, unless `cancel` is set before, and then `then` with the result (`Cancelled` if
    /// `work` was not called).
    pub fn new(
        cancel: Cancel,
        work: impl FnOnce() -> Result<T> + Send + 'static,
        then: impl FnOnce(Result<T>) + Send + 'static,
    ) -> Self {
        Job {
            cancel,
            work: Mutex::new(Some(Box::new(work))),
            outcome: Mutex::default(),
            then: Mutex::new(Some(Box::new(then))),
        }
    }
}

impl<T: Send> Task for Job<T> {
    fn readiness(&self) -> Readiness {
        if self.cancel.is_set() { Readiness::Ended } else { Readiness::Ready }
    }

    fn step(&self, _clock: &dyn Clock) -> Progress {
        let Some(work) = self.work.lock().take() else { return Progress::Busy };
        let outcome = work();
        *self.outcome.lock() = Some(outcome);
        Progress::Done
    }

    fn cancel(&self) {
        self.cancel.set();
    }

    fn finish(&self, end: End) {
        let outcome = self.outcome.lock().take();
        let outcome = outcome.unwrap_or_else(|| Err(end.error.unwrap_or_else(Error::cancelled)));
        // `work` is dropped before the callback is called, even if `work` was never called, so that the resources that
        // it owns are free by then.
        drop(self.work.lock().take());
        if let Some(then) = self.then.lock().take() {
            then(outcome);
        }
    }
}
