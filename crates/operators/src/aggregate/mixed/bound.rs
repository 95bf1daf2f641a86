//! The *mixed way* of aggregation, bound to one row group: it reads encoded values where it can, decodes the
//! others, and finds groups in a hash table.
//!
//! A *lane* is a column or an expression evaluated as 64-bit integers. A row is *selected* if it passes the query's
//! filter.

use super::counted::{Counted, CountsMemo};
use super::dense::DenseNumbers;
use super::keys::{KeyForm, KeyInput, KeyLookup, NoKeys};
use super::packed::PackedKeys;
use super::words::WordKeys;
use crate::aggregate::aggregation::{Accumulator, Aggregation, Kind};
use crate::aggregate::partial::Partial;
use crate::aggregate::radix::{Radix, Shape};
use crate::aggregate::store::Input;
use crate::aggregate::valid::valid_bits;
use crate::bits;
use crate::lanes::{BoundLanes, LaneBuffers, LaneId, RowSet};
use crate::pace::Batches;
use crate::selection::Selection;
use arrow_array::BooleanArray;
use farpool_columns::RowGroup;
use farpool_model::Result;
use std::collections::BTreeSet;

/// Maximum ratio of rows to selected rows at which all rows are decoded, and those that are not selected are masked
/// out. Above it, only the selected rows are decoded.
const MASK_ABOVE: usize = 8;

/// An aggregation bound to one row group.
pub(crate) struct Mixed<'a> {
    aggregation: &'a Aggregation,
    /// Layout for partitioning rows by the hash of their group keys once there are many groups; `None` if they are
    /// never partitioned.
    radix: Option<&'a Shape>,
    group: &'a RowGroup,
    lanes: BoundLanes<'a>,
    keys: Box<dyn KeyLookup + 'a>,
    /// For each accumulator, the lane of its argument; `None` if it is read from a decoded array.
    arguments: Vec<Option<LaneId>>,
    /// Lanes that arguments and group keys read.
    wanted: Vec<LaneId>,
    /// For each accumulator, the counted column whose value occurrences are counted by dictionary code or integer, so
    /// that no values are decoded; `None` if the accumulator has none.
    counted: Vec<Option<Counted<'a>>>,
    /// Columns that are decoded. `decoded_keys` are those of them that group keys read.
    decoded: Vec<usize>,
    decoded_keys: Vec<usize>,
    /// Whether there are no group keys, FILTER conditions or lanes, and every argument is a plain float column.
    is_maskable: bool,
}

