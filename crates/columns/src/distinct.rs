//! Counts the distinct values of a column as long as that is cheap: strings while every chunk has a dictionary,
//! integers while their range is small. The count is exact or not available.
//!
//! Each version of a table keeps the distinct values. Versions share them, so that the cost of an append is
//! proportional to the values that it adds.

use crate::chunk::Chunk;
use crate::integers::Integers;
use crate::string_set::StringSet;
use crate::views::slices;
use farpool_model::cast::u64_from;
use farpool_model::limits::{
    BLOCK_ROWS, DISTINCT_TRACKED_BYTES_MAX, DISTINCT_TRACKED_MAX, TABLE_DISTINCT_BYTES_MAX,
};
use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, LazyLock};

/// The distinct values of the chunks seen so far.
#[derive(Clone, Debug, Default)]
pub(crate) enum Distinct {
    /// No values so far.
    #[default]
    Empty,
    Numbers(Arc<IntegerBitmap>),
    Strings(StringSet),
    /// For an encrypted table, which must not have its values in the clear: hashes of the values, with a random key of
    /// this process.
    Hashes(Arc<HashSet<u64>>),
    /// Number of distinct values that was set by [`Distinct::set_count`]: the values themselves are not known.
    /// `Estimated` is the number of distinct hashes.
    Counted(u64),
    Estimated(u64),
    /// Not counted: there are too many values, or counting them is too expensive.
    Unknown,
}

/// A bitmap of the integers in a small range.
#[derive(Clone, Debug)]
pub(crate) struct IntegerBitmap {
    /// Integer of the first bit; a multiple of 64.
    base: i64,
    words: Vec<u64>,
}

impl Distinct {
    /// Adds the values of `chunk`. If they are not in memory, the count becomes unknown. Of an encrypted chunk only
    /// hashes of the values are kept.
    pub fn observe(&mut self, chunk: &Arc<Chunk>) {
        let values = chunk.values();
        let chunk = values.as_ref().unwrap_or(chunk);
        if chunk.null_count() == chunk.rows() || matches!(self, Distinct::Unknown) {
            return;
        }
        if let Some(opened) = chunk.opened() {
            *self = match std::mem::replace(self, Distinct::Unknown) {
                Distinct::Empty => with_hashes(Arc::default(), &opened),
                Distinct::Hashes(hashes) => with_hashes(hashes, &opened),
                _ => Distinct::Unknown,
            };
            return;
        }
        *self = match (std::mem::replace(self, Distinct::Unknown), chunk.integers(), chunk.dictionary()) {
            (Distinct::Empty, Some(integers), _) => {
                let numbers = IntegerBitmap { base: integers.min() & !63, words: Vec::new() };
                with_numbers(Arc::new(numbers), chunk, integers)
            }
            (Distinct::Numbers(numbers), Some(integers), _) => with_numbers(numbers, chunk, integers),
            (Distinct::Empty, None, Some(dictionary)) => {
                with_strings(StringSet::default(), &slices(dictionary.values()))
            }
            (Distinct::Strings(strings), None, Some(dictionary)) => {
                with_strings(strings, &slices(dictionary.values()))
            }
            _ => Distinct::Unknown,
        };
    }

    /// Returns the number of distinct values; `None` when it is not known.
    pub fn count(&self) -> Option<u64> {
        match self {
            Distinct::Empty => Some(0),
            Distinct::Numbers(numbers) => {
                Some(numbers.words.iter().map(|word| u64::from(word.count_ones())).sum())
            }
            Distinct::Strings(strings) => Some(u64_from(strings.len())),
            Distinct::Counted(count) => Some(*count),
            Distinct::Hashes(_) | Distinct::Estimated(_) | Distinct::Unknown => None,
        }
    }

    /// Returns the number of distinct hashes, if hashes were counted instead of values.
    pub fn estimate(&self) -> Option<u64> {
        match self {
            Distinct::Hashes(hashes) => Some(u64_from(hashes.len())),
            Distinct::Estimated(count) => Some(*count),
            _ => None,
        }
    }

    /// Sets the number of distinct values (for an encrypted table, of distinct hashes) if it is unknown here and
    /// `count` has it.
    pub fn set_count(&mut self, count: Option<u64>, is_encrypted: bool) {
        if let (Distinct::Unknown, Some(count)) = (&self, count) {
            *self = if is_encrypted { Distinct::Estimated(count) } else { Distinct::Counted(count) };
        }
    }

    /// Returns the size of the values that are kept, in bytes; shared values count in full.
    pub fn bytes(&self) -> usize {
        match self {
            Distinct::Empty | Distinct::Counted(_) | Distinct::Estimated(_) | Distinct::Unknown => 0,
            Distinct::Hashes(hashes) => hashes.capacity() * size_of::<u64>(),
            Distinct::Numbers(numbers) => numbers.words.len() * size_of::<u64>(),
            Distinct::Strings(strings) => strings.bytes(),
        }
    }

