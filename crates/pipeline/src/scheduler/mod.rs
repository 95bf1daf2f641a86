//! Shares worker threads among all work of a node: programs, requests that are looked at, loads, profiles.
//!
//! Fair at each level of a tree (Farview, section 4.2: each client has a region, its share of the node): tenants by
//! their weights, the regions of a tenant equally, the tasks of a region equally. The charge for a step is its CPU
//! time, or its bytes at the bandwidth of memory, whichever is more. A task that cannot go on (its sink is full, its
//! rows have not come) is parked until somebody wakes it, which is the whole of back-pressure: nothing waits for it.
//!
//! Invariant: a task gets `finish` exactly once, after its last step, and never a call while the scheduler's lock is
//! held except `readiness` and `bytes_read`. What a worker does to find its next step does not depend on how many
//! tasks there are, but for a logarithm.

mod fair;
mod program;
mod queue;
mod task;

pub use program::Sink;
pub use task::{Class, End, Progress, Readiness, Task};

use crate::run::{Run, panic_error};
use farpool_model::{Clock, Error};
use parking_lot::{Condvar, Mutex, MutexGuard};
use program::ProgramTask;
use queue::{Cost, Finished, Next, Queue, Turn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Bytes that one thread reads from memory in a second (`cargo xtask bench scan`, its limits).
const MEMORY_BYTES_PER_S: f64 = 8e9;

/// How long work in the background rests after rows have come in: longer than a load waits for more, unless its
/// source is slow. Even on a core of its own it would slow a load down, by a third on two cores, because it uses the
/// same memory and caches (`docs/decisions/2026-11-22-what-a-tap-costs.md`).
const REST_NS: u64 = 20_000_000;

/// Rest after which one step is done all the same: where rows always come in from somewhere, profiles are made too.
const BACKGROUND_PATIENCE_NS: u64 = 1_000_000_000;

/// Names a task that was submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskId(u64);

/// A tenant's part of the node, in proportion to its weight.
#[derive(Debug)]
pub struct TenantShare {
    id: u64,
    scheduler: Weak<Scheduler>,
}

/// A client's part of what its tenant gets.
#[derive(Debug)]
pub struct Region {
    id: u64,
    scheduler: Weak<Scheduler>,
    /// Not let go before its regions.
    _tenant: Arc<TenantShare>,
}

/// What the scheduler needs of the thread that works for it.
pub trait WorkerThread {
    /// Whether it works in the background too. At least one should.
    fn works_in_background(&self) -> bool {
        true
    }
    /// The calling thread is about to do a step.
    fn begin(&self) {}
    /// The calling thread is about to wait for something to do.
    fn rest(&self) {}
}

/// What a tenant has had of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareUse {
    /// Names the tenant's share.
    pub id: u64,
    /// How many times the share of another it gets.
    pub weight: u32,
    /// What its steps cost so far, in nanoseconds.
    pub charged_ns: i128,
    /// Whether it has something to do.
    pub is_backlogged: bool,
    /// How often it has had nothing to do any more.
    pub rests: u64,
}

/// What came of [`Scheduler::try_work`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// A step was done, or a task finished.
    Worked,
    /// There is nothing to do; if there is a time, by the scheduler's clock, something is due then.
    Idle(Option<u64>),
    /// The scheduler was shut down.
    ShutDown,
}

/// See the file's comment. Owns no threads: workers call [`Scheduler::work`].
pub struct Scheduler {
    this: Weak<Scheduler>,
    clock: Arc<dyn Clock>,
    queue: Mutex<Queue>,
    /// When rows came in last; 0 before there were any. Outside the lock, because loads say so at every step.
    rows_came_ns: AtomicU64,
    /// Signals workers that there may be something to do.
    woken: Condvar,
}

