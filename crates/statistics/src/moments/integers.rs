//! A vector of wide integers (sums of moments), each stored in as few 64-bit words as the column types need.

use super::wide::Wide;

/// Integers that all have the same number of words.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Integers {
    words: usize,
    all: Vec<u64>,
}

impl Integers {
    pub(crate) fn new(words: usize, count: usize) -> Integers {
        Integers { words, all: vec![0; words * count] }
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len() / self.words
    }

    pub(crate) fn bytes_held(&self) -> usize {
        8 * self.all.capacity()
    }

    #[inline]
    pub(crate) fn get(&self, index: usize) -> Wide {
        Wide::from_words(&self.all[index * self.words..][..self.words])
    }

    /// Sets one integer. The value must fit the number of words, which is enough for all sums of the layout.
    pub(crate) fn set(&mut self, index: usize, value: Wide) {
        self.all[index * self.words..][..self.words].copy_from_slice(&value.0[..self.words]);
    }

    #[inline]
    pub(crate) fn add(&mut self, index: usize, value: Wide) {
        let mut carry = false;
        for (word, other) in self.all[index * self.words..][..self.words].iter_mut().zip(value.0) {
            let (partial, first) = word.overflowing_add(other);
            let (total, second) = partial.overflowing_add(u64::from(carry));
            *word = total;
            carry = first | second;
        }
    }

    /// Adds to an integer in a vector of two words per integer.
    #[inline]
    pub(crate) fn add_narrow(&mut self, index: usize, value: i128) {
        let at = &mut self.all[2 * index..][..2];
        let old = u128::from(at[0]) | u128::from(at[1]) << 64;
        let new = old.wrapping_add(value.cast_unsigned());
        (at[0], at[1]) = (new as u64, (new >> 64) as u64);
    }

    pub(crate) fn clear(&mut self) {
        self.all.fill(0);
    }

    pub(crate) fn merge(&mut self, other: &Integers) {
        (0..self.len()).for_each(|index| self.add(index, other.get(index)));
    }
}
