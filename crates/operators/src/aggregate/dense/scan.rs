//! Scans the rows of a row group in parts of a few thousand rows, and adds the values of each part to the sums
//! and folds of its groups (a [`Target`]).
//!
//! A *lane* is a column or an expression evaluated as 64-bit integers. A row is *selected* if it passes the query's
//! filter.

use super::keys::KeyBuffers;
use super::masks::{masked, ones};
use super::measures::SumOf;
use super::rows::DenseRows;
use crate::bits;
use crate::lanes::{LaneBuffers, RowSet};
use crate::pace::Batches;
use crate::selection::Selection;
use farpool_model::cast::{u32_checked, u64_from};
use farpool_model::{Result, limits};
use std::borrow::Cow;

/// Number of rows per part if whole blocks are unpacked. Reason: about ten buffers of this size fit the L2 cache.
pub(crate) const ROWS_AT_A_TIME: usize = 2048;

/// Ratio of rows to selected rows above which only the selected values are unpacked (gathered). Otherwise whole
/// blocks are unpacked, and the rows that are not selected are masked out.
const GATHER_BELOW: usize = 2;

/// As [`GATHER_BELOW`], for aggregations without group keys, where a row that is masked out costs almost nothing.
const GATHER_BELOW_UNGROUPED: usize = 8;

/// Maximum number of rows of a part, gathered or not.
pub(crate) const ROWS_OF_A_PART: usize = limits::BATCH_ROWS / GATHER_BELOW;

const _: () = assert!(ROWS_AT_A_TIME <= ROWS_OF_A_PART);

/// Receives the values of parts and adds them to the sums and folds of groups.
pub(crate) trait Target {
    /// Adds to each sum one value per row, in the row's group. With `groups` `None`, all `rows` rows belong to one
    /// group.
    fn add_sums(&mut self, rows: usize, groups: Option<&[u32]>, sums: &[&[i64]]);

    /// Folds the values of the rows in `mask` into the fold with this index, in the groups of the rows.
    fn add_fold(&mut self, index: usize, groups: Option<&[u32]>, values: &[i64], mask: Option<&[u64]>);
}

/// A part of a batch: rows that are computed, and which of them count.
pub(crate) struct Part<'b> {
    pub(crate) rows: RowSet<'b>,
    /// Bitmap of the selected rows among these; `None` if all are selected.
    pub(crate) selected: Option<&'b [u64]>,
    /// For each mask, a bitmap of the rows that pass it; `None` if all pass.
    masks: Vec<Option<Vec<u64>>>,
}

/// Buffers that are reused from part to part.
pub(crate) struct Scratch {
    keys: KeyBuffers,
    groups: Vec<u32>,
    /// For each sum, its values with 0 for rows that its mask excludes. Unused for a sum of a lane without a mask,
    /// which reads the lane itself.
    masked: Vec<Vec<i64>>,
}

/// Calls `add` with the selected rows of each batch that has selected rows; returns the number of selected rows.
///
/// # Errors
/// Errors of evaluating the filter, and of `add`.
pub(crate) fn each_batch(
    batches: &mut Batches<'_>,
    buffers: &mut LaneBuffers,
    mut add: impl FnMut(&Selection, &mut LaneBuffers) -> Result<()>,
) -> Result<u64> {
    let mut passed = 0;
    while let Some(selection) = batches.next(buffers)? {
        passed += u64_from(selection.count);
        if selection.count > 0 {
            add(&selection, buffers)?;
        }
    }
    Ok(passed)
}

impl Scratch {
    pub(crate) fn new(rows: &DenseRows<'_>) -> Self {
        let mut masked = Vec::new();
        masked.resize_with(rows.measures.sums.len(), Vec::new);
        Scratch { keys: KeyBuffers::default(), groups: Vec::new(), masked }
    }
}

