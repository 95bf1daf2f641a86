//! Fast path of the *fused way* (aggregation directly from bit-packed columns) for aggregations without group
//! keys: columns are summed while they are unpacked.
//!
//! Usable for row groups in which every sum is that of a bit-packed column, with any mask (condition under which a
//! row counts).

use super::tables::SumTables;
use crate::aggregate::dense::{DenseRows, SumOf};
use crate::bits;
use crate::lanes::LaneBuffers;
use crate::selection::Selection;
use farpool_model::Result;
use farpool_model::cast::u64_from;

/// Returns whether this fast path can be used for all sums.
pub(super) fn is_total(rows: &DenseRows<'_>) -> bool {
    let packed = |sum: &SumOf| match sum {
        SumOf::Rows(_) => true,
        SumOf::Lane(lane, _) => rows.lanes.interval(*lane).is_none() || rows.lanes.integers(*lane).is_some(),
    };
    rows.keys.is_empty() && rows.measures.folds.is_empty() && rows.measures.sums.iter().all(packed)
}

/// Adds the rows of a batch that passed the query's filter.
pub(super) fn add_totals(
    of: &DenseRows<'_>,
    selection: &Selection,
    buffers: &mut LaneBuffers,
    sums: &mut SumTables,
) -> Result<()> {
    let mut masks = of.mask_bits(selection, buffers)?;
    if let Some(selected) = &selection.bits {
        for mask in &mut masks {
            match mask {
                Some(mask) => bits::and(mask, selected),
                None => *mask = Some(selected.clone()),
            }
        }
    }
    let count = |mask: usize| masks[mask].as_deref().map_or(selection.range.len(), bits::count);
    for (index, sum) in of.measures.sums.iter().enumerate() {
        let total = match sum {
            SumOf::Rows(mask) => count(*mask) as i64,
            SumOf::Lane(lane, mask) => match of.lanes.integers(*lane) {
                None => 0,
                Some(integers) => {
                    let (start, rows) = (selection.range.start, selection.range.len());
                    let deltas = integers.sum_deltas(start, rows, masks[*mask].as_deref());
                    // The total fits 64 bits, because the fused way requires that; intermediate results may wrap.
                    integers.min().wrapping_mul(count(*mask) as i64).wrapping_add(deltas as i64)
                }
            },
        };
        sums.add_total(index, 0, total);
    }
    sums.add_rows(0, u64_from(selection.count).cast_signed());
    Ok(())
}
