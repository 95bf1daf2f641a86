//! Stamps of entries, sampling and eviction within one table.

use super::{Table, is_valid};
use crate::entry::{self, Entry};
use crate::evict::{EvictionFacts, Stamp};
use crate::slab::{EntryAddress, SlabCursor};

/// A randomly sampled entry.
pub(crate) struct Sample {
    pub hash: u64,
    pub facts: EvictionFacts,
}

impl Table {
    /// Sets the stamp for new keys.
    pub fn set_fresh(&mut self, stamp: Stamp) {
        self.fresh = stamp;
    }

    /// Notes that a key is used. `stamp` computes the new stamp from the old one, or from `None` if the key is absent
    /// at `now`; in that case the result becomes the stamp of the next new key.
    pub fn note_use(&mut self, hash: u64, key: &[u8], now: u64, stamp: impl FnOnce(Option<Stamp>) -> Stamp) {
        let Some(place) = self.find(hash, key) else {
            self.fresh = stamp(None);
            return;
        };
        let entry = Entry::of(self.slabs.bytes(place));
        let old = entry.stamp();
        // An expired entry will be overwritten as a new key.
        let new = stamp(Some(old).filter(|_| is_valid(entry, now)));
        if new != old {
            entry::set_stamp(self.slabs.bytes_mut(place), new);
        }
    }

    /// Replaces the stamps of up to `most` entries from `cursor` on by `f` of them. Returns the number of entries and
    /// the next cursor; `None` at the end.
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

    /// Returns an entry chosen by a random number, expired or not.
    pub fn sample(&self, random: u64) -> Option<Sample> {
        self.index.any(random).map(|place| self.sample_at(place))
    }

    /// Calls `f` with samples of entries that have an expiry until it returns false; visits at most `most` entries.
    /// Continues where the last call, or the last removal of expired keys, has stopped.
    pub fn sample_expiring(&mut self, most: usize, mut f: impl FnMut(Sample) -> bool) {
        let (mut seen, mut left) = (std::mem::take(&mut self.seen), most);
        while left > 0 {
            let next = self.slabs.written_from(self.expiry_cursor, left.min(super::EXPIRY_STEP), &mut seen);
            self.expiry_cursor = next.unwrap_or_default();
            left = left.saturating_sub(seen.len().max(1));
            for place in seen.drain(..) {
                let expires = Entry::of(self.slabs.bytes(place)).expiry().is_some();
                if expires && !f(self.sample_at(place)) {
                    // The rest of this step is visited again in the next round.
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

    /// Returns the eviction facts of the entry whose key has this hash.
    pub fn facts_of(&self, hash: u64) -> Option<EvictionFacts> {
        self.find_hash(hash).map(|place| facts(Entry::of(self.slabs.bytes(place))))
    }

    /// Removes the entry whose key has this hash; returns the key.
    pub fn evict(&mut self, hash: u64) -> Option<Box<[u8]>> {
        let place = self.find_hash(hash)?;
        let key = Box::from(Entry::of(self.slabs.bytes(place)).key());
        self.remove_at(hash, place);
        Some(key)
    }

    /// Returns the eviction facts of a key that exists at `now`.
    pub fn facts(&self, hash: u64, key: &[u8], now: u64) -> Option<EvictionFacts> {
        self.get(hash, key, now).map(facts)
    }

    /// Ends the oldest cut, or frees the rest of ended ones, because writes need memory. Returns whether there was any.
    pub fn give_up_cut(&mut self) -> bool {
        self.slabs.give_up_cut()
    }

    /// Returns pages without entries to the pool, including those kept for further entries.
    pub fn trim(&mut self) {
        self.slabs.trim();
    }
}

fn facts(entry: Entry<'_>) -> EvictionFacts {
    EvictionFacts { stamp: entry.stamp(), expiry: entry.expiry() }
}
