//! What happens when the groups of a worker outgrow its memory (Ibex, sections 4 and 5: bypass tuples).
//!
//! The worker lets all its groups go as partial results and begins anew: in sorted or clustered input that
//! ends groups that are complete or nearly so, where a table that keeps what came first would fill up once
//! and let everything later pass by. When a table that filled up shows that there are about as many groups
//! as rows, grouping is given up for a while and each row leaves as a group of its own; then it is tried
//! again, for the input may have changed.
//!
//! Invariant: the partial results and single rows that leave, merged by key (counts and sums by adding,
//! values by folding), are the result.

use super::aggregation::Key;
use super::fitted::FittedAggregation;
use super::give::give;
use super::partial::Partial;
use super::radix::Radix;
use super::store::Store;
use crate::failure;
use crate::group::Groups;
use crate::pace::Pace;
use crate::project::Emit;
use crate::selection::Selection;
use arrow_array::types::{Float32Type, Float64Type};
use arrow_array::{Array, ArrayRef, RecordBatch, cast::AsArray};
use arrow_schema::DataType;
use farpool_columns::RowGroup;
use farpool_model::cast::{u32_checked, u64_from};
use farpool_model::{Result, limits};
use std::fmt;
use std::sync::Arc;

/// A table that was filled by fewer rows per group than this (as a fraction) hardly reduces.
const ROWS_PER_GROUP_MIN: (u64, u64) = (5, 4);

/// How many times as many rows as filled the table pass by before grouping is tried again: what is lost by
/// trying stays small.
const BYPASS_FACTOR: u64 = 16;

/// Groups that a worker lets go, over as many steps as that takes. They go with the row group whose rows were too
/// many, which is not done before they are gone.
pub(crate) struct Leaving {
    groups: Groups,
    stores: Vec<Store>,
    radix: Option<Radix>,
    /// How many of `groups` are gone.
    given: usize,
    /// Rows that made them.
    rows: u64,
}

impl fmt::Debug for Leaving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leaving")
            .field("given", &self.given)
            .field("rows", &self.rows)
            .finish_non_exhaustive()
    }
}

impl FittedAggregation {
    /// Takes the groups of a worker that take more than their room; they leave by [`FittedAggregation::let_go`].
    pub(super) fn spill(&self, partial: &mut Partial) -> Option<Leaving> {
        if partial.group_bytes() <= partial.spill.room
            || self.aggregation.keys.is_empty()
            || partial.is_empty()
        {
            return None;
        }
        let radix = partial.radix.as_mut().zip(self.radix.as_ref());
        Some(Leaving {
            groups: std::mem::replace(&mut partial.groups, self.aggregation.groups()),
            stores: std::mem::replace(&mut partial.stores, self.aggregation.stores()),
            radix: radix.map(|(radix, shape)| std::mem::replace(radix, Radix::new(shape))),
            given: 0,
            rows: std::mem::take(&mut partial.spill.rows),
        })
    }

    /// Lets groups go that a worker had no room for; false if the step is over before all are gone.
    ///
    /// # Errors
    /// `Invalid` when a sum does not fit its type.
    pub(super) fn let_go(
        &self,
        leaving: &mut Option<Leaving>,
        partial: &mut Partial,
        pace: &mut dyn Pace,
        emit: &mut Emit<'_>,
    ) -> Result<bool> {
        let Some(Leaving { groups, stores, radix, given, rows }) = leaving else { return Ok(true) };
        while *given < groups.len() {
            let end = groups.len().min(*given + limits::BATCH_ROWS);
            let wanted: Vec<u32> = (u32_checked(*given)..u32_checked(end)).collect();
            *given = end;
            // Whether more is wanted shows at the end of the row group.
            let _ = give(&self.aggregation, groups, stores, &wanted, emit)?;
            if pace.ends() {
                return Ok(false);
            }
        }
        let mut all = *given;
        if let (Some(radix), Some(shape)) = (radix, &self.radix) {
            if !radix.give(&self.aggregation, shape, pace, emit)? {
                return Ok(false);
            }
            all += radix.given();
        }
        let (many, per) = ROWS_PER_GROUP_MIN;
        // A row that passes by as a group of its own takes a whole state.
        if self.aggregation.states.is_empty() && u64_from(all) * many > *rows * per {
            partial.spill.bypass = *rows * BYPASS_FACTOR;
        }
        *leaving = None;
        Ok(true)
    }

    /// Lets the selected rows of a batch go, each as a group of its own.
    ///
    /// # Errors
    /// `Invalid` when an expression fails on one of them.
    pub(super) fn bypass(&self, group: &RowGroup, selection: &Selection, emit: &mut Emit<'_>) -> Result<()> {
        let asked = &self.aggregation;
        let frame = selection.frame(group, &asked.columns)?;
        let rows: Vec<u32> = (0..u32_checked(selection.count)).collect();
        let key = |key: &Key| key.compiled.array(&frame).map(|array| one_zero(&array));
        let mut arrays = asked.keys.iter().map(key).collect::<Result<Vec<ArrayRef>>>()?;
        let mut stores = asked.stores();
        stores.iter_mut().for_each(|store| store.resize(selection.count));
        let masks = asked.condition_masks(&frame)?;
        asked.add_arrays(&frame, Some(&rows), &masks, &mut stores, |_| true)?;
        arrays.extend(asked.finish(&stores, &rows)?);
        let batch = RecordBatch::try_new(asked.schema.clone(), arrays).map_err(failure::of_kernel)?;
        // Whether more is wanted shows at the end of the row group.
        let _ = emit(batch);
        Ok(())
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
