//! Selection of the statistics of columns to collect in one pass, as plain data (thesis, sections 3.2 and 4.2).

/// Sketches of a column to compute, each with its parameters. All use one 128-bit hash per item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SketchParameters {
    /// HyperLogLog with 2^P registers, for the number of distinct values.
    pub distinct: Option<u8>,
    /// Count-Min, for the frequency of a value.
    pub frequency: Option<Counters>,
    /// Fast-AGMS, for the second moment and the size of joins.
    pub second_moment: Option<Counters>,
    /// Number of the most frequent values to keep in addition to the counters.
    pub top: u32,
    /// KLL with a highest level of this many values, for quantiles of numbers, dates and timestamps.
    pub quantiles: Option<u16>,
}

/// The shape of a table of counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Counters {
    /// Number of independent rows, R.
    pub rows: u8,
    /// Binary logarithm of the counters in a row, P.
    pub precision: u8,
}

/// Rows that are counted for a pair of columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NullHandling {
    /// Rows in which no column is NULL.
    Listwise,
    /// Rows in which neither of the two columns is NULL.
    Pairwise,
}
