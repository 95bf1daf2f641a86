//! Decides whether an aggregation can partition its rows by the hash of their group keys (the *radix way*), and
//! the layout of its records (rows that are partitioned and not grouped yet).

use crate::aggregate::aggregation::{Accumulator, Aggregation, Kind};
use crate::group::HashKey;
use crate::lanes::LaneId;

/// Number of bits of the hash that select a partition. Reason: if a million groups are divided into 256 partitions, each
/// fits the L2 cache, and the write positions of 256 partitions fit the L1 cache.
pub(super) const PARTITION_BITS: u32 = 8;

/// Number of partitions.
pub(crate) const PARTITIONS: usize = 1 << PARTITION_BITS;

/// Maximum number of bytes of one worker's records, if group keys are packed into one word. With less, the hash
/// tables of the partitions would be loaded into the caches more often than the rows justify; more does not fit the
/// cache that cores share.
const BYTES_MAX: usize = 32 << 20;

/// As [`BYTES_MAX`], for group keys that are sequences of words, whose records are several times as long.
const BYTES_MAX_ROWS: usize = 256 << 20;

/// Divisor: records may take one part in this many of a worker's memory for groups.
const ROOM_PART: usize = 8;

/// Minimum number of bytes for records. With less, a partition has too few records for the radix way to pay.
const BYTES_MIN: usize = 8 << 20;

/// Bytes of the hash tables and lists of all partitions when they are empty.
const BYTES_EMPTY: usize = PARTITIONS * (8 << 10);

/// Maximum number of words of a record. Reason: writing and reading more of them costs more than a cache miss.
const WORDS_MAX: usize = 8;

/// Layout of the records of an aggregation: the packed group key, or the hash of a group key that is a sequence of
/// words; the lanes; if arguments can be NULL, a word with a bit for each one that is not NULL; and for a group key
/// that is a sequence of words, its length, followed by the group key.
#[derive(Debug)]
pub(crate) struct Shape {
    /// Number of words of a record, without its group key if that is a sequence of words.
    pub(super) words: usize,
    /// Whether group keys are sequences of words.
    pub(super) has_rows: bool,
    /// Lanes (columns or expressions evaluated as 64-bit integers) whose values are words of a record, in this order.
    pub(super) lanes: Vec<LaneId>,
    /// Arguments that have a bit in the word after the lanes.
    pub(super) masked: Vec<usize>,
    /// For each accumulator, where its value is in a record.
    pub(super) sources: Vec<Source>,
    /// Maximum number of bytes of a worker's records.
    pub(super) bytes_max: usize,
    /// Secret key of the hash function for groups.
    pub(super) hash_key: HashKey,
}

/// Position of the value of an accumulator in a record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    /// Index of the word with the value; `None` if only rows are counted.
    pub(super) word: Option<usize>,
    /// Bit that is set if the row counts; `None` if all rows count.
    pub(super) bit: Option<u32>,
}

impl Shape {
    /// Creates the layout for `aggregation` over a table; `nullable` tells which columns have NULLs. Returns `None` if
    /// the aggregation cannot use the radix way, or `bytes_max`, a worker's memory, leaves too little for records.
    pub(crate) fn fit(
        aggregation: &Aggregation,
        intervals: &[Option<(i64, i64)>],
        nullable: &dyn Fn(usize) -> bool,
        bytes_max: usize,
    ) -> Option<Shape> {
        let has_rows = aggregation.packing.is_none();
        let bytes_max = if has_rows { BYTES_MAX_ROWS } else { BYTES_MAX }.min(bytes_max / ROOM_PART);
        let is_plain = aggregation.conditions.is_empty() && aggregation.states.is_empty();
        if bytes_max < BYTES_MIN || !is_plain {
            return None;
        }
        let mut shape = Shape {
            words: 1,
            has_rows,
            lanes: Vec::new(),
            masked: Vec::new(),
            sources: Vec::new(),
            bytes_max,
            hash_key: aggregation.hash_key,
        };
        for accumulator in &aggregation.accumulators {
            let source = shape.source(aggregation, accumulator, intervals, nullable)?;
            shape.sources.push(source);
        }
        shape.words += shape.lanes.len() + usize::from(!shape.masked.is_empty()) + usize::from(has_rows);
        (shape.words <= WORDS_MAX && shape.masked.len() <= 64).then_some(shape)
    }

    /// Returns the index of the word with a bit for each argument.
    pub(super) fn valid_word(&self) -> usize {
        1 + self.lanes.len()
    }

    /// Returns the maximum number of bytes that a worker takes besides its groups.
    pub(crate) fn bytes_bound(&self) -> usize {
        self.bytes_max + BYTES_EMPTY
    }

    fn source(
        &mut self,
        aggregation: &Aggregation,
        accumulator: &Accumulator,
        intervals: &[Option<(i64, i64)>],
        nullable: &dyn Fn(usize) -> bool,
    ) -> Option<Source> {
        let Some(index) = accumulator.argument else { return Some(Source { word: None, bit: None }) };
        let argument = &aggregation.arguments[index];
        let lane = argument.lane.filter(|lane| intervals[*lane].is_some());
        let word = match accumulator.kind {
            Kind::Count if lane.is_some() || argument.compiled.as_column().is_some() => None,
            Kind::Sum | Kind::Fold(_) => Some(1 + position(&mut self.lanes, lane?)),
            Kind::Count | Kind::State(_) => return None,
        };
        let has_nulls = argument.compiled.columns().iter().any(|column| nullable(*column));
        let bit = has_nulls.then(|| position(&mut self.masked, index) as u32);
        Some(Source { word, bit })
    }
}

/// Returns the index of `item` in `items`; appends it if it is new.
fn position(items: &mut Vec<usize>, item: usize) -> usize {
    items.iter().position(|known| *known == item).unwrap_or_else(|| {
        items.push(item);
        items.len() - 1
    })
}
