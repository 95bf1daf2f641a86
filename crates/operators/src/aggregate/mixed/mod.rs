//! The mixed way: what lanes and codes can give is taken from there, the rest is decoded.
//!
//! Keys with a domain that is not much larger than the row group get their group through a table from dense
//! number to group, so that the hash table is asked once per key and row group; other keys that are packed go
//! to the hash table as one integer, the rest as rows of words, made of lanes and decoded arrays. Once there are
//! many groups, rows are set aside ([`crate::aggregate::radix`]) instead. Arguments on lanes are not decoded.

mod counted;
mod packed;

pub(super) use counted::{Counted, Counts};
pub(super) use packed::packing;

use crate::aggregate::aggregation::{Accumulator, Aggregation, Key, Kind};
use crate::aggregate::dense::{DenseKeys, KeyBuffers};
use crate::aggregate::general::{Memo, Partial};
use crate::aggregate::radix::{Keys, Radix};
use crate::aggregate::store::Input;
use crate::aggregate::valid::valid_bits;
use crate::bits;
use crate::evaluate::Frame;
use crate::group::{KeyValues, Rows};
use crate::lanes::{BoundLanes, LaneBuffers, LaneId, RowSet};
use crate::pace::Batches;
use crate::selection::Selection;
use arrow_array::BooleanArray;
use arrow_buffer::NullBuffer;
use farpool_columns::RowGroup;
use farpool_model::Result;
use packed::PackedKeys;
use std::collections::BTreeSet;

/// Dense numbers per row of the row group up to which a table from number to group pays.
const NUMBERS_PER_ROW_MAX: usize = 4;

/// The same where the alternative is to look a lane up, which costs little more.
const NUMBERS_PER_ROW_MAX_LANE: usize = 1;

/// From one selected row in this many on, the others are passed over instead of the selected ones being
/// picked out.
const MASK_ABOVE: usize = 8;

/// No group has been asked for yet.
const UNKNOWN: u32 = u32::MAX;
/// The group is being asked for.
const ASKED: u32 = u32::MAX - 1;

/// An aggregation bound to one row group.
pub(crate) struct Mixed<'a> {
    aggregation: &'a Aggregation,
    group: &'a RowGroup,
    lanes: BoundLanes<'a>,
    keys: KeyWay<'a>,
    /// For each accumulator, the lane of its argument if that is bound.
    arguments: Vec<Option<LaneId>>,
    wanted: Vec<LaneId>,
    /// For each accumulator, what is counted in place of being decoded.
    counted: Vec<Option<Counted<'a>>>,
    /// The columns that are decoded, and those of them that keys need.
    decoded: Vec<usize>,
    decoded_keys: Vec<usize>,
    /// Whether there are neither groups nor conditions nor lanes, and every argument is a float as it lies.
    is_maskable: bool,
}

