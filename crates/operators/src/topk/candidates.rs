//! Candidates of a top-k (`ORDER BY … LIMIT k`): the rows of one worker thread that may still be among the first
//! k.
//!
//! Invariant: candidates of earlier steps have all their columns. Those of the current step have only their sort keys
//! and their row numbers, and get the other columns when the step ends.

use super::threshold::Threshold;
use super::{Top, picked};
use crate::failure;
use arrow_array::{Array, ArrayRef, RecordBatch, UInt32Array};
use arrow_schema::SchemaRef;
use arrow_select::concat::{concat, concat_batches};
use arrow_select::take::take;
use farpool_model::{Result, cast};
use std::sync::Arc;

/// Minimum number of candidates for reducing them to the first k. Reason: each reduction takes some microseconds.
const WAITING_ROWS_MIN: usize = 1024;

/// Candidates of one worker for the first k rows.
pub(crate) struct Candidates {
    pub(super) threshold: Arc<Threshold>,
    pub(super) held: Vec<RecordBatch>,
    /// Values of each sort key for the candidates of the current step, in one or more arrays per sort key.
    pub(super) keys: Vec<Vec<ArrayRef>>,
    /// Row numbers of the candidates of the current step, within the current row group.
    pub(super) rows: Vec<u32>,
}

impl Candidates {
    pub(super) fn new(top: &Top, threshold: Arc<Threshold>) -> Self {
        let keys = vec![Vec::new(); top.order.len()];
        Candidates { threshold, held: Vec::new(), keys, rows: Vec::new() }
    }

    /// Returns the bytes of memory that the candidates take.
    pub(crate) fn bytes(&self) -> usize {
        let held: usize = self.held.iter().map(RecordBatch::get_array_memory_size).sum();
        let keys: usize = self.keys.iter().flatten().map(|array| array.get_array_memory_size()).sum();
        held + keys + self.rows.capacity() * size_of::<u32>()
    }

    /// Returns the candidates. Must be called after the last row group, when all of them have all their columns.
    pub(crate) fn into_rows(self) -> Vec<RecordBatch> {
        self.held
    }

    fn held_rows(&self) -> usize {
        self.held.iter().map(RecordBatch::num_rows).sum()
    }

    /// Returns whether there are so many candidates that reducing them to the first k is worth its cost.
    pub(super) fn is_full(&self, top: &Top) -> bool {
        self.held_rows() + self.rows.len() >= (2 * top.rows).max(WAITING_ROWS_MIN)
    }

    /// Reduces the candidates to the first k rows. Returns the values of the first sort key, and the position among
    /// them of the k-th row; `None` if there were fewer than k candidates.
    pub(super) fn cut(&mut self, top: &Top, schema: &SchemaRef) -> Result<Option<(ArrayRef, usize)>> {
        let held_rows = self.held_rows();
        if self.rows.is_empty() || held_rows + self.rows.len() < top.rows {
            return Ok(None);
        }
        let keys = self.all_keys(top)?;
        let mut first = top.first_unsorted(&keys)?;
        let last = first[first.len() - 1] as usize;
        // Row numbers are sorted, so that chunks are read from front to back.
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

    /// Returns the values of each sort key for all candidates, those of `held` first.
    fn all_keys(&self, top: &Top) -> Result<Vec<ArrayRef>> {
        let of_key = |(key, pieces): (&farpool_model::SortKey, &Vec<ArrayRef>)| {
            let held = self.held.iter().map(|batch| batch.column(key.column));
            let all: Vec<&dyn Array> = held.chain(pieces).map(|array| array.as_ref()).collect();
            concat(&all).map_err(failure::of_kernel)
        };
        top.order.iter().zip(&self.keys).map(of_key).collect()
    }

    /// Takes the candidates of the current step: one array per sort key, and the row numbers.
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
