//! Processes one row group with a plan, in one or more steps.
//!
//! A *batch* is the rows that operators process at a time, some thousand. A *step* takes as many batches as fit about
//! a millisecond.

use super::operator::{Held, Operator};
use super::{Plan, State, Verdict};
use crate::aggregate::{Memo, Passed};
use crate::lanes::LaneBuffers;
use crate::pace::{Batches, Pace, Passing, Progress, Unpaced};
use crate::project::Emit;
use crate::select::{BoundFilter, Filter};
use farpool_columns::RowGroup;
use farpool_model::schema::is_bytes;
use farpool_model::{Error, Result, cast, limits};

/// Minimum number of rows of a batch that reads strings. Reason: each batch has a fixed cost of some microseconds.
pub(crate) const PART_ROWS: usize = 64;

/// Execution statistics of a row group, or of one step of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Number of rows processed, whether they passed the filter or not.
    pub rows_in: u64,
    /// Number of rows that passed the filter.
    pub rows_passed: u64,
    /// Number of rows that were emitted without being grouped (bypass), because the memory for groups was full and
    /// grouping hardly reduced the number of rows.
    pub rows_bypassed: u64,
    /// Encoded bytes of the column chunks that were read. Each chunk counts in the step that reads it first.
    pub bytes_read: u64,
}

/// Outcome of processing some batches.
#[derive(Default)]
struct Scanned<'a> {
    /// Rows that passed the filter.
    passed: u64,
    bypassed: u64,
    /// Whether zone maps decided everything, so that no column was read.
    unread: bool,
    /// Table columns that were read, without those of the filter.
    columns: &'a [usize],
}

impl Plan {
    /// Processes one row group completely. Result rows are passed to `emit`; after it returns `Break`, no more are
    /// produced.
    ///
    /// # Errors
    /// `Invalid` when an expression fails on a value; `OverLimit` if groups exceed the limit of [`State::set_limit`].
    pub fn process(&self, group: &RowGroup, state: &mut State, emit: &mut Emit<'_>) -> Result<Work> {
        self.process_part(group, &mut Progress::default(), state, &mut Unpaced, emit)
    }

    /// Processes the rest of a row group as far as `pace` allows. `progress` tells where to begin, and is updated.
    /// After `emit` returns `Break`, the row group counts as done.
    ///
    /// # Errors
    /// As [`Plan::process`].
    pub fn process_part(
        &self,
        group: &RowGroup,
        progress: &mut Progress,
        state: &mut State,
        pace: &mut dyn Pace,
        emit: &mut Emit<'_>,
    ) -> Result<Work> {
        let start = progress.row;
        let filter = match self.verdict(group) {
            Verdict::None => {
                progress.skip_rest(group);
                return Ok(Work::of_rows(group.rows - start));
            }
            Verdict::Some => self.filter.as_deref(),
            Verdict::All => None,
        };
        let known = progress.known.clone().filter(|_| filter.is_some());
        let filter = filter.filter(|_| known.is_none());
        if let Some(filter) = filter
            && !filter.ask_dictionaries(group, &mut progress.filter, pace)?
        {
            return Ok(Work::default());
        }
        let bound = filter.map(|filter| filter.bind(group, &progress.filter)).transpose()?;
        let passing = passing(bound.as_ref(), known.as_deref());
        let marks = progress.is_marked.then_some(&mut progress.picked);
        let batches = Batches::new(group, passing, &mut progress.row, pace, self.batch_rows_min(group));
        let mut batches = batches.marking(marks);
        let scanned = self.run(&mut batches, &mut progress.aggregate, state, emit)?;
        let is_at_end = batches.is_at_end();
        progress.is_done = is_at_end && progress.aggregate.is_done();
        drop(bound);
        let filter = filter.filter(|_| !scanned.unread);
        Ok(Work {
            rows_passed: scanned.passed,
            rows_bypassed: scanned.bypassed,
            bytes_read: self.count_bytes(progress, group, filter, scanned.columns),
            ..Work::of_rows(progress.row - start)
        })
    }

    /// Evaluates the filter on as many rows of `group` as `pace` allows. Returns false if all rows were evaluated and
    /// none passes; otherwise true. Only the filter's columns must be in memory.
    ///
    /// # Errors
    /// As [`Plan::process`].
    pub fn may_pass(&self, group: &RowGroup, pace: &mut dyn Pace) -> Result<bool> {
        let Some(filter) = &self.filter else { return Ok(true) };
        let mut progress = Progress::default();
        if !filter.ask_dictionaries(group, &mut progress.filter, pace)? {
            return Ok(true);
        }
        let bound = filter.bind(group, &progress.filter)?;
        let mut buffers = LaneBuffers::default();
        let passing = Passing::Filter(&bound);
        let mut batches = Batches::new(group, passing, &mut progress.row, pace, self.batch_rows_min(group));
        while let Some(selection) = batches.next(&mut buffers)? {
            if selection.count > 0 {
                return Ok(true);
            }
        }
        Ok(!batches.is_at_end())
    }

