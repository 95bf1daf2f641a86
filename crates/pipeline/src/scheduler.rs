//! Shares worker threads among runs: fair by bytes scanned, region by region, whatever one client does
//! (Farview, section 4.2: each client has a region, its share of the node).
//!
//! Start-time fair queueing (Goyal, Vin, Cheng: SIGCOMM 1996) with a morsel as the packet: each region
//! carries the bytes that it was served; the region with the fewest goes next; one that was idle or
//! blocked starts from the present, so that it can neither save up its share nor be starved by newcomers.
//! A run whose sink is full is passed over, which is the whole of back-pressure: nothing waits for it.
//!
//! Invariant: a sink gets `finish` exactly once, after its last `batch`, and never a call while the
//! scheduler's lock is held except `ready`.

use crate::run::{Run, Step, Waker, panic_error};
use arrow_array::RecordBatch;
use farpool_columns::RowGroup;
use farpool_model::{Clock, Error, Receipt, Result};
use parking_lot::{Condvar, Mutex};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};

/// Where the result of a run goes: a bounded queue towards one client.
pub trait Sink: Send + Sync {
    /// Whether there is room. Must return at once. When it becomes true again, call [`Scheduler::wake`].
    /// Every worker may add the batches of one morsel after the last `true`.
    fn ready(&self) -> bool;
    /// A part of the result, from any worker, several at once, in any order.
    fn batch(&self, batch: RecordBatch);
    /// A part of the result as [`Step::Encoded`] has it, under the same rules. Only runs that ship give any.
    fn encoded(&self, group: RowGroup);
    /// The end: nothing comes after it.
    fn finish(&self, outcome: Result<Receipt>);
}

/// A client's share of the node. Runs of one region share what the region gets.
#[derive(Debug, Default)]
pub struct Region {
    share: Mutex<Share>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Share {
    /// Bytes served, or the present at the time the region last started.
    served: u64,
    /// Steps under way: of two regions that were served the same, the one with fewer goes first.
    in_flight: usize,
}

/// What the scheduler needs of the thread that works for it.
pub trait WorkerThread {
    /// CPU time that the calling thread has used, in nanoseconds.
    fn cpu_ns(&self) -> u64;
    /// The calling thread is about to do a morsel.
    fn begin(&self) {}
    /// The calling thread is about to wait for something to do.
    fn rest(&self) {}
}

impl<F: Fn() -> u64> WorkerThread for F {
    fn cpu_ns(&self) -> u64 {
        self()
    }
}

/// See the file's comment. Owns no threads: workers call [`Scheduler::work`].
pub struct Scheduler {
    this: Weak<Scheduler>,
    clock: Arc<dyn Clock>,
    queue: Mutex<Queue>,
    /// Counts what may have made something runnable. Apart from `queue`, so that a sink may call
    /// [`Scheduler::wake`] whatever locks it holds.
    news: Mutex<u64>,
    woken: Condvar,
}

#[derive(Default)]
struct Queue {
    entries: Vec<Entry>,
    entries_made: u64,
    /// The present: the bytes served of the region that was last picked, when it was picked.
    now: u64,
    shut_down: bool,
}

struct Entry {
    id: u64,
    task: Arc<dyn Task>,
    sink: Arc<dyn Sink>,
    region: Arc<Region>,
    bytes_charged: u64,
    in_flight: usize,
    /// All its morsels are in other workers' hands.
    waiting: bool,
    /// No step is to follow; why, when it is not because all is done.
    ended: Option<Option<Error>>,
}

/// What the scheduler needs of a [`Run`].
pub(crate) trait Task: Send + Sync {
    fn step(&self, clock: &dyn Clock) -> Result<Step>;
    fn cancel(&self);
    fn error(&self) -> Option<Error>;
    fn bytes_scanned(&self) -> u64;
    fn add_cpu(&self, ns: u64);
    fn receipt(&self) -> Receipt;
    fn on_stop(&self, waker: Waker);
}

/// One step that a worker was given.
struct Turn {
    id: u64,
    task: Arc<dyn Task>,
    sink: Arc<dyn Sink>,
    bytes_before: u64,
}

impl Scheduler {
    /// A scheduler without runs.
    pub fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new_cyclic(|this| Scheduler {
            this: this.clone(),
            clock,
            queue: Mutex::default(),
            news: Mutex::default(),
            woken: Condvar::new(),
        })
    }

