//! Runs the *fused way* of aggregation over one row group: adds values to groups in an array, directly from
//! bit-packed columns.

use super::few::FewSums;
use super::tables::{FoldTable, SumTables};
use super::totals::{add_totals, is_total};
use crate::aggregate::aggregation::Aggregation;
use crate::aggregate::dense::{DenseRows, ROWS_OF_A_PART, Scratch, Source, SumOf, Target, each_batch};
use crate::aggregate::partial::Partial;
use crate::aggregate::unfit::Fit;
use crate::lanes::{LaneBuffers, RowSet};
use crate::pace::Batches;
use farpool_columns::RowGroup;
use farpool_model::Result;
use farpool_model::cast::u32_checked;

/// Maximum number of groups of a row group. Reason: the tables must fit the L2 cache.
const DOMAIN_MAX: usize = 4096;

/// Maximum number of possible groups of a row group that has fewer rows than that. In larger row groups, there must
/// not be more possible groups than rows.
const ROWS_FEW: usize = 64;

/// The sums and folds (such as minimum) of the groups of a row group.
struct Tables {
    sums: SumTables,
    folds: Vec<FoldTable>,
}

/// Binds `aggregation` to `group`. Returns [`Unfit`] if the fused way cannot be used for `group`.
///
/// # Errors
/// Fails only on a bug in this crate.
pub(crate) fn bind<'a>(aggregation: &'a Aggregation, group: &'a RowGroup) -> Result<Fit<DenseRows<'a>>> {
    DenseRows::bind(aggregation, group, DOMAIN_MAX.min(group.rows.max(ROWS_FEW)))
}

/// Adds the rows of the batches of this step; returns the number of rows that passed the filter.
///
/// # Errors
/// Errors of evaluating the filter and the conditions.
pub(crate) fn run(
    aggregation: &Aggregation,
    rows: &DenseRows<'_>,
    batches: &mut Batches<'_>,
    buffers: &mut LaneBuffers,
    partial: &mut Partial,
) -> Result<u64> {
    let mut tables = Tables::new(rows);
    let passed = if is_total(rows) {
        let sums = &mut tables.sums;
        each_batch(batches, buffers, |selection, buffers| add_totals(rows, selection, buffers, sums))?
    } else {
        add_groups(rows, batches, buffers, &mut tables)?
    };
    flush(aggregation, rows, &tables, partial)?;
    Ok(passed)
}

/// Adds the rows of the batches of this step to their groups, for an aggregation with group keys. Parts of whole
/// blocks use [`FewSums`] if the row group allows it.
fn add_groups(
    rows: &DenseRows<'_>,
    batches: &mut Batches<'_>,
    buffers: &mut LaneBuffers,
    tables: &mut Tables,
) -> Result<u64> {
    let mut few = FewSums::of(rows);
    let (mut scratch, mut indices) = (Scratch::new(rows), Vec::new());
    let passed = each_batch(batches, buffers, |selection, buffers| {
        rows.each_part(selection, &mut indices, buffers, |part, buffers| match (&mut few, part.rows) {
            (Some(few), RowSet::Range(start, end)) => few.add(rows, (start, end), part.selected, buffers),
            _ => rows.add_part(part, buffers, &mut scratch, tables),
        })
    })?;
    tables.sums.finish();
    few.iter().for_each(|few| few.finish(&mut tables.sums));
    Ok(passed)
}

impl Tables {
    /// Creates tables without values.
    fn new(rows: &DenseRows<'_>) -> Tables {
        // There is an additional group, the discard group, to which rows that are not selected are added.
        let groups = rows.keys.domain + 1;
        let mut sums = SumTables::default();
        sums.reset(groups, &widths(rows), bits_of(ROWS_OF_A_PART as u128));
        let folds = rows.measures.folds.iter().map(|of| FoldTable::new(groups, of.fold)).collect();
        Tables { sums, folds }
    }
}

impl Target for Tables {
    fn add_sums(&mut self, rows: usize, groups: Option<&[u32]>, sums: &[&[i64]]) {
        match groups {
            Some(groups) => self.sums.add(groups, sums),
            None => self.sums.add_ungrouped(rows, sums),
        }
    }

    fn add_fold(&mut self, index: usize, groups: Option<&[u32]>, values: &[i64], mask: Option<&[u64]>) {
        self.folds[index].add(groups, values, mask);
    }
}

/// Returns for each sum the number of bits that its value over one part (at most a few thousand rows) can take;
/// `None` if a value may be negative.
fn widths(rows: &DenseRows<'_>) -> Vec<Option<u32>> {
    let width = |sum: &SumOf| match sum {
        SumOf::Rows(_) => Some(bits_of(ROWS_OF_A_PART as u128)),
        SumOf::Lane(lane, _) => {
            let (min, max) = rows.lanes.interval(*lane)?;
            let largest = u128::try_from(max).ok().filter(|_| min >= 0)? * ROWS_OF_A_PART as u128;
            Some(bits_of(largest)).filter(|bits| *bits < u64::BITS)
        }
    };
    rows.measures.sums.iter().map(width).collect()
}

/// Adds the totals of the groups that occur in the row group to the worker's hash table.
fn flush(
    aggregation: &Aggregation,
    rows: &DenseRows<'_>,
    tables: &Tables,
    partial: &mut Partial,
) -> Result<()> {
    let Tables { sums, folds } = tables;
    let occurs = |group: &u32| sums.rows(*group as usize) > 0;
    let present: Vec<u32> = (0..u32_checked(rows.keys.domain)).filter(occurs).collect();
    if present.is_empty() {
        return Ok(());
    }
    let mut ids = std::mem::take(&mut partial.ids);
    if rows.keys.is_empty() {
        ids.clear();
        ids.push(0);
    } else {
        rows.keys.intern(&present, aggregation.packing.as_deref(), &mut partial.groups, &mut ids)?;
        partial.make_room();
    }
    for (source, store) in rows.measures.sources.iter().zip(&mut partial.stores) {
        for (group, id) in present.iter().zip(&ids) {
            let (group, id) = (*group as usize, *id as usize);
            match source {
                Source::AllRows => store.add_partial(id, sums.rows(group)),
                Source::Sum(sum) => store.add_partial(id, sums.sum(*sum, group)),
                Source::Fold(fold, count) => {
                    let counted = count.map_or_else(|| sums.rows(group), |c| sums.sum(c, group));
                    if counted > 0 {
                        store.add_partial(id, folds[*fold].value(group));
                    }
                }
            }
        }
    }
    partial.ids = ids;
    Ok(())
}

fn bits_of(largest: u128) -> u32 {
    u128::BITS - largest.leading_zeros()
}
