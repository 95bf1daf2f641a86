//! Growth and shrinking of the hash index (a cuckoo hash table) by one bucket at a time: growing splits a bucket in
//! two, shrinking merges two buckets into one.
//!
//! In plain linear hashing, the buckets that have been split already are half as full as the others. Here an entry can
//! be in either of two buckets, which evens this out, so that the load (the part of the slots in use) can be the same
//! at any size.

use super::Index;
use super::bucket::{Bucket, SLOTS};
use super::table::parent;
use crate::slab::EntryAddress;
use farpool_model::Result;

/// Load in percent above which the table grows: a compromise between the cost of inserts and memory. Measured while
/// growing to 12,000 keys, where every second insert displaces an entry: at 85, 90 and 92 percent, such an insert reads
/// 5, 9 and 12 buckets, and an entry takes 10.8, 10.2 and 9.9 bytes of the index.
const CROWDED_PERCENT: usize = 91;

/// Maximum load in percent of a table that [`Index::expect`] has sized in advance: half way between [`CROWDED_PERCENT`]
/// and [`SPARSE_PERCENT`].
const EXPECTED_PERCENT: usize = 78;

/// Load in percent below which the table shrinks: so far below [`CROWDED_PERCENT`] that a table whose number of keys
/// varies by a quarter is not resized each time.
const SPARSE_PERCENT: usize = 65;

impl Index {
    /// Returns whether the table should grow if it has `len` entries. It also grows when the stash is full because
    /// displacement cannot keep up, but only if the table is more than half full, as keys with equal hashes would stay
    /// in the stash at any size.
    pub(super) fn is_crowded(&self, len: usize) -> bool {
        self.would_be_crowded(len, self.slots())
    }

    fn would_be_crowded(&self, len: usize, slots: usize) -> bool {
        len * 100 > slots * CROWDED_PERCENT || (self.stash.is_full() && len * 2 > slots)
    }

    /// Returns whether the table should shrink, that is, whether its load would be low even with one bucket less.
    pub(super) fn is_sparse(&self) -> bool {
        let fewer = self.slots().saturating_sub(SLOTS);
        self.len * 100 < fewer * SPARSE_PERCENT && !self.would_be_crowded(self.len, fewer)
    }

    /// Grows the table until it can take `len` entries without growing again, or until the pool has no memory for it.
    pub fn expect(&mut self, len: usize, hash_of: impl Fn(EntryAddress) -> u64) {
        while len.saturating_mul(100) > self.slots() * EXPECTED_PERCENT {
            if self.grow(&hash_of).is_err() {
                return;
            }
        }
    }

    /// Adds a bucket, which takes over some entries of its parent, the bucket that is split.
    ///
    /// # Errors
    /// Errors of the pool; nothing is changed then.
    pub(super) fn grow(&mut self, hash_of: &impl Fn(EntryAddress) -> u64) -> Result<()> {
        let added = self.table.len();
        if added == 0 {
            return self.table.push();
        }
        let split = self.table.next_parent();
        self.table.push()?;
        let whole = self.table.read(split);
        let mut halves = [Bucket { summary: whole.summary, ..Bucket::EMPTY }; 2];
        for (i, slot) in whole.slots.iter().enumerate().filter(|(_, slot)| !slot.is_empty()) {
            let hash = self.ordered(hash_of(slot.place()));
            let number = if slot.is_away() { hash.other() } else { hash.home() };
            let half = usize::from(self.table.address(number) == added);
            halves[half].slots[i] = *slot;
        }
        for (bucket, half) in [split, added].into_iter().zip(&halves) {
            self.table.write(bucket, half);
        }
        self.forget_after_split(&whole, [split, added]);
        self.stash.retry();
        Ok(())
    }

    /// After a bucket was split into `halves`, removes routes that no entry uses any more: from the summaries of the
    /// two halves, and from those of the home buckets of entries that are stored away from home in the halves.
    fn forget_after_split(&mut self, whole: &Bucket, halves: [usize; 2]) {
        for half in halves {
            for route in whole.summary.routes() {
                self.forget(half, route);
            }
            for slot in whole.slots.iter().filter(|slot| slot.is_away()) {
                self.forget_facing(half, slot.route());
            }
        }
    }

    /// Merges the last bucket into its parent, after moving entries elsewhere if the two have more than seven; returns
    /// false, with the two buckets left in place, if too few entries could be moved.
    pub(super) fn shrink(&mut self) -> bool {
        let last = self.table.len() - 1;
        let into = parent(last);
        while self.table.read(last).count() + self.table.read(into).count() > SLOTS {
            if !self.send_away(last, into) && !self.send_away(into, last) {
                return false;
            }
        }
        let (mut merged, other) = (self.table.read(into), self.table.read(last));
        for slot in other.slots.into_iter().filter(|slot| !slot.is_empty()) {
            let free = merged.free_slot().expect("counted above");
            merged.slots[free] = slot;
        }
        merged.summary = merged.summary.and(other.summary);
        self.table.pop();
        self.table.write(into, &merged);
        true
    }

    /// Moves an entry out of the bucket `from`, which is to be merged with the bucket `beside`, into any third bucket
    /// that the entry may be in; returns false if these buckets are full.
    fn send_away(&mut self, from: usize, beside: usize) -> bool {
        let bucket = self.table.read(from);
        for (i, slot) in bucket.slots.iter().enumerate().filter(|(_, slot)| !slot.is_empty()) {
            let (to, second) = self.table.candidate_buckets(from, slot.route());
            debug_assert!(second.is_none(), "the last bucket and its parent are known as well as any");
            if to == from || to == beside {
                continue;
            }
            if let Some(free) = self.table.read(to).free_slot() {
                self.relocate((from, i), (to, free));
                return true;
            }
        }
        false
    }
}
