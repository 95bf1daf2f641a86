//! Runs that change rows (UPDATE and DELETE): the rows that pass the filter get the values that the program computes
//! or, if it computes none, are deleted. The outcome is new row groups for a new table version.
//!
//! A step scans rows of a row group, as in any other run, or re-encodes one of its columns. The chunks of columns that
//! the program does not compute are reused, and so are row groups in which no row passes.

use super::{Morsel, Phase, Run, RunOutput, Step};
use crate::bound::BoundProgram;
use crate::pace::StepPace;
use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};
use farpool_columns::{Chunk, Encoder, NewValues, RowGroup, Table};
use farpool_model::{Answer, Error, Output, Program, Result};
use farpool_operators::{Pace, Plan, State};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Number of copies of the new values that are in memory at the same time: as computed, merged with the values that
/// stay, and encoded.
const FORMS: usize = 3;

/// Outcome of a run that changes rows.
#[derive(Debug, Default)]
pub struct ChangedGroups {
    /// Number of rows that passed the filter.
    pub rows: u64,
    /// The new row groups, by index in the table; `None` if no row of a row group is left. Row groups without rows that
    /// pass are not in the map.
    pub groups: BTreeMap<usize, Option<Arc<RowGroup>>>,
}

/// The change that a run makes, and its outcome so far.
pub(super) struct RowChange {
    /// Table column that each result column of the program replaces; all table columns if rows are deleted.
    columns: Vec<usize>,
    /// Encoder for these columns.
    encoder: Encoder,
    rows_go: bool,
    changed: Mutex<ChangedGroups>,
}

/// A row group whose scan has begun.
pub(super) struct GroupRewrite {
    /// State of the operators that scan the rows; `None` after all rows were scanned.
    state: Option<State>,
    values: NewValues,
    /// Bytes reserved for the new values, which may be much larger than the old ones.
    reserved: usize,
    chunks: Vec<Chunk>,
}

impl RowChange {
    /// Creates the change that `program` describes. Its result columns must have the names and types of table columns.
    /// `encoder` is called with a schema of these columns and returns an encoder for it.
    ///
    /// # Errors
    /// `Invalid` for a program that cannot be executed exactly, or whose output is not rows.
    pub fn new(program: &BoundProgram, encoder: impl FnOnce(SchemaRef) -> Encoder) -> Result<RowChange> {
        let prepared = program.prepared();
        if let Some(answer) = prepared.answers.iter().find(|answer| answer.answer != Answer::Exact) {
            let reason = answer.reason.as_deref().unwrap_or("no reason is known");
            return Err(Error::invalid(format!(
                "rows cannot be changed here: {}: {reason}",
                answer.operator
            )));
        }
        if program.joined().is_some() {
            return Err(Error::invalid("a change is made of the rows of one table, without lookups"));
        }
        let Program { output: Output::Rows(outputs), order, limit: None, .. } = &prepared.effective else {
            return Err(Error::invalid("a change is made of rows, of all that pass"));
        };
        if !order.is_empty() {
            return Err(Error::invalid("a change of rows has no order"));
        }
        let table = &program.table().schema;
        let columns = prepared.schema.fields().iter().map(|field| {
            let (column, of_table) = table.column_with_name(field.name()).ok_or_else(|| {
                Error::invalid(format!("there is no column {:?} to be changed", field.name()))
            })?;
            match of_table.data_type() == field.data_type() {
                true => Ok(column),
                false => Err(Error::invalid(format!(
                    "column {:?} is of type {}, and its new values are of type {}",
                    field.name(),
                    of_table.data_type(),
                    field.data_type()
                ))),
            }
        });
        let mut columns = columns.collect::<Result<Vec<_>>>()?;
        if columns.iter().enumerate().any(|(place, column)| columns[..place].contains(column)) {
            return Err(Error::invalid("a column gets its new values twice"));
        }
        let rows_go = outputs.is_empty();
        if rows_go {
            columns.extend(0..table.fields().len());
        }
        let fields: Vec<_> = columns.iter().map(|column| table.fields()[*column].clone()).collect();
        let encoder = encoder(Arc::new(Schema::new(fields)));
        Ok(RowChange { columns, encoder, rows_go, changed: Mutex::default() })
    }

    /// Returns the columns that are re-encoded in each row group in which a row passes the filter.
    pub fn columns(&self) -> &[usize] {
        &self.columns
    }

    /// Takes the new row groups that were made so far.
    pub fn take(&self) -> ChangedGroups {
        std::mem::take(&mut self.changed.lock())
    }

    /// Encodes the next column of `group`; `old` must be the same row group with its values in memory. Returns the new
    /// row group after the last column, and `None` before. If no row is left, returns `Some(None)` at once.
    fn encode_next(
        &self,
        group: &RowGroup,
        old: &RowGroup,
        marked: &[u64],
        rewrite: &mut GroupRewrite,
    ) -> Result<Option<Option<RowGroup>>> {
        let marked_count: usize = marked.iter().map(|word| word.count_ones() as usize).sum();
        let rows = if self.rows_go { group.rows - marked_count } else { group.rows };
        if rows == 0 {
            return Ok(Some(None));
        }
        let place = rewrite.chunks.len();
        assert!(place < self.columns.len(), "a row group is made once its last column is encoded");
        let chunk = &group.chunks[self.columns[place]];
        let chunk = match self.rows_go {
            true => self.encoder.encode_without(place, chunk, marked)?,
            false => self.encoder.encode_replaced(place, chunk, marked, &rewrite.values)?,
        };
        rewrite.chunks.push(chunk);
        if rewrite.chunks.len() < self.columns.len() {
            return Ok(None);
        }
        let chunks = std::mem::take(&mut rewrite.chunks);
        self.encoder.replace_columns(old, rows, &self.columns, chunks).map(|changed| Some(Some(changed)))
    }
}

