//! Processing of a row group in steps: which batches of rows a step takes, and the state that it leaves for the
//! next step. A step is the work that a worker thread does at a time, usually about a millisecond.
//!
//! Invariant: the result does not depend on where steps end. Results that are costly and equal for all rows of a row
//! group (such as those of a filter on the dictionary) are kept in its [`Progress`], so that they are computed only
//! once for all steps.

use crate::aggregate::Memo;
use crate::bits;
use crate::lanes::LaneBuffers;
use crate::select::{BoundFilter, FilterMemo};
use crate::selection::Selection;
use farpool_columns::{Chunk, RowGroup};
use farpool_model::{Result, cast, limits};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Decides when a step ends, so that a worker can turn to other work.
pub trait Pace {
    /// Returns how many rows the next batch may have, given that `left` rows of the row group are left; 0 ends the
    /// step. The caller rounds the number up to the minimum size of a batch and, above one block, to whole blocks, and
    /// then down to [`limits::BATCH_ROWS`].
    fn rows(&mut self, left: usize) -> usize;

    /// Returns whether the step ends here. Called between pieces of work that are not batches of rows.
    fn ends(&mut self) -> bool;
}

/// A pace that never ends a step: whole row groups, in batches of [`limits::BATCH_ROWS`].
#[derive(Clone, Copy, Debug)]
pub struct Unpaced;

impl Pace for Unpaced {
    fn rows(&mut self, left: usize) -> usize {
        left
    }

    fn ends(&mut self) -> bool {
        false
    }
}

/// State of processing one row group. Any worker may continue from it, with any [`State`](crate::State) of the same
/// plan.
#[derive(Debug, Default)]
pub struct Progress {
    /// Index of the next row; the rows before it are done.
    pub(crate) row: usize,
    pub(crate) is_done: bool,
    /// Columns whose bytes are counted in `bytes_read` already.
    columns_read: BTreeSet<usize>,
    bytes_read: u64,
    pub(crate) filter: FilterMemo,
    pub(crate) aggregate: Memo,
    pub(crate) picked: Picked,
    /// Whether to record which rows pass the filter.
    pub(crate) is_marked: bool,
    /// Bitmap of the rows that pass the filter; `None` if it was not known before the first step of the row group.
    pub(crate) known: Option<Arc<[u64]>>,
}

/// Rows of a row group that passed the filter, and the columns copied for them so far, for a result of encoded chunks.
#[derive(Debug, Default)]
pub(crate) struct Picked {
    /// Bitmap of the rows processed so far, with the bits of those set that passed the filter.
    pub(crate) selected: Vec<u64>,
    pub(crate) chunks: Vec<Arc<Chunk>>,
    /// Whether some rows were skipped: their bits are clear although the filter was not evaluated on them.
    has_skipped: bool,
}

impl Progress {
    /// Returns the progress of a new row group that records which rows pass the filter.
    pub fn marking() -> Progress {
        Progress { is_marked: true, ..Progress::default() }
    }

    /// Returns the progress of a new row group for which it is already known which rows pass the filter: those whose
    /// bit in `passing` is set.
    pub fn knowing(passing: Arc<[u64]>) -> Progress {
        Progress { known: Some(passing), ..Progress::default() }
    }

    /// Returns whether it was known before the first step that no row passes the filter.
    pub fn is_ruled_out(&self) -> bool {
        self.known.as_ref().is_some_and(|passing| passing.iter().all(|word| *word == 0))
    }

    /// Returns whether it was known before the first step which rows pass the filter.
    pub fn is_known(&self) -> bool {
        self.known.is_some()
    }

    /// Returns a bitmap of the rows of `group` that pass the filter; `None` unless all rows were processed and
    /// recorded.
    pub fn passing(&self, group: &RowGroup) -> Option<Arc<[u64]>> {
        let is_whole = self.is_done && self.is_marked && !self.picked.has_skipped;
        let selected = &self.picked.selected;
        (is_whole && selected.len() == bits::words(group.rows)).then(|| Arc::from(&selected[..]))
    }

    /// Returns the recorded bitmap so far: a bit for each row that is done, set if it passed the filter; bit 0 is row
    /// 0.
    pub fn marked(&self) -> &[u64] {
        &self.picked.selected
    }

    /// Returns whether the row group is done.
    pub fn is_done(&self) -> bool {
        self.is_done
    }

    /// Returns the number of rows processed.
    pub fn rows(&self) -> usize {
        self.row
    }

