//! Candidates for the most frequent values, which are found in the same pass with the counts of Count-Min.
//!
//! The first [`ALL`] rows are checked, then one row in [`STEP`]. A value whose count so far exceeds the smallest count
//! of the candidates becomes a candidate. After the first rows, each occurrence is missed with a probability of 63/64,
//! so a value with f occurrences never becomes a candidate with a probability below e^(-f/64). The counts of the answer
//! are those of Count-Min, which counts all rows. This is the only part of a sketch, besides quantiles and sums of
//! floats, that depends on the order of rows.

use super::block::{BLOCK, Block};
use crate::hash::Hash;
use farpool_model::Literal;
use std::collections::HashMap;

/// Number of rows at the beginning of a column that are all checked.
const ALL: u64 = 8 << 10;

/// After the beginning, one row in this many is checked.
const STEP: u64 = 64;

/// Number of candidates that pruning keeps per value wanted.
const SPARE: usize = 4;

#[derive(Clone, Debug)]
pub(crate) struct Candidates {
    /// Number of values wanted.
    top: usize,
    seen: u64,
    /// Candidates by the hash of their value. Two values have the same hash with a probability of only 2^-128. The
    /// map hashes this hash again with a secret key, because a client could choose values with similar hashes.
    found: HashMap<Hash, Candidate>,
    /// Count that a value must exceed to become a candidate.
    floor: u64,
}

#[derive(Clone, Debug)]
struct Candidate {
    value: Literal,
    /// Estimated count of the value when it was last checked; the current count may be higher.
    count: u64,
}

impl Candidates {
    pub fn new(top: u32) -> Candidates {
        Candidates { top: top as usize, seen: 0, found: HashMap::default(), floor: 0 }
    }

    /// Returns the maximum number of candidates after pruning, and so in an encoded state.
    pub fn kept_max(top: u32) -> usize {
        SPARE * top as usize
    }

    pub fn bytes_held(&self) -> usize {
        let value = |candidate: &Candidate| super::literal_bytes(&candidate.value);
        self.found.capacity() * size_of::<(Hash, Candidate)>() + self.found.values().map(value).sum::<usize>()
    }

    /// Checks some values of a block whose values were counted before; `count` returns the estimated count of a value.
    pub fn update(&mut self, block: &Block<'_>, count: &dyn Fn(Hash) -> u64) {
        if self.top == 0 {
            return;
        }
        match block.counts {
            None => self.update_each(block, count),
            Some(counts) => self.update_counted(block, counts, count),
        }
    }

    fn update_each(&mut self, block: &Block<'_>, count: &dyn Fn(Hash) -> u64) {
        let len = block.hashes.len() as u64;
        let (first, step) = if self.seen < ALL { (0, 1) } else { (self.seen / BLOCK as u64 % STEP, STEP) };
        for place in (first..len).step_by(step as usize) {
            self.look(block.hashes.at(place as usize), count, || (block.value)(place as usize));
        }
        self.seen += len;
    }

    /// Checks the distinct values of a block, of which each occurs as often as its count in `counts`, if at least one
    /// of the rows is to be checked.
    fn update_counted(&mut self, block: &Block<'_>, counts: &[u64], count: &dyn Fn(Hash) -> u64) {
        for (place, rows) in counts.iter().enumerate() {
            let before = self.seen;
            self.seen = self.seen.saturating_add(*rows);
            if before < ALL || before / STEP != self.seen / STEP {
                self.look(block.hashes.at(place), count, || (block.value)(place));
            }
        }
    }

    fn look(&mut self, hash: Hash, count: &dyn Fn(Hash) -> u64, value: impl FnOnce() -> Option<Literal>) {
        if self.found.contains_key(&hash) {
            return;
        }
        let count_now = count(hash);
        if count_now <= self.floor {
            return;
        }
        let Some(value) = value() else { return };
        self.found.insert(hash, Candidate { value, count: count_now });
        if self.found.len() >= 2 * SPARE * self.top {
            self.prune(count);
        }
    }

    /// Keeps only the most frequent candidates, by their current counts, which `count` returns.
    pub fn prune(&mut self, count: &dyn Fn(Hash) -> u64) {
        self.found.iter_mut().for_each(|(hash, candidate)| candidate.count = count(*hash));
        let kept = SPARE * self.top;
        if self.found.len() > kept {
            let mut order: Vec<(u64, Hash)> = self.found.iter().map(|(h, c)| (c.count, *h)).collect();
            order.sort_unstable_by(|one, other| other.cmp(one));
            order[kept..].iter().for_each(|(_, hash)| drop(self.found.remove(hash)));
            // The capacity of the map after removals depends on its secret key; a rebuilt map always has the same
            // capacity.
            let left = std::mem::take(&mut self.found);
            self.found.reserve(2 * kept);
            self.found.extend(left);
            self.floor = order[kept - 1].0;
        }
    }

    /// Merges the candidates of another sketch. The counters must have been merged before.
    pub fn merge(&mut self, other: &Candidates, count: &dyn Fn(Hash) -> u64) {
        self.seen += other.seen;
        for (hash, candidate) in &other.found {
            self.found.entry(*hash).or_insert_with(|| candidate.clone());
        }
        self.floor = 0;
        self.prune(count);
    }

    /// Inserts a candidate of a decoded state.
    pub fn insert(&mut self, hash: Hash, value: Literal) {
        self.found.insert(hash, Candidate { value, count: 0 });
    }

    pub fn seen(&self) -> u64 {
        self.seen
    }

    pub fn set_seen(&mut self, seen: u64) {
        self.seen = seen;
    }

    /// Returns the candidates that an encoded state has, ordered by their hashes.
    pub fn kept(&self, count: &dyn Fn(Hash) -> u64) -> Vec<(Hash, Literal)> {
        let mut pruned = self.clone();
        pruned.prune(count);
        let mut kept: Vec<_> = pruned.found.into_iter().map(|(hash, c)| (hash, c.value)).collect();
        kept.sort_unstable_by_key(|(hash, _)| *hash);
        kept
    }

    /// Returns all candidates, with their hashes.
    pub fn iter(&self) -> impl Iterator<Item = (Hash, &Literal)> {
        self.found.iter().map(|(hash, candidate)| (*hash, &candidate.value))
    }
}
