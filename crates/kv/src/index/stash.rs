//! The stash of an index: the entries for which neither of their key's two buckets has a free slot. A lookup reads the
//! stash only if the summary of the key's home bucket has the key's route.
//!
//! Displacement keeps the stash almost empty. The size of the stash has no limit, so that no key is refused because of
//! its hash: when most keys of a table were removed and are written again in the order of a scan of the same table,
//! thousands of entries may be stashed until the table has grown. Memory of entries beyond [`ENTRIES`] is charged to
//! the pool ([`BucketTable::stand_for`](super::table::BucketTable::stand_for)).

use super::bucket::KeyHash;
use crate::slab::EntryAddress;
use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};

/// Number of stashed entries from which on the table grows although its load is low. The stash has more entries only if
/// their keys have almost equal hashes, or while the table cannot grow.
const ENTRIES: usize = 32;

/// Estimated bytes per stashed entry. Reason for 48: a node of the B-tree has room for 11 entries of 16 bytes, and is
/// at least half full.
const ENTRY_BYTES: usize = 48;

/// An entry in the stash: the hash of its key and its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stashed {
    /// The bits of the hash in reverse order, by which the stash is sorted. The low bits of a hash select its home
    /// bucket, so that the entries of a home bucket form one range of the stash, however many bits the number of buckets
    /// requires.
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
    /// The stashed entry that displacement was last tried for (to move it into a bucket).
    turn: Option<Stashed>,
    /// Number of entries for which displacement was tried since a slot may have become free.
    stuck: usize,
}

impl Stash {
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_full(&self) -> bool {
        self.entries.len() >= ENTRIES
    }

    /// Returns whether the stash is half full, so that inserts have to help to empty it.
    pub fn is_filling(&self) -> bool {
        self.entries.len() >= ENTRIES / 2
    }

    /// Returns the bytes to charge to the pool for a stash of `entries` entries.
    pub fn bytes_of(entries: usize) -> usize {
        entries.saturating_sub(ENTRIES) * ENTRY_BYTES
    }

    /// Returns the address of the first entry with this hash for which `is_it` returns true; `None` if there is none.
    pub fn find(&self, hash: KeyHash, is_it: impl Fn(EntryAddress) -> bool) -> Option<EntryAddress> {
        if self.entries.is_empty() {
            return None;
        }
        let reversed = hash.0.reverse_bits();
        let (first, last) = (Stashed { reversed, place: 0 }, Stashed { reversed, place: u64::MAX });
        self.entries.range(first..=last).map(|entry| entry.place()).find(|place| is_it(*place))
    }

    /// Iterates over the entries whose home is `bucket`. `known` is the mask of the bucket's known bits
    /// ([`BucketTable::known`](super::table::BucketTable::known)).
    pub fn of_home(&self, bucket: usize, known: u64) -> impl Iterator<Item = Stashed> {
        let bucket = bucket as u64;
        let (first, last) = (bucket.reverse_bits(), (bucket | !known).reverse_bits());
        let range = Stashed { reversed: first, place: 0 }..=Stashed { reversed: last, place: u64::MAX };
        self.entries.range(range).copied()
    }

    /// Returns the address of an entry chosen by a random number; `None` if the stash is empty.
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

    /// Returns whether displacement has not been tried for all entries since the last [`Self::retry`].
    pub fn has_untried(&self) -> bool {
        self.stuck < self.entries.len()
    }

    /// Returns the next entry to try displacement for, in turn, and counts it as tried; `None` if all were tried.
    pub fn next_untried(&mut self) -> Option<Stashed> {
        if !self.has_untried() {
            return None;
        }
        self.stuck += 1;
        let behind = self.turn.map_or(Unbounded, Excluded);
        self.turn = self.entries.range((behind, Unbounded)).next().or(self.entries.first()).copied();
        self.turn
    }

    /// Notes that displacement may succeed for entries for which it failed before.
    pub fn retry(&mut self) {
        self.stuck = 0;
    }
}