impl Scheduler {
    /// A scheduler without tasks.
    pub fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new_cyclic(|this| Scheduler {
            this: this.clone(),
            clock,
            queue: Mutex::new(Queue::new()),
            rows_came_ns: AtomicU64::new(0),
            woken: Condvar::new(),
        })
    }

    /// The clock by which it works.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// A share for a tenant, which gets `weight` times what one of weight 1 gets.
    pub fn add_tenant(&self, weight: u32) -> Arc<TenantShare> {
        let id = self.queue.lock().add_share(fair::ROOT, weight);
        Arc::new(TenantShare { id, scheduler: self.this.clone() })
    }

    /// Gives a tenant `weight` times what one of weight 1 gets, from now on.
    pub fn set_weight(&self, tenant: &TenantShare, weight: u32) {
        self.queue.lock().set_weight(tenant.id, weight);
    }

    /// A share for a client of `tenant`.
    pub fn add_region(&self, tenant: &Arc<TenantShare>) -> Arc<Region> {
        let id = self.queue.lock().add_share(tenant.id, 1);
        Arc::new(Region { id, scheduler: self.this.clone(), _tenant: tenant.clone() })
    }

    /// Hands over a run; `sink` gets its batches and in the end its receipt.
    pub fn submit_run(&self, region: &Arc<Region>, run: Arc<Run>, sink: Arc<dyn Sink>) -> TaskId {
        let id = TaskId(self.queue.lock().new_id());
        let task = Arc::new(ProgramTask::new(run, sink));
        let this = self.this.clone();
        task.on_stop(Box::new(move || {
            if let Some(scheduler) = this.upgrade() {
                scheduler.wake(id);
            }
        }));
        self.add(id, region, Class::Foreground, task);
        id
    }

    /// Hands over a task.
    pub fn submit(&self, region: &Arc<Region>, class: Class, task: Arc<dyn Task>) -> TaskId {
        let id = TaskId(self.queue.lock().new_id());
        self.add(id, region, class, task);
        id
    }

    /// Something outside has changed for a task: its sink has room, its rows have come, it was stopped.
    pub fn wake(&self, task: TaskId) {
        let woken = self.queue.lock().wake(task.0, self.clock.now_ns());
        if woken {
            self.woken.notify_one();
        }
    }

    /// Wakes all tasks of a region that are parked.
    pub fn wake_region(&self, region: &Region) {
        let woken = self.queue.lock().wake_region(region.id, self.clock.now_ns());
        if woken > 0 {
            // A worker that finds more to do than it takes wakes the next one.
            self.woken.notify_one();
        }
    }

    /// Charges a region for work that was done without a task.
    pub fn charge(&self, region: &Region, cpu_ns: u64) {
        self.queue.lock().charge_share(region.id, cpu_ns);
    }

    /// Rows come in: work in the background rests for a while.
    pub fn rows_came(&self) {
        self.rest_in_background();
    }

    /// Has work in the background rest for a while: nothing could be done of it now.
    pub fn rest_in_background(&self) {
        self.rows_came_ns.store(self.clock.now_ns().max(1), Relaxed);
    }

    /// Does one step of the task whose turn it is, or waits until there is one. False after
    /// [`Scheduler::shutdown`].
    pub fn work(&self, thread: &dyn WorkerThread) -> bool {
        let is_for_all = thread.works_in_background();
        let mut queue = self.queue.lock();
        loop {
            let (now_ns, rows_came_ns) = (self.clock.now_ns(), self.rows_came_ns.load(Relaxed));
            let next = match is_for_all {
                true => queue.next_of_any(now_ns, rows_came_ns),
                false => queue.next(Class::Foreground, now_ns, rows_came_ns),
            };
            match next {
                Next::ShutDown => return false,
                Next::Rest(due_ns) => {
                    if !is_for_all && queue.has_ready(Class::Background) {
                        // Whoever was woken for it was the wrong one.
                        self.woken.notify_one();
                    }
                    thread.rest();
                    self.wait(&mut queue, due_ns);
                }
                next => {
                    self.pass_on(&queue);
                    drop(queue);
                    thread.begin();
                    self.carry_out(next);
                    return true;
                }
            }
        }
    }

    /// As [`Scheduler::work`], without waiting, and of tasks of one class only.
    pub fn try_work(&self, class: Class) -> Attempt {
        let now_ns = self.clock.now_ns();
        let next = self.queue.lock().next(class, now_ns, self.rows_came_ns.load(Relaxed));
        match next {
            Next::ShutDown => Attempt::ShutDown,
            Next::Rest(due_ns) => Attempt::Idle(due_ns),
            next => {
                self.carry_out(next);
                Attempt::Worked
            }
        }
    }

    /// Ends all tasks and sends the workers home.
    pub fn shutdown(&self) {
        let (finished, under_way) = self.queue.lock().shut_down(&shutting_down());
        under_way.iter().for_each(|task| task.cancel());
        finished.into_iter().for_each(finish);
        self.woken.notify_all();
    }

    /// What each tenant was charged for work of `class` so far, in no order.
    pub fn shares(&self, class: Class) -> Vec<ShareUse> {
        self.queue.lock().shares(class)
    }

    /// Tasks that have not ended.
    pub fn running(&self) -> usize {
        self.queue.lock().len()
    }

    fn add(&self, id: TaskId, region: &Arc<Region>, class: Class, task: Arc<dyn Task>) {
        let mut queue = self.queue.lock();
        if queue.shut_down {
            drop(queue);
            let end = End { error: Some(shutting_down()), waited_ns: 0 };
            return finish(Finished { task, end, region: region.clone() });
        }
        queue.add(id, region.clone(), class, task);
        drop(queue);
        self.wake(id);
    }

    /// Wakes another worker if there is more to do: whoever made it so woke only one.
    fn pass_on(&self, queue: &Queue) {
        if queue.has_next(self.clock.now_ns(), self.rows_came_ns.load(Relaxed)) {
            self.woken.notify_one();
        }
    }

    fn wait(&self, queue: &mut MutexGuard<'_, Queue>, due_ns: Option<u64>) {
        match due_ns {
            Some(due_ns) => {
                let wait = Duration::from_nanos(due_ns.saturating_sub(self.clock.now_ns()).max(1));
                let _ = self.woken.wait_for(queue, wait);
            }
            None => self.woken.wait(queue),
        }
    }

    fn carry_out(&self, next: Next) {
        match next {
            Next::Step(turn) => self.serve(turn),
            Next::Finish(finished) => finish(finished),
            Next::Rest(_) | Next::ShutDown => {}
        }
    }

    fn serve(&self, turn: Turn) {
        let start_ns = self.clock.thread_cpu_ns();
        let task = turn.task.clone();
        let outcome = guarded(|| task.step(&*self.clock));
        let cpu_ns = self.clock.thread_cpu_ns().saturating_sub(start_ns);
        task.add_cpu(cpu_ns);
        let failed = outcome.is_err();
        let payers = task.payers().iter().map(|region| region.id).collect();
        let cost = Cost { cpu_ns, ns_per_byte: 1e9 / MEMORY_BYTES_PER_S, payers };
        let (finished, go_on) = self.queue.lock().settle(turn, outcome, cost, self.clock.now_ns());
        if failed {
            // After the failure was booked as the outcome. Stops the other workers' steps.
            task.cancel();
        }
        drop(task);
        if go_on {
            self.woken.notify_one();
        }
        if let Some(finished) = finished {
            finish(finished);
        }
    }

    fn remove_share(&self, id: u64) {
        self.queue.lock().remove_share(id);
    }
}

impl Drop for TenantShare {
    fn drop(&mut self) {
        if let Some(scheduler) = self.scheduler.upgrade() {
            scheduler.remove_share(self.id);
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if let Some(scheduler) = self.scheduler.upgrade() {
            scheduler.remove_share(self.id);
        }
    }
}

/// Tells a task that it has ended. A task that panics here must not take the worker with it; there is nobody left to
/// tell.
fn finish(finished: Finished) {
    let Finished { task, end, .. } = finished;
    drop(guarded(|| task.finish(end)));
}

fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, Error> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| panic_error(&*panic))
}

fn shutting_down() -> Error {
    Error::unavailable("the pool is shutting down").advise("try again later")
}

#[cfg(test)]
mod tests;
