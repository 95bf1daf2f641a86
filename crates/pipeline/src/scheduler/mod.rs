//! Shares worker threads among all work of a node: executions of programs, requests, loads, profiles.
//!
//! Scheduling is fair at each level of a tree: between tenants by their weights, between the regions of a tenant
//! equally, and between the tasks of a region equally (a region is a client's share of the node; Korolija et al.,
//! *Farview*, CIDR 2022, section 4.2). A step is charged its CPU time, or the time that its bytes take at memory
//! bandwidth, whichever is more. A task that cannot continue, because its sink is full or its rows have not arrived,
//! is parked until it is woken; no thread blocks on it (backpressure).
//!
//! Invariant: `finish` of a task is called exactly once, after its last step. While the scheduler's lock is held, only
//! the methods `readiness` and `bytes_read` of tasks are called. Finding the next step costs at most the logarithm of
//! the number of tasks.

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

/// Bytes per second that one thread reads from memory, measured by `cargo xtask bench scan`.
const MEMORY_BYTES_PER_S: f64 = 8e9;

/// Time for which background work pauses after rows of a load have arrived, in nanoseconds: longer than a load
/// usually waits for more rows. Reason: background work competes for memory bandwidth and caches, and slows a load
/// down even on a core of its own, by a third with two cores (`docs/decisions/2026-11-22-what-a-tap-costs.md`).
const REST_NS: u64 = 20_000_000;

/// Maximum time without a background step, in nanoseconds. After that time a background step is executed even if rows
/// arrive, so that profiles make progress during constant loads.
const BACKGROUND_PATIENCE_NS: u64 = 1_000_000_000;

/// Id of a submitted task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskId(u64);

/// Share of a tenant in the time of the workers, in proportion to its weight.
#[derive(Debug)]
pub struct TenantShare {
    id: u64,
    scheduler: Weak<Scheduler>,
}

/// Region: the part of a tenant's share that belongs to one client.
#[derive(Debug)]
pub struct Region {
    id: u64,
    scheduler: Weak<Scheduler>,
    /// Keeps the tenant's share alive as long as its regions.
    _tenant: Arc<TenantShare>,
}

/// A thread that calls [`Scheduler::work`].
pub trait WorkerThread {
    /// Returns whether the thread also does background work. At least one thread should.
    fn works_in_background(&self) -> bool {
        true
    }
    /// Called on the thread before each step.
    fn begin(&self) {}
    /// Called on the thread before it waits for work.
    fn rest(&self) {}
}

/// CPU time of the workers that one tenant has used, and its share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareUse {
    /// Id of the tenant's share.
    pub id: u64,
    /// Weight of the share.
    pub weight: u32,
    /// Cost of the tenant's steps so far, in nanoseconds.
    pub charged_ns: i128,
    /// Whether the tenant has tasks that are ready.
    pub is_backlogged: bool,
    /// Number of times that the tenant ran out of ready tasks.
    pub rests: u64,
}

/// Outcome of [`Scheduler::try_work`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// A step was executed, or a task was finished.
    Worked,
    /// There is nothing to do. If a time is given, background work becomes due then, by the scheduler's clock.
    Idle(Option<u64>),
    /// The scheduler was shut down.
    ShutDown,
}

/// Scheduler of tasks. Owns no threads: workers call [`Scheduler::work`].
pub struct Scheduler {
    this: Weak<Scheduler>,
    clock: Arc<dyn Clock>,
    queue: Mutex<Queue>,
    /// Time at which rows of a load last arrived; 0 if never. It is an atomic outside the lock, because loads store
    /// it at every step.
    rows_came_ns: AtomicU64,
    /// Signals workers that there may be something to do.
    woken: Condvar,
}