    /// Hands over a run as a region of its own.
    pub fn submit(&self, run: Arc<Run>, sink: Arc<dyn Sink>) {
        self.submit_to(&Arc::default(), run, sink);
    }

    /// Hands over a run that shares what `region` gets with the region's other runs.
    pub fn submit_to(&self, region: &Arc<Region>, run: Arc<Run>, sink: Arc<dyn Sink>) {
        self.submit_task(region, run, sink);
    }

    pub(crate) fn submit_task(&self, region: &Arc<Region>, task: Arc<dyn Task>, sink: Arc<dyn Sink>) {
        let this = self.this.clone();
        task.on_stop(Box::new(move || {
            if let Some(scheduler) = this.upgrade() {
                scheduler.wake();
            }
        }));
        let entry = |id| Entry {
            id,
            task,
            sink: sink.clone(),
            region: region.clone(),
            bytes_charged: 0,
            in_flight: 0,
            waiting: false,
            ended: None,
        };
        if !self.queue.lock().add(entry) {
            return sink.finish(Err(shutting_down()));
        }
        self.wake();
    }

    /// Does one morsel of the run whose turn it is, or waits until there is one. False after
    /// [`Scheduler::shutdown`].
    pub fn work(&self, thread: &dyn WorkerThread) -> bool {
        loop {
            let news = *self.news.lock();
            let (stopped, turn) = {
                let mut queue = self.queue.lock();
                if queue.shut_down {
                    return false;
                }
                (queue.take_ended(), queue.pick())
            };
            stopped.into_iter().for_each(Entry::finish);
            match turn {
                Some(turn) => {
                    thread.begin();
                    self.serve(turn, thread);
                    return true;
                }
                None => {
                    thread.rest();
                    self.wait(news);
                }
            }
        }
    }

    /// Stops all runs and sends the workers home.
    pub fn shutdown(&self) {
        let tasks: Vec<_> = {
            let mut queue = self.queue.lock();
            queue.shut_down = true;
            for entry in &mut queue.entries {
                entry.ended.get_or_insert(Some(shutting_down()));
            }
            queue.entries.iter().map(|entry| entry.task.clone()).collect()
        };
        tasks.iter().for_each(|task| task.cancel());
        drop(tasks);
        let ended = self.queue.lock().take_ended();
        ended.into_iter().for_each(Entry::finish);
        self.wake();
    }

    /// Something changed from outside: a sink has room again.
    pub fn wake(&self) {
        *self.news.lock() += 1;
        self.woken.notify_all();
    }

    /// Runs that have not ended.
    pub fn running(&self) -> usize {
        self.queue.lock().entries.len()
    }

    fn wait(&self, seen: u64) {
        let mut news = self.news.lock();
        if *news == seen {
            self.woken.wait(&mut news);
        }
    }

    fn serve(&self, turn: Turn, thread: &dyn WorkerThread) {
        let Turn { id, task, sink, bytes_before } = turn;
        let start = thread.cpu_ns();
        let outcome = guarded(|| {
            let step = task.step(&*self.clock)?;
            Ok(match step {
                Step::Batches(batches) => {
                    batches.into_iter().for_each(|batch| sink.batch(batch));
                    Step::Worked
                }
                Step::Encoded(group) => {
                    sink.encoded(group);
                    Step::Worked
                }
                other => other,
            })
        });
        let failed = outcome.is_err();
        let cpu_ns = thread.cpu_ns().saturating_sub(start);
        task.add_cpu(cpu_ns);
        let bytes_now = task.bytes_scanned();
        let cost = Cost { bytes_now, idle_ns: if bytes_now == bytes_before { cpu_ns.max(1) } else { 0 } };
        let (news, ended) = self.queue.lock().settle(id, outcome, cost);
        if failed {
            // After the failure was booked as the outcome. Stops the other workers' steps.
            task.cancel();
        }
        drop((task, sink));
        if let Some(entry) = ended {
            entry.finish();
        }
        if news {
            self.wake();
        }
    }
}

/// What a step cost. Merging reads nothing: each nanosecond of it counts as a byte, near what a core scans.
struct Cost {
    bytes_now: u64,
    idle_ns: u64,
}

