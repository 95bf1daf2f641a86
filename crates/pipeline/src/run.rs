//! Executes one program over one table version, driven step by step by any number of threads.
//!
//! A step processes one row group, or as much of it as about a millisecond allows; the rest is left for the next step
//! of any thread. After the last row group the partial aggregations are merged, in tasks that threads claim in the same
//! way. Scratch memory and partial aggregations are in operator states; there are as many as threads were ever in a
//! step at the same time.
//!
//! Invariant: a run goes from scanning, possibly through merging, to done, or from scanning or merging to stopped
//! (cancelled or failed). Once done or stopped it no longer holds the table. Example: a thread that finishes the last
//! row group after [`Run::cancel`] must not begin merging, since the run has no table any more.

mod change;
mod collected;
mod fetching;
mod merging;
mod morsel_queue;
mod read_ahead;

pub use change::ChangedGroups;
pub use fetching::check_chunks;
pub use read_ahead::HoldPolicy;

use crate::bound::{BoundProgram, Filtered};
use crate::budget::Budget;
use crate::memory_need::MemoryNeed;
use crate::pace::{RowCost, StepPace};
use crate::shared_scan::RunSharing;
use crate::tally::Tally;
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use arrow_select::concat::concat_batches;
use change::{GroupRewrite, RowChange};
use collected::Collected;
use farpool_columns::{LiveRows, RowGroup, Table};
use farpool_memory::Reservation;
use farpool_model::{Clock, Error, ErrorKind, Prepared, Receipt, Result, cast, limits};
use farpool_operators::{Pace, Plan, Progress, Shared, State, Verdict};
use merging::MergeTasks;
use morsel_queue::MorselQueue;
use parking_lot::Mutex;
use read_ahead::{GroupReads, GroupValues, ReadAhead};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::Context;

/// Row groups of at most this many rows take less time than the fixed cost of a step.
const FEW_ROWS: usize = limits::BLOCK_ROWS / 4;

/// Outcome of one step of a run.
#[derive(Debug)]
pub enum Step {
    /// Part of the result, at least one batch, in no particular order.
    Batches(Vec<RecordBatch>),
    /// Part of the result: the rows of one row group that pass, as encoded chunks. Only from runs started by
    /// [`Run::start_shipping`].
    Encoded(RowGroup),
    /// The chunks of a row group, by its position in the table. Only from runs started by [`Run::start_fetching`].
    Fetched(usize, RowGroup),
    /// Work was done, but there is no result to return yet: call again.
    Worked,
    /// Other threads hold the last morsels: there is nothing to do now, but there may be later.
    Busy,
    /// The run is done, although other threads may still be returning their last batches.
    Done,
}

/// Execution of a program over one table version.
pub struct Run {
    prepared: Arc<Prepared>,
    plan: Plan,
    need: MemoryNeed,
    shared: Shared,
    budget: Budget,
    /// Table columns that the program reads.
    columns: Vec<usize>,
    /// Replacement for the table's rows, filtered at the source, if these are generated when they are read.
    filtered: Option<Arc<dyn LiveRows>>,
    output: RunOutput,
    morsel_queue: MorselQueue,
    /// Reads and filter results that this run shares with other runs.
    sharing: OnceLock<RunSharing>,
    tally: Tally,
    cost: RowCost,
    /// Rows that may still be returned under the limit; without a limit, more than there can be.
    rows_left: AtomicU64,
    /// Number of operator states, which share the budget equally.
    states: AtomicUsize,
    /// Bytes for groups, if these may be returned in parts.
    group_bytes: AtomicUsize,
    /// Maximum number of threads in a step at once, and the current number.
    threads_max: AtomicUsize,
    threads: AtomicUsize,
    /// True if the phase is `Stopped`; checked by threads in the middle of a step.
    stopped: AtomicBool,
    held: Mutex<RunState>,
    read_ahead: ReadAhead,
    on_change: Mutex<Option<Waker>>,
    this: Weak<Run>,
}

/// Callback for when there may be more to do, or the run was stopped.
pub type Waker = Box<dyn Fn() + Send + Sync>;

