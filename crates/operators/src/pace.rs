//! How far one step goes: the batches that it takes from a row group, and what it leaves for the next step.
//!
//! Invariant: the result does not depend on where steps end. Whatever a row group's rows have in common and is
//! costly to compute is kept in its [`Progress`], so that it is computed once however many steps there are.

use crate::aggregate::Memo;
use crate::bits;
use crate::lanes::LaneBuffers;
use crate::select::{BoundFilter, FilterMemo};
use crate::selection::Selection;
use farpool_columns::{Chunk, RowGroup};
use farpool_model::{Result, cast, limits};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Decides how much work one step does.
pub trait Pace {
    /// How many of the `left` rows of the row group the next batch may have; 0 ends the step. Rounded up to
    /// what a batch has at least and to whole blocks, if it is more than one, and down to [`limits::BATCH_ROWS`].
    fn rows(&mut self, left: usize) -> usize;

    /// Whether the step ends here, between two pieces of work that are not batches of rows.
    fn ends(&mut self) -> bool;
}

/// Whole row groups, in batches of [`limits::BATCH_ROWS`].
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

/// What has been done of one row group. Whichever worker goes on, with whichever [`State`](crate::State).
#[derive(Debug, Default)]
pub struct Progress {
    /// The rows before this one are done.
    pub(crate) row: usize,
    pub(crate) is_done: bool,
    /// Columns whose bytes were counted, and how many bytes those are.
    columns_read: BTreeSet<usize>,
    bytes_read: u64,
    pub(crate) filter: FilterMemo,
    pub(crate) aggregate: Memo,
    pub(crate) picked: Picked,
    /// Whether it is to be noted which rows pass.
    pub(crate) is_marked: bool,
}

/// The part of a row group that leaves encoded.
#[derive(Debug, Default)]
pub(crate) struct Picked {
    /// A bit for each row that was looked at.
    pub(crate) selected: Vec<u64>,
    pub(crate) chunks: Vec<Arc<Chunk>>,
}

impl Progress {
    /// Nothing is done yet, and it is to be noted which rows pass; for plans whose result are rows.
    pub fn marking() -> Progress {
        Progress { is_marked: true, ..Progress::default() }
    }

    /// A bit for each row that is done, set for those that passed; bit 0 is row 0.
    pub fn marked(&self) -> &[u64] {
        &self.picked.selected
    }

    /// Whether nothing is left to do.
    pub fn is_done(&self) -> bool {
        self.is_done
    }

    /// Rows that are done.
    pub fn rows(&self) -> usize {
        self.row
    }

    /// Encoded bytes that were read so far, each column's once.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    /// Nothing of the rest is wanted.
    pub(crate) fn skip_rest(&mut self, group: &RowGroup) {
        self.row = group.rows;
        self.is_done = true;
    }

    /// Counts the columns that were not counted before; their encoded bytes.
    pub(crate) fn read<'c>(&mut self, group: &RowGroup, columns: impl IntoIterator<Item = &'c usize>) -> u64 {
        let fresh = columns.into_iter().filter(|column| self.columns_read.insert(**column));
        let bytes = fresh.map(|column| cast::u64_from(group.chunks[*column].bytes_encoded())).sum();
        self.bytes_read += bytes;
        bytes
    }
}

/// The batches of a row group that one step takes.
pub(crate) struct Batches<'a> {
    pub(crate) group: &'a RowGroup,
    pub(crate) filter: Option<&'a BoundFilter<'a>>,
    pub(crate) pace: &'a mut dyn Pace,
    row: &'a mut usize,
    /// Rows that a batch has at least.
    rows_min: usize,
}

impl<'a> Batches<'a> {
    /// The batches from `row` on, of the rows that pass `filter`, at least `rows_min` in each if there are as many
    /// left of a block.
    pub(crate) fn new(
        group: &'a RowGroup,
        filter: Option<&'a BoundFilter<'a>>,
        row: &'a mut usize,
        pace: &'a mut dyn Pace,
        rows_min: usize,
    ) -> Self {
        Batches { group, filter, pace, row, rows_min }
    }

    /// The selected rows of the next batch; `None` when the row group or the step is over.
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
        match self.filter {
            Some(filter) => filter.select(&all, buffers).map(Some),
            None => Ok(Some(all)),
        }
    }

    /// The next `rows` rows, rounded. Batches start on blocks, so that a part of a block is some rows of all of it.
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

    /// Nobody wants the rest of the row group.
    pub(crate) fn skip_rest(&mut self) {
        *self.row = self.group.rows;
    }

    /// Whether all rows of the row group were given.
    pub(crate) fn is_at_end(&self) -> bool {
        *self.row == self.group.rows
    }
}
