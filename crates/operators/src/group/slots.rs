//! The slots of an open-addressing hash table that maps keys to group numbers.
//!
//! Rows of a batch are looked up in two passes. The first reads one slot per row and follows no probe
//! sequence, so that the processor overlaps the cache misses of many rows. The second compares keys, and
//! probes on for those that are not at their home slot. Measured at 1 M groups, open addressing with
//! overlapped misses took a third of the time of a `hashbrown` map.
//!
//! Slots hold no keys: many more of them fit a cache.

use farpool_columns::working;
use farpool_model::cast::u32_checked;

/// No group.
pub(super) const NONE: u32 = u32::MAX;

const SLOTS_MIN: usize = 256;

/// Content of a slot.
pub(super) trait Slot: Copy {
    /// A slot without a group.
    const FREE: Self;

    /// Returns the slot of `group`, whose key has `hash`.
    fn of(group: u32, hash: u64) -> Self;

    /// Returns the group, [`NONE`] if there is none.
    fn group(self) -> u32;

    /// Returns whether the key of the group, if there is one, can have `hash`.
    fn may_have(self, hash: u64) -> bool;
}

/// Only the group number: for keys that are as fast to compare as a tag would be.
impl Slot for u32 {
    const FREE: Self = NONE;

    #[inline]
    fn of(group: u32, _: u64) -> Self {
        group
    }

    #[inline]
    fn group(self) -> u32 {
        self
    }

    #[inline]
    fn may_have(self, _: u64) -> bool {
        true
    }
}

/// The group and the half of the hash that does not choose the slot: most keys are then compared with none but their
/// own.
#[derive(Clone, Copy)]
pub(super) struct Tagged {
    tag: u32,
    group: u32,
}

impl Tagged {
    #[inline]
    fn tag_of(hash: u64) -> u32 {
        (hash >> 32) as u32
    }
}

impl Slot for Tagged {
    const FREE: Self = Tagged { tag: 0, group: NONE };

    #[inline]
    fn of(group: u32, hash: u64) -> Self {
        Tagged { tag: Self::tag_of(hash), group }
    }

    #[inline]
    fn group(self) -> u32 {
        self.group
    }

    #[inline]
    fn may_have(self, hash: u64) -> bool {
        self.tag == Self::tag_of(hash)
    }
}

/// The slots of a table: a power of two, at most half of them taken.
pub(super) struct Slots<S> {
    slots: Vec<S>,
}

impl<S: Slot> Slots<S> {
    /// The most bytes per group of a table that is not empty: slots right after growing.
    pub(super) const BYTES_PER_GROUP: usize = 4 * size_of::<S>();

    /// Creates slots that are all free.
    pub(super) fn new() -> Self {
        Slots { slots: working::filled(S::FREE, SLOTS_MIN) }
    }

    /// Grows the slots for `groups` groups if they are too few; returns whether they were. All of them must
    /// be free.
    pub(super) fn expect(&mut self, groups: usize) -> bool {
        let slots = (groups * 2).next_power_of_two();
        let more = slots > self.slots.len();
        if more {
            self.slots = working::filled(S::FREE, slots);
        }
        more
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<S>()
    }

    /// Appends to `groups`, for each hash, the group in its home slot if that may have the key, else
    /// [`NONE`].
    #[inline]
    pub(super) fn first_looks(&self, hashes: impl Iterator<Item = u64>, groups: &mut Vec<u32>) {
        let mask = self.slots.len() - 1;
        groups.extend(hashes.map(|hash| {
            let slot = self.slots[hash as usize & mask];
            if slot.may_have(hash) { slot.group() } else { NONE }
        }));
    }

    /// Returns the group whose key has `hash` and for which `is_it` is true. If there is none, stores `next`
    /// in a free slot and returns it; the caller must then call [`Self::make_room`].
    #[inline]
    pub(super) fn find_or_take(&mut self, hash: u64, next: u32, is_it: impl Fn(u32) -> bool) -> u32 {
        let mask = self.slots.len() - 1;
        let mut index = hash as usize & mask;
        loop {
            let slot = self.slots[index];
            match slot.group() {
                NONE => {
                    self.slots[index] = S::of(next, hash);
                    return next;
                }
                group if slot.may_have(hash) && is_it(group) => return group,
                _ => index = (index + 1) & mask,
            }
        }
    }

    /// Doubles the number of slots if more than half of them are taken. `hashes` are those of all groups.
    #[inline]
    pub(super) fn make_room(&mut self, hashes: impl ExactSizeIterator<Item = u64>) {
        if hashes.len() * 2 > self.slots.len() {
            self.grow(hashes);
        }
    }

    fn grow(&mut self, hashes: impl Iterator<Item = u64>) {
        let mask = self.slots.len() * 2 - 1;
        let mut slots = working::filled(S::FREE, mask + 1);
        for (group, hash) in hashes.enumerate() {
            let mut index = hash as usize & mask;
            while slots[index].group() != NONE {
                index = (index + 1) & mask;
            }
            slots[index] = S::of(u32_checked(group), hash);
        }
        self.slots = slots;
    }
}

#[cfg(test)]
impl<S: Slot> Slots<S> {
    /// Returns the sum of the distances between the home slot and the actual slot of each group: the cost of looking up
    /// all of them.
    pub(super) fn steps(&self, hash_of: impl Fn(u32) -> u64) -> usize {
        let mask = self.slots.len() - 1;
        let taken = self.slots.iter().enumerate().filter(|(_, slot)| slot.group() != NONE);
        taken.map(|(index, slot)| index.wrapping_sub(hash_of(slot.group()) as usize) & mask).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Interns `keys`, whose hashes are few, as tables of groups do, and compares with a linear search.
    fn agrees_with_a_search<S: Slot>(keys: &[u16], bits: u32) {
        // Hashes that collide in the slot, in the tag and in both.
        let hash = |key: u16| u64::from(key & ((1 << bits) - 1)) | u64::from(key % 3) << 32;
        let mut slots = Slots::<S>::new();
        let mut known: Vec<u16> = Vec::new();
        let mut looked = Vec::new();
        for key in keys {
            looked.clear();
            slots.first_looks([hash(*key)].into_iter(), &mut looked);
            let expected = known.iter().position(|other| other == key);
            if let Some(looked) = known.get(looked[0] as usize) {
                assert!(looked != key || expected == Some(known.iter().position(|k| k == looked).unwrap()));
            }
            let next = u32_checked(known.len());
            let group = slots.find_or_take(hash(*key), next, |group| known[group as usize] == *key);
            assert_eq!(group as usize, expected.unwrap_or(known.len()));
            if expected.is_none() {
                known.push(*key);
                slots.make_room(known.iter().map(|key| hash(*key)));
            }
            assert!(known.len() * 2 <= slots.slots.len());
        }
    }

    proptest! {
        #[test]
        fn groups_are_found_whatever_collides(
            keys in proptest::collection::vec(any::<u16>(), 0..2000),
            bits in 0_u32..16,
        ) {
            agrees_with_a_search::<u32>(&keys, bits);
            agrees_with_a_search::<Tagged>(&keys, bits);
        }
    }
}
