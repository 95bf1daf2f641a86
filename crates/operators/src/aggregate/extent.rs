//! The rows that something is chosen for, a row group or all of a table, and what their zone maps say.

use crate::lanes::LaneId;
use farpool_columns::RowGroup;

/// Some rows, as far as they matter to what is computed of them.
pub(crate) struct Extent<'e> {
    pub(super) rows: u64,
    /// Whether a column has NULLs there.
    pub(super) nullable: &'e dyn Fn(usize) -> bool,
    /// The least and greatest value of a lane, if it can be used there.
    pub(super) interval: &'e dyn Fn(LaneId) -> Option<(i64, i64)>,
}

/// The bounds of a column, of whose chunks some may be all NULL; `None` when a chunk does not hold integers.
pub(super) fn bounds_of(groups: &[&RowGroup], column: usize) -> Option<(i64, i64)> {
    let mut bounds: Option<(i64, i64)> = None;
    for group in groups {
        let chunk = &group.chunks[column];
        if chunk.null_count() == group.rows {
            continue;
        }
        let integers = chunk.integers()?;
        let (min, max) = bounds.unwrap_or((integers.min(), integers.max()));
        bounds = Some((min.min(integers.min()), max.max(integers.max())));
    }
    bounds
}

/// Whether a column has NULLs.
pub(super) fn nullable(groups: &[&RowGroup], column: usize) -> bool {
    groups.iter().any(|group| group.chunks[column].null_count() > 0)
}
