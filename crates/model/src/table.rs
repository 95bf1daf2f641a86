//! What is known about a table in the pool without reading it.

use crate::{Literal, TableName, Version};
use arrow_schema::SchemaRef;

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
}

/// What is known about a column; every number is exact.
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
    /// Bytes of the encoded chunks.
    pub bytes_encoded: u64,
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
}