    /// Processes rows as [`Plan::process_part`] does. But if all result columns are table columns and many rows pass,
    /// these are returned as one row group of encoded chunks, and not passed to `emit`.
    ///
    /// # Errors
    /// Errors of [`Plan::process`].
    pub fn process_encoded(
        &self,
        group: &RowGroup,
        progress: &mut Progress,
        state: &mut State,
        pace: &mut dyn Pace,
        emit: &mut Emit<'_>,
    ) -> Result<(Work, Option<RowGroup>)> {
        let (Some(filter), Operator::Rows(projection), Held::Rows(pending)) =
            (&self.filter, &self.compiled.output, &mut state.held)
        else {
            return Ok((self.process_part(group, progress, state, pace, emit)?, None));
        };
        let (Some(columns), Verdict::Some) = (projection.columns_at_once(), self.verdict(group)) else {
            return Ok((self.process_part(group, progress, state, pace, emit)?, None));
        };
        let known = progress.known.clone();
        let filter = Some(filter).filter(|_| known.is_none());
        if let Some(filter) = filter
            && !filter.ask_dictionaries(group, &mut progress.filter, pace)?
        {
            return Ok((Work::default(), None));
        }
        let start = progress.row;
        let bound = filter.map(|filter| filter.bind(group, &progress.filter)).transpose()?;
        let passing = passing(bound.as_ref(), known.as_deref());
        let batches = Batches::new(group, passing, &mut progress.row, pace, self.batch_rows_min(group));
        let mut batches = batches.marking(Some(&mut progress.picked));
        let mut passed = 0;
        while let Some(selection) = batches.next(&mut state.buffers)? {
            passed += selection.count;
        }
        let is_at_end = batches.is_at_end();
        drop(bound);
        let read = if passed > 0 { self.compiled.output.columns() } else { &[] };
        let work = Work {
            rows_passed: cast::u64_from(passed),
            bytes_read: self.count_bytes(progress, group, filter.map(|filter| &**filter), read),
            ..Work::of_rows(progress.row - start)
        };
        if !is_at_end {
            return Ok((work, None));
        }
        let encoded = if progress.picked.are_many(group) {
            progress.picked.pick(group, &columns, pace)?
        } else {
            let mut selections = progress.picked.selections(group);
            // Both outcomes of `emit` are the end of the row group, so that `Break` needs no handling.
            let _ = projection.push_all(group, || Ok(selections.next()), pending, emit)?;
            progress.is_done = true;
            None
        };
        progress.is_done |= encoded.is_some();
        Ok((work, encoded))
    }

    fn run(
        &self,
        batches: &mut Batches<'_>,
        memo: &mut Memo,
        state: &mut State,
        emit: &mut Emit<'_>,
    ) -> Result<Scanned<'_>> {
        let State { buffers, held } = state;
        let of_passed = |passed: u64| if passed > 0 { self.compiled.output.columns() } else { &[] };
        match (&self.compiled.output, held) {
            (Operator::Rows(projection), Held::Rows(pending)) => {
                let group = batches.group;
                let (passed, flow) = projection.push_all(group, || batches.next(buffers), pending, emit)?;
                if flow.is_break() {
                    batches.skip_rest();
                }
                Ok(Scanned { passed, columns: of_passed(passed), ..Scanned::default() })
            }
            (Operator::Aggregate(grouping), Held::Aggregate(partial)) => {
                let aggregation = grouping.aggregation();
                let run = |emit: &mut Emit<'_>| aggregation.run(batches, memo, buffers, partial, emit);
                let Passed { rows, bypassed, unread } = grouping.completing(emit, run)?;
                let columns = if unread { &[] } else { of_passed(rows) };
                Ok(Scanned { passed: rows, bypassed, unread, columns })
            }
            (Operator::Top(top), Held::Top(candidates)) => {
                let (passed, columns) = top.run(batches, buffers, candidates)?;
                Ok(Scanned { passed, columns, ..Scanned::default() })
            }
            _ => Err(Error::internal("the state of another plan")),
        }
    }

    /// Returns the minimum number of rows of a batch of `group`. With string columns it is less than a block: a string
    /// may take long to process, so that a whole block would be too much for a step. Kernels for numbers process whole
    /// blocks in any case.
    fn batch_rows_min(&self, group: &RowGroup) -> usize {
        let of_filter = self.filter.as_deref().map_or(&[][..], Filter::columns);
        let mut columns = of_filter.iter().chain(self.compiled.output.columns());
        match columns.any(|column| is_bytes(group.chunks[*column].data_type())) {
            true => PART_ROWS,
            false => limits::BLOCK_ROWS,
        }
    }

    /// Returns the encoded bytes of `columns` and of the filter's columns, without the columns that an earlier step
    /// over the same row group has counted.
    fn count_bytes(
        &self,
        progress: &mut Progress,
        group: &RowGroup,
        filter: Option<&Filter>,
        columns: &[usize],
    ) -> u64 {
        let of_filter = filter.map_or(&[][..], Filter::columns);
        progress.read(group, columns.iter().chain(of_filter))
    }
}

/// Returns the rows of a row group that pass: those whose bit is set in `known` if that is given, otherwise those
/// that `filter` selects, or all rows without a filter.
fn passing<'a>(filter: Option<&'a BoundFilter<'a>>, known: Option<&'a [u64]>) -> Passing<'a> {
    match (known, filter) {
        (Some(known), _) => Passing::Known(known),
        (None, Some(filter)) => Passing::Filter(filter),
        (None, None) => Passing::All,
    }
}

impl Work {
    fn of_rows(rows: usize) -> Work {
        Work { rows_in: cast::u64_from(rows), ..Work::default() }
    }
}
