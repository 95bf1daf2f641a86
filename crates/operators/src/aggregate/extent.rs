//! Row count, NULLs, and value ranges of a row group or a whole table, from zone maps (minimum, maximum and NULL
//! count per column). An implementation of aggregation is chosen by them.

use crate::lanes::LaneId;
use farpool_columns::RowGroup;

/// Number of rows, NULLs, and minimum and maximum values of a row group or a table.
pub(crate) struct Extent<'e> {
    pub(super) rows: u64,
    /// Whether a column has NULLs in these rows.
    pub(super) nullable: &'e dyn Fn(usize) -> bool,
    /// Returns the least and the greatest value of a lane (a column or an expression evaluated as 64-bit integers);
    /// `None` if the lane cannot be evaluated for these rows.
    pub(super) interval: &'e dyn Fn(LaneId) -> Option<(i64, i64)>,
}

/// Returns the minimum and maximum of a column over `groups`, ignoring chunks that are all NULL; `None` if a chunk does
/// not hold integers.
pub(super) fn bounds_of(groups: &[&RowGroup], column: usize) -> Option<(i64, i64)> {
    let mut bounds: Option<(i64, i64)> = None;
    for group in groups {
        let chunk = &group.chunks[column];
        if chunk.null_count() == group.rows {
            continue;
        }
        let (least, greatest) = chunk.integer_bounds()?;
        let (min, max) = bounds.unwrap_or((least, greatest));
        bounds = Some((min.min(least), max.max(greatest)));
    }
    bounds
}

/// Returns whether a column has NULLs.
pub(super) fn nullable(groups: &[&RowGroup], column: usize) -> bool {
    groups.iter().any(|group| group.chunks[column].null_count() > 0)
}
