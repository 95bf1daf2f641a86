//! Entries that found no slot in either of their buckets. Each is visible as any other, by the route in the summary
//! of the bucket where its key is at home.

use super::bucket::KeyHash;
use crate::slab::Place;

/// Entries of a full stash. Displacement keeps it almost empty: more can only be keys that collide on purpose, or a table
/// that may not grow.
const ENTRIES: usize = 32;

/// An entry in the stash.
#[derive(Clone, Copy, Debug)]
pub struct Stashed {
    pub hash: KeyHash,
    pub place: Place,
}

#[derive(Debug, Default)]
pub struct Stash {
    entries: Vec<Stashed>,
    /// The index of the entry that was tried last.
    turn: usize,
    /// Entries that were tried without success since something changed.
    stuck: usize,
}

impl Stash {
    pub fn entries(&self) -> &[Stashed] {
        &self.entries
    }

    pub fn is_full(&self) -> bool {
        self.entries.len() == ENTRIES
    }

    /// Whether inserts have to help to empty it.
    pub fn is_filling(&self) -> bool {
        self.entries.len() >= ENTRIES / 2
    }

    /// Returns the index of an entry with this hash that `is_it` is true for.
    pub fn find(&self, hash: KeyHash, is_it: impl Fn(Place) -> bool) -> Option<usize> {
        self.entries.iter().position(|entry| entry.hash == hash && is_it(entry.place))
    }

    pub fn push(&mut self, hash: KeyHash, place: Place) {
        assert!(!self.is_full(), "the stash is bounded");
        self.entries.push(Stashed { hash, place });
        self.retry();
    }

    pub fn replace(&mut self, index: usize, place: Place) {
        self.entries[index].place = place;
    }

    pub fn remove(&mut self, index: usize) {
        self.entries.swap_remove(index);
        self.retry();
        if self.entries.is_empty() {
            // Most indexes never need one again.
            self.entries = Vec::new();
        }
    }

    /// Whether there are entries that may find room.
    pub fn has_untried(&self) -> bool {
        self.stuck < self.entries.len()
    }

    /// Returns the index of the next entry that may find room, in turns. It counts as tried then.
    pub fn next_untried(&mut self) -> Option<usize> {
        if !self.has_untried() {
            return None;
        }
        self.stuck += 1;
        self.turn = (self.turn + 1) % self.entries.len();
        Some(self.turn)
    }

    /// Says that there may be room again for entries that were tried.
    pub fn retry(&mut self) {
        self.stuck = 0;
    }
}
