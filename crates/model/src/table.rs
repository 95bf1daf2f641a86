//! What is known about a table in the pool without reading it.

use crate::{Literal, TableName, Version};
use arrow_schema::SchemaRef;
use bytes::Bytes;
use std::sync::Arc;

/// A version of a table: its schema, size and statistics.
#[derive(Clone, Debug, PartialEq)]
pub struct TableInfo {
    /// The name.
    pub name: TableName,
    /// The version that the rest is about.
    pub version: Version,
    /// The canonical schema.
    pub schema: SchemaRef,
    /// Rows.
    pub rows: u64,
    /// Bytes of the data as plain Arrow arrays (strings with 32-bit offsets).
    pub bytes_plain: u64,
    /// Bytes of the encoded chunks in the pool.
    pub bytes_encoded: u64,
    /// Statistics, a column each, in the order of the schema.
    pub columns: Vec<ColumnStatistics>,
    /// As long as not all rows are in the profile of the version: how many are. `None` when all are, or nobody makes
    /// one. The last rows of a table that grows by small appends are looked at when these are merged, or somebody asks.
    pub rows_profiled: Option<u64>,
}

/// What is known about a column; every number is exact but the estimates.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ColumnStatistics {
    /// NULLs.
    pub null_count: u64,
    /// The least value that is not NULL; `None` when there is none or it is not known.
    pub min: Option<Literal>,
    /// The greatest value that is not NULL; `None` when there is none or it is not known.
    pub max: Option<Literal>,
    /// Distinct values, NULL not counted; `None` when not known.
    pub distinct_count: Option<u64>,
    /// About how many distinct values there are, NULL not counted, where it is not known exactly.
    pub distinct_estimate: Option<u64>,
    /// Bytes of the encoded chunks.
    pub bytes_encoded: u64,
    /// How the values are spread, where that was gathered. Lists of tables leave it out.
    pub spread: Option<Arc<Spread>>,
}

/// How the values of a column are spread: what estimates need of the statistics that were gathered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Spread {
    /// Values that are surely frequent, the most frequent first, each with about how many rows have it.
    pub frequent: Vec<(Literal, u64)>,
    /// How many values are in each of some bins of equal width, the frequent ones among them; none where
    /// values have no distance. Decimals are unscaled, dates days and instants units since the epoch.
    pub bins: Vec<u64>,
    /// Where the first bin begins.
    pub low: f64,
    /// How wide a bin is, its upper edge being the lower one of the next.
    pub width: f64,
    /// Values that divide the column's into equal shares, in ascending order: with n of them, the share i / (n + 1) of the
    /// values is no greater than the i-th, counted from 1. In the unit of the bins; NaN is infinity. None where values
    /// have no distance.
    pub quantiles: Vec<f64>,
    /// By how much these shares may be off, most likely.
    pub quantile_error: f64,
}

/// What was gathered of the rows of a version of a table: states of
/// `farpool_statistics`, as they travel.
#[derive(Clone, Debug, PartialEq)]
pub struct TableStatistics {
    /// The version that they are about.
    pub table: TableInfo,
    /// A column each, in the order of the schema.
    pub columns: Vec<ColumnStates>,
    /// The moments of some of the columns together.
    pub moments: Option<MomentsState>,
}

impl TableStatistics {
    /// Of these columns only: nothing is left of the others, nor the moments.
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

/// The states of one column; none where nothing was gathered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ColumnStates {
    /// A sketch.
    pub sketch: Option<Bytes>,
    /// A histogram.
    pub histogram: Option<Bytes>,
}

/// The state of the moments of several columns.
#[derive(Clone, Debug, PartialEq)]
pub struct MomentsState {
    /// The columns, by their positions in the schema.
    pub columns: Vec<u32>,
    /// The state.
    pub state: Bytes,
}

/// What a load does when the table exists already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LoadMode {
    /// Refuse.
    Create,
    /// Add the rows; the schemas must agree.
    Append,
    /// Take the place of the table.
    Replace,
    /// Take the place of the table if it is at this version when all rows are there; refuse as `Stale` if not.
    ReplaceVersion(Version),
}
