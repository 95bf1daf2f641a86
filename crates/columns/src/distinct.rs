//! Counts the distinct values of a column while that is cheap: strings as long as every chunk has a
//! dictionary, integers as long as they span few numbers. The count is exact or not given.

use crate::chunk::Chunk;
use crate::integers::Integers;
use crate::views::slices;
use farpool_model::cast::u64_from;
use farpool_model::limits::{BLOCK_ROWS, DISTINCT_TRACKED_MAX};
use std::collections::HashSet;
use std::ops::Range;

/// The distinct values of the chunks seen so far.
#[derive(Clone, Debug, Default)]
pub(crate) enum Distinct {
    /// No value yet.
    #[default]
    Empty,
    Numbers(Numbers),
    Strings(HashSet<Box<[u8]>>),
    /// Too many, or too dear to find out.
    Unknown,
}

/// A bit for each number of a short span.
#[derive(Clone, Debug)]
pub(crate) struct Numbers {
    /// The number of the first bit: a multiple of 64.
    base: i64,
    words: Vec<u64>,
}

impl Distinct {
    /// Adds a chunk's values.
    pub fn observe(&mut self, chunk: &Chunk) {
        if chunk.null_count() == chunk.rows() || matches!(self, Distinct::Unknown) {
            return;
        }
        *self = match (std::mem::replace(self, Distinct::Unknown), chunk.integers(), chunk.dictionary()) {
            (Distinct::Empty, Some(integers), _) => {
                let numbers = Numbers { base: integers.min() & !63, words: Vec::new() };
                numbers.with(chunk, integers)
            }
            (Distinct::Numbers(numbers), Some(integers), _) => numbers.with(chunk, integers),
            (Distinct::Empty, None, Some(dictionary)) => {
                with_strings(HashSet::new(), &slices(dictionary.values()))
            }
            (Distinct::Strings(strings), None, Some(dictionary)) => {
                with_strings(strings, &slices(dictionary.values()))
            }
            _ => Distinct::Unknown,
        };
    }

    /// How many there are; `None` when that is not known.
    pub fn count(&self) -> Option<u64> {
        match self {
            Distinct::Empty => Some(0),
            Distinct::Numbers(numbers) => {
                Some(numbers.words.iter().map(|word| u64::from(word.count_ones())).sum())
            }
            Distinct::Strings(strings) => Some(u64_from(strings.len())),
            Distinct::Unknown => None,
        }
    }
}

fn with_strings(mut strings: HashSet<Box<[u8]>>, values: &[&[u8]]) -> Distinct {
    for value in values {
        if !strings.contains(*value) {
            strings.insert(Box::from(*value));
        }
    }
    if strings.len() <= DISTINCT_TRACKED_MAX { Distinct::Strings(strings) } else { Distinct::Unknown }
}

impl Numbers {
    fn with(mut self, chunk: &Chunk, integers: Integers<'_>) -> Distinct {
        let Some(bits) = self.cover(integers.min(), integers.max()) else { return Distinct::Unknown };
        if !self.all_set(bits) {
            self.set_values(chunk, integers);
        }
        Distinct::Numbers(self)
    }

    /// Makes room for the numbers from `min` to `max` and returns their bits; `None` when the span grows
    /// too long.
    fn cover(&mut self, min: i64, max: i64) -> Option<Range<usize>> {
        let last = i128::from(self.base) + 64 * self.words.len() as i128 - 1;
        let base = self.base.min(min & !63);
        let span = last.max(i128::from(max)) - i128::from(base) + 1;
        let words = usize::try_from(span).ok().filter(|span| *span <= DISTINCT_TRACKED_MAX)?.div_ceil(64);
        let in_front = ((i128::from(self.base) - i128::from(base)) / 64) as usize;
        self.words.splice(0..0, std::iter::repeat_n(0, in_front));
        self.words.resize(words.max(self.words.len()), 0);
        self.base = base;
        let bit = |number: i64| (i128::from(number) - i128::from(base)) as usize;
        Some(bit(min)..bit(max) + 1)
    }

    fn all_set(&self, mut bits: Range<usize>) -> bool {
        bits.all(|bit| self.words[bit / 64] >> (bit % 64) & 1 == 1)
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
