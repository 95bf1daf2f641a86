//! One execution of a program over one table version (a run), driven step by step by any number of threads.
//!
//! A step processes one row group, or as much of it as takes about a millisecond; any thread may process the rest in a
//! later step. After the last row group the partial aggregations are merged, in tasks that threads claim in the same
//! way. Scratch memory and partial aggregations are in operator states, of which there are as many as threads were ever
//! in a step at the same time.
//!
//! Invariant: a run goes from scanning, possibly through merging, to done; or from scanning or merging to stopped
//! (cancelled or failed). When it is done or stopped, it no longer holds the table. Example: a thread that finishes the
//! last row group after [`Run::cancel`] must not begin merging, because the run has no table any more.
//!
//! A *morsel* is a row group that is being processed, of which a step processes as much as takes about a millisecond.

mod change;
mod collected;
mod fetching;
mod joining;
mod merging;
mod morsel_queue;
mod read_ahead;
mod scanning;
mod start;

pub use change::ChangedGroups;
pub use fetching::check_chunks;
pub use read_ahead::HoldPolicy;

use crate::budget::{Budget, Overflow};
use crate::memory_need::MemoryNeed;
use crate::pace::RowCost;
use crate::shared_scan::RunSharing;
use crate::tally::Tally;
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use change::{GroupRewrite, RowChange};
use collected::Collected;
use farpool_columns::{LiveRows, RowGroup, Table};
use farpool_memory::Reservation;
use farpool_model::{Clock, Error, ErrorKind, Prepared, Receipt, Result};
use farpool_operators::{Plan, Progress, Shared, State};
use joining::{Joins, Unjoined};
use merging::MergeTasks;
use morsel_queue::MorselQueue;
use parking_lot::Mutex;
use read_ahead::{GroupReads, ReadAhead};
use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::Context;

/// Outcome of one step of a run.
#[derive(Debug)]
pub enum Step {
    /// Part of the result, at least one batch, in no particular order.
    Batches(Vec<RecordBatch>),
    /// Part of the result: the rows of one row group that pass the filter, as encoded chunks. Only runs created by
    /// [`Run::start_shipping`] return it.
    Encoded(RowGroup),
    /// The chunks of a row group, and its index in the table. Only runs created by [`Run::start_fetching`] return it.
    Fetched(usize, RowGroup),
    /// Work was done, but there is no result to return yet: the caller should call again.
    Worked,
    /// Other threads process the last morsels: there is nothing to do now, but there may be later.
    Busy,
    /// The run is done. Other threads may still be returning their last batches.
    Done,
}

/// One execution of a program over one table version.
pub struct Run {
    prepared: Arc<Prepared>,
    /// Plan of the scan: of the whole program if it has no lookups.
    plan: Plan,
    joins: Option<Joins>,
    need: MemoryNeed,
    shared: Shared,
    budget: Budget,
    overflow: Overflow,
    /// Table columns that the program reads.
    columns: Vec<usize>,
    /// Rows to read instead of those of the table; `None` except for a live table whose source of rows applies
    /// conjuncts of the filter itself.
    filtered: Option<Arc<dyn LiveRows>>,
    output: RunOutput,
    morsel_queue: MorselQueue,
    /// State by which this run shares reads and filter results with other runs.
    sharing: OnceLock<RunSharing>,
    tally: Tally,
    cost: RowCost,
    /// Number of rows that may still be returned under the program's limit; without a limit, more than there can be.
    rows_left: AtomicU64,
    /// Number of operator states (one per thread in a step at the same time), among which the memory budget is
    /// divided equally.
    states: AtomicUsize,
    /// Maximum number of bytes for groups, if they are not sure to fit.
    group_bytes: AtomicUsize,
    /// Maximum number of threads in a step at the same time. `threads` is the current number.
    threads_max: AtomicUsize,
    threads: AtomicUsize,
    /// Whether the phase is `Stopped`. Threads check it in the middle of a step.
    stopped: AtomicBool,
    held: Mutex<RunState>,
    read_ahead: ReadAhead,
    on_change: Mutex<Option<Waker>>,
    this: Weak<Run>,
}

