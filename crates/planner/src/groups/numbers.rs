//! A set of small integers ([`Bits`]), and a list of distinct values that gives equal values the same index
//! ([`Numbers`]).

use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// A set of small integers, as a bitmap.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Bits(Vec<u64>);

impl Bits {
    pub(super) fn of(numbers: impl IntoIterator<Item = usize>) -> Self {
        let mut bits = Bits::default();
        for number in numbers {
            let words = bits.0.len().max(number / 64 + 1);
            bits.0.resize(words, 0);
            bits.0[number / 64] |= 1 << (number % 64);
        }
        bits
    }

    pub(super) fn and(&self, other: &Bits) -> Bits {
        Bits(self.0.iter().zip(&other.0).map(|(a, b)| a & b).collect())
    }

    pub(super) fn or(&self, other: &Bits) -> Bits {
        let (long, short) = if self.0.len() < other.0.len() { (other, self) } else { (self, other) };
        let mut all = long.clone();
        all.0.iter_mut().zip(&short.0).for_each(|(a, b)| *a |= b);
        all
    }

    pub(super) fn meets(&self, other: &Bits) -> bool {
        self.0.iter().zip(&other.0).any(|(a, b)| a & b != 0)
    }

    pub(super) fn numbers(&self) -> impl Iterator<Item = usize> {
        self.0.iter().enumerate().flat_map(|(word, bits)| {
            let mut left = *bits;
            std::iter::from_fn(move || {
                let bit = left.trailing_zeros() as usize;
                left &= left.wrapping_sub(1);
                (bit < 64).then_some(word * 64 + bit)
            })
        })
    }
}

/// A list of distinct values. Values are looked up by their text first, so that equal values must have equal texts.
#[derive(Debug)]
pub(super) struct Numbers<T> {
    pub(super) all: Vec<T>,
    by_text: HashMap<String, Vec<usize>>,
}

impl<T: PartialEq> Numbers<T> {
    pub(super) fn new() -> Self {
        Numbers { all: Vec::new(), by_text: HashMap::new() }
    }

    /// Returns the index of `thing`, and whether it was added just now. `text` must be the text of `thing`, by which
    /// equal values are found.
    pub(super) fn number(&mut self, text: String, thing: T) -> (usize, bool) {
        let places = match self.by_text.entry(text) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(Vec::new()),
        };
        if let Some(at) = places.iter().copied().find(|at| self.all[*at] == thing) {
            return (at, false);
        }
        places.push(self.all.len());
        self.all.push(thing);
        (self.all.len() - 1, true)
    }
}
