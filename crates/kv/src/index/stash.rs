//! The stash of an index: entries that found no slot in either of their two buckets. A lookup reads it only if the
//! summary of the key's home bucket has the key's route.
//!
//! Displacement keeps the stash almost empty. The stash has no bound, so that no key is refused because of its hash:
//! when most keys of a table were removed and are written again in the order of the table's own scan, thousands of
//! entries may be stashed until the table has grown. Entries beyond [`ENTRIES`] are charged to the pool
//! ([`BucketTable::stand_for`](super::table::Table::stand_for)).

use super::bucket::KeyHash;
use crate::slab::EntryAddress;
use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};

/// Number of stashed entries at which the table grows although it is not full. More are possible only for keys with
/// almost equal hashes, or while the table may not grow.
const ENTRIES: usize = 32;

/// Bytes per stashed entry: a node of the B-tree has room for 11 entries of 16 bytes and is at least half full.
const ENTRY_BYTES: usize = 48;

/// An entry in the stash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stashed {
    /// Reversed bits of the hash, so that entries of one home are adjacent at any number of buckets.
    reversed: u64,
    place: u64,
}

impl Stashed {
    pub fn new(hash: KeyHash, place: EntryAddress) -> Stashed {
        Stashed { reversed: hash.0.reverse_bits(), place: place.to_bits() }
    }

    pub fn hash(self) -> KeyHash {
        KeyHash(self.reversed.reverse_bits())
    }

    pub fn place(self) -> EntryAddress {
        EntryAddress::from_bits(self.place)
    }
}

#[derive(Debug, Default)]
pub struct Stash {
    entries: BTreeSet<Stashed>,
    /// The entry that was tried last.
    turn: Option<Stashed>,
    /// Number of entries tried without success since something changed.
    stuck: usize,
}

impl Stash {
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_full(&self) -> bool {
        self.entries.len() >= ENTRIES
    }

    /// Returns whether inserts have to help to empty the stash.
    pub fn is_filling(&self) -> bool {
        self.entries.len() >= ENTRIES / 2
    }

    /// Returns the bytes to charge to the pool for `entries` entries.
    pub fn bytes_of(entries: usize) -> usize {
        entries.saturating_sub(ENTRIES) * ENTRY_BYTES
    }

    /// Returns the entry with this hash for which `is_it` is true.
    pub fn find(&self, hash: KeyHash, is_it: impl Fn(EntryAddress) -> bool) -> Option<EntryAddress> {
        if self.entries.is_empty() {
            return None;
        }
        let reversed = hash.0.reverse_bits();
        let (first, last) = (Stashed { reversed, place: 0 }, Stashed { reversed, place: u64::MAX });
        self.entries.range(first..=last).map(|entry| entry.place()).find(|place| is_it(*place))
    }

    /// Iterates over the entries at home in a bucket, given the mask of its known bits.
    pub fn of_home(&self, bucket: usize, known: u64) -> impl Iterator<Item = Stashed> {
        let bucket = bucket as u64;
        let (first, last) = (bucket.reverse_bits(), (bucket | !known).reverse_bits());
        let range = Stashed { reversed: first, place: 0 }..=Stashed { reversed: last, place: u64::MAX };
        self.entries.range(range).copied()
    }

    /// Returns an entry chosen by a random number.
    pub fn any(&self, random: u64) -> Option<EntryAddress> {
        let from = Stashed { reversed: random, place: 0 };
        self.entries.range(from..).next().or(self.entries.first()).map(|entry| entry.place())
    }

    pub fn push(&mut self, entry: Stashed) {
        self.entries.insert(entry);
        self.retry();
    }

    pub fn replace(&mut self, hash: KeyHash, old: EntryAddress, new: EntryAddress) {
        self.entries.remove(&Stashed::new(hash, old));
        self.entries.insert(Stashed::new(hash, new));
    }

    pub fn remove(&mut self, entry: Stashed) {
        self.entries.remove(&entry);
        self.retry();
    }

    /// Returns whether there are entries that may find a slot.
    pub fn has_untried(&self) -> bool {
        self.stuck < self.entries.len()
    }

    /// Returns the next entry that may find a slot, in turn, and counts it as tried.
    pub fn next_untried(&mut self) -> Option<Stashed> {
        if !self.has_untried() {
            return None;
        }
        self.stuck += 1;
        let behind = self.turn.map_or(Unbounded, Excluded);
        self.turn = self.entries.range((behind, Unbounded)).next().or(self.entries.first()).copied();
        self.turn
    }

    /// Notes that entries tried before may find a slot now.
    pub fn retry(&mut self) {
        self.stuck = 0;
    }
}
