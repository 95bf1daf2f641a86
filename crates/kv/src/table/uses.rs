//! The part of eviction that concerns one table: stamps of entries (records of their use), random samples, and removing
//! victims.

use super::{Table, is_valid};
use crate::entry::{self, Entry};
use crate::evict::{EvictionFacts, Stamp};
use crate::slab::{EntryAddress, SlabCursor};

/// A randomly chosen entry, as a candidate for eviction.
pub(crate) struct Sample {
    pub hash: u64,
    pub facts: EvictionFacts,
}

impl Table {
    /// Sets the stamp (record of use) that new entries get.
    pub fn set_fresh(&mut self, stamp: Stamp) {
        self.fresh = stamp;
    }

    /// Notes a use of a key. `stamp` computes the new stamp from the old one; if the key is absent at `now`, it is
    /// called with `None`, and the result becomes the stamp of the next new key.
    pub fn note_use(&mut self, hash: u64, key: &[u8], now: u64, stamp: impl FnOnce(Option<Stamp>) -> Stamp) {
        let Some(place) = self.find(hash, key) else {
            self.fresh = stamp(None);
            return;
        };
        let entry = Entry::of(self.slabs.bytes(place));
        let old = entry.stamp();
        // An expired entry counts as absent, because the key will be overwritten as a new one.
        let new = stamp(Some(old).filter(|_| is_valid(entry, now)));
        if new != old {
            entry::set_stamp(self.slabs.bytes_mut(place), new);
        }
    }

    /// Replaces the stamps of up to `most` entries from `cursor` on by the results of `f`. Returns the number of
    /// visited entries and the next cursor, which is `None` at the end.
    pub fn restamp(
        &mut self,
        cursor: SlabCursor,
        most: usize,
        f: impl Fn(Stamp) -> Stamp,
    ) -> (usize, Option<SlabCursor>) {
        let mut seen = std::mem::take(&mut self.seen);
        let next = self.slabs.written_from(cursor, most, &mut seen);
        let count = seen.len();
        for place in seen.drain(..) {
            let old = Entry::of(self.slabs.bytes(place)).stamp();
            let new = f(old);
            if new != old {
                entry::set_stamp(self.slabs.bytes_mut(place), new);
            }
        }
        self.seen = seen;
        (count, next)
    }

    fn sample_at(&self, place: EntryAddress) -> Sample {
        let entry = Entry::of(self.slabs.bytes(place));
        Sample { hash: self.hasher.hash(entry.key()), facts: facts(entry) }
    }

    /// Returns an entry chosen by a random number, which may have expired; `None` if the table is empty.
    pub fn sample(&self, random: u64) -> Option<Sample> {
        self.index.any(random).map(|place| self.sample_at(place))
    }

    /// Calls `f` with entries that have an expiry until `f` returns false, visiting at most `most` entries. Continues
    /// where the last call, or the last step of removing expired keys, has stopped.
    pub fn sample_expiring(&mut self, most: usize, mut f: impl FnMut(Sample) -> bool) {
        let (mut seen, mut left) = (std::mem::take(&mut self.seen), most);
        while left > 0 {
            let next = self.slabs.written_from(self.expiry_cursor, left.min(super::EXPIRY_STEP), &mut seen);
            self.expiry_cursor = next.unwrap_or_default();
            left = left.saturating_sub(seen.len().max(1));
            for place in seen.drain(..) {
                let expires = Entry::of(self.slabs.bytes(place)).expiry().is_some();
                if expires && !f(self.sample_at(place)) {
                    // Ends this call. The remaining entries of the step are skipped until the next round, because the
                    // cursor is past them already.
                    left = 0;
                    break;
                }
            }
        }
        seen.clear();
        self.seen = seen;
    }

    fn find_hash(&self, hash: u64) -> Option<EntryAddress> {
        self.index.find(hash, |place| self.hasher.hash(Entry::of(self.slabs.bytes(place)).key()) == hash)
    }

    /// Returns the stamp and the expiry of the entry whose key has this hash; `None` if there is none.
    pub fn facts_of(&self, hash: u64) -> Option<EvictionFacts> {
        self.find_hash(hash).map(|place| facts(Entry::of(self.slabs.bytes(place))))
    }

    /// Removes the entry whose key has this hash and returns the key; `None` if there is none.
    pub fn evict(&mut self, hash: u64) -> Option<Box<[u8]>> {
        let place = self.find_hash(hash)?;
        let key = Box::from(Entry::of(self.slabs.bytes(place)).key());
        self.remove_at(hash, place);
        Some(key)
    }

    /// Returns the stamp and the expiry of a key; `None` if it is absent or has expired at `now`.
    pub fn facts(&self, hash: u64, key: &[u8], now: u64) -> Option<EvictionFacts> {
        self.get(hash, key, now).map(facts)
    }

    /// Frees memory that cuts (point-in-time views) keep, because a write needs it; see
    /// [`Slabs::give_up_cut`](crate::slab::Slabs::give_up_cut). Returns whether there was a cut.
    pub fn give_up_cut(&mut self) -> bool {
        self.slabs.give_up_cut()
    }

    /// Returns all slab pages without entries to the pool, including those kept for further entries.
    pub fn trim(&mut self) {
        self.slabs.trim();
    }
}

fn facts(entry: Entry<'_>) -> EvictionFacts {
    EvictionFacts { stamp: entry.stamp(), expiry: entry.expiry() }
}
