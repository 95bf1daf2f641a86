//! Growth and shrinking by one bucket: splits a bucket in two, or merges two into one.
//!
//! In plain linear hashing, buckets that were split already are half as full as the others. Two buckets per key even
//! this out, so that the load can be the same at any size.

use super::Index;
use super::bucket::{Bucket, SLOTS};
use super::table::parent;
use crate::slab::EntryAddress;
use farpool_model::Result;

/// Load in percent above which the table grows. Measured while growing to 12,000 keys: at 85, 90 and 92, every second
/// insert displaces an entry and reads 5, 9 and 12 buckets for it, and an entry takes 10.8, 10.2 and 9.9 bytes.
const CROWDED_PERCENT: usize = 91;

/// Load in percent of a table that was sized for its keys: half way between the other two.
const EXPECTED_PERCENT: usize = 78;

/// Load in percent below which the table shrinks: far enough below the upper bound that a space whose number of keys
/// varies by a quarter is left alone.
const SPARSE_PERCENT: usize = 65;

impl Index {
    /// Returns whether a table with `len` entries should grow. It also grows when displacement cannot keep up, but only
    /// while it is half full, as keys with equal hashes would collide at any size.
    pub(super) fn is_crowded(&self, len: usize) -> bool {
        self.would_be_crowded(len, self.slots())
    }

    fn would_be_crowded(&self, len: usize, slots: usize) -> bool {
        len * 100 > slots * CROWDED_PERCENT || (self.stash.is_full() && len * 2 > slots)
    }

    /// Returns whether the table should shrink.
    pub(super) fn is_sparse(&self) -> bool {
        let fewer = self.slots().saturating_sub(SLOTS);
        self.len * 100 < fewer * SPARSE_PERCENT && !self.would_be_crowded(self.len, fewer)
    }

    /// Grows the table until it can take `len` entries without growing again, as far as the pool has memory.
    pub fn expect(&mut self, len: usize, hash_of: impl Fn(EntryAddress) -> u64) {
        while len.saturating_mul(100) > self.slots() * EXPECTED_PERCENT {
            if self.grow(&hash_of).is_err() {
                return;
            }
        }
    }

    /// Adds a bucket, which takes over some of its parent's entries.
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

    /// Removes routes that a split has made obsolete: from the summaries of the two halves, and of buckets whose keys
    /// came to them.
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

    /// Merges the last bucket into its parent if their entries fit into one; returns whether they did.
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

    /// Moves an entry out of one of two buckets that are to be merged, to a third one.
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