/// Callback that is called when there may be more to do, or the run was stopped.
pub type Waker = Box<dyn Fn() + Send + Sync>;

struct RunState {
    phase: Phase,
    table: Option<Arc<Table>>,
    states: Vec<WorkerState>,
    /// Row groups that are partly processed, or whose values have been read into memory, and that no thread has
    /// claimed.
    rests: Vec<Morsel>,
    /// Row groups whose values are being read, by request number.
    awaited: BTreeMap<u64, Morsel>,
    /// Memory that is reserved for the run, outside the memory pool of the tables.
    reservation: Option<Reservation>,
}

/// State of the operators of one thread.
struct WorkerState {
    scan: State,
    /// State of the stage behind the lookups, if there are some.
    upper: Option<State>,
}

impl WorkerState {
    /// Returns the state of the operators that make the result.
    fn of_result(&mut self) -> &mut State {
        self.upper.as_mut().unwrap_or(&mut self.scan)
    }
}

/// Use that a run makes of the rows which pass the filter.
enum RunOutput {
    /// Rows are returned as batches.
    Batches,
    /// Rows are returned as batches. The result consists of these table columns, so row groups may also be returned as
    /// encoded chunks.
    Shipped(Vec<usize>),
    /// The chunks of these columns are returned without any processing, for the row groups in the morsel queue.
    Fetched(Vec<usize>),
    /// The rows are updated or deleted.
    Change(RowChange),
    /// Rows are collected until [`Run::take_collected`].
    Collected(Mutex<Collected>),
}

/// A row group that is being processed.
struct Morsel {
    /// Index of the row group in the table.
    place: usize,
    /// Whether another run has just read the row group's values or requested them.
    is_shared: bool,
    progress: Progress,
    /// State of the change, in a run that changes rows.
    rewrite: Option<Box<GroupRewrite>>,
    /// Reads of values that were requested for the row group.
    read: Option<GroupReads>,
    /// Decrypted values of an encrypted row group, from its first step until it is done.
    opened: Option<Arc<RowGroup>>,
    /// Row group generated from a live table, from its first step until it is done.
    made: Option<Arc<RowGroup>>,
    /// Rows that are scanned and not joined yet, in a run with lookups.
    unjoined: Unjoined,
}

impl Morsel {
    /// Returns whether nothing of the row group is left to be done.
    fn is_done(&self) -> bool {
        self.progress.is_done() && self.unjoined.is_empty()
    }

    /// Returns the row group; for a live table, the generated one if it was generated.
    fn group<'a>(&'a self, table: &'a Table) -> &'a RowGroup {
        self.made.as_deref().unwrap_or(&table.row_groups[self.place])
    }
}

enum Phase {
    Scanning,
    Merging(Arc<MergeTasks>),
    Done,
    Stopped(Error),
}

impl Run {
    /// Returns the memory that the run needs outside the memory pool of the tables.
    ///
    /// # Errors
    /// The error that stopped the run, if it was stopped.
    pub fn need(&self) -> Result<MemoryNeed> {
        // A run that is done needs little memory, because its next step returns at once.
        self.table().map(|_| self.need)
    }

    /// Limits the run to `need`, which must be the result of [`Run::need`] or a reduction of it, and keeps
    /// `reservation` until the run ends. Must be called before the first step.
    pub fn keep_to(&self, need: MemoryNeed, reservation: Reservation) {
        self.limit_to(need);
        let mut held = self.held.lock();
        if held.table.is_some() {
            held.reservation = Some(reservation);
        }
    }

    /// Limits the threads of the run, and of the runs of its lookups' programs, to those of `need`, and their groups to
    /// its bytes: those of the lookups' programs together, as several may run at the same time.
    fn limit_to(&self, need: MemoryNeed) {
        self.threads_max.store(need.threads, Ordering::Relaxed);
        self.group_bytes.store(need.groups, Ordering::Relaxed);
        let sides = self.joins.as_ref().map_or(&[][..], Joins::sides);
        let needs: Vec<MemoryNeed> = sides.iter().map(|side| side.need).collect();
        for (side, groups) in sides.iter().zip(MemoryNeed::divided(&needs, need.groups)) {
            side.limit_to(MemoryNeed { groups, ..need });
        }
    }

