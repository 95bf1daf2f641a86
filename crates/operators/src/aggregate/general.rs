//! The *general way* of aggregation: decodes all columns to Arrow arrays. It supports every aggregation, and
//! tests compare the faster implementations with it.

use super::aggregation::Aggregation;
use super::partial::Partial;
use crate::selection::Selection;
use arrow_array::ArrayRef;
use farpool_columns::RowGroup;
use farpool_model::Result;

/// Adds the rows of one batch that passed the query's filter.
///
/// # Errors
/// `Invalid` when an expression fails on one of them.
pub(super) fn add(
    aggregation: &Aggregation,
    group: &RowGroup,
    selection: &Selection,
    partial: &mut Partial,
) -> Result<()> {
    let frame = selection.frame(group, &aggregation.columns)?;
    if !aggregation.keys.is_empty() {
        let keys = aggregation.keys.iter().map(|k| k.compiled.array(&frame));
        partial.groups.intern_arrays(keys.collect::<Result<Vec<ArrayRef>>>()?, &mut partial.ids)?;
        partial.make_room();
    }
    let ids = std::mem::take(&mut partial.ids);
    let groups = (!aggregation.keys.is_empty()).then_some(ids.as_slice());
    let masks = aggregation.condition_masks(&frame)?;
    aggregation.add_arrays(&frame, groups, &masks, &mut partial.stores, |_| true)?;
    partial.ids = ids;
    Ok(())
}
