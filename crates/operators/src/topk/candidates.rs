//! The rows of one worker that are among the first so far.
//!
//! Invariant: rows of row groups that are done are whole; those of the row group that is being scanned are
//! keys and row numbers, and get the rest before it goes.

use super::threshold::Threshold;
use super::{Top, picked};
use crate::failure;
use arrow_array::{Array, ArrayRef, RecordBatch, UInt32Array};
use arrow_schema::SchemaRef;
use arrow_select::concat::{concat, concat_batches};
use arrow_select::take::take;
use farpool_model::{Result, cast};
use std::sync::Arc;

/// Rows that wait, at least, before the candidates are cut: each cut costs some microseconds.
const WAITING_ROWS_MIN: usize = 1024;

/// See the file's comment.
pub(crate) struct Candidates {
    pub(super) threshold: Arc<Threshold>,
    pub(super) held: Vec<RecordBatch>,
    /// Of the current row group: for each key of the order its values, in pieces.
    pub(super) keys: Vec<Vec<ArrayRef>>,
    /// Of the current row group: the row of each of those values.
    pub(super) rows: Vec<u32>,
}

impl Candidates {
    pub(super) fn new(top: &Top, threshold: Arc<Threshold>) -> Self {
        let keys = vec![Vec::new(); top.order.len()];
        Candidates { threshold, held: Vec::new(), keys, rows: Vec::new() }
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        let held: usize = self.held.iter().map(RecordBatch::get_array_memory_size).sum();
        let keys: usize = self.keys.iter().flatten().map(|array| array.get_array_memory_size()).sum();
        held + keys + self.rows.capacity() * size_of::<u32>()
    }

    /// The rows, when all row groups are done.
    pub(crate) fn into_rows(self) -> Vec<RecordBatch> {
        self.held
    }

    fn held_rows(&self) -> usize {
        self.held.iter().map(RecordBatch::num_rows).sum()
    }

    /// Whether enough rows wait that a cut pays.
    pub(super) fn is_full(&self, top: &Top) -> bool {
        self.held_rows() + self.rows.len() >= (2 * top.rows).max(WAITING_ROWS_MIN)
    }

    /// Keeps the first rows; the last of them, if there are as many as wanted: its first key, and where.
    pub(super) fn cut(&mut self, top: &Top, schema: &SchemaRef) -> Result<Option<(ArrayRef, usize)>> {
        let held_rows = self.held_rows();
        if self.rows.is_empty() || held_rows + self.rows.len() < top.rows {
            return Ok(None);
        }
        let keys = self.all_keys(top)?;
        let mut first = top.first_unsorted(&keys)?;
        let last = first[first.len() - 1] as usize;
        // Ascending, so that chunks are read from front to back.
        first.sort_unstable();
        let held_kept = first.partition_point(|at| (*at as usize) < held_rows);
        if held_kept < held_rows {
            let held = concat_batches(schema, &self.held).map_err(failure::of_kernel)?;
            let kept = UInt32Array::from(first[..held_kept].to_vec());
            self.held = vec![picked(&held, &kept)?];
        }
        let kept = UInt32Array::from(first[held_kept..].to_vec());
        for (pieces, whole) in self.keys.iter_mut().zip(&keys) {
            *pieces = vec![take(whole, &kept, None).map_err(failure::of_kernel)?];
        }
        let offset = cast::u32_checked(held_rows);
        self.rows = kept.values().iter().map(|at| self.rows[(at - offset) as usize]).collect();
        Ok(Some((keys[0].clone(), last)))
    }

    /// The keys of all candidates, held ones first.
    fn all_keys(&self, top: &Top) -> Result<Vec<ArrayRef>> {
        let of_key = |(key, pieces): (&farpool_model::SortKey, &Vec<ArrayRef>)| {
            let held = self.held.iter().map(|batch| batch.column(key.column));
            let all: Vec<&dyn Array> = held.chain(pieces).map(|array| array.as_ref()).collect();
            concat(&all).map_err(failure::of_kernel)
        };
        top.order.iter().zip(&self.keys).map(of_key).collect()
    }

    /// The keys of the current row group, in one piece each, and its rows; nothing of it stays here.
    pub(super) fn take_fresh(&mut self) -> Result<(Vec<ArrayRef>, Vec<u32>)> {
        let whole = |pieces: &mut Vec<ArrayRef>| {
            let pieces = std::mem::take(pieces);
            let pieces: Vec<&dyn Array> = pieces.iter().map(|array| array.as_ref()).collect();
            concat(&pieces).map_err(failure::of_kernel)
        };
        let keys = self.keys.iter_mut().map(whole).collect::<Result<_>>()?;
        Ok((keys, std::mem::take(&mut self.rows)))
    }
}
