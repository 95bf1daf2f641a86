//! The hashes of a block of values, which all sketches of a column process in turn: each processes the whole
//! block before the next one begins, so that its loop is short and its table is loaded into the cache once
//! for many values.

use crate::arch::{Kernel, Level};
use crate::hash::{self, Hash, SEED};
use farpool_model::{Literal, limits};

/// Values per block. With 1 Ki, tables of six rows left the core's own cache between blocks; with more than
/// this, the hashes do (measured at 2^12 to 2^14 counters: a tenth faster than with 1 Ki or 16 Ki).
pub(crate) const BLOCK: usize = 4 * limits::BLOCK_ROWS;

/// The first and second words of the hashes of up to [`BLOCK`] values.
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

    /// Returns the words that hold the lanes of four rows: all first words (`word` 0) or all second ones.
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
    /// Returns the value at a position; `None` if it is too long to be kept.
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
