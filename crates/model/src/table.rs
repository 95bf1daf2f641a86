//! Metadata and statistics of a table in the pool, available without reading its rows.

use crate::{Literal, TableName, Tier, Version};
use arrow_schema::SchemaRef;
use bytes::Bytes;
use std::sync::Arc;

/// Metadata of a table version: schema, size and statistics.
#[derive(Clone, Debug, PartialEq)]
pub struct TableInfo {
    /// The table's name.
    pub name: TableName,
    /// The version that the metadata describe.
    pub version: Version,
    /// The canonical schema.
    pub schema: SchemaRef,
    /// Number of rows.
    pub rows: u64,
    /// Size of the data as plain Arrow arrays (strings with 32-bit offsets), in bytes.
    pub bytes_plain: u64,
    /// Size of the encoded column chunks, in bytes.
    pub bytes_encoded: u64,
    /// Statistics of the columns, in schema order.
    pub columns: Vec<ColumnStatistics>,
    /// Number of rows that the version's profile (sketches and moments) covers so far. `None` if it covers all rows, or
    /// if the table is not profiled. The last rows of a table that grows by small appends are profiled when they are
    /// merged, or on request.
    pub rows_profiled: Option<u64>,
    /// Encryption tier of the table's values in memory; `None` if they are not encrypted.
    pub encryption: Option<Tier>,
    /// Encoded bytes that are in memory at present; the others are read from disk on demand. Set only in lists of
    /// tables, because they are counted chunk by chunk, and `None` from older nodes.
    pub bytes_resident: Option<u64>,
    /// Whether the table is pinned: its values are never evicted from memory.
    pub is_pinned: bool,
}

/// Statistics of a column. All are exact except the estimates.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ColumnStatistics {
    /// Number of NULLs.
    pub null_count: u64,
    /// The minimum of the values that are not NULL; `None` if there are none or it is not known.
    pub min: Option<Literal>,
    /// The maximum of the values that are not NULL; `None` if there are none or it is not known.
    pub max: Option<Literal>,
    /// Exact number of distinct values without NULL; `None` if it is not known.
    pub distinct_count: Option<u64>,
    /// Estimated number of distinct values without NULL, if the exact number is not known.
    pub distinct_estimate: Option<u64>,
    /// Size of the column's encoded chunks, in bytes.
    pub bytes_encoded: u64,
    /// The distribution of the values; `None` if the column was not profiled, and in lists of tables.
    pub spread: Option<Arc<Spread>>,
}

/// The distribution of a column's values: the part of the column's profile that the estimates of a query planner need.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Spread {
    /// Values that are certainly frequent, each with the estimated number of its rows; the most frequent first.
    pub frequent: Vec<(Literal, u64)>,
    /// Histogram: number of values, frequent ones included, in each of several bins of equal width. Empty for types
    /// without distances between values, such as strings. Decimals count as unscaled integers, dates as days, and
    /// timestamps as units since the epoch.
    pub bins: Vec<u64>,
    /// Lower edge of the first bin.
    pub low: f64,
    /// Width of a bin.
    pub width: f64,
    /// Quantiles in ascending order, which divide the values into equal shares: with n quantiles, the i-th (from 1) is
    /// at least as large as a share `i/(n+1)` of the values. In the unit of the bins; NaN counts as infinity. Empty for
    /// types without distances between values.
    pub quantiles: Vec<f64>,
    /// Likely error of the shares that `quantiles` divide the values into.
    pub quantile_error: f64,
}

/// Statistics collected for one table version, as encoded states of the crate `farpool_statistics`.
#[derive(Clone, Debug, PartialEq)]
pub struct TableStatistics {
    /// The table version that the states describe.
    pub table: TableInfo,
    /// The states of each column, in schema order.
    pub columns: Vec<ColumnStates>,
    /// The joint moments of some of the columns.
    pub moments: Option<MomentsState>,
}

impl TableStatistics {
    /// Keeps the states of the columns at these indexes only: those of other columns become empty, and the joint
    /// moments are removed.
    #[must_use]
    pub fn of(self, columns: &[usize]) -> TableStatistics {
        let TableStatistics { table, columns: states, .. } = self;
        let wanted =
            |(place, states)| if columns.contains(&place) { states } else { ColumnStates::default() };
        TableStatistics {
            table,
            columns: states.into_iter().enumerate().map(wanted).collect(),
            moments: None,
        }
    }
}

/// The encoded states of one column; `None` where a state was not collected.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ColumnStates {
    /// The sketch.
    pub sketch: Option<Bytes>,
    /// The histogram.
    pub histogram: Option<Bytes>,
}

/// The encoded state of the joint moments of several columns.
#[derive(Clone, Debug, PartialEq)]
pub struct MomentsState {
    /// The columns, by their indexes in the schema.
    pub columns: Vec<u32>,
    /// The encoded state.
    pub state: Bytes,
}