enum KeyWay<'a> {
    None,
    Dense { keys: DenseKeys<'a>, groups: Vec<u32>, buffers: KeyBuffers, numbers: Vec<u32> },
    Packed(PackedKeys<'a>),
    Each(Vec<KeySource>, Rows),
}

/// Where the values of one key come from.
enum KeySource {
    Lane(LaneId),
    Array,
}

impl<'a> Mixed<'a> {
    /// Binds `aggregation` to `group`, going on from what earlier steps counted.
    ///
    /// # Errors
    /// Fails only on a bug in this crate.
    pub(crate) fn bind(
        aggregation: &'a Aggregation,
        group: &'a RowGroup,
        memo: &mut Memo,
    ) -> Result<Mixed<'a>> {
        let lanes = aggregation.lanes.bind(group);
        let bound = |lane: Option<LaneId>| lane.filter(|l| lanes.interval(*l).is_some());
        let keys = key_way(aggregation, &lanes, group)?;
        let arguments: Vec<Option<LaneId>> = aggregation
            .accumulators
            .iter()
            .map(|a| a.argument.and_then(|index| bound(aggregation.arguments[index].lane)))
            .collect();
        let mut decoded = BTreeSet::new();
        for (accumulator, lane) in aggregation.accumulators.iter().zip(&arguments) {
            if let (Some(argument), None) = (accumulator.argument, lane) {
                decoded.extend(aggregation.arguments[argument].compiled.columns());
            }
        }
        let counted = aggregation.accumulators.iter().map(|a| count(aggregation, a, group));
        let counted = memo.resume(counted.collect());
        for (accumulator, _) in aggregation.accumulators.iter().zip(&counted).filter(|(_, c)| c.is_none()) {
            let arguments = aggregation.state_of(accumulator).into_iter().flat_map(|state| &state.arguments);
            arguments.for_each(|a| decoded.extend(aggregation.arguments[*a].compiled.columns()));
        }
        aggregation.conditions.iter().for_each(|c| decoded.extend(c.compiled.columns()));
        let mut decoded_keys = BTreeSet::new();
        match &keys {
            KeyWay::Each(sources, _) => {
                let keys = aggregation.keys.iter().zip(sources);
                let arrays = keys.filter(|(_, source)| matches!(source, KeySource::Array));
                arrays.for_each(|(key, _)| decoded_keys.extend(key.compiled.columns()));
            }
            KeyWay::Packed(keys) => decoded_keys.extend(keys.decoded()),
            KeyWay::None | KeyWay::Dense { .. } => {}
        }
        decoded.extend(&decoded_keys);
        let mut wanted: Vec<LaneId> = arguments.iter().flatten().copied().collect();
        match &keys {
            KeyWay::Dense { keys, .. } => wanted.extend(keys.lanes()),
            KeyWay::Packed(keys) => wanted.extend(keys.lanes()),
            KeyWay::Each(sources, _) => wanted.extend(sources.iter().filter_map(|s| match s {
                KeySource::Lane(lane) => Some(*lane),
                KeySource::Array => None,
            })),
            KeyWay::None => {}
        }
        let (decoded, decoded_keys) = (decoded.into_iter().collect(), decoded_keys.into_iter().collect());
        let plain = |argument: usize| {
            let column = aggregation.arguments[argument].compiled.as_column();
            column.is_some_and(|column| group.chunks[column].floats().is_some())
        };
        let is_maskable = matches!(keys, KeyWay::None)
            && aggregation.conditions.is_empty()
            && aggregation.states.is_empty()
            && aggregation.accumulators.iter().all(|a| a.argument.is_none_or(plain));
        Ok(Mixed {
            aggregation,
            group,
            lanes,
            keys,
            arguments,
            wanted,
            counted,
            decoded,
            decoded_keys,
            is_maskable,
        })
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
        if are_many && self.set_aside(selection, rows, buffers, partial)? {
            return Ok(());
        }
        let frame = selection.frame(self.group, &self.decoded)?;
        let mut ids = std::mem::take(&mut partial.ids);
        self.identify(rows, &frame, buffers, partial, &mut ids)?;
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

    /// Puts rows aside by partition, if that can be done.
    fn set_aside(
        &mut self,
        selection: &Selection,
        rows: RowSet<'_>,
        buffers: &LaneBuffers,
        partial: &mut Partial,
    ) -> Result<bool> {
        let Some(shape) = &self.aggregation.radix else { return Ok(false) };
        let frame = || selection.frame(self.group, &self.decoded_keys);
        let keys = match &mut self.keys {
            KeyWay::Packed(keys) => Keys::Codes(keys.codes(self.group, rows, &frame()?, buffers)?),
            KeyWay::Each(sources, words) => {
                let keys = key_values(self.aggregation, sources, self.group, rows, &frame()?, buffers)?;
                partial.groups.encode(&keys, rows.len(), words)?;
                Keys::Rows(words)
            }
            KeyWay::None | KeyWay::Dense { .. } => return Ok(false),
        };
        let radix = partial.radix.get_or_insert_with(|| Radix::new(shape));
        radix.add_rows(self.aggregation, self.group, (&self.lanes, buffers), rows, keys)?;
        Ok(true)
    }

    /// Takes in what was counted if the row group is at its end, as far as the step goes, and leaves the rest in
    /// `memo`.
    ///
    /// # Errors
    /// `OverLimit` for more rows than a sketch counts.
    pub(crate) fn finish(
        self,
        batches: &mut Batches<'_>,
        memo: &mut Memo,
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
                counted => left.push(counted.map(Counted::into_counts)),
            }
        }
        memo.counts = Some(left);
        Ok(())
    }

    /// Adds the selected rows of one batch to aggregates without groups of columns as they lie: what is not
    /// selected is passed over instead of being filtered out first.
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

    /// Replaces `ids` by the group of each row.
    fn identify(
        &mut self,
        rows: RowSet<'_>,
        frame: &Frame,
        lanes: &LaneBuffers,
        partial: &mut Partial,
        ids: &mut Vec<u32>,
    ) -> Result<()> {
        match &mut self.keys {
            KeyWay::None => {}
            KeyWay::Dense { keys, groups, buffers, numbers } => {
                keys.number(rows, lanes, buffers, numbers)?;
                let mut fresh = Vec::new();
                for number in numbers.iter() {
                    let group = &mut groups[*number as usize];
                    if *group == UNKNOWN {
                        *group = ASKED;
                        fresh.push(*number);
                    }
                }
                if !fresh.is_empty() {
                    keys.intern(&fresh, self.aggregation.packing.as_deref(), &mut partial.groups, ids)?;
                    fresh.iter().zip(ids.iter()).for_each(|(number, id)| groups[*number as usize] = *id);
                }
                ids.clear();
                ids.extend(numbers.iter().map(|number| groups[*number as usize]));
            }
            KeyWay::Packed(keys) => {
                partial.groups.intern_codes(keys.codes(self.group, rows, frame, lanes)?, ids)?;
            }
            KeyWay::Each(sources, _) => {
                let keys = key_values(self.aggregation, sources, self.group, rows, frame, lanes)?;
                partial.groups.intern(&keys, rows.len(), ids)?;
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

/// What is counted for an accumulator in place of being decoded: only without keys.
fn count<'a>(aggregation: &Aggregation, of: &Accumulator, group: &'a RowGroup) -> Option<Counted<'a>> {
    let state = aggregation.state_of(of).filter(|_| aggregation.keys.is_empty())?;
    Counted::bind(aggregation, state, group)
}

fn key_way<'a>(
    aggregation: &'a Aggregation,
    lanes: &BoundLanes<'a>,
    group: &'a RowGroup,
) -> Result<KeyWay<'a>> {
    if aggregation.keys.is_empty() {
        return Ok(KeyWay::None);
    }
    let source = |key: &Key| match key.lane.filter(|lane| lanes.interval(*lane).is_some()) {
        Some(lane) => KeySource::Lane(lane),
        None => KeySource::Array,
    };
    let per_row = if aggregation.packing.is_some() { NUMBERS_PER_ROW_MAX_LANE } else { NUMBERS_PER_ROW_MAX };
    let limit = group.rows.max(64) * per_row;
    if let Some(keys) = DenseKeys::bind(&aggregation.keys, lanes, group, limit)? {
        let groups = vec![UNKNOWN; keys.domain];
        return Ok(KeyWay::Dense { keys, groups, buffers: KeyBuffers::default(), numbers: Vec::new() });
    }
    Ok(match PackedKeys::bind(aggregation, lanes, group)? {
        Some(keys) => KeyWay::Packed(keys),
        None => KeyWay::Each(aggregation.keys.iter().map(source).collect(), Rows::default()),
    })
}

/// The values of all keys for some rows.
fn key_values<'v>(
    aggregation: &Aggregation,
    sources: &[KeySource],
    group: &RowGroup,
    rows: RowSet<'_>,
    frame: &Frame,
    lanes: &'v LaneBuffers,
) -> Result<Vec<KeyValues<'v>>> {
    let values = |(key, source): (&Key, &KeySource)| match source {
        KeySource::Lane(lane) => {
            let valid = valid_bits(group, key.compiled.columns(), rows);
            let nulls = valid.map(|valid| NullBuffer::new(bits::to_buffer(&valid, rows.len())));
            Ok(KeyValues::Lane { values: &lanes.values(*lane)[..rows.len()], nulls })
        }
        KeySource::Array => Ok(KeyValues::Array(key.compiled.array(frame)?)),
    };
    aggregation.keys.iter().zip(sources).map(values).collect()
}
