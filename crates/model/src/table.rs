//! Metadata and statistics of a table in the pool, available without reading its rows.

use crate::{Literal, TableName, Tier, Version};
use arrow_schema::SchemaRef;
use bytes::Bytes;
use std::sync::Arc;

/// A table version: its schema, size and statistics.
#[derive(Clone, Debug, PartialEq)]
pub struct TableInfo {
    /// The table's name.
    pub name: TableName,
    /// The version that this describes.
    pub version: Version,
    /// The canonical schema.
    pub schema: SchemaRef,
    /// Number of rows.
    pub rows: u64,
    /// Size of the data as plain Arrow arrays (strings with 32-bit offsets), in bytes.
    pub bytes_plain: u64,
    /// Size of the encoded chunks in the pool, in bytes.
    pub bytes_encoded: u64,
    /// Statistics of the columns, in schema order.
    pub columns: Vec<ColumnStatistics>,
    /// Number of rows that the version's profile covers so far. `None` when it covers all rows, or when the
    /// table is not profiled. The last rows of a table that grows by small appends are profiled once they are
    /// merged, or on request.
    pub rows_profiled: Option<u64>,
    /// Tier of the encryption of the table's values in memory, if they are encrypted.
    pub encryption: Option<Tier>,
    /// Encoded bytes that are in memory at present; the others are read from disk on demand. Set only in lists of
    /// tables, since it is counted chunk by chunk, and not by older nodes.
    pub bytes_resident: Option<u64>,
    /// Whether the table's values stay in memory.
    pub is_pinned: bool,
}

/// Statistics of a column; every number is exact except the estimates.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ColumnStatistics {
    /// Number of NULLs.
    pub null_count: u64,
    /// The least value that is not NULL; `None` when there is none or it is not known.
    pub min: Option<Literal>,
    /// The greatest value that is not NULL; `None` when there is none or it is not known.
    pub max: Option<Literal>,
    /// Number of distinct values, NULL not counted; `None` when not known.
    pub distinct_count: Option<u64>,
    /// Estimated number of distinct values, NULL not counted, where it is not known exactly.
    pub distinct_estimate: Option<u64>,
    /// Size of the column's encoded chunks, in bytes.
    pub bytes_encoded: u64,
    /// The distribution of the values, where the column was profiled. Lists of tables leave it out.
    pub spread: Option<Arc<Spread>>,
}

/// The distribution of a column's values: the part of the profile that estimates need.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Spread {
    /// Values that are certainly frequent, the most frequent first, each with the estimated number of its
    /// rows.
    pub frequent: Vec<(Literal, u64)>,
    /// Number of values, frequent ones included, in each of several bins of equal width. Empty for types
    /// whose values have no distance. Decimals are unscaled, dates are days and timestamps units since the
    /// epoch.
    pub bins: Vec<u64>,
    /// Lower edge of the first bin.
    pub low: f64,
    /// Width of a bin; the upper edge of one is the lower edge of the next.
    pub width: f64,
    /// Quantiles that divide the values into equal shares, ascending: with n of them, the i-th, counted from
    /// 1, is no less than a share `i/(n+1)` of the values. In the unit of the bins; NaN counts as infinity.
    /// Empty for types whose values have no distance.
    pub quantiles: Vec<f64>,
    /// The likely error of the shares in `quantiles`.
    pub quantile_error: f64,
}

/// Statistics collected for one table version: states of `farpool_statistics` in their encoded form.
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
    /// Restricts the statistics to these columns: the other columns' states become empty and the moments are
    /// dropped.
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
    /// The columns, by their positions in the schema.
    pub columns: Vec<u32>,
    /// The state.
    pub state: Bytes,
}
