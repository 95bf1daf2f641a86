//! The scan of a run: threads claim row groups and process them, each for about a millisecond.
//!
//! A row group is skipped because of its zone maps, returned without processing, or processed by the operators. What a
//! step leaves of it is put back for the next step of any thread.
//!
//! A *step* is the work of a thread at a time.

use super::joining::{Joins, Unjoined};
use super::read_ahead::{GroupReads, GroupValues};
use super::{Morsel, Phase, RowChange, Run, RunOutput, Step, WorkerState};
use crate::budget::{Budget, Overflow};
use crate::pace::StepPace;
use crate::shared_scan::RunSharing;
use arrow_array::RecordBatch;
use arrow_select::concat::concat_batches;
use farpool_columns::{RowGroup, Table};
use farpool_model::{Clock, Error, ErrorKind, Result, cast, limits};
use farpool_operators::{Pace, Progress, Verdict};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Maximum number of rows of a row group that is processed together with others in one step. Reason: it takes less time
/// than the fixed cost of a step.
const FEW_ROWS: usize = limits::BLOCK_ROWS / 4;

impl Run {
    /// Processes row groups for one step; if none is left, merges.
    pub(super) fn advance(&self, clock: &dyn Clock) -> Result<Step> {
        let Some(table) = self.table()? else {
            return Ok(Step::Done);
        };
        let is_stopped = || self.is_cancelled() || self.limit_reached();
        let mut pace = StepPace::new(clock, &self.cost, &is_stopped);
        if let Some(joins) = self.joins.as_ref().filter(|joins| !joins.are_built()) {
            return joins.step((&self.plan, &table), clock, &mut pace);
        }
        while let Some(morsel) = self.claim(&table) {
            self.check()?;
            if let ControlFlow::Break(step) = self.process(morsel, &table, &mut pace)? {
                return Ok(step);
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

    /// Processes a claimed row group. Returns `Continue` if the step goes on with another row group.
    fn process(
        &self,
        mut morsel: Morsel,
        table: &Table,
        pace: &mut StepPace<'_>,
    ) -> Result<ControlFlow<Step>> {
        if !morsel.unjoined.is_empty()
            && let Some(joins) = &self.joins
        {
            // Joining needs no values of the row group.
            return self.join_rest(joins, morsel, table, pace).map(ControlFlow::Break);
        }
        if !self.generate(&mut morsel, table)? {
            // The row group is tried again when its rows can be read; no worker thread blocks on that.
            self.held.lock().rests.push(morsel);
            return Ok(ControlFlow::Break(Step::Busy));
        }
        let made = morsel.made.clone();
        let group = made.as_deref().unwrap_or(&table.row_groups[morsel.place]);
        let is_out = group.rows == 0 || morsel.progress.is_ruled_out();
        let verdict = match is_out || self.scan_plan().is_beaten(group, &self.shared) {
            true => Verdict::None,
            false => self.scan_plan().verdict(group),
        };
        let filled = match self.filled(group, verdict, &mut morsel, table, pace)? {
            GroupValues::Here(filled) => filled,
            GroupValues::Absent(handles) => {
                self.fetch(morsel, handles);
                return Ok(ControlFlow::Continue(()));
            }
            GroupValues::Unneeded => {
                self.skip_group(group, &morsel.progress);
                return Ok(proceed(pace));
            }
        };
        let is_filled = filled.is_some();
        let group = filled.as_deref().unwrap_or(group);
        match verdict {
            Verdict::All if self.ships(group, &morsel) => {
                return self.ship(morsel.place, group, is_filled, table).map(ControlFlow::Break);
            }
            Verdict::Some | Verdict::All if let Some(row_change) = self.row_change() => {
                return self.change(row_change, morsel, group, table, pace).map(ControlFlow::Break);
            }
            Verdict::Some | Verdict::All => {
                let step = self.scan(morsel, group, table, pace)?;
                // Several small row groups are processed in one step, because a step for each would cost more than its
                // rows.
                if group.rows > FEW_ROWS || !matches!(step, Step::Worked) {
                    return Ok(ControlFlow::Break(step));
                }
                pace.next_group();
            }
            Verdict::None => self.skip_group(group, &morsel.progress),
        }
        Ok(proceed(pace))
    }

    /// Generates the row group of a morsel of a live table, unless this was done before. Returns false if its rows
    /// cannot be read now.
    fn generate(&self, morsel: &mut Morsel, table: &Table) -> Result<bool> {
        let Some(rows) = self.filtered.as_ref().or(table.live_rows()).filter(|_| morsel.made.is_none())
        else {
            return Ok(true);
        };
        let made = match rows.row_group(morsel.place, &self.columns) {
            Err(error) if error.kind == ErrorKind::Busy => return Ok(false),
            made => made?,
        };
        self.tally.scanned(cast::u64_from(made.rows_dropped), cast::u64_from(made.bytes_judged));
        morsel.made = Some(Arc::new(made.group));
        Ok(true)
    }

    /// Claims a row group: one that is partly processed, otherwise the next one of the queue. Returns `None` if there
    /// is none now.
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
            Some(Morsel {
                place,
                is_shared,
                progress,
                rewrite: None,
                read,
                opened: None,
                made: None,
                unjoined: Unjoined::default(),
            })
        })
    }

