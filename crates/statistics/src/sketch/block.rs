//! The hashes of a block of values, on which all the sketches of a column work in turn: each goes over the
//! whole block before the next begins, so that its loop is short and its table stays in the cache.

use crate::arch::{Kernel, Level};
use crate::hash::{self, Hash, SEED};
use farpool_model::{Literal, limits};

pub(crate) const BLOCK: usize = limits::BLOCK_ROWS;

/// The first and second words of the hashes of up to [`BLOCK`] values.
#[derive(Clone, Debug)]
pub(crate) struct Hashes {
    low: Box<[u64; BLOCK]>,
    high: Box<[u64; BLOCK]>,
    len: usize,
}

impl Default for Hashes {
    fn default() -> Hashes {
        Hashes { low: Box::new([0; BLOCK]), high: Box::new([0; BLOCK]), len: 0 }
    }
}

impl Hashes {
    /// Takes the place of the hashes before.
    pub fn fill(&mut self, hashes: impl Iterator<Item = Hash>) {
        self.len = 0;
        for (i, hash) in hashes.take(BLOCK).enumerate() {
            (self.low[i], self.high[i]) = (hash.low, hash.high);
            self.len = i + 1;
        }
    }

    /// The hashes of words take the place of those before.
    pub fn fill_words(&mut self, words: &[u64]) {
        self.len = words.len().min(BLOCK);
        let (low, high) = (&mut self.low[..self.len], &mut self.high[..self.len]);
        Level::best().run(HashWords { words: &words[..self.len], low, high });
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn low(&self) -> &[u64] {
        &self.low[..self.len]
    }

    pub fn high(&self) -> &[u64] {
        &self.high[..self.len]
    }

    pub fn at(&self, i: usize) -> Hash {
        Hash { low: self.low[i], high: self.high[i] }
    }

    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = Hash> {
        let both = self.low[..self.len].iter().zip(&self.high[..self.len]);
        both.map(|(low, high)| Hash { low: *low, high: *high })
    }
}

/// A block of values.
pub(crate) struct Block<'a> {
    pub hashes: &'a Hashes,
    /// How many times each value is there; once if it is not said.
    pub counts: Option<&'a [u64]>,
    /// The value at a place, if it is short enough to be kept.
    pub value: &'a dyn Fn(usize) -> Option<Literal>,
}

/// The hashes of words.
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