impl<'a> Mixed<'a> {
    /// Binds `aggregation` to `group`. Continues with the value counts of earlier steps over the same row group.
    ///
    /// # Errors
    /// Fails only on a bug in this crate.
    pub(crate) fn bind(
        aggregation: &'a Aggregation,
        radix: Option<&'a Shape>,
        group: &'a RowGroup,
        counts: &mut CountsMemo,
    ) -> Result<Mixed<'a>> {
        let lanes = aggregation.lanes.bind(group);
        let keys = keys_of(aggregation, &lanes, group)?;
        let arguments = argument_lanes(aggregation, &lanes);
        let counted = aggregation.accumulators.iter().map(|a| count(aggregation, a, group));
        let counted = counts.resume(counted.collect());
        let mut wanted: Vec<LaneId> = arguments.iter().flatten().copied().collect();
        keys.lanes(&mut wanted);
        let mut decoded_keys = BTreeSet::new();
        keys.decoded(&mut decoded_keys);
        let mut decoded = decoded_arguments(aggregation, &arguments, &counted);
        decoded.extend(&decoded_keys);
        Ok(Mixed {
            is_maskable: is_maskable(aggregation, group),
            aggregation,
            radix,
            group,
            lanes,
            keys,
            arguments,
            wanted,
            counted,
            decoded: decoded.into_iter().collect(),
            decoded_keys: decoded_keys.into_iter().collect(),
        })
    }

    /// Returns the form in which the group keys of `aggregation` are looked up for `group`.
    ///
    /// # Errors
    /// Fails only on a bug in this crate.
    pub(crate) fn key_form(aggregation: &Aggregation, group: &RowGroup) -> Result<KeyForm> {
        Ok(keys_of(aggregation, &aggregation.lanes.bind(group), group)?.form())
    }

    /// Adds the selected rows of one batch.
    ///
    /// # Errors
    /// `Invalid` when an expression fails on one of them.
    pub(crate) fn add(
        &mut self,
        selection: &Selection,
        buffers: &mut LaneBuffers,
        partial: &mut Partial,
    ) -> Result<()> {
        let many = selection.count * MASK_ABOVE >= selection.range.len();
        if let (Some(bits), true) = (&selection.bits, self.is_maskable && many) {
            return self.add_masked(selection, bits, partial);
        }
        let mut indices = Vec::new();
        let rows = if selection.bits.is_some() {
            selection.extend_indices(&mut indices);
            RowSet::Rows(&indices)
        } else {
            RowSet::Range(selection.range.start, selection.range.end)
        };
        self.lanes.evaluate(&self.wanted, rows, buffers);
        let are_many =
            partial.radix.is_some() || partial.groups.len() >= self.aggregation.paths.groups_direct_max;
        if are_many && self.partition(selection, rows, buffers, partial)? {
            return Ok(());
        }
        self.add_direct(selection, rows, buffers, partial)
    }

    /// Adds rows to their groups at once, without partitioning them by hash first.
    fn add_direct(
        &mut self,
        selection: &Selection,
        rows: RowSet<'_>,
        buffers: &LaneBuffers,
        partial: &mut Partial,
    ) -> Result<()> {
        let frame = selection.frame(self.group, &self.decoded)?;
        let mut ids = std::mem::take(&mut partial.ids);
        let input = KeyInput { group: self.group, rows, frame: &frame, lanes: buffers };
        self.keys.identify(input, &mut partial.groups, &mut ids)?;
        partial.make_room();
        let groups = (!self.aggregation.keys.is_empty()).then_some(ids.as_slice());
        let masks = self.aggregation.condition_masks(&frame)?;
        self.add_lanes(rows, groups, &masks, buffers, partial);
        for (accumulator, counted) in self.aggregation.accumulators.iter().zip(&mut self.counted) {
            if let Some(counted) = counted {
                counted.add(rows, accumulator.condition.map(|c| &masks[c]));
            }
        }
        let stores = &mut partial.stores;
        let takes = |a: usize| self.arguments[a].is_none() && self.counted[a].is_none();
        self.aggregation.add_arrays(&frame, groups, &masks, stores, takes)?;
        partial.ids = ids;
        Ok(())
    }

    /// Appends rows to partitions by the hash of their group keys; they are grouped later. Returns false, without
    /// having added the rows, if the group keys cannot be partitioned.
    fn partition(
        &mut self,
        selection: &Selection,
        rows: RowSet<'_>,
        buffers: &LaneBuffers,
        partial: &mut Partial,
    ) -> Result<bool> {
        let Some(shape) = self.radix else { return Ok(false) };
        let frame = selection.frame(self.group, &self.decoded_keys)?;
        let input = KeyInput { group: self.group, rows, frame: &frame, lanes: buffers };
        let Some(keys) = self.keys.partitionable(input, &partial.groups)? else { return Ok(false) };
        let radix = partial.radix.get_or_insert_with(|| Radix::new(shape));
        radix.add_rows(self.aggregation, shape, self.group, (&self.lanes, buffers), rows, keys)?;
        Ok(true)
    }

    /// Adds the value counts to their sketches when the row group is complete, until the step ends. Counts that are
    /// not added yet are kept in `counts` for the next step.
    ///
    /// # Errors
    /// `OverLimit` for more rows than a sketch can count.
    pub(crate) fn finish(
        self,
        batches: &mut Batches<'_>,
        counts: &mut CountsMemo,
        partial: &mut Partial,
    ) -> Result<()> {
        let mut is_due = batches.is_at_end();
        let mut left = Vec::with_capacity(self.counted.len());
        for (counted, store) in self.counted.into_iter().zip(&mut partial.stores) {
            match counted {
                Some(counted) if is_due => {
                    counted.finish(store)?;
                    left.push(None);
                    is_due = !batches.pace.ends();
                }
                counted => left.push(counted),
            }
        }
        counts.keep(left);
        Ok(())
    }

    /// Adds the selected rows of one batch, if there are no groups and all arguments are plain columns. Rows that are
    /// not selected are skipped by a mask, which is cheaper than removing them first.
    fn add_masked(&self, selection: &Selection, bits: &[u64], partial: &mut Partial) -> Result<()> {
        let mask = bits::to_array(bits, selection.range.len());
        let frame = Selection::all(selection.range.clone()).frame(self.group, &self.decoded)?;
        for (accumulator, store) in self.aggregation.accumulators.iter().zip(&mut partial.stores) {
            match accumulator.argument {
                None => store.count_rows(frame.rows(), None, Some(&mask)),
                Some(argument) => {
                    let array = self.aggregation.arguments[argument].compiled.array(&frame)?;
                    store.update(&Input { array: &array, groups: None, mask: Some(&mask) })?;
                }
            }
        }
        Ok(())
    }

    fn add_lanes(
        &self,
        rows: RowSet<'_>,
        groups: Option<&[u32]>,
        masks: &[BooleanArray],
        buffers: &LaneBuffers,
        partial: &mut Partial,
    ) {
        let accumulators = self.aggregation.accumulators.iter().zip(&self.arguments);
        for ((accumulator, lane), store) in accumulators.zip(&mut partial.stores) {
            let (Some(lane), Some(argument)) = (lane, accumulator.argument) else { continue };
            let columns = self.aggregation.arguments[argument].compiled.columns();
            let mut valid = valid_bits(self.group, columns, rows);
            if let Some(condition) = accumulator.condition {
                let mask = bits::of_buffer(masks[condition].values());
                match &mut valid {
                    Some(valid) => bits::and(valid, &mask),
                    None => valid = Some(mask),
                }
            }
            if accumulator.kind == Kind::Count && valid.is_none() {
                store.count_rows(rows.len(), groups, None);
                continue;
            }
            store.update_lanes(groups, &buffers.values(*lane)[..rows.len()], valid.as_deref());
        }
    }
}

