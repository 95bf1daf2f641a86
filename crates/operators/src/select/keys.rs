//! Filters of join keys bound to the chunks of one row group: the hashes of join keys are computed from encoded values.
//!
//! Invariant: the hash of a row is that of [`farpool_statistics::keys::of_rows`] over the decoded columns.
//!
//! A *batch* is the rows of a row group that are processed at a time, some thousand.

use crate::bits;
use crate::lanes::LaneBuffers;
use farpool_columns::{Chunk, Integers, RowGroup};
use farpool_model::KeyFilter;
use farpool_statistics::keys;
use std::ops::Range;

/// Minimum ratio of rows to selected rows of a batch at which only the selected rows are hashed; below it, all rows
/// are hashed. Reason: reading a single row takes a few times as long as reading it as part of a block.
const GATHERED_MIN: usize = 8;

/// Columns whose values form the join key, and the filter that is probed with its hash.
pub(super) struct BoundKeys<'a> {
    columns: Vec<(&'a Chunk, Source<'a>)>,
    filter: &'a KeyFilter,
}

/// Encoded values from which the hashes of a column are computed.
enum Source<'a> {
    Integers(Integers<'a>),
    /// Dictionary codes, and the hash of each dictionary entry.
    Dictionary(Integers<'a>, Vec<u64>),
}

impl<'a> BoundKeys<'a> {
    /// Binds the filter to `group`. Returns `None` if a chunk would have to be decoded.
    pub(super) fn new(columns: &[usize], filter: &'a KeyFilter, group: &'a RowGroup) -> Option<Self> {
        let source = |column: &usize| {
            let chunk = &*group.chunks[*column];
            let source = match (chunk.integers(), chunk.dictionary()) {
                (Some(integers), _) => Source::Integers(integers),
                (None, Some(dictionary)) => {
                    let hashes = keys::of_rows(std::slice::from_ref(dictionary.values())).ok()?;
                    Source::Dictionary(dictionary.codes(), hashes)
                }
                (None, None) => return None,
            };
            Some((chunk, source))
        };
        Some(BoundKeys { columns: columns.iter().map(source).collect::<Option<_>>()?, filter })
    }

    /// Returns the chunks that are read.
    pub(super) fn chunks(&self) -> impl Iterator<Item = &'a Chunk> {
        self.columns.iter().map(|(chunk, _)| *chunk)
    }

    /// Clears the bits of those rows of `range` whose join key is not in the filter; with `wanted` false, of rows whose
    /// join key may be in it. The outcome for a row with a NULL is unspecified.
    pub(super) fn retain(
        &self,
        range: Range<usize>,
        wanted: bool,
        buffers: &mut LaneBuffers,
        alive: &mut [u64],
    ) {
        let count = bits::count(alive);
        if count * GATHERED_MIN <= range.len() {
            return self.retain_few(range.start, count, wanted, buffers, alive);
        }
        if let [(_, Source::Integers(only))] = &self.columns[..] {
            let values = buffers.scratch();
            only.unpack(range, values);
            bits::retain(alive, |row| self.filter.contains(keys::of_word(values[row])) == wanted);
            return;
        }
        let mut hashes = buffers.take_bits(range.len());
        self.hash(&mut hashes, buffers.scratch(), |integers, values| integers.unpack(range.clone(), values));
        bits::retain(alive, |row| self.filter.contains(hashes[row]) == wanted);
        buffers.give_bits(hashes);
    }

    /// Clears bits as [`Self::retain`] does, in a batch with only `count` set bits, whose first row is `start`. Reads
    /// only the rows whose bits are set.
    fn retain_few(
        &self,
        start: usize,
        count: usize,
        wanted: bool,
        buffers: &mut LaneBuffers,
        alive: &mut [u64],
    ) {
        let mut rows = Vec::with_capacity(count);
        bits::for_each(alive, |row| rows.push((start + row) as u32));
        let mut hashes = buffers.take_bits(count);
        self.hash(&mut hashes, buffers.scratch(), |integers, values| integers.gather(&rows, values));
        for (row, hash) in rows.iter().zip(&hashes) {
            let row = *row as usize - start;
            alive[row / 64] &= !(u64::from(self.filter.contains(*hash) != wanted) << (row % 64));
        }
        buffers.give_bits(hashes);
    }

    /// Computes the hashes of some rows. `read` replaces the contents of its second argument by the integers of its
    /// first argument for these rows.
    fn hash(&self, hashes: &mut [u64], values: &mut Vec<i64>, read: impl Fn(&Integers<'_>, &mut Vec<i64>)) {
        for (place, (_, source)) in self.columns.iter().enumerate() {
            let put =
                |hash: &mut u64, next: u64| *hash = if place == 0 { next } else { keys::and(*hash, next) };
            match source {
                Source::Integers(integers) => {
                    read(integers, values);
                    hashes.iter_mut().zip(&*values).for_each(|(hash, v)| put(hash, keys::of_word(*v)));
                }
                Source::Dictionary(codes, known) => {
                    read(codes, values);
                    // The dictionary code of a NULL row is arbitrary, and the dictionary of a chunk of NULLs is
                    // empty.
                    let next = |code: i64| known.get(code as usize).copied().unwrap_or(0);
                    hashes.iter_mut().zip(&*values).for_each(|(hash, code)| put(hash, next(*code)));
                }
            }
        }
    }
}