    /// Forgets the distinct values of some columns, largest first, until those of all columns fit
    /// [`TABLE_DISTINCT_BYTES_MAX`].
    pub fn bound(columns: &mut [Distinct]) {
        let mut bytes: usize = columns.iter().map(Distinct::bytes).sum();
        while bytes > TABLE_DISTINCT_BYTES_MAX
            && let Some(largest) = columns.iter_mut().max_by_key(|column| column.bytes())
        {
            bytes -= largest.bytes();
            *largest = Distinct::Unknown;
        }
    }
}

/// Adds the hashes of a chunk's values, if these can be enumerated as cheaply as those of a chunk that is not
/// encrypted.
fn with_hashes(mut hashes: Arc<HashSet<u64>>, chunk: &Chunk) -> Distinct {
    static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    let own = Arc::make_mut(&mut hashes);
    if let Some(integers) = chunk.integers() {
        let mut numbers = IntegerBitmap { base: integers.min() & !63, words: Vec::new() };
        if !numbers.cover(integers.min(), integers.max()) {
            return Distinct::Unknown;
        }
        numbers.set_values(chunk, integers);
        own.extend(numbers.iter().map(|number| HASHER.hash_one(number)));
    } else if let Some(dictionary) = chunk.dictionary() {
        own.extend(slices(dictionary.values()).iter().map(|value| HASHER.hash_one(value)));
    } else {
        return Distinct::Unknown;
    }
    if own.len() > DISTINCT_TRACKED_MAX { Distinct::Unknown } else { Distinct::Hashes(hashes) }
}

fn with_strings(mut strings: StringSet, values: &[&[u8]]) -> Distinct {
    match strings.extend(values, DISTINCT_TRACKED_MAX, DISTINCT_TRACKED_BYTES_MAX) {
        true => Distinct::Strings(strings),
        false => Distinct::Unknown,
    }
}

fn with_numbers(mut numbers: Arc<IntegerBitmap>, chunk: &Chunk, integers: Integers<'_>) -> Distinct {
    if numbers.has_all(integers.min(), integers.max()) {
        return Distinct::Numbers(numbers);
    }
    // Copied only if another version of the table shares the bitmap, which has at most 8 KiB.
    let own = Arc::make_mut(&mut numbers);
    if !own.cover(integers.min(), integers.max()) {
        return Distinct::Unknown;
    }
    own.set_values(chunk, integers);
    Distinct::Numbers(numbers)
}

impl IntegerBitmap {
    /// Returns whether all integers from `min` to `max` are in the set.
    fn has_all(&self, min: i64, max: i64) -> bool {
        let bit = |number: i64| usize::try_from(i128::from(number) - i128::from(self.base)).ok();
        let bits = bit(min).zip(bit(max)).filter(|(_, last)| last / 64 < self.words.len());
        bits.is_some_and(|(first, last)| {
            (first..last + 1).all(|bit| self.words[bit / 64] >> (bit % 64) & 1 == 1)
        })
    }

    /// Returns the integers in the set.
    fn iter(&self) -> impl Iterator<Item = i64> {
        let bits = |word: u64| (0..64).filter(move |bit| word >> bit & 1 == 1);
        let words = self.words.iter().enumerate();
        words.flat_map(move |(place, word)| bits(*word).map(move |bit| self.base + 64 * place as i64 + bit))
    }

    /// Extends the bitmap to the integers from `min` to `max`; returns false if the range is then too long.
    fn cover(&mut self, min: i64, max: i64) -> bool {
        let last = i128::from(self.base) + 64 * self.words.len() as i128 - 1;
        let base = self.base.min(min & !63);
        let span = last.max(i128::from(max)) - i128::from(base) + 1;
        let Some(span) = usize::try_from(span).ok().filter(|span| *span <= DISTINCT_TRACKED_MAX) else {
            return false;
        };
        let in_front = ((i128::from(self.base) - i128::from(base)) / 64) as usize;
        self.words.splice(0..0, std::iter::repeat_n(0, in_front));
        self.words.resize(span.div_ceil(64).max(self.words.len()), 0);
        self.base = base;
        true
    }

    fn set_values(&mut self, chunk: &Chunk, integers: Integers<'_>) {
        let mut values = Vec::new();
        for start in (0..chunk.rows()).step_by(BLOCK_ROWS) {
            let rows = start..chunk.rows().min(start + BLOCK_ROWS);
            let validity = chunk.validity(rows.clone());
            integers.unpack(rows, &mut values);
            for (row, value) in values.iter().enumerate() {
                if validity.as_ref().is_none_or(|bits| bits.value(row)) {
                    let bit = (value - self.base) as usize;
                    self.words[bit / 64] |= 1 << (bit % 64);
                }
            }
        }
    }
}
