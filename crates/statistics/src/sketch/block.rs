//! The hashes of a block of values, on which all the sketches of a column work in turn.

use crate::hash::Hash;
use farpool_model::{Literal, limits};

/// The first and second words of the hashes of up to [`limits::BLOCK_ROWS`] values.
#[derive(Clone, Debug)]
pub(crate) struct Hashes {
    low: Box<[u64; limits::BLOCK_ROWS]>,
    high: Box<[u64; limits::BLOCK_ROWS]>,
    len: usize,
}

impl Default for Hashes {
    fn default() -> Hashes {
        Hashes { low: Box::new([0; limits::BLOCK_ROWS]), high: Box::new([0; limits::BLOCK_ROWS]), len: 0 }
    }
}

impl Hashes {
    /// Takes the place of the hashes before.
    pub fn fill(&mut self, hashes: impl Iterator<Item = Hash>) {
        self.len = 0;
        for (i, hash) in hashes.take(limits::BLOCK_ROWS).enumerate() {
            (self.low[i], self.high[i]) = (hash.low, hash.high);
            self.len = i + 1;
        }
    }

    pub fn len(&self) -> usize {
        self.len
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