impl GroupRewrite {
    fn new(plan: &Plan) -> Self {
        GroupRewrite {
            state: Some(plan.new_state()),
            values: NewValues::default(),
            reserved: 0,
            chunks: Vec::new(),
        }
    }
}

impl Run {
    /// Creates a run that changes the rows that pass the filter. It replaces the columns that the program computes,
    /// matched by name, or deletes the rows if it computes none. The table itself does not change;
    /// [`Run::take_changed`] returns the outcome.
    ///
    /// # Errors
    /// `Invalid` if the program does not fit the table, or a part of it cannot be executed here.
    pub fn start_changing(
        program: &BoundProgram,
        encoder: impl FnOnce(SchemaRef) -> Encoder,
    ) -> Result<Arc<Self>> {
        let row_change = RowChange::new(program, encoder)?;
        Run::begin(program, RunOutput::Change(row_change))
    }

    /// Takes the outcome of a finished run that [`Run::start_changing`] created; later calls return an empty outcome.
    pub fn take_changed(&self) -> ChangedGroups {
        self.row_change().map(RowChange::take).unwrap_or_default()
    }

    /// Scans rows of a row group, or re-encodes columns of it.
    pub(super) fn change(
        &self,
        row_change: &RowChange,
        mut morsel: Morsel,
        group: &RowGroup,
        table: &Table,
        pace: &mut StepPace<'_>,
    ) -> Result<Step> {
        let mut rewrite = morsel.rewrite.take().unwrap_or_else(|| Box::new(GroupRewrite::new(&self.plan)));
        // The step makes progress in any case: encoding is left to the next step only if this step has scanned rows.
        let mut goes_on = rewrite.state.is_none();
        if let Some(mut state) = rewrite.state.take() {
            let mut batches = Vec::new();
            let mut accept = |batch| {
                batches.push(batch);
                ControlFlow::Continue(())
            };
            let progress = &mut morsel.progress;
            let work = self.plan.process_part(group, progress, &mut state, pace, &mut accept)?;
            self.tally.scanned(work.rows_in, work.bytes_read);
            if progress.is_done() {
                let rest = self.plan.merge(vec![state]);
                (0..rest.tasks()).try_for_each(|task| rest.run(task, &mut accept))?;
            } else {
                rewrite.state = Some(state);
            }
            self.take_values(&mut rewrite, &batches)?;
            goes_on = !pace.ends();
        }
        self.check()?;
        let marked = morsel.progress.marked();
        let has_marks = marked.iter().any(|word| *word != 0);
        let mut is_over = rewrite.state.is_none() && !has_marks;
        while rewrite.state.is_none() && !is_over && goes_on {
            if let Some(made) =
                row_change.encode_next(group, &table.row_groups[morsel.place], marked, &mut rewrite)?
            {
                self.keep_changed(row_change, morsel.place, marked, made)?;
                is_over = true;
            }
            goes_on = !pace.ends();
        }
        if is_over {
            let unused = self.held.lock().reservation.as_mut().map(|all| all.split(rewrite.reserved));
            // Dropped after the lock is released, because freeing memory may wake waiters of other runs.
            drop(unused);
            self.leave_group(group, &morsel.progress);
            self.complete_groups(1);
            return Ok(Step::Worked);
        }
        morsel.rewrite = Some(rewrite);
        let mut held = self.held.lock();
        if let Phase::Stopped(error) = &held.phase {
            return Err(error.clone());
        }
        held.rests.push(morsel);
        Ok(Step::Worked)
    }

    /// Takes the values that the program computed for the rows scanned in this step.
    fn take_values(&self, rewrite: &mut GroupRewrite, batches: &[RecordBatch]) -> Result<()> {
        batches.iter().try_for_each(|batch| rewrite.values.add(batch.columns()))?;
        let wanted = FORMS * rewrite.values.bytes_plain();
        assert!(wanted >= rewrite.reserved, "new values are only added to a row group");
        if let Some(reservation) = &mut self.held.lock().reservation {
            reservation.try_grow(wanted - rewrite.reserved)?;
            rewrite.reserved = wanted;
        }
        Ok(())
    }

    /// Stores the new row group, unless the run was stopped.
    fn keep_changed(
        &self,
        row_change: &RowChange,
        place: usize,
        marked: &[u64],
        made: Option<RowGroup>,
    ) -> Result<()> {
        let rows: u64 = marked.iter().map(|word| u64::from(word.count_ones())).sum();
        let mut held = self.held.lock();
        if let Phase::Stopped(error) = &held.phase {
            return Err(error.clone());
        }
        if let (Some(reservation), Some(group)) = (&mut held.reservation, &made) {
            reservation.try_grow(group.bytes_outside_pool())?;
        }
        let mut changed = row_change.changed.lock();
        changed.rows += rows;
        let before = changed.groups.insert(place, made.map(Arc::new));
        assert!(before.is_none(), "row group {place} was changed twice");
        Ok(())
    }
}

#[cfg(test)]
mod tests;