    /// Returns the schema of the result.
    pub fn schema(&self) -> &SchemaRef {
        self.result_plan().schema()
    }

    /// Returns the plan of the scan.
    fn scan_plan(&self) -> &Plan {
        self.joins.as_ref().and_then(Joins::scan).unwrap_or(&self.plan)
    }

    /// Returns the plan that makes the result.
    fn result_plan(&self) -> &Plan {
        self.joins.as_ref().map_or(&self.plan, Joins::plan)
    }

    /// Returns the program that is executed, and the answer for each operator of the original program.
    pub fn prepared(&self) -> &Arc<Prepared> {
        &self.prepared
    }

    /// Claims a row group and processes it on the calling thread for about [`STEP_NS`](farpool_model::limits::STEP_NS);
    /// does not wait for I/O. Several threads may call this at once.
    ///
    /// # Errors
    /// The error that stopped the run: every later step returns it, too. `Cancelled` after [`Run::cancel`]. A panic in
    /// the step is caught and returned as `Internal`.
    pub fn step(&self, clock: &dyn Clock) -> Result<Step> {
        let others = self.threads.fetch_add(1, Ordering::Relaxed);
        let step =
            catch_unwind(AssertUnwindSafe(|| match others < self.threads_max.load(Ordering::Relaxed) {
                true => self.advance(clock),
                // More threads must wait, because memory is reserved for only `threads_max` threads in a step.
                false => Ok(Step::Busy),
            }));
        self.threads.fetch_sub(1, Ordering::Relaxed);
        match step {
            Ok(Ok(step)) => Ok(step),
            Ok(Err(error)) => Err(self.stop(error)),
            Err(panic) => Err(self.stop(panic_error(&*panic))),
        }
    }

    /// Stops the run, unless it is done. Does not wait: threads in a step return at their next batch, and the last of
    /// them drops the table.
    pub fn cancel(&self) {
        self.stop(Error::cancelled());
    }