impl DenseRows<'_> {
    /// Calls `add` with the selected rows of a batch in parts. If they are few, only these rows are in the parts,
    /// otherwise whole blocks with the other rows masked out.
    ///
    /// # Errors
    /// Errors of evaluating the conditions, and of `add`.
    pub(crate) fn each_part(
        &self,
        selection: &Selection,
        indices: &mut Vec<u32>,
        buffers: &mut LaneBuffers,
        mut add: impl FnMut(&Part<'_>, &mut LaneBuffers) -> Result<()>,
    ) -> Result<()> {
        let masks = self.mask_bits(selection, buffers)?;
        let gather_below = if self.keys.is_empty() { GATHER_BELOW_UNGROUPED } else { GATHER_BELOW };
        if selection.count * gather_below < selection.range.len() {
            indices.clear();
            selection.extend_indices(indices);
            let start = u32_checked(selection.range.start);
            let packed = |mask: Option<Vec<u64>>| {
                mask.map(|m| bits::collect(indices.len(), |i| bits::get(&m, (indices[i] - start) as usize)))
            };
            let masks = masks.into_iter().map(packed).collect();
            return add(&Part { rows: RowSet::Rows(indices), selected: None, masks }, buffers);
        }
        for start in selection.range.clone().step_by(ROWS_AT_A_TIME) {
            let end = selection.range.end.min(start + ROWS_AT_A_TIME);
            let words = (start - selection.range.start) / 64..(end - selection.range.start).div_ceil(64);
            let selected = selection.bits.as_ref().map(|b| &b[words.clone()]);
            let masks = masks.iter().map(|m| m.as_ref().map(|m| m[words.clone()].to_vec())).collect();
            add(&Part { rows: RowSet::Range(start, end), selected, masks }, buffers)?;
        }
        Ok(())
    }

    /// Adds a part to `target`.
    ///
    /// # Errors
    /// Fails only on a bug in this crate.
    pub(crate) fn add_part(
        &self,
        part: &Part<'_>,
        buffers: &mut LaneBuffers,
        scratch: &mut Scratch,
        target: &mut impl Target,
    ) -> Result<()> {
        let rows = part.rows.len();
        self.lanes.evaluate(&self.wanted, part.rows, buffers);
        let Scratch { keys, groups, masked } = scratch;
        let groups = match self.keys.is_empty() {
            true => None,
            false => {
                self.keys.number(part.rows, buffers, keys, groups)?;
                if let Some(selected) = part.selected {
                    discard(groups, selected, self.keys.domain);
                }
                Some(groups.as_slice())
            }
        };
        let masks = part.masks_within(groups.is_some());
        let masks: Vec<Option<&[u64]>> = masks.iter().map(Option::as_deref).collect();
        self.mask_sums(&masks, rows, buffers, masked);
        let sums: Vec<&[i64]> = self
            .measures
            .sums
            .iter()
            .zip(masked.iter())
            .map(|(sum, held)| match sum {
                SumOf::Lane(lane, mask) if masks[*mask].is_none() => &buffers.values(*lane)[..rows],
                _ => held.as_slice(),
            })
            .collect();
        let counted = if groups.is_some() { rows } else { masks[0].map_or(rows, bits::count) };
        target.add_sums(counted, groups, &sums);
        for (index, fold) in self.measures.folds.iter().enumerate() {
            if self.lanes.interval(fold.lane).is_some() {
                target.add_fold(index, groups, &buffers.values(fold.lane)[..rows], masks[fold.mask]);
            }
        }
        Ok(())
    }

    /// Computes the values of the sums that have a mask or count rows. Sums of a lane without a mask read the lane
    /// itself.
    fn mask_sums(&self, masks: &[Option<&[u64]>], rows: usize, buffers: &LaneBuffers, out: &mut [Vec<i64>]) {
        for (sum, out) in self.measures.sums.iter().zip(out) {
            match sum {
                SumOf::Lane(lane, _) if self.lanes.interval(*lane).is_none() => repeat(0, rows, out),
                SumOf::Lane(lane, mask) => {
                    masks[*mask].iter().for_each(|mask| masked(&buffers.values(*lane)[..rows], mask, out));
                }
                SumOf::Rows(mask) => match masks[*mask] {
                    Some(mask) => ones(mask, rows, out),
                    None => repeat(1, rows, out),
                },
            }
        }
    }
}

impl Part<'_> {
    /// Returns the masks, restricted to selected rows. With groups, returns them unchanged, because rows that are not
    /// selected are added to the discard group.
    fn masks_within(&self, has_groups: bool) -> Cow<'_, [Option<Vec<u64>>]> {
        let Some(selected) = self.selected.filter(|_| !has_groups) else { return Cow::Borrowed(&self.masks) };
        let narrow = |mask: &Option<Vec<u64>>| {
            let mut bits = selected.to_vec();
            mask.iter().for_each(|mask| bits::and(&mut bits, mask));
            Some(bits)
        };
        Cow::Owned(self.masks.iter().map(narrow).collect())
    }
}

fn repeat(value: i64, rows: usize, out: &mut Vec<i64>) {
    out.clear();
    out.resize(rows, value);
}

/// Replaces by `discarded` the group of each row that is not selected. `discarded` is an additional group whose
/// values are never read, so that the loop over rows needs no branch.
fn discard(groups: &mut [u32], selected: &[u64], discarded: usize) {
    let discarded = u32_checked(discarded);
    let rows = groups.len();
    for (index, word) in selected.iter().enumerate() {
        let mut missing = !word;
        while missing != 0 {
            let row = index * 64 + missing.trailing_zeros() as usize;
            if row >= rows {
                break;
            }
            groups[row] = discarded;
            missing &= missing - 1;
        }
    }
}
