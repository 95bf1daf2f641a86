//! When or how often entries are used, and which of them could go.

use super::{Table, is_valid};
use crate::entry::{self, Entry};
use crate::evict::{Facts, Stamp};
use crate::slab::{Place, SlabCursor};

/// An entry that was chosen at random.
pub(crate) struct Sample {
    pub hash: u64,
    pub facts: Facts,
}

impl Table {
    /// Sets the stamp of keys that come to be.
    pub fn set_fresh(&mut self, stamp: Stamp) {
        self.fresh = stamp;
    }

    /// Says that a key is used: `stamp` makes a stamp of the one that it has, or of none where it is not there at `now`. Then it
    /// is that of the key if it comes to be next.
    pub fn note_use(&mut self, hash: u64, key: &[u8], now: u64, stamp: impl FnOnce(Option<Stamp>) -> Stamp) {
        let Some(place) = self.find(hash, key) else {
            self.fresh = stamp(None);
            return;
        };
        let entry = Entry::of(self.slabs.bytes(place));
        let old = entry.stamp();
        // What has expired is overwritten as a new key.
        let new = stamp(Some(old).filter(|_| is_valid(entry, now)));
        if new != old {
            entry::set_stamp(self.slabs.bytes_mut(place), new);
        }
    }

    /// Gives some entries from `cursor` on the stamp that `f` makes of theirs. Returns how many they were, and the cursor of the
    /// next; `None` at the end.
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

    fn sample_at(&self, place: Place) -> Sample {
        let entry = Entry::of(self.slabs.bytes(place));
        Sample { hash: self.hasher.hash(entry.key()), facts: facts(entry) }
    }

    /// Returns an entry that a random number chooses, whether it has expired or not.
    pub fn sample(&self, random: u64) -> Option<Sample> {
        self.index.any(random).map(|place| self.sample_at(place))
    }

    /// Calls `f` with those of some entries that expire, from where this or the removal of what has expired has come, until it
    /// returns false. `most` are looked at.
    pub fn sample_expiring(&mut self, most: usize, mut f: impl FnMut(Sample) -> bool) {
        let (mut seen, mut left) = (std::mem::take(&mut self.seen), most);
        while left > 0 {
            let next = self.slabs.written_from(self.expiry_cursor, left.min(super::EXPIRY_STEP), &mut seen);
            self.expiry_cursor = next.unwrap_or_default();
            left = left.saturating_sub(seen.len().max(1));
            for place in seen.drain(..) {
                let expires = Entry::of(self.slabs.bytes(place)).expiry().is_some();
                if expires && !f(self.sample_at(place)) {
                    // Those of this step that were not looked at come again in the next round.
                    left = 0;
                    break;
                }
            }
        }
        seen.clear();
        self.seen = seen;
    }

    fn find_hash(&self, hash: u64) -> Option<Place> {
        self.index.find(hash, |place| self.hasher.hash(Entry::of(self.slabs.bytes(place)).key()) == hash)
    }

    /// What decides whether the entry goes whose key has this hash.
    pub fn facts_of(&self, hash: u64) -> Option<Facts> {
        self.find_hash(hash).map(|place| facts(Entry::of(self.slabs.bytes(place))))
    }

    /// Removes the entry whose key has this hash, and returns the key.
    pub fn evict(&mut self, hash: u64) -> Option<Box<[u8]>> {
        let place = self.find_hash(hash)?;
        let key = Box::from(Entry::of(self.slabs.bytes(place)).key());
        self.remove_at(hash, place);
        Some(key)
    }

    /// The facts about the entry of a key that is valid at `now`.
    pub fn facts(&self, hash: u64, key: &[u8], now: u64) -> Option<Facts> {
        self.get(hash, key, now).map(facts)
    }

    /// Ends the oldest cut, or what is left of others: memory is wanted more. Returns whether there was one.
    pub fn give_up_cut(&mut self) -> bool {
        self.slabs.give_up_cut()
    }

    /// Gives pages without entries back to the pool, also those that were kept for further entries.
    pub fn trim(&mut self) {
        self.slabs.trim();
    }
}

fn facts(entry: Entry<'_>) -> Facts {
    Facts { stamp: entry.stamp(), expiry: entry.expiry() }
}
