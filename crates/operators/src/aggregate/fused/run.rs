//! One row group through the fused way.

use super::ROWS_AT_A_TIME;
use super::few::FewSums;
use super::tables::{FoldTable, SumTables};
use crate::aggregate::dense::Fused;
use crate::aggregate::dense::KeyBuffers;
use crate::aggregate::dense::{Source, SumOf};
use crate::aggregate::dense::{masked, ones};
use crate::aggregate::general::Partial;
use crate::aggregate::whole::WholeTable;
use crate::bits;
use crate::lanes::{LaneBuffers, LaneId, RowSet};
use crate::pace::Batches;
use crate::selection::Selection;
use farpool_model::cast::{u32_checked, u64_from};
use farpool_model::{Result, limits};

/// Below one selected row in this many, values are gathered; above, whole blocks are computed and the rows
/// that are not selected masked.
const GATHER_BELOW: usize = 2;

/// The same without groups, where a row that is masked costs next to nothing.
const GATHER_BELOW_UNGROUPED: usize = 8;

/// Rows of the largest part: of blocks that are computed whole, or of gathered rows.
const ROWS_OF_A_PART: usize = limits::BATCH_ROWS / GATHER_BELOW;

const _: () = assert!(ROWS_AT_A_TIME <= ROWS_OF_A_PART);

/// What is kept from batch to batch.
struct Scratch<'t> {
    keys: KeyBuffers,
    groups: Vec<u32>,
    indices: Vec<u32>,
    masked: Vec<Vec<i64>>,
    tables: Tables<'t>,
    is_total: bool,
    /// Where they are added up instead if there is only a handful of groups.
    few: Option<FewSums<'t>>,
}

/// Where measures are added up.
enum Tables<'t> {
    /// For this row group only.
    Local(SumTables, Vec<FoldTable>),
    /// For the table.
    Whole(&'t mut WholeTable),
}

/// A part of a batch: the rows that are computed, and which of them count.
struct Part<'b> {
    rows: RowSet<'b>,
    /// A bit per computed row; `None` when all are selected.
    selected: Option<&'b [u64]>,
    /// For each mask a bit per computed row.
    masks: Vec<Option<Vec<u64>>>,
}