struct RunState {
    phase: Phase,
    table: Option<Arc<Table>>,
    states: Vec<State>,
    /// Row groups that are partly done and not claimed by a thread, or whose values have been read into memory.
    rests: Vec<Morsel>,
    /// Row groups whose values are being read, by request number.
    awaited: BTreeMap<u64, Morsel>,
    /// Memory reserved for the run.
    reservation: Option<Reservation>,
}

/// Use of the rows that pass.
enum RunOutput {
    /// Rows are returned as batches.
    Batches,
    /// Rows are returned as batches; if the result consists of these plain columns, row groups may also be returned
    /// encoded.
    Shipped(Vec<usize>),
    /// Chunks of these columns are returned as they are, for the row groups in the morsel queue.
    Fetched(Vec<usize>),
    /// Rows are updated or deleted.
    Change(RowChange),
    /// Rows are collected until [`Run::take_collected`].
    Collected(Mutex<Collected>),
}

/// A row group and the progress made on it.
struct Morsel {
    /// Position of the row group in the table.
    place: usize,
    /// True if another run has just read or requested it.
    is_shared: bool,
    progress: Progress,
    /// State of a run that changes rows.
    rewrite: Option<Box<GroupRewrite>>,
    /// Reads made for this row group.
    read: Option<GroupReads>,
    /// Decrypted values of an encrypted row group, from its first step until it is done.
    opened: Option<Arc<RowGroup>>,
    /// Row group generated from a live table, from its first step until it is done.
    made: Option<Arc<RowGroup>>,
}

impl Morsel {
    /// Returns the row group; for a live table, the generated one once there is one.
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
    /// Creates a run of `program`. Nothing is executed before the first step.
    ///
    /// # Errors
    /// `Invalid` when the program does not fit the table.
    pub fn start(program: &BoundProgram) -> Result<Arc<Self>> {
        Run::begin(program, RunOutput::Batches)
    }

    /// Creates a run that may return rows as [`Step::Encoded`].
    ///
    /// # Errors
    /// As [`Run::start`].
    pub fn start_shipping(program: &BoundProgram) -> Result<Arc<Self>> {
        let output = program.plan()?.plain_columns().map_or(RunOutput::Batches, RunOutput::Shipped);
        Run::begin(program, output)
    }

    fn begin(program: &BoundProgram, output: RunOutput) -> Result<Arc<Self>> {
        Run::begin_with(program, output, None)
    }

    /// Creates a run over all row groups, or over those at the given positions.
    fn begin_with(
        program: &BoundProgram,
        output: RunOutput,
        places: Option<Vec<usize>>,
    ) -> Result<Arc<Self>> {
        let (table, prepared) = (program.table(), program.prepared().clone());
        let filtered = match &output {
            // A change needs the rows that do not pass, too.
            RunOutput::Change(_) => None,
            RunOutput::Batches | RunOutput::Shipped(_) | RunOutput::Fetched(_) | RunOutput::Collected(_) => {
                program.filtered()?
            }
        };
        let (filtered, plan, mut columns) = match filtered {
            Some(Filtered { rows, plan, columns }) => (Some(rows), plan, columns),
            None => (None, program.plan()?, program.columns().iter().copied().collect()),
        };
        if let RunOutput::Change(row_change) = &output {
            // A change also reads the replaced columns, for rows that keep their values.
            let more = row_change.columns().iter().filter(|column| !columns.contains(column)).copied();
            columns.extend(more.collect::<Vec<_>>());
        }
        let budget = program.budget();
        let need = MemoryNeed::of(program, &plan);
        let run = |this: &Weak<Run>| Run {
            this: this.clone(),
            read_ahead: ReadAhead::new(),
            need: match &output {
                RunOutput::Change(row_change) => need.encoding(table, row_change.columns()),
                RunOutput::Batches
                | RunOutput::Shipped(_)
                | RunOutput::Fetched(_)
                | RunOutput::Collected(_) => need,
            },
            output,
            morsel_queue: {
                let groups = || table.row_groups.iter().map(|group| &**group);
                MorselQueue::new(table, &columns, places.or_else(|| plan.favourable(groups())))
            },
            sharing: OnceLock::new(),
            columns,
            filtered,
            plan,
            shared: Shared::default(),
            budget,
            tally: Tally::default(),
            cost: RowCost::default(),
            rows_left: AtomicU64::new(prepared.effective.limit.unwrap_or(u64::MAX)),
            states: AtomicUsize::new(0),
            group_bytes: AtomicUsize::new(budget.state_bytes_max),
            threads_max: AtomicUsize::new(usize::MAX),
            threads: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
            held: Mutex::new(RunState {
                phase: Phase::Scanning,
                table: Some(table.clone()),
                states: Vec::new(),
                rests: Vec::new(),
                awaited: BTreeMap::new(),
                reservation: None,
            }),
            on_change: Mutex::new(None),
            prepared,
        };
        let run = Arc::new_cyclic(run);
        // Without row groups, no completion would end the scan.
        if run.morsel_queue.is_empty() {
            run.scan_complete();
        } else if run.limit_reached() {
            run.skip_unclaimed(table);
        }
        Ok(run)
    }