impl Scheduler {
    /// Creates a scheduler without tasks.
    pub fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new_cyclic(|this| Scheduler {
            this: this.clone(),
            clock,
            queue: Mutex::new(Queue::new()),
            rows_came_ns: AtomicU64::new(0),
            woken: Condvar::new(),
        })
    }

    /// Returns the clock by which the scheduler measures time.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Adds a share for a tenant; it gets `weight` times the time of a tenant with weight 1.
    pub fn add_tenant(&self, weight: u32) -> Arc<TenantShare> {
        let id = self.queue.lock().add_share(fair::ROOT, weight);
        Arc::new(TenantShare { id, scheduler: self.this.clone() })
    }

    /// Changes the weight of a tenant's share from now on.
    pub fn set_weight(&self, tenant: &TenantShare, weight: u32) {
        self.queue.lock().set_weight(tenant.id, weight);
    }

    /// Adds a region for a client of `tenant`.
    pub fn add_region(&self, tenant: &Arc<TenantShare>) -> Arc<Region> {
        let id = self.queue.lock().add_share(tenant.id, 1);
        Arc::new(Region { id, scheduler: self.this.clone(), _tenant: tenant.clone() })
    }

    /// Submits a run. `sink` gets its batches and at the end its execution statistics (see
    /// [`Receipt`](farpool_model::Receipt)).
    pub fn submit_run(&self, region: &Arc<Region>, run: Arc<Run>, sink: Arc<dyn Sink>) -> TaskId {
        let id = TaskId(self.queue.lock().new_id());
        let task = Arc::new(ProgramTask::new(run, sink));
        let this = self.this.clone();
        task.on_change(Box::new(move || {
            if let Some(scheduler) = this.upgrade() {
                scheduler.wake(id);
            }
        }));
        self.add(id, region, Class::Foreground, task);
        id
    }

    /// Submits a task.
    pub fn submit(&self, region: &Arc<Region>, class: Class, task: Arc<dyn Task>) -> TaskId {
        let id = TaskId(self.queue.lock().new_id());
        self.add(id, region, class, task);
        id
    }

    /// Makes the scheduler check a task again, after an event outside the scheduler: its sink has room, its rows have
    /// arrived, or it was stopped. Does not block.
    pub fn wake(&self, task: TaskId) {
        let woken = self.queue.lock().wake(task.0, self.clock.now_ns());
        if woken {
            self.woken.notify_one();
        }
    }

    /// Wakes all parked tasks of a region.
    pub fn wake_region(&self, region: &Region) {
        let woken = self.queue.lock().wake_region(region.id, self.clock.now_ns());
        if woken > 0 {
            // One worker is woken here. Each worker that leaves work behind wakes another one.
            self.woken.notify_one();
        }
    }

    /// Charges a region for CPU time that was spent outside of tasks, in nanoseconds.
    pub fn charge(&self, region: &Region, cpu_ns: u64) {
        self.queue.lock().charge_share(region.id, cpu_ns);
    }

    /// Reports that rows are arriving, so that background work pauses for a while.
    pub fn rows_came(&self) {
        self.rest_in_background();
    }

    /// Pauses background work for a while, because none of it can make progress now.
    pub fn rest_in_background(&self) {
        self.rows_came_ns.store(self.clock.now_ns().max(1), Relaxed);
    }

    /// Executes one step of the task that goes next; blocks while no task is ready. Returns false after
    /// [`Scheduler::shutdown`], otherwise true.
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
                        // The woken worker may be one that does no background work, so that another one is woken.
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

    /// Executes one step as [`Scheduler::work`] does, but only of a task of `class`, and without blocking.
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

    /// Ends all tasks and makes workers return from [`Scheduler::work`].
    pub fn shutdown(&self) {
        let (finished, under_way) = self.queue.lock().shut_down(&shutting_down());
        under_way.iter().for_each(|task| task.cancel());
        finished.into_iter().for_each(finish);
        self.woken.notify_all();
    }

    /// Returns the use of each tenant's share by tasks of `class`, in no particular order.
    pub fn shares(&self, class: Class) -> Vec<ShareUse> {
        self.queue.lock().shares(class)
    }

    /// Returns the number of tasks that have not ended.
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

    /// Wakes another worker if there is more work, because each event wakes only one worker.
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
            // The error is reported as the outcome of the task already. Cancelling makes the steps that other workers
            // execute end soon.
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

/// Calls `finish` of a task that has ended. A panic in it is caught and dropped, so that the worker continues.
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
