//! Execution of a program (a query over one table) as streams: each poll of a stream runs one step of the program on
//! the polling thread.
//!
//! Invariants: every batch is returned by exactly one stream. A stream that finds all morsels (small ranges of the
//! table's rows) taken sleeps until another stream has finished one, because only then can there be more to do (the
//! merge of an aggregation). When the last stream has ended or was dropped, the execution statistics are set, and a
//! program whose streams were dropped early is cancelled.

use arrow::array::RecordBatch;
use farpool_model::{Error, Result};
use farpool_node::Caller;
use farpool_node::clock::{Stopwatch, SystemClock, thread_cpu_ns};
use farpool_pipeline::{HoldPolicy, Run, Step};
use farpool_transfer::{BatchStream, Execution, ReceiptHandle};
use futures::Stream;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

/// Returns `streams` streams (at least one) that together return the result of `run`.
pub(crate) fn execute(caller: Caller, run: Arc<Run>, streams: usize) -> Execution {
    let streams = streams.max(1);
    let shared = Arc::new(Shared {
        caller,
        run: run.clone(),
        receipt: ReceiptHandle::new(),
        watch: Stopwatch::start(),
        clock: SystemClock::new(),
        open: AtomicUsize::new(streams),
        complete: AtomicBool::new(false),
        sleepers: Mutex::new(Vec::new()),
    });
    let receipt = shared.receipt.clone();
    let sleeping = Arc::downgrade(&shared);
    shared.run.on_change(Box::new(move || {
        if let Some(shared) = sleeping.upgrade() {
            shared.wake_all();
        }
    }));
    // A stream may be polled once and then not again until another stream of the query has ended.
    shared.run.keep_values(HoldPolicy::Missed);
    let stream =
        |_| Box::pin(Morsels { shared: shared.clone(), ready: VecDeque::new(), ended: false }) as BatchStream;
    Execution { prepared: run.prepared().clone(), streams: (0..streams).map(stream).collect(), receipt }
}

/// State that the streams of one program share.
struct Shared {
    caller: Caller,
    run: Arc<Run>,
    receipt: ReceiptHandle,
    watch: Stopwatch,
    clock: SystemClock,
    open: AtomicUsize,
    complete: AtomicBool,
    sleepers: Mutex<Vec<Waker>>,
}

impl Shared {
    /// Runs one step on this thread and adds its CPU time to that of the program.
    fn step(&self) -> Result<Step> {
        let start = thread_cpu_ns();
        let step = self.run.step(&self.clock);
        self.run.add_cpu(thread_cpu_ns().saturating_sub(start));
        step
    }

    fn sleep(&self, waker: &Waker) {
        self.sleepers.lock().unwrap_or_else(PoisonError::into_inner).push(waker.clone());
    }

    fn wake_all(&self) {
        let sleepers = std::mem::take(&mut *self.sleepers.lock().unwrap_or_else(PoisonError::into_inner));
        sleepers.into_iter().for_each(Waker::wake);
    }

    /// Decrements the number of streams. The last one cancels an incomplete program and sets the execution statistics.
    fn leave(&self) {
        if self.open.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        let complete = self.complete.load(Ordering::Acquire);
        if !complete {
            self.run.cancel();
        }
        let mut receipt = self.run.receipt();
        receipt.elapsed_ns = self.watch.elapsed_ns();
        self.caller.record(&receipt, complete);
        self.receipt.set(receipt);
    }
}

/// One of the streams of a program.
struct Morsels {
    shared: Arc<Shared>,
    ready: VecDeque<RecordBatch>,
    ended: bool,
}

impl Morsels {
    fn end(&mut self) {
        if !std::mem::replace(&mut self.ended, true) {
            self.shared.leave();
        }
    }

    /// Ends the stream with an error. The program is stopped, so that the other streams fail as well.
    fn fail(&mut self, error: Error) -> Poll<Option<Result<RecordBatch>>> {
        self.shared.wake_all();
        self.end();
        Poll::Ready(Some(Err(error)))
    }

    fn done(&mut self) -> Poll<Option<Result<RecordBatch>>> {
        self.shared.complete.store(true, Ordering::Release);
        self.shared.wake_all();
        self.end();
        Poll::Ready(None)
    }
}

impl Stream for Morsels {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut asleep = false;
        loop {
            if let Some(batch) = self.ready.pop_front() {
                return Poll::Ready(Some(Ok(batch)));
            }
            if self.ended {
                return Poll::Ready(None);
            }
            match self.shared.step() {
                Ok(Step::Batches(batches)) => {
                    self.shared.wake_all();
                    self.ready.extend(batches);
                }
                Ok(Step::Encoded(_) | Step::Fetched(..)) => {
                    let error = Error::internal("a row group was shipped within the process");
                    self.shared.run.cancel();
                    return self.fail(error);
                }
                Ok(Step::Worked) => {
                    self.shared.wake_all();
                    // Returns to the engine between steps, so that a cancelled query stops here.
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
                // Checks again after registering the waker; otherwise a step that ended just before would not wake this
                // stream.
                Ok(Step::Busy) if !asleep => {
                    self.shared.sleep(context.waker());
                    asleep = true;
                }
                Ok(Step::Busy) => return Poll::Pending,
                Ok(Step::Done) => return self.done(),
                Err(error) => return self.fail(error),
            }
        }
    }
}

impl Drop for Morsels {
    fn drop(&mut self) {
        self.end();
        self.shared.wake_all();
    }
}

#[cfg(test)]
mod tests;