    /// Returns the memory that the run needs besides the pool.
    ///
    /// # Errors
    /// The error that stopped the run, if it was stopped.
    pub fn need(&self) -> Result<MemoryNeed> {
        // A run that is done needs little memory and ends with its first step.
        self.table().map(|_| self.need)
    }

    /// Limits the run to `need`, as returned by [`Run::need`] or reduced, and holds its reservation until the run ends.
    /// Must be called before the first step.
    pub fn keep_to(&self, need: MemoryNeed, reservation: Reservation) {
        self.threads_max.store(need.threads, Ordering::Relaxed);
        if self.prepared.is_partial() {
            self.group_bytes.store(need.groups, Ordering::Relaxed);
        }
        let mut held = self.held.lock();
        if held.table.is_some() {
            held.reservation = Some(reservation);
        }
    }

    /// Returns the schema of the result.
    pub fn schema(&self) -> &SchemaRef {
        self.plan.schema()
    }

    /// Returns the effective program and the answers.
    pub fn prepared(&self) -> &Arc<Prepared> {
        &self.prepared
    }

    /// Claims a row group and processes it on the calling thread, for about [`limits::STEP_NS`]. May be called by
    /// several threads at once.
    ///
    /// # Errors
    /// The error that stopped the run: from then on every step returns the same one. `Cancelled` after
    /// [`Run::cancel`]. A panic inside is caught and returned as `Internal`.
    pub fn step(&self, clock: &dyn Clock) -> Result<Step> {
        let others = self.threads.fetch_add(1, Ordering::Relaxed);
        let step =
            catch_unwind(AssertUnwindSafe(|| match others < self.threads_max.load(Ordering::Relaxed) {
                true => self.advance(clock),
                // Memory is reserved only for that many threads in a step.
                false => Ok(Step::Busy),
            }));
        self.threads.fetch_sub(1, Ordering::Relaxed);
        match step {
            Ok(Ok(step)) => Ok(step),
            Ok(Err(error)) => Err(self.stop(error)),
            Err(panic) => Err(self.stop(panic_error(&*panic))),
        }
    }

    /// Stops the run unless it is done. Threads in a step return at their next batch; the last of them drops the table.
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

    /// Returns the cost of the run so far. Its owner fills in the elapsed time and the bytes on the wire.
    pub fn receipt(&self) -> Receipt {
        self.tally.receipt(&self.prepared.answers)
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
        self.tally.bytes_scanned()
    }

    /// Shares reads and filter results with other runs. Must be called before the first step.
    pub fn join(&self, sharing: RunSharing) {
        if self.morsel_queue.is_free() {
            sharing.add(&self.this);
        }
        // Set once: a run never joins twice.
        let _ = self.sharing.set(sharing);
    }

    /// Sets a callback for when the run is stopped from outside, or has more to do because values were read into
    /// memory.
    pub fn on_change(&self, waker: Waker) {
        *self.on_change.lock() = Some(waker);
    }

    /// Returns true if the rows of a live table are unavailable now; `waker` is then woken when that may have changed.
    pub(crate) fn waits_for_rows(&self, waker: &std::task::Waker) -> bool {
        let held = self.held.lock();
        let rows = self.filtered.as_ref().or_else(|| held.table.as_ref()?.live_rows());
        rows.is_some_and(|rows| rows.poll_ready(&mut Context::from_waker(waker)).is_pending())
    }

