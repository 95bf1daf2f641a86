//! Which aggregations go the radix way, and what their records look like.

use crate::aggregate::aggregation::{Accumulator, Aggregation, Kind};
use crate::group::HashKey;
use crate::lanes::LaneId;

/// Bits of the hash that name a partition: a million groups make partitions that fit the L2 cache, and the
/// places where 256 partitions are written fit the L1 cache.
pub(super) const PARTITION_BITS: u32 = 8;

/// Partitions.
pub(crate) const PARTITIONS: usize = 1 << PARTITION_BITS;

/// Bytes of the records of one worker. With less, tables of groups are fetched into the caches more often
/// than rows pay for; more leaves the caches that cores share.
const BYTES_MAX: usize = 32 << 20;

/// Bytes of the records of one worker where keys are rows of words, which are several times as long as others.
const BYTES_MAX_ROWS: usize = 256 << 20;

/// The part of a worker's memory that records may take.
const ROOM_PART: usize = 8;

/// Below this the records of a partition are too few to pay.
const BYTES_MIN: usize = 8 << 20;

/// Bytes of the tables and lists of all partitions, while they are empty.
const BYTES_EMPTY: usize = PARTITIONS * (8 << 10);

/// Words of the largest record: a wider one costs more to write and read than a cache miss.
const WORDS_MAX: usize = 8;

/// What the records of an aggregation are made of: the packed key, or the hash of a key in words; the lanes;
/// where rows can be NULL, a word with a bit for each argument that is not; and the length of a key in words,
/// which lies behind the record.
#[derive(Debug)]
pub(crate) struct Shape {
    /// Words of a record, but for a key in words.
    pub(super) words: usize,
    /// Whether keys are rows of words.
    pub(super) has_rows: bool,
    /// The lanes whose values are words, in their order.
    pub(super) lanes: Vec<LaneId>,
    /// Arguments with a bit in the word behind the lanes.
    pub(super) masked: Vec<usize>,
    /// For each accumulator where its value is.
    pub(super) sources: Vec<Source>,
    /// Bytes that the records of a worker may take.
    pub(super) bytes_max: usize,
    /// That of the groups that the records become.
    pub(super) hash_key: HashKey,
}

/// Where the value that a record has for an accumulator is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    /// The word; `None` where only rows are counted.
    pub(super) word: Option<usize>,
    /// The bit that tells whether the row counts; `None` where all do.
    pub(super) bit: Option<u32>,
}

impl Shape {
    /// The records of `aggregation` over a table, whose columns `nullable` tells; `None` when it is not
    /// eligible. A worker may hold `bytes_max`.
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

    /// Where the word is that tells what is NULL.
    pub(super) fn valid_word(&self) -> usize {
        1 + self.lanes.len()
    }

    /// The most bytes that a worker holds besides groups.
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

/// The place of `item`, which is added if it is not there.
fn position(items: &mut Vec<usize>, item: usize) -> usize {
    items.iter().position(|known| *known == item).unwrap_or_else(|| {
        items.push(item);
        items.len() - 1
    })
}