impl Queue {
    fn add(&mut self, entry: impl FnOnce(u64) -> Entry) -> bool {
        if !self.shut_down {
            self.entries_made += 1;
            let id = self.entries_made;
            self.entries.push(entry(id));
        }
        !self.shut_down
    }

    /// Takes out the entries that have ended, or were stopped from outside, and are in nobody's hands.
    fn take_ended(&mut self) -> Vec<Entry> {
        for entry in &mut self.entries {
            if entry.ended.is_none()
                && let Some(error) = entry.task.error()
            {
                entry.ended = Some(Some(error));
            }
        }
        self.entries.extract_if(.., |entry| entry.ended.is_some() && entry.in_flight == 0).collect()
    }

    /// A linear search: there are tens of runs, and a morsel takes some hundred microseconds.
    fn pick(&mut self) -> Option<Turn> {
        let now = self.now;
        let runnable = self.entries.iter_mut().filter(|entry| entry.is_runnable());
        let entry = runnable.min_by_key(|entry| {
            let share = *entry.region.share.lock();
            (share.served.max(now), share.in_flight, entry.bytes_charged, entry.in_flight, entry.id)
        })?;
        let mut share = entry.region.share.lock();
        share.served = share.served.max(now);
        share.in_flight += 1;
        entry.in_flight += 1;
        self.now = share.served;
        Some(Turn {
            id: entry.id,
            task: entry.task.clone(),
            sink: entry.sink.clone(),
            bytes_before: entry.task.bytes_scanned(),
        })
    }

    /// Books a step that is over. Whether other workers should look again, and the entry if that was its
    /// last step.
    fn settle(&mut self, id: u64, outcome: Result<Step>, cost: Cost) -> (bool, Option<Entry>) {
        let Some(position) = self.entries.iter().position(|entry| entry.id == id) else {
            return (true, None);
        };
        let entry = &mut self.entries[position];
        entry.in_flight -= 1;
        entry.charge(cost);
        let was_waiting = entry.waiting;
        entry.waiting = matches!(outcome, Ok(Step::Busy)) && entry.in_flight > 0;
        match outcome {
            Ok(Step::Done) => drop(entry.ended.get_or_insert(None)),
            Ok(_) => {}
            Err(error) => drop(entry.ended.get_or_insert(Some(error))),
        }
        let news = was_waiting && !entry.waiting;
        if entry.ended.is_some() && entry.in_flight == 0 {
            return (true, Some(self.entries.swap_remove(position)));
        }
        (news, None)
    }
}

impl Entry {
    fn is_runnable(&self) -> bool {
        self.ended.is_none() && !self.waiting && self.sink.ready()
    }

    fn charge(&mut self, cost: Cost) {
        // Another worker's step may have charged the bytes of this one already.
        let bytes = cost.bytes_now.saturating_sub(self.bytes_charged);
        self.bytes_charged += bytes;
        let mut share = self.region.share.lock();
        share.served += bytes + cost.idle_ns;
        share.in_flight -= 1;
    }

    /// Tells the sink how it ended, after letting go of the run.
    fn finish(self) {
        let outcome = match self.ended.flatten().or_else(|| self.task.error()) {
            Some(error) => Err(error),
            None => Ok(self.task.receipt()),
        };
        drop(self.task);
        let sink = self.sink;
        // A sink that panics here must not take the worker with it; there is nobody left to tell.
        drop(guarded(|| {
            sink.finish(outcome);
            Ok(())
        }));
    }
}

impl Task for Run {
    fn step(&self, clock: &dyn Clock) -> Result<Step> {
        Run::step(self, clock)
    }
    fn cancel(&self) {
        Run::cancel(self);
    }
    fn error(&self) -> Option<Error> {
        Run::error(self)
    }
    fn bytes_scanned(&self) -> u64 {
        Run::bytes_scanned(self)
    }
    fn add_cpu(&self, ns: u64) {
        Run::add_cpu(self, ns);
    }
    fn receipt(&self) -> Receipt {
        Run::receipt(self)
    }
    fn on_stop(&self, waker: Waker) {
        Run::on_stop(self, waker);
    }
}

fn guarded<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(panic_error(&*panic)))
}

fn shutting_down() -> Error {
    Error::unavailable("the pool is shutting down").advise("try again later")
}

#[cfg(test)]
mod tests;