/// Returns the lookup of the group keys of `aggregation` over `group`, in the form that is best for them.
fn keys_of<'a>(
    aggregation: &'a Aggregation,
    lanes: &BoundLanes<'a>,
    group: &'a RowGroup,
) -> Result<Box<dyn KeyLookup + 'a>> {
    if aggregation.keys.is_empty() {
        return Ok(Box::new(NoKeys));
    }
    if let Some(keys) = DenseNumbers::bind(aggregation, lanes, group)? {
        return Ok(Box::new(keys));
    }
    if let Some(keys) = PackedKeys::bind(aggregation, lanes, group)? {
        return Ok(Box::new(keys));
    }
    Ok(Box::new(WordKeys::bind(aggregation, lanes)))
}

/// Returns for each accumulator the lane of its argument, if it is bound.
fn argument_lanes(aggregation: &Aggregation, lanes: &BoundLanes<'_>) -> Vec<Option<LaneId>> {
    let bound = |lane: &LaneId| lanes.interval(*lane).is_some();
    let lane = |argument: usize| aggregation.arguments[argument].lane.filter(bound);
    aggregation.accumulators.iter().map(|a| a.argument.and_then(lane)).collect()
}

/// Returns the column whose value occurrences are counted for an accumulator, instead of being decoded; `None` if
/// counting is not possible or the aggregation has group keys.
fn count<'a>(aggregation: &Aggregation, of: &Accumulator, group: &'a RowGroup) -> Option<Counted<'a>> {
    let state = aggregation.state_of(of).filter(|_| aggregation.keys.is_empty())?;
    Counted::bind(aggregation, state, group)
}

/// Returns the columns of FILTER conditions, and of arguments that are neither lanes nor counted.
fn decoded_arguments(
    aggregation: &Aggregation,
    lanes: &[Option<LaneId>],
    counted: &[Option<Counted<'_>>],
) -> BTreeSet<usize> {
    let mut decoded = BTreeSet::new();
    let mut add = |argument: usize| decoded.extend(aggregation.arguments[argument].compiled.columns());
    for ((accumulator, lane), counted) in aggregation.accumulators.iter().zip(lanes).zip(counted) {
        if lane.is_none() {
            accumulator.argument.iter().for_each(|argument| add(*argument));
        }
        if counted.is_none() {
            let state = aggregation.state_of(accumulator);
            state.into_iter().flat_map(|state| &state.arguments).for_each(|argument| add(*argument));
        }
    }
    aggregation.conditions.iter().for_each(|c| decoded.extend(c.compiled.columns()));
    decoded
}

/// Returns whether there are no group keys, FILTER conditions or lanes, and every argument is a plain float column.
fn is_maskable(aggregation: &Aggregation, group: &RowGroup) -> bool {
    let is_float = |argument: usize| {
        let column = aggregation.arguments[argument].compiled.as_column();
        column.is_some_and(|column| group.chunks[column].floats().is_some())
    };
    aggregation.keys.is_empty()
        && aggregation.conditions.is_empty()
        && aggregation.states.is_empty()
        && aggregation.accumulators.iter().all(|a| a.argument.is_none_or(is_float))
}