    /// Returns true if the run was stopped, by [`Run::cancel`] or by an error.
    pub fn is_cancelled(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Returns the error that stopped the run, if any.
    pub fn error(&self) -> Option<Error> {
        if !self.is_cancelled() {
            return None;
        }
        match &self.held.lock().phase {
            Phase::Stopped(error) => Some(error.clone()),
            _ => None,
        }
    }

    /// Returns the execution statistics so far (see [`Receipt`]). The caller fills in the elapsed time and the bytes on
    /// the wire.
    pub fn receipt(&self) -> Receipt {
        let mut receipt = self.tally.receipt(&self.prepared.answers);
        // Their rows are not returned to the client, and the answer about a lookup stands for the operators of its program.
        for (side, lookup) in self.joins.iter().flat_map(Joins::receipts) {
            receipt.merge(&Receipt { rows_returned: 0, operators: Vec::new(), ..side.receipt() });
            receipt.lookups.push(lookup);
        }
        receipt
    }

    /// Adds CPU time that a thread spent in [`Run::step`].
    pub fn add_cpu(&self, ns: u64) {
        self.tally.add_cpu(ns);
    }

    /// Adds time in which the run was ready but no worker was free, in nanoseconds.
    pub fn add_wait(&self, ns: u64) {
        self.tally.add_wait(ns);
    }

    /// Returns the encoded bytes read so far.
    pub fn bytes_scanned(&self) -> u64 {
        let sides = self.joins.iter().flat_map(Joins::sides);
        self.tally.bytes_scanned() + sides.map(|side| side.bytes_scanned()).sum::<u64>()
    }

    /// Lets the run share reads and filter results with other runs. Must be called before the first step.
    pub fn join(&self, sharing: RunSharing) {
        if self.joins.is_some() {
            // Others know the filter of the program, and not that of its scan.
            return;
        }
        if self.morsel_queue.is_free() {
            sharing.add(&self.this);
        }
        let is_first = self.sharing.set(sharing).is_ok();
        assert!(is_first, "a run joins others once");
    }

    /// Sets a callback that is called when the run is stopped from outside, or has more to do because values were read
    /// into memory.
    pub fn on_change(&self, waker: Waker) {
        *self.on_change.lock() = Some(waker);
        for side in self.joins.iter().flat_map(Joins::sides) {
            let this = self.this.clone();
            side.on_change(Box::new(move || this.upgrade().iter().for_each(|run| run.changed())));
        }
    }

    /// Returns whether there is nothing to do before values arrive, or rows of a live table can be read. In the second
    /// case, `waker` is woken when that may have changed.
    pub(crate) fn waits(&self, waker: &std::task::Waker) -> bool {
        match self.joins.as_ref().filter(|joins| !joins.are_built()) {
            Some(joins) => joins.wait(waker),
            None => self.waits_for_values() || self.waits_for_rows(waker),
        }
    }

    /// Returns whether the rows of a live table cannot be read now. If so, `waker` is woken when that may have changed.
    fn waits_for_rows(&self, waker: &std::task::Waker) -> bool {
        let held = self.held.lock();
        let rows = self.filtered.as_ref().or_else(|| held.table.as_ref()?.live_rows());
        rows.is_some_and(|rows| rows.poll_ready(&mut Context::from_waker(waker)).is_pending())
    }

    /// Returns the table; `None` if the run is done.
    fn table(&self) -> Result<Option<Arc<Table>>> {
        let held = self.held.lock();
        let is_active = matches!(held.phase, Phase::Scanning | Phase::Merging(_));
        assert_eq!(held.table.is_some(), is_active, "a run holds its table exactly until it ends");
        match &held.phase {
            Phase::Stopped(error) => Err(error.clone()),
            _ => Ok(held.table.clone()),
        }
    }

    fn check(&self) -> Result<()> {
        if self.is_cancelled() { Err(Error::cancelled()) } else { Ok(()) }
    }

    fn finish(&self) {
        self.leave(|| Phase::Done);
    }

    /// Stops the run with `error`, unless it has ended already. Returns the error with which the run ended, or
    /// `error` if the run was done.
    fn stop(&self, error: Error) -> Error {
        let stopped = self.leave(|| {
            self.stopped.store(true, Ordering::Relaxed);
            Phase::Stopped(error.clone())
        });
        if stopped {
            self.changed();
        }
        self.error().unwrap_or(error)
    }

    /// Enters the phase that `end` returns and drops everything that the run holds. Does nothing and returns false if
    /// the run has ended already; otherwise returns true.
    fn leave(&self, end: impl FnOnce() -> Phase) -> bool {
        let mut held = self.held.lock();
        if matches!(held.phase, Phase::Done | Phase::Stopped(_)) {
            return false;
        }
        let phase = std::mem::replace(&mut held.phase, end());
        let RunState { table, states, rests, awaited, reservation, .. } = &mut *held;
        let morsels = (std::mem::take(rests), std::mem::take(awaited));
        let rest = (phase, table.take(), std::mem::take(states), morsels, reservation.take());
        let is_stopped = matches!(held.phase, Phase::Stopped(_));
        drop(held);
        // Dropped after the lock is released, because freeing many pages takes long.
        self.joins.iter().for_each(Joins::let_go);
        drop(rest);
        self.joins.iter().flat_map(Joins::sides).for_each(|side| side.cancel());
        if is_stopped && let Some(row_change) = self.row_change() {
            drop(row_change.take());
        }
        true
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run")
            .field("program", &self.prepared.effective)
            .field("tally", &self.tally)
            .finish_non_exhaustive()
    }
}

/// Converts the payload of a panic to an error.
pub(crate) fn panic_error(panic: &(dyn std::any::Any + Send)) -> Error {
    let message = panic
        .downcast_ref::<&str>()
        .map(|s| (*s).to_string())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_string());
    Error::new(ErrorKind::Internal, format!("a defect stopped this query: {message}"))
        .advise("the pool goes on; please report this")
}

#[cfg(test)]
mod tests;
