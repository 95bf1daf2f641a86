//! What to find out about columns in one pass, as plain data (thesis, sections 3.2 and 4.2).

/// Which sketches of a column to make, each with its parameters. All come from one 128-bit hash per item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SketchParameters {
    /// HyperLogLog with 2^P registers, for the number of distinct values.
    pub distinct: Option<u8>,
    /// Count-Min, for how often a value occurs.
    pub frequency: Option<Counters>,
    /// Fast-AGMS, for the second moment and the size of joins.
    pub second_moment: Option<Counters>,
    /// How many of the most frequent values to keep beside the counters.
    pub top: u32,
    /// KLL with a highest level of so many values, for quantiles of numbers, dates and instants.
    pub quantiles: Option<u16>,
}

/// The shape of a table of counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Counters {
    /// Independent rows, R.
    pub rows: u8,
    /// Each row has 2^P counters.
    pub precision: u8,
}

/// Which rows count for a pair of columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NullHandling {
    /// Those in which no column at all is NULL.
    Listwise,
    /// Those in which neither of the two is NULL.
    Pairwise,
}