    fn advance(&self, clock: &dyn Clock) -> Result<Step> {
        let Some(table) = self.table()? else {
            return Ok(Step::Done);
        };
        let is_stopped = || self.is_cancelled() || self.limit_reached();
        let mut pace = StepPace::new(clock, &self.cost, &is_stopped);
        while let Some(mut morsel) = self.claim(&table) {
            self.check()?;
            if let Some(rows) = self.filtered.as_ref().or(table.live_rows())
                && morsel.made.is_none()
            {
                let made = match rows.row_group(morsel.place, &self.columns) {
                    // Retried when the rows are available: no worker blocks on that.
                    Err(error) if error.kind == ErrorKind::Busy => {
                        self.held.lock().rests.push(morsel);
                        return Ok(Step::Busy);
                    }
                    made => made?,
                };
                self.tally.scanned(cast::u64_from(made.rows_dropped), cast::u64_from(made.bytes_judged));
                morsel.made = Some(Arc::new(made.group));
            }
            let made = morsel.made.clone();
            let group = made.as_deref().unwrap_or(&table.row_groups[morsel.place]);
            let is_out = group.rows == 0 || morsel.progress.is_ruled_out();
            let verdict = match is_out || self.plan.is_beaten(group, &self.shared) {
                true => Verdict::None,
                false => self.plan.verdict(group),
            };
            let filled = match self.filled(group, verdict, &mut morsel, &table, &mut pace)? {
                GroupValues::Here(filled) => filled,
                GroupValues::Absent(handles) => {
                    self.fetch(morsel, handles);
                    continue;
                }
                GroupValues::Unneeded => {
                    self.leave_group(group, &morsel.progress);
                    self.complete_groups(1);
                    if pace.ends() {
                        return Ok(Step::Worked);
                    }
                    continue;
                }
            };
            let is_filled = filled.is_some();
            let group = filled.as_deref().unwrap_or(group);
            match verdict {
                Verdict::All if self.ships(group, &morsel) => {
                    return self.ship(morsel.place, group, is_filled, &table);
                }
                Verdict::Some | Verdict::All if let Some(row_change) = self.row_change() => {
                    return self.change(row_change, morsel, group, &table, &mut pace);
                }
                Verdict::Some | Verdict::All => {
                    let step = self.scan(morsel, group, &table, &mut pace)?;
                    // Small row groups are processed several to a step, since a step for each would cost more than they
                    // do.
                    if group.rows > FEW_ROWS || !matches!(step, Step::Worked) {
                        return Ok(step);
                    }
                    pace.next_group();
                }
                Verdict::None => {
                    self.leave_group(group, &morsel.progress);
                    self.complete_groups(1);
                }
            }
            if pace.ends() {
                return Ok(Step::Worked);
            }
        }
        let merging = match &self.held.lock().phase {
            Phase::Scanning => return Ok(Step::Busy),
            Phase::Done => return Ok(Step::Done),
            Phase::Stopped(error) => return Err(error.clone()),
            Phase::Merging(merging) => merging.clone(),
        };
        self.merge_step(&merging)
    }

    /// Claims a row group: one that is partly done, or else the next one of the morsel queue.
    fn claim(&self, table: &Table) -> Option<Morsel> {
        let mut rest = self.held.lock().rests.pop();
        if let Some(read) = rest.as_mut().and_then(|rest| rest.read.as_mut()) {
            self.read_ahead.used(read);
        }
        rest.or_else(|| {
            let sharing = self.sharing.get();
            let taken = self.morsel_queue.take(self, table, sharing)?;
            let judging = sharing.and_then(RunSharing::judging);
            let passing = || judging?.passing(&table.row_groups[taken.place]);
            let progress = match &self.output {
                RunOutput::Change(_) => Progress::marking(),
                RunOutput::Batches
                | RunOutput::Shipped(_)
                | RunOutput::Fetched(_)
                | RunOutput::Collected(_) => {
                    let judge = || if judging.is_some() { Progress::marking() } else { Progress::default() };
                    passing().map_or_else(judge, Progress::knowing)
                }
            };
            let (place, is_shared, read) =
                (taken.place, taken.is_shared, taken.kept.map(GroupReads::keeping));
            Some(Morsel { place, is_shared, progress, rewrite: None, read, opened: None, made: None })
        })
    }

