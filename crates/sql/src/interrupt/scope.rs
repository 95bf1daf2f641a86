//! Units of work of the engine (DataFusion), such as statements, that can be stopped, each with the reason for the
//! stop.

use super::current::{self, Entered};
use super::{tasks, timer};
use arrow_array::RecordBatch;
use datafusion::execution::memory_pool::MemoryPool;
use farpool_model::{Error, Result};
use futures::stream::BoxStream;
use futures::task::AtomicWaker;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use parking_lot::Mutex;
use std::fmt;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::{Duration, Instant};

/// Minimum time between two calls of a probe, which may be expensive.
const PROBE_PAUSE: Duration = Duration::from_millis(50);

/// A unit of work of the engine, such as a statement, that is stopped as a whole.
pub struct Scope {
    /// The reason for the stop; empty as long as the scope has not been stopped.
    stopped: OnceLock<Error>,
    /// The time by which the work must have ended, and the time limit that the caller set.
    deadline: Option<(Instant, Duration)>,
    /// The enclosing unit of work: the scope of a statement encloses those of its executions.
    parent: Option<Arc<Scope>>,
    /// The memory pool that results of functions are charged to.
    memory: Option<Arc<dyn MemoryPool>>,
    /// Wakes the future that waits for the work.
    waiting: AtomicWaker,
    probe: Option<Probe>,
}

/// A callback that tells whether the caller has interrupted the work, and when it was called last.
struct Probe {
    ask: Box<dyn Fn() -> bool + Send + Sync>,
    asked: Mutex<Instant>,
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").field("stopped", &self.stopped).field("deadline", &self.deadline).finish()
    }
}

impl Scope {
    /// Creates a scope without a time limit.
    pub fn unlimited() -> Arc<Self> {
        Scope::new(None, None, None)
    }

    /// Creates a scope without a time limit that is stopped when `ask` returns true.
    pub fn probing(ask: Box<dyn Fn() -> bool + Send + Sync>) -> Arc<Self> {
        let probe = Some(Probe { ask, asked: Mutex::new(Instant::now()) });
        let (stopped, waiting) = (OnceLock::new(), AtomicWaker::new());
        Arc::new(Scope { stopped, deadline: None, parent: None, memory: None, waiting, probe })
    }

    /// Creates the scope of a statement that begins now and may take the duration `limit`. Results of its functions are
    /// charged to `memory`.
    pub fn statement(limit: Option<Duration>, memory: Arc<dyn MemoryPool>) -> Arc<Self> {
        // A limit beyond the range of the clock counts as no limit.
        let deadline = limit.and_then(|limit| Some((Instant::now().checked_add(limit)?, limit)));
        Scope::new(deadline, None, Some(memory))
    }

    /// Creates the scope of one execution of this statement, enclosed in this scope.
    pub fn run(self: &Arc<Self>) -> Arc<Self> {
        Scope::new(self.deadline, Some(Arc::clone(self)), self.memory.clone())
    }

    fn new(
        deadline: Option<(Instant, Duration)>,
        parent: Option<Arc<Scope>>,
        memory: Option<Arc<dyn MemoryPool>>,
    ) -> Arc<Self> {
        tasks::install();
        let (stopped, waiting) = (OnceLock::new(), AtomicWaker::new());
        let scope = Arc::new(Scope { stopped, deadline, parent, memory, waiting, probe: None });
        if let Some((at, _)) = deadline {
            timer::watch(at, &scope);
        }
        scope
    }

    /// Stops the scope; its work fails as cancelled.
    pub fn stop(&self) {
        self.stop_for(Error::cancelled());
    }

    /// Stops the scope; its work fails with `reason`. Does nothing if the scope was stopped before.
    pub fn stop_for(&self, reason: Error) {
        let _ = self.stopped.set(reason);
        self.waiting.wake();
    }

    /// Wakes the future that waits for the work, so that it notices that the deadline has passed.
    pub(super) fn wake(&self) {
        self.waiting.wake();
    }

    /// Returns the memory pool that results of functions are charged to.
    pub fn memory(&self) -> Option<&Arc<dyn MemoryPool>> {
        self.memory.as_ref()
    }

    /// Returns the reason why the work must end; `None` if it may continue.
    pub fn reason(&self) -> Option<Error> {
        if let Some(reason) = self.stopped.get() {
            return Some(reason.clone());
        }
        if self.probe.as_ref().is_some_and(Probe::has_come) {
            self.stop();
            return self.stopped.get().cloned();
        }
        // The clock is read here as well, so that the work ends even if the timer thread gets no processor.
        match self.deadline {
            Some((at, limit)) if Instant::now() >= at => Some(Error::timed_out("the statement", limit)),
            _ => self.parent.as_ref()?.reason(),
        }
    }

    /// Runs `work` to its end, or drops it when the scope is stopped or its deadline passes.
    ///
    /// # Errors
    /// The errors of `work`, or the reason for the stop.
    pub async fn keep<T>(self: &Arc<Self>, work: impl Future<Output = Result<T>>) -> Result<T> {
        let entered = Entered::new(Arc::clone(self));
        let mut work = pin!(work);
        std::future::poll_fn(move |context| {
            self.waiting.register(context.waker());
            if let Some(reason) = self.reason() {
                return Poll::Ready(Err(reason));
            }
            let polled = current::enter(&entered, None, || work.poll_unpin(context));
            // Work that is stopped may fail with another error, or seem to have ended; the reason for the stop takes
            // precedence.
            match (polled, self.reason()) {
                (Poll::Ready(Err(_)) | Poll::Pending, Some(reason)) => Poll::Ready(Err(reason)),
                (polled, _) => polled,
            }
        })
        .await
    }

    /// Returns a guard that stops the scope when it is dropped.
    pub fn stop_on_drop(self: &Arc<Self>) -> StopOnDrop {
        StopOnDrop(Arc::clone(self))
    }
}

impl Probe {
    fn has_come(&self) -> bool {
        let is_due = match self.asked.try_lock() {
            Some(mut asked) if asked.elapsed() >= PROBE_PAUSE => {
                *asked = Instant::now();
                true
            }
            _ => false,
        };
        is_due && (self.ask)()
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        if let Some((at, _)) = self.deadline {
            timer::forget(at, std::ptr::from_ref(self).addr());
        }
    }
}

/// Batches of a result, or the error that ends it.
type RecordBatches = BoxStream<'static, Result<RecordBatch>>;

/// Stops its scope when it is dropped, which ends the tasks that compute for it.
pub struct StopOnDrop(Arc<Scope>);

impl StopOnDrop {
    /// Returns `batches` as a stream that ends with an error when the scope is stopped or its deadline passes. Dropping
    /// the stream stops the scope.
    pub fn keep_stream(self, batches: RecordBatches) -> RecordBatches {
        stream::try_unfold((batches, self), |(mut batches, stop)| async move {
            match stop.0.keep(batches.try_next()).await? {
                Some(batch) => Ok(Some((batch, (batches, stop)))),
                None => Ok(None),
            }
        })
        .boxed()
    }
}

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}
