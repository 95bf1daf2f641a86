//! What happens when the groups of a worker outgrow its memory (Ibex, sections 4 and 5: bypass tuples).
//!
//! The worker lets all its groups go as partial results and begins anew: in sorted or clustered input that
//! ends groups that are complete or nearly so, where a table that keeps what came first would fill up once
//! and let everything later pass by. When a table that filled up shows that there are about as many groups
//! as rows, grouping is given up for a while and each row leaves as a group of its own; then it is tried
//! again, for the input may have changed.
//!
//! Invariant: the partial results and single rows that leave, merged by key (counts and sums by adding,
//! extremes by comparing), are the result.

use super::compile::{Accumulator, Aggregation};
use super::general::Partial;
use super::merge::give;
use super::store::Store;
use crate::failure;
use crate::project::Emit;
use crate::selection::Selection;
use arrow_array::types::{Float32Type, Float64Type};
use arrow_array::{Array, ArrayRef, RecordBatch, cast::AsArray};
use arrow_schema::DataType;
use farpool_columns::RowGroup;
use farpool_model::Result;
use farpool_model::cast::{u32_checked, u64_from};
use std::sync::Arc;

/// A table that was filled by fewer rows per group than this (as a fraction) hardly reduces.
const ROWS_PER_GROUP_MIN: (u64, u64) = (5, 4);

/// How many times as many rows as filled the table pass by before grouping is tried again: what is lost by
/// trying stays small.
const BYPASS_FACTOR: u64 = 16;

/// How a worker keeps within its memory.
#[derive(Debug)]
pub(super) struct Spill {
    /// Bytes that the groups may take.
    pub(super) room: usize,
    /// Rows since the table was empty.
    pub(super) rows: u64,
    /// Rows that pass by before the next attempt at grouping.
    pub(super) bypass: u64,
}

impl Default for Spill {
    fn default() -> Self {
        Spill { room: usize::MAX, rows: 0, bypass: 0 }
    }
}

impl Aggregation {
    /// Lets the groups go if they take more than their room; says whether it did.
    ///
    /// # Errors
    /// `Invalid` when a sum does not fit its type.
    pub(super) fn spill(&self, partial: &mut Partial, emit: &mut Emit<'_>) -> Result<bool> {
        if partial.group_bytes() <= partial.spill.room || self.keys.is_empty() || partial.is_empty() {
            return Ok(false);
        }
        let all: Vec<u32> = (0..u32_checked(partial.groups.len())).collect();
        let _ = give(self, &partial.groups, &partial.stores, &all, emit)?;
        let mut groups = all.len();
        if let (Some(radix), Some(shape)) = (&mut partial.radix, &self.radix) {
            groups += radix.give(self, shape, emit)?;
        }
        let (rows, per) = ROWS_PER_GROUP_MIN;
        if u64_from(groups) * rows > partial.spill.rows * per {
            partial.spill.bypass = partial.spill.rows * BYPASS_FACTOR;
        }
        partial.spill.rows = 0;
        partial.groups = self.groups();
        partial.stores = self.stores();
        Ok(true)
    }

    /// Lets the selected rows of a batch go, each as a group of its own.
    ///
    /// # Errors
    /// `Invalid` when an expression fails on one of them.
    pub(super) fn bypass(&self, group: &RowGroup, selection: &Selection, emit: &mut Emit<'_>) -> Result<()> {
        let frame = selection.frame(group, &self.columns)?;
        let rows: Vec<u32> = (0..u32_checked(selection.count)).collect();
        let key = |key: &super::compile::Key| key.compiled.array(&frame).map(|array| one_zero(&array));
        let mut arrays = self.keys.iter().map(key).collect::<Result<Vec<ArrayRef>>>()?;
        let mut stores = self.stores();
        stores.iter_mut().for_each(|store| store.resize(selection.count));
        let masks = self.condition_masks(&frame)?;
        self.add_arrays(&frame, Some(&rows), &masks, &mut stores, |_| true)?;
        arrays.extend(self.finish(&stores, &rows)?);
        let batch = RecordBatch::try_new(self.schema.clone(), arrays).map_err(failure::of_kernel)?;
        // Whether more is wanted shows at the end of the row group.
        let _ = emit(batch);
        Ok(())
    }

    /// An accumulator each, without groups.
    pub(super) fn stores(&self) -> Vec<Store> {
        let store = |(a, present): (&Accumulator, &bool)| {
            if *present { Store::Present } else { Store::new(a.kind, self.argument_type(a)) }
        };
        self.accumulators.iter().zip(&self.present).map(store).collect()
    }
}

/// The keys as tables of groups give them: -0.0 is 0.0.
fn one_zero(keys: &ArrayRef) -> ArrayRef {
    match keys.data_type() {
        DataType::Float32 => {
            Arc::new(keys.as_primitive::<Float32Type>().unary::<_, Float32Type>(|v| v + 0.0))
        }
        DataType::Float64 => {
            Arc::new(keys.as_primitive::<Float64Type>().unary::<_, Float64Type>(|v| v + 0.0))
        }
        _ => Arc::clone(keys),
    }
}