    /// Returns the encoded bytes read so far, those of each column counted once.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    /// Marks the row group as done without processing its remaining rows.
    pub(crate) fn skip_rest(&mut self, group: &RowGroup) {
        self.row = group.rows;
        self.is_done = true;
    }

    /// Records that `columns` were read; returns the encoded bytes of those that were not recorded before.
    pub(crate) fn read<'c>(&mut self, group: &RowGroup, columns: impl IntoIterator<Item = &'c usize>) -> u64 {
        let fresh = columns.into_iter().filter(|column| self.columns_read.insert(**column));
        let bytes = fresh.map(|column| cast::u64_from(group.chunks[*column].bytes_encoded())).sum();
        self.bytes_read += bytes;
        bytes
    }
}

/// The rows of a row group that pass the filter.
#[derive(Clone, Copy)]
pub(crate) enum Passing<'a> {
    All,
    /// Rows that the filter selects.
    Filter(&'a BoundFilter<'a>),
    /// Rows whose bit is set; bit 0 is row 0.
    Known(&'a [u64]),
}

/// Iterator over the batches of a row group that one step processes.
pub(crate) struct Batches<'a> {
    pub(crate) group: &'a RowGroup,
    pub(crate) pace: &'a mut dyn Pace,
    passing: Passing<'a>,
    row: &'a mut usize,
    /// Bitmap in which passing rows are recorded; `None` if they are not recorded.
    marks: Option<&'a mut Picked>,
    /// Minimum number of rows of a batch.
    rows_min: usize,
}

impl<'a> Batches<'a> {
    /// Creates an iterator over the batches from `row` on. A batch has at least `rows_min` rows, unless fewer are left
    /// in its block.
    pub(crate) fn new(
        group: &'a RowGroup,
        passing: Passing<'a>,
        row: &'a mut usize,
        pace: &'a mut dyn Pace,
        rows_min: usize,
    ) -> Self {
        Batches { group, pace, passing, row, marks: None, rows_min }
    }

    /// Sets the bitmap in which passing rows are recorded.
    pub(crate) fn marking(self, marks: Option<&'a mut Picked>) -> Self {
        Batches { marks, ..self }
    }

    /// Returns whether all rows pass.
    pub(crate) fn pass_all(&self) -> bool {
        matches!(self.passing, Passing::All)
    }

    /// Returns the selected rows of the next batch; `None` at the end of the row group or of the step.
    ///
    /// # Errors
    /// `Invalid` when the filter fails on a row.
    pub(crate) fn next(&mut self, buffers: &mut LaneBuffers) -> Result<Option<Selection>> {
        let left = self.group.rows - *self.row;
        let rows = if left > 0 { self.pace.rows(left) } else { 0 };
        if rows == 0 {
            return Ok(None);
        }
        let all = self.take(rows.max(self.rows_min));
        let selection = match self.passing {
            Passing::Filter(filter) => filter.select(&all, buffers)?,
            Passing::Known(passing) => all.within(passing),
            Passing::All => all,
        };
        if let Some(marks) = &mut self.marks {
            marks.add(&selection);
        }
        Ok(Some(selection))
    }

    /// Takes about `rows` rows, rounded as [`Pace::rows`] says. The range of the result always starts on a block: part
    /// of a block is the whole block with only that part selected.
    fn take(&mut self, rows: usize) -> Selection {
        let row = *self.row;
        let block = row - row % limits::BLOCK_ROWS;
        let end = |rows: usize| self.group.rows.min(block + rows);
        if row == block && rows >= limits::BLOCK_ROWS {
            *self.row = end(rows.min(limits::BATCH_ROWS).next_multiple_of(limits::BLOCK_ROWS));
            return Selection::all(row..*self.row);
        }
        let range = block..end(limits::BLOCK_ROWS);
        *self.row = range.end.min(row + rows);
        let taken = row - block..*self.row - block;
        let bits = bits::collect(range.len(), |row| taken.contains(&row));
        Selection::new(range, bits)
    }

    /// Skips the rest of the row group.
    pub(crate) fn skip_rest(&mut self) {
        if let Some(marks) = &mut self.marks {
            marks.has_skipped |= *self.row < self.group.rows;
        }
        *self.row = self.group.rows;
    }

    /// Returns whether all rows of the row group were taken.
    pub(crate) fn is_at_end(&self) -> bool {
        *self.row == self.group.rows
    }
}
