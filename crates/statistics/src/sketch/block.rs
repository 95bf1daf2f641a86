//! Hashes of a block of values. Each sketch of a column processes the whole block before the next sketch begins.
//! So each loop is short, and the table of each sketch is loaded into the cache once for many values.

use crate::arch::{Kernel, Level};
use crate::hash::{self, Hash, SEED};
use farpool_model::{Literal, limits};

/// Number of values per block. Measured with 2^12 to 2^14 counters, this is a tenth faster than 1024 or 16 × 1024.
/// Reason: with 1024, tables of six rows of counters were evicted from the core's cache between blocks; with larger
/// blocks, the hashes themselves are.
pub(crate) const BLOCK: usize = 4 * limits::BLOCK_ROWS;

/// Hashes of up to [`BLOCK`] values: their first words, and their second words.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hashes {
    low: Vec<u64>,
    high: Vec<u64>,
}

impl Hashes {
    /// Replaces the hashes.
    pub fn fill(&mut self, hashes: impl Iterator<Item = Hash>) {
        self.low.clear();
        self.high.clear();
        for hash in hashes.take(BLOCK) {
            self.low.push(hash.low);
            self.high.push(hash.high);
        }
    }

    /// Replaces the hashes by those of `words`.
    pub fn fill_words(&mut self, words: &[u64]) {
        self.low.resize(words.len(), 0);
        self.high.resize(words.len(), 0);
        Level::best().run(HashWords { words, low: &mut self.low, high: &mut self.high });
    }

    pub fn len(&self) -> usize {
        self.low.len()
    }

    pub fn low(&self) -> &[u64] {
        &self.low
    }

    pub fn high(&self) -> &[u64] {
        &self.high
    }

    /// Returns the words from which four rows of counters take their bits: the first words of all hashes (`word` 0) or
    /// the second words (1).
    pub fn of_lanes(&self, word: usize) -> &[u64] {
        if word == 0 { &self.low } else { &self.high }
    }

    pub fn at(&self, i: usize) -> Hash {
        Hash { low: self.low[i], high: self.high[i] }
    }

    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = Hash> {
        let both = self.low.iter().zip(&self.high);
        both.map(|(low, high)| Hash { low: *low, high: *high })
    }
}

/// A block of values.
pub(crate) struct Block<'a> {
    pub hashes: &'a Hashes,
    /// Number of occurrences of each value; `None` if each occurs once.
    pub counts: Option<&'a [u64]>,
    /// Returns the value at an index of the block; `None` if it is too long to be kept.
    pub value: &'a dyn Fn(usize) -> Option<Literal>,
}

/// Hashes words.
struct HashWords<'a> {
    words: &'a [u64],
    low: &'a mut [u64],
    high: &'a mut [u64],
}

impl Kernel for HashWords<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for ((word, low), high) in self.words.iter().zip(self.low).zip(self.high) {
            let hash = hash::murmur3_word(*word, SEED);
            (*low, *high) = (hash.low, hash.high);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_hashes_words_as_the_reference_does() {
        let words: Vec<u64> = (0..999_u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ i).collect();
        let expected: Vec<Hash> = words.iter().map(|word| hash::murmur3(&word.to_le_bytes(), SEED)).collect();
        for level in Level::all() {
            let (mut low, mut high) = (vec![0; words.len()], vec![0; words.len()]);
            level.run(HashWords { words: &words, low: &mut low, high: &mut high });
            let got = low.iter().zip(&high).map(|(low, high)| Hash { low: *low, high: *high });
            assert!(got.eq(expected.iter().copied()), "{level:?}");
        }
    }
}