impl Fused<'_> {
    /// Adds the rows of some batches; returns how many there were.
    ///
    /// # Errors
    /// As evaluating the filter and the conditions does.
    pub(crate) fn run(
        &self,
        batches: &mut Batches<'_>,
        buffers: &mut LaneBuffers,
        partial: &mut Partial,
    ) -> Result<u64> {
        // One group more, for rows that are not selected.
        let groups = self.keys.domain + 1;
        let mut sums = SumTables::default();
        sums.reset(groups, &self.widths(), bits_of(ROWS_OF_A_PART as u128));
        let folds = self.measures.folds.iter().map(|of| FoldTable::new(groups, of.fold)).collect();
        let mut scratch = self.scratch(Tables::Local(sums, folds));
        scratch.few = self.few();
        let passed = self.add_all(batches, buffers, &mut scratch)?;
        if let Tables::Local(mut sums, folds) = scratch.tables {
            sums.finish();
            scratch.few.iter().for_each(|few| few.finish(&mut sums));
            self.flush(&sums, &folds, partial)?;
        }
        Ok(passed)
    }

    /// Adds the rows of some batches to the table's groups; returns how many there were.
    ///
    /// # Errors
    /// As evaluating the filter and the conditions does.
    pub(crate) fn run_whole(
        &self,
        batches: &mut Batches<'_>,
        buffers: &mut LaneBuffers,
        table: &mut WholeTable,
    ) -> Result<u64> {
        let mut scratch = self.scratch(Tables::Whole(table));
        self.add_all(batches, buffers, &mut scratch)
    }

    fn scratch<'t>(&self, tables: Tables<'t>) -> Scratch<'t> {
        let mut masked = Vec::new();
        masked.resize_with(self.measures.sums.len(), Vec::new);
        Scratch {
            keys: KeyBuffers::default(),
            groups: Vec::new(),
            indices: Vec::new(),
            masked,
            tables,
            is_total: self.is_total(),
            few: None,
        }
    }

    fn add_all(
        &self,
        batches: &mut Batches<'_>,
        buffers: &mut LaneBuffers,
        scratch: &mut Scratch<'_>,
    ) -> Result<u64> {
        let mut passed = 0;
        while let Some(selection) = batches.next(buffers)? {
            passed += u64_from(selection.count);
            if selection.count > 0 {
                self.batch(&selection, buffers, scratch)?;
            }
        }
        Ok(passed)
    }

    /// The bits of the largest sum of each lane over one part.
    fn widths(&self) -> Vec<Option<u32>> {
        let width = |sum: &SumOf| match sum {
            SumOf::Rows(_) => Some(bits_of(ROWS_OF_A_PART as u128)),
            SumOf::Lane(lane, _) => {
                let (min, max) = self.lanes.interval(*lane)?;
                let largest = u128::try_from(max).ok().filter(|_| min >= 0)? * ROWS_OF_A_PART as u128;
                Some(bits_of(largest)).filter(|bits| *bits < u64::BITS)
            }
        };
        self.measures.sums.iter().map(width).collect()
    }

    fn batch(
        &self,
        selection: &Selection,
        buffers: &mut LaneBuffers,
        scratch: &mut Scratch<'_>,
    ) -> Result<()> {
        if let (Tables::Local(sums, _), true) = (&mut scratch.tables, scratch.is_total) {
            return self.add_totals(selection, buffers, sums);
        }
        let masks = self.mask_bits(selection, buffers)?;
        let gather_below = if self.keys.is_empty() { GATHER_BELOW_UNGROUPED } else { GATHER_BELOW };
        if selection.count * gather_below < selection.range.len() {
            let mut indices = std::mem::take(&mut scratch.indices);
            indices.clear();
            selection.extend_indices(&mut indices);
            let start = u32_checked(selection.range.start);
            let packed = |mask: Option<Vec<u64>>| {
                mask.map(|m| bits::collect(indices.len(), |i| bits::get(&m, (indices[i] - start) as usize)))
            };
            let masks = masks.into_iter().map(packed).collect();
            let part = Part { rows: RowSet::Rows(&indices), selected: None, masks };
            self.part(&part, buffers, scratch)?;
            scratch.indices = indices;
            return Ok(());
        }
        for start in selection.range.clone().step_by(ROWS_AT_A_TIME) {
            let end = selection.range.end.min(start + ROWS_AT_A_TIME);
            let words = (start - selection.range.start) / 64..(end - selection.range.start).div_ceil(64);
            let selected = selection.bits.as_ref().map(|b| &b[words.clone()]);
            let masks = masks.iter().map(|m| m.as_ref().map(|m| m[words.clone()].to_vec())).collect();
            self.part(&Part { rows: RowSet::Range(start, end), selected, masks }, buffers, scratch)?;
        }
        Ok(())
    }

    fn part(&self, part: &Part<'_>, buffers: &mut LaneBuffers, scratch: &mut Scratch<'_>) -> Result<()> {
        let rows = part.rows.len();
        if let (Some(few), RowSet::Range(start, end)) = (&mut scratch.few, part.rows) {
            let keys: Vec<LaneId> = self.keys.lanes().collect();
            self.lanes.evaluate(&keys, part.rows, buffers);
            return few.add(&self.keys, (start, end), buffers, part.selected);
        }
        self.lanes.evaluate(&self.wanted, part.rows, buffers);
        let grouped = !self.keys.is_empty();
        let mut masks: Vec<Option<&[u64]>> = part.masks.iter().map(Option::as_deref).collect();
        let mut narrowed = Vec::new();
        if grouped {
            self.keys.number(part.rows, buffers, &mut scratch.keys, &mut scratch.groups)?;
            if let Some(selected) = part.selected {
                set_aside(&mut scratch.groups, selected, self.keys.domain);
            }
        } else if let Some(selected) = part.selected {
            // Without groups there is no place to put rows aside: every mask narrows.
            narrowed.extend(part.masks.iter().map(|mask| {
                let mut bits = selected.to_vec();
                mask.iter().for_each(|mask| bits::and(&mut bits, mask));
                bits
            }));
            masks = narrowed.iter().map(|bits| Some(bits.as_slice())).collect();
        }
        for (sum, out) in self.measures.sums.iter().zip(&mut scratch.masked) {
            match sum {
                SumOf::Lane(lane, _) if self.lanes.interval(*lane).is_none() => zeros(rows, out),
                SumOf::Lane(lane, mask) => {
                    masks[*mask].iter().for_each(|mask| masked(&buffers.values(*lane)[..rows], mask, out));
                }
                SumOf::Rows(mask) => match masks[*mask] {
                    Some(mask) => ones(mask, rows, out),
                    None => {
                        out.clear();
                        out.resize(rows, 1);
                    }
                },
            }
        }
        let lanes: Vec<&[i64]> = self
            .measures
            .sums
            .iter()
            .zip(&scratch.masked)
            .map(|(sum, held)| match sum {
                SumOf::Lane(lane, mask) if masks[*mask].is_none() => &buffers.values(*lane)[..rows],
                _ => held.as_slice(),
            })
            .collect();
        let groups = grouped.then_some(scratch.groups.as_slice());
        match &mut scratch.tables {
            Tables::Whole(table) => table.add_sums(&scratch.groups, &lanes),
            Tables::Local(sums, _) if grouped => sums.add(&scratch.groups, &lanes),
            Tables::Local(sums, _) => sums.add_ungrouped(masks[0].map_or(rows, bits::count), &lanes),
        }
        for (index, fold) in self.measures.folds.iter().enumerate() {
            if self.lanes.interval(fold.lane).is_none() {
                continue;
            }
            let (values, mask) = (&buffers.values(fold.lane)[..rows], masks[fold.mask]);
            match &mut scratch.tables {
                Tables::Whole(table) => table.add_fold(index, &scratch.groups, values, mask),
                Tables::Local(_, tables) => tables[index].add(groups, values, mask),
            }
        }
        Ok(())
    }

    /// Hands the groups that occur over to the worker's table.
    fn flush(&self, sums: &SumTables, folds: &[FoldTable], partial: &mut Partial) -> Result<()> {
        let occurs = |group: &u32| sums.rows(*group as usize) > 0;
        let present: Vec<u32> = (0..u32_checked(self.keys.domain)).filter(occurs).collect();
        if present.is_empty() {
            return Ok(());
        }
        let mut ids = std::mem::take(&mut partial.ids);
        if self.keys.is_empty() {
            ids.clear();
            ids.push(0);
        } else {
            self.keys.intern(&present, self.packing, &mut partial.groups, &mut ids)?;
            partial.make_room();
        }
        for (source, store) in self.measures.sources.iter().zip(&mut partial.stores) {
            for (group, id) in present.iter().zip(&ids) {
                let (group, id) = (*group as usize, *id as usize);
                match source {
                    Source::AllRows => store.add_partial(id, sums.rows(group)),
                    Source::Sum(sum) => store.add_partial(id, sums.sum(*sum, group)),
                    Source::Fold(fold, count) => {
                        let rows = count.map_or_else(|| sums.rows(group), |c| sums.sum(c, group));
                        if rows > 0 {
                            store.add_partial(id, folds[*fold].value(group));
                        }
                    }
                }
            }
        }
        partial.ids = ids;
        Ok(())
    }
}

fn zeros(rows: usize, out: &mut Vec<i64>) {
    out.clear();
    out.resize(rows, 0);
}

fn bits_of(largest: u128) -> u32 {
    u128::BITS - largest.leading_zeros()
}

/// Gives rows that are not selected the group `aside`.
fn set_aside(groups: &mut [u32], selected: &[u64], aside: usize) {
    let aside = u32_checked(aside);
    let rows = groups.len();
    for (index, word) in selected.iter().enumerate() {
        let mut missing = !word;
        while missing != 0 {
            let row = index * 64 + missing.trailing_zeros() as usize;
            if row >= rows {
                break;
            }
            groups[row] = aside;
            missing &= missing - 1;
        }
    }
}