    /// Returns the change that the run makes; `None` for a run that returns rows.
    pub(super) fn row_change(&self) -> Option<&RowChange> {
        match &self.output {
            RunOutput::Change(row_change) => Some(row_change),
            RunOutput::Batches | RunOutput::Shipped(_) | RunOutput::Fetched(_) | RunOutput::Collected(_) => {
                None
            }
        }
    }

    /// Returns whether `group`, all of whose rows pass the filter, is returned as encoded chunks. If so, subtracts
    /// its rows from the program's limit.
    fn ships(&self, group: &RowGroup, morsel: &Morsel) -> bool {
        let rows = cast::u64_from(group.rows);
        let left = |left: u64| left.checked_sub(rows);
        matches!(self.output, RunOutput::Shipped(_) | RunOutput::Fetched(_))
            && morsel.progress.rows() == 0
            && self.rows_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left).is_ok()
    }

    /// Returns a row group as encoded chunks. The values of handles are copied, so that a result that waits for a slow
    /// client does not prevent their eviction.
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

    /// Processes a row group by the operators of the program, as far as the step allows.
    fn scan(
        &self,
        mut morsel: Morsel,
        group: &RowGroup,
        table: &Table,
        pace: &mut StepPace<'_>,
    ) -> Result<Step> {
        let mut state = self.take_state();
        if let (Some(joins), WorkerState { scan, upper: Some(upper) }) = (&self.joins, &mut state) {
            let batches = self.scan_joined(joins, &mut morsel, group, (scan, upper), pace)?;
            let step = self.give(batches)?;
            self.put_back(state, morsel, table)?;
            return Ok(step);
        }
        let mut batches = Vec::new();
        let mut accept = |batch| self.accept(batch, &mut batches);
        let progress = &mut morsel.progress;
        let (work, encoded) = match self.output {
            RunOutput::Shipped(_) => {
                self.scan_plan().process_encoded(group, progress, &mut state.scan, pace, &mut accept)?
            }
            RunOutput::Batches | RunOutput::Fetched(_) | RunOutput::Change(_) | RunOutput::Collected(_) => {
                (self.scan_plan().process_part(group, progress, &mut state.scan, pace, &mut accept)?, None)
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

    /// Joins rows of a morsel that were scanned before.
    fn join_rest(
        &self,
        joins: &Joins,
        mut morsel: Morsel,
        table: &Table,
        pace: &mut StepPace<'_>,
    ) -> Result<Step> {
        let mut state = self.take_state();
        let batches = self.join_rows(joins, &mut morsel.unjoined, state.of_result(), pace)?;
        let step = self.give(batches)?;
        self.put_back(state, morsel, table)?;
        Ok(step)
    }

    /// Returns an operator state for this thread, with its share of the memory for groups.
    fn take_state(&self) -> WorkerState {
        let pooled = self.held.lock().states.pop();
        let mut state = pooled.unwrap_or_else(|| self.new_state());
        let states = self.states.load(Ordering::Relaxed);
        let budget = Budget { state_bytes_max: self.group_bytes.load(Ordering::Relaxed), ..self.budget };
        match self.overflow {
            Overflow::Never => {}
            Overflow::Parts => state.of_result().set_room(budget.share(states)),
            Overflow::Error => {
                let workers = budget.workers.min(self.threads_max.load(Ordering::Relaxed));
                state.of_result().set_limit(Budget { workers, ..budget }.share_with_merging(states));
            }
        }
        state
    }

    /// Puts back the operator state and, if the row group is not done, the rest of the row group, so that any thread
    /// may continue.
    fn put_back(&self, state: WorkerState, mut morsel: Morsel, table: &Table) -> Result<()> {
        let is_done = morsel.is_done();
        let (scanned, rows) = (morsel.progress.rows(), morsel.group(table).rows);
        assert!(scanned <= rows, "{scanned} rows were scanned of a row group of {rows}");
        // The values are released before the rest is put back, because others may need the memory earlier than that.
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
            let made = self.states.load(Ordering::Relaxed);
            assert!(held.states.len() <= made, "more states were returned than made");
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

    /// Appends as many rows of a batch to `batches` as the limit allows. Returns `Break` if no more are wanted.
    pub(super) fn accept(&self, batch: RecordBatch, batches: &mut Vec<RecordBatch>) -> ControlFlow<()> {
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

    /// Returns whether the limit is reached, so that no more rows are wanted.
    pub(super) fn limit_reached(&self) -> bool {
        self.rows_left.load(Ordering::Relaxed) == 0
    }

    /// Returns the batches of a step. Many small ones are combined, because each costs a message.
    pub(super) fn give(&self, mut batches: Vec<RecordBatch>) -> Result<Step> {
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

    /// Creates the operator state of one more thread.
    fn new_state(&self) -> WorkerState {
        self.states.fetch_add(1, Ordering::Relaxed);
        let joins = self.joins.as_ref().filter(|joins| joins.looks_up());
        let upper = joins.map(|joins| joins.plan().new_state_in(&self.shared));
        WorkerState { scan: self.scan_plan().new_state_in(&self.shared), upper }
    }

    /// Completes all row groups that no thread has claimed, because nothing more of them is wanted.
    pub(super) fn skip_unclaimed(&self, table: &Table) {
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

    /// Records which rows of a processed row group pass, for other runs with the same filter.
    fn note(&self, morsel: &Morsel, table: &Table) {
        let group = &table.row_groups[morsel.place];
        if let Some(sharing) = self.sharing.get()
            // Filtering few rows is cheaper than recording the result.
            && group.rows > FEW_ROWS
            && let Some(passing) = morsel.progress.passing(group)
            // And zone maps alone do not decide the filter.
            && self.scan_plan().verdict(group) == Verdict::Some
        {
            sharing.note(self, morsel.place, group, passing);
        }
    }

    /// Counts the bytes of a row group that were not read, and its rows that were not processed, as skipped in the
    /// execution statistics.
    pub(super) fn leave_group(&self, group: &RowGroup, progress: &Progress) {
        self.tally.left(group, cast::u64_from(progress.rows()), progress.bytes_read());
    }

    /// Completes `count` row groups; after the last one, merging begins.
    pub(super) fn complete_groups(&self, count: usize) {
        if self.morsel_queue.complete(count) {
            self.scan_complete();
        }
    }

    /// Completes a row group of which nothing more is read.
    fn skip_group(&self, group: &RowGroup, progress: &Progress) {
        self.leave_group(group, progress);
        self.complete_groups(1);
    }
}

/// Returns `Break` if the step ends here, and `Continue` if it goes on with another row group.
fn proceed(pace: &mut StepPace<'_>) -> ControlFlow<Step> {
    if pace.ends() { ControlFlow::Break(Step::Worked) } else { ControlFlow::Continue(()) }
}