    /// Returns the table; `None` if the run is done.
    fn table(&self) -> Result<Option<Arc<Table>>> {
        let held = self.held.lock();
        match &held.phase {
            Phase::Stopped(error) => Err(error.clone()),
            _ => Ok(held.table.clone()),
        }
    }

    /// Returns the change that the run makes; `None` for a run that returns rows.
    fn row_change(&self) -> Option<&RowChange> {
        match &self.output {
            RunOutput::Change(row_change) => Some(row_change),
            RunOutput::Batches | RunOutput::Shipped(_) | RunOutput::Fetched(_) | RunOutput::Collected(_) => {
                None
            }
        }
    }

    fn check(&self) -> Result<()> {
        if self.is_cancelled() { Err(Error::cancelled()) } else { Ok(()) }
    }

    /// Decides whether `group`, all of whose rows pass, is returned as it is. If so, its rows are subtracted from the
    /// limit.
    fn ships(&self, group: &RowGroup, morsel: &Morsel) -> bool {
        let rows = cast::u64_from(group.rows);
        let left = |left: u64| left.checked_sub(rows);
        matches!(self.output, RunOutput::Shipped(_) | RunOutput::Fetched(_))
            && morsel.progress.rows() == 0
            && self.rows_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left).is_ok()
    }

    /// Returns a row group as encoded chunks. Values of handles are copied, so that a result that waits for a slow
    /// client does not keep them from being evicted.
    fn ship(&self, place: usize, group: &RowGroup, is_filled: bool, table: &Table) -> Result<Step> {
        let columns = match &self.output {
            RunOutput::Shipped(columns) | RunOutput::Fetched(columns) => &columns[..],
            RunOutput::Batches | RunOutput::Change(_) | RunOutput::Collected(_) => &[],
        };
        let read: BTreeSet<usize> = columns.iter().copied().collect();
        let bytes = read.iter().map(|column| group.chunks[*column].bytes_encoded()).sum::<usize>();
        let (rows, bytes) = (cast::u64_from(group.rows), cast::u64_from(bytes));
        self.tally.scanned(rows, bytes);
        self.tally.left(group, rows, bytes);
        self.tally.returned(group.rows);
        if self.limit_reached() {
            self.skip_unclaimed(table);
        }
        self.complete_groups(1);
        let chunks = columns.iter().map(|column| group.chunks[*column].clone()).collect();
        let shipped = RowGroup { rows: group.rows, chunks };
        let shipped = if is_filled { shipped.copied()? } else { shipped };
        Ok(match self.output {
            RunOutput::Fetched(_) => Step::Fetched(place, shipped),
            RunOutput::Batches | RunOutput::Shipped(_) | RunOutput::Change(_) | RunOutput::Collected(_) => {
                Step::Encoded(shipped)
            }
        })
    }

    fn scan(
        &self,
        mut morsel: Morsel,
        group: &RowGroup,
        table: &Table,
        pace: &mut StepPace<'_>,
    ) -> Result<Step> {
        let pooled = self.held.lock().states.pop();
        let mut state = pooled.unwrap_or_else(|| self.new_state());
        if self.prepared.is_partial() {
            let budget = Budget { state_bytes_max: self.group_bytes.load(Ordering::Relaxed), ..self.budget };
            state.set_room(budget.share(self.states.load(Ordering::Relaxed)));
        }
        let mut batches = Vec::new();
        let mut accept = |batch| self.accept(batch, &mut batches);
        let progress = &mut morsel.progress;
        let (work, encoded) = match self.output {
            RunOutput::Shipped(_) => {
                self.plan.process_encoded(group, progress, &mut state, pace, &mut accept)?
            }
            RunOutput::Batches | RunOutput::Fetched(_) | RunOutput::Change(_) | RunOutput::Collected(_) => {
                (self.plan.process_part(group, progress, &mut state, pace, &mut accept)?, None)
            }
        };
        self.tally.scanned(work.rows_in, work.bytes_read);
        self.tally.bypassed(work.rows_bypassed);
        if morsel.progress.is_known() {
            self.tally.known(work.rows_in);
        }
        self.check()?;
        let step = match encoded {
            Some(group) => {
                self.tally.returned(group.rows);
                Step::Encoded(group)
            }
            None => self.give(batches)?,
        };
        self.put_back(state, morsel, table)?;
        Ok(step)
    }

    /// Returns the operator state, and the rest of the row group if it is not done, for other threads.
    fn put_back(&self, state: State, mut morsel: Morsel, table: &Table) -> Result<()> {
        let is_done = morsel.progress.is_done();
        // Released first: others may need the memory before the rest of this row group is continued.
        drop(morsel.read.as_mut().and_then(GroupReads::let_go));
        if is_done {
            self.leave_group(morsel.group(table), &morsel.progress);
            self.note(&morsel, table);
        }
        {
            let mut held = self.held.lock();
            if let Phase::Stopped(error) = &held.phase {
                return Err(error.clone());
            }
            held.states.push(state);
            if !is_done {
                held.rests.push(morsel);
            }
        }
        if self.limit_reached() {
            self.skip_unclaimed(table);
        }
        self.complete_groups(usize::from(is_done));
        Ok(())
    }

    /// Takes as much of a batch as the limit allows.
    fn accept(&self, batch: RecordBatch, batches: &mut Vec<RecordBatch>) -> ControlFlow<()> {
        let wanted = cast::u64_from(batch.num_rows());
        let left = |left: u64| Some(left.saturating_sub(wanted));
        let before = self.rows_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left);
        let rows = cast::usize_saturating(before.unwrap_or(0).min(wanted));
        self.tally.returned(rows);
        if rows > 0 {
            batches.push(if rows < batch.num_rows() { batch.slice(0, rows) } else { batch });
        }
        if self.limit_reached() || self.is_cancelled() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    fn limit_reached(&self) -> bool {
        self.rows_left.load(Ordering::Relaxed) == 0
    }

    /// Returns the batches of a step, combining many small ones into one, because each costs a message.
    fn give(&self, mut batches: Vec<RecordBatch>) -> Result<Step> {
        let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
        if let RunOutput::Collected(collected) = &self.output {
            collected.lock().add(batches, rows)?;
            return Ok(Step::Worked);
        }
        if batches.len() > 1 && rows <= limits::BATCH_ROWS {
            let whole = concat_batches(self.schema(), &batches);
            batches = vec![whole.map_err(|error| Error::internal(error.to_string()))?];
        }
        Ok(if batches.is_empty() { Step::Worked } else { Step::Batches(batches) })
    }

    fn new_state(&self) -> State {
        self.states.fetch_add(1, Ordering::Relaxed);
        self.plan.new_state_in(&self.shared)
    }

    fn skip_unclaimed(&self, table: &Table) {
        let rests = {
            let mut held = self.held.lock();
            let awaited = std::mem::take(&mut held.awaited);
            let mut rests = std::mem::take(&mut held.rests);
            rests.extend(awaited.into_values());
            rests
        };
        rests.iter().for_each(|rest| self.leave_group(rest.group(table), &rest.progress));
        let unclaimed = self.morsel_queue.close();
        let count = unclaimed.len() + rests.len();
        let nothing = Progress::default();
        unclaimed.iter().for_each(|place| self.leave_group(&table.row_groups[*place], &nothing));
        self.complete_groups(count);
    }

    /// Records which rows of a finished row group pass, for other runs with the same filter.
    fn note(&self, morsel: &Morsel, table: &Table) {
        let group = &table.row_groups[morsel.place];
        if let Some(sharing) = self.sharing.get()
            // Filtering few rows is cheaper than recording the result.
            && group.rows > FEW_ROWS
            && let Some(passing) = morsel.progress.passing(group)
            // Otherwise the zone maps decide it.
            && self.plan.verdict(group) == Verdict::Some
        {
            sharing.note(self, morsel.place, group, passing);
        }
    }

    /// Counts the bytes of a row group that were not read as skipped.
    fn leave_group(&self, group: &RowGroup, progress: &Progress) {
        self.tally.left(group, cast::u64_from(progress.rows()), progress.bytes_read());
    }

    fn complete_groups(&self, count: usize) {
        if self.morsel_queue.complete(count) {
            self.scan_complete();
        }
    }

    fn finish(&self) {
        self.leave(|| Phase::Done);
    }

    /// Stops the run with `error` unless it has ended. Returns the error that it ended with, or `error`.
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

    /// Enters the phase that `end` returns, unless the run has ended, and drops everything that the run holds.
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
        // Freeing many pages takes time, so it happens after the lock is released.
        drop(rest);
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
