//! Spilling: what happens when the groups of a worker exceed its memory limit (Woods et al., *Ibex*, PVLDB 2014,
//! sections 4 and 5: bypass tuples).
//!
//! The worker emits all its groups as partial results and continues with an empty hash table. In sorted or clustered
//! input, these groups are complete or nearly so. If a worker instead kept its first groups, the table would be full
//! from then on, and all later rows would bypass it. If the table had about as many groups as rows when it was full,
//! grouping is suspended for a while, and each row is emitted as a group of its own. Then grouping is tried again,
//! because the input may have changed.
//!
//! Invariant: the emitted groups and rows give the result when they are merged by group key (counts and sums by adding,
//! other values by folding).

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

/// Minimum ratio of rows to groups, when the memory is full, for grouping to be worth its cost.
const ROWS_PER_GROUP_MIN: (u64, u64) = (5, 4);

/// Number of rows that bypass grouping before it is tried again, as a multiple of the rows that filled the table.
/// Reason: it limits the cost of trying in vain.
const BYPASS_FACTOR: u64 = 16;

/// Groups that are being emitted early, in as many steps as needed. The row group whose rows exceeded the memory limit
/// is not done before all of them are emitted.
pub(crate) struct Leaving {
    groups: Groups,
    stores: Vec<Store>,
    radix: Option<Radix>,
    /// Number of `groups` that were emitted.
    given: usize,
    /// Number of rows in these groups.
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
    /// Takes all groups of a worker if they exceed its memory limit; otherwise returns `None`.
    /// [`FittedAggregation::let_go`] emits them.
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

    /// Emits the groups of `leaving`. Returns false if the step ends before all are emitted.
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
            // If `emit` returns `Break`, that is noticed at the end of the row group.
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
        // Rows with sketches or moments never bypass grouping, because each row would be emitted with a whole sketch
        // or moments.
        if self.aggregation.states.is_empty() && u64_from(all) * many > *rows * per {
            partial.spill.bypass = *rows * BYPASS_FACTOR;
        }
        *leaving = None;
        Ok(true)
    }

    /// Emits the selected rows of a batch, each as a group of its own.
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
        // If `emit` returns `Break`, that is noticed at the end of the row group.
        let _ = emit(batch);
        Ok(())
    }
}

/// Replaces -0.0 by 0.0 in group keys, as the hash tables of groups do.
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
