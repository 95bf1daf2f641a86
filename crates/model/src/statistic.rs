//! The statistics of columns that a program computes, as plain data (M. Chiosa's thesis, ETH Zurich no. 29551,
//! sections 3.2 and 4.2).

/// The sketches of a column to compute, with their parameters. All use one 128-bit hash per item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SketchParameters {
    /// Precision P of HyperLogLog, which has 2^P registers, for the number of distinct values; `None` for no such
    /// sketch.
    pub distinct: Option<u8>,
    /// Size of Count-Min, for the frequency of a value; `None` for no such sketch.
    pub frequency: Option<Counters>,
    /// Size of Fast-AGMS, for the second moment and the size of joins; `None` for no such sketch.
    pub second_moment: Option<Counters>,
    /// Number of the most frequent values to keep in addition to the counters.
    pub top: u32,
    /// Parameter k of KLL, the size of its highest level, for quantiles of numbers, dates and timestamps; `None` for no
    /// such sketch.
    pub quantiles: Option<u16>,
}

/// The size of a sketch that is a table of counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Counters {
    /// Number of independent rows.
    pub rows: u8,
    /// Binary logarithm of the number of counters per row.
    pub precision: u8,
}

/// The rows that are counted for a pair of columns whose joint moments are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NullHandling {
    /// Rows in which no column of the statistic is NULL.
    Listwise,
    /// Rows in which neither of the two columns is NULL.
    Pairwise,
}
