//! Decides which aggregations the radix way supports, and the layout of their records.

use crate::aggregate::aggregation::{Accumulator, Aggregation, Kind};
use crate::group::HashKey;
use crate::lanes::LaneId;

/// Bits of the hash that select a partition: partitions of a million groups fit the L2 cache, and the write
/// positions of 256 partitions fit the L1 cache.
pub(super) const PARTITION_BITS: u32 = 8;

/// Number of partitions.
pub(crate) const PARTITIONS: usize = 1 << PARTITION_BITS;

/// The most bytes of one worker's records. With fewer, tables of groups are fetched into the caches more
/// often than the rows justify; more do not fit the caches that cores share.
const BYTES_MAX: usize = 32 << 20;

/// The same limit for keys in words, whose records are several times as long.
const BYTES_MAX_ROWS: usize = 256 << 20;

/// One part in this many of a worker's memory may be taken by records.
const ROOM_PART: usize = 8;

/// Below this many bytes, the records of a partition are too few for the way to pay.
const BYTES_MIN: usize = 8 << 20;

/// Bytes of the tables and lists of all partitions, while they are empty.
const BYTES_EMPTY: usize = PARTITIONS * (8 << 10);

/// Words of the largest record: writing and reading a wider one costs more than a cache miss.
const WORDS_MAX: usize = 8;

/// Layout of the records of an aggregation: the packed key, or the hash of a key in words; the lanes; where
/// arguments can be NULL, a word with a bit for each one that is not NULL; and, for a key in words, its
/// length, after which the key follows.
#[derive(Debug)]
pub(crate) struct Shape {
    /// Words of a record, but for a key in words.
    pub(super) words: usize,
    /// Whether keys are rows of words.
    pub(super) has_rows: bool,
    /// The lanes whose values are words of a record, in this order.
    pub(super) lanes: Vec<LaneId>,
    /// The arguments that have a bit in the word after the lanes.
    pub(super) masked: Vec<usize>,
    /// For each accumulator, the position of its value.
    pub(super) sources: Vec<Source>,
    /// The most bytes of a worker's records.
    pub(super) bytes_max: usize,
    /// Key of the hashes of the groups.
    pub(super) hash_key: HashKey,
}

/// The position in a record of an accumulator's value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    /// The word that holds the value; `None` where only rows are counted.
    pub(super) word: Option<usize>,
    /// Bit that is set if the row counts; `None` if all rows do.
    pub(super) bit: Option<u32>,
}

impl Shape {
    /// Lays out the records of `aggregation` over a table; `nullable` tells which columns have NULLs. `None`
    /// when the aggregation is not eligible, or too little of a worker's `bytes_max` is left for records.
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

    /// Returns the index of the word with the NULL bits.
    pub(super) fn valid_word(&self) -> usize {
        1 + self.lanes.len()
    }

    /// Returns the most bytes that a worker holds besides groups.
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

/// Returns the index of `item` in `items`, to which it is added if it is new.
fn position(items: &mut Vec<usize>, item: usize) -> usize {
    items.iter().position(|known| *known == item).unwrap_or_else(|| {
        items.push(item);
        items.len() - 1
    })
}
