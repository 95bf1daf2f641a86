//! Slots of a hash table with open addressing that maps group keys to group ids.
//!
//! The rows of a batch are looked up in two passes. The first reads one slot per row and follows no probe sequence, so
//! that the CPU overlaps the cache misses of many rows. The second compares group keys, and continues the probe
//! sequence for those that are not in their home slot. Measured with 1 M groups, this took a third of the time of a
//! `hashbrown` map.
//!
//! Slots do not contain group keys, so that more slots fit a cache.

use farpool_columns::working;
use farpool_model::cast::u32_checked;

/// Value in place of a group id that means "no group".
pub(super) const NONE: u32 = u32::MAX;

const SLOTS_MIN: usize = 256;

/// Content of a slot.
pub(super) trait Slot: Copy {
    /// A slot without a group.
    const FREE: Self;

    /// Returns the slot of `group`, whose group key has `hash`.
    fn of(group: u32, hash: u64) -> Self;

    /// Returns the group id; [`NONE`] if the slot is free.
    fn group(self) -> u32;

    /// Returns false only if the slot is taken and the group key of its group cannot have the hash `hash`.
    fn may_have(self, hash: u64) -> bool;
}

/// A slot with the group id only. For group keys that are compared as fast as a part of their hash would be.
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

/// A slot with the group id and the half of the hash that does not select the slot. Most group keys are then compared
/// only with the group key of their own group.
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

/// Slots of a hash table: a power of two, at most half of them taken.
pub(super) struct Slots<S> {
    slots: Vec<S>,
}

impl<S: Slot> Slots<S> {
    /// Maximum number of bytes per group, reached right after growing.
    pub(super) const BYTES_PER_GROUP: usize = 4 * size_of::<S>();

    /// Creates slots that are all free.
    pub(super) fn new() -> Self {
        Slots { slots: working::filled(S::FREE, SLOTS_MIN) }
    }

    /// Grows the slots if there are too few for `groups` groups. Returns whether it did. All slots must be free.
    pub(super) fn expect(&mut self, groups: usize) -> bool {
        let slots = (groups * 2).next_power_of_two();
        let more = slots > self.slots.len();
        if more {
            self.slots = working::filled(S::FREE, slots);
        }
        more
    }

    /// Returns the bytes of memory that the slots take.
    pub(super) fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<S>()
    }

    /// Appends to `groups` one group id per hash: the group in the home slot of the hash if its group key may have
    /// that hash, otherwise [`NONE`].
    #[inline]
    pub(super) fn first_looks(&self, hashes: impl Iterator<Item = u64>, groups: &mut Vec<u32>) {
        let mask = self.slots.len() - 1;
        groups.extend(hashes.map(|hash| {
            let slot = self.slots[hash as usize & mask];
            if slot.may_have(hash) { slot.group() } else { NONE }
        }));
    }

    /// Returns the group whose group key has `hash` and for which `is_it` returns true. If there is none, stores `next`
    /// in a free slot and returns `next`; the caller must then call [`Self::make_room`].
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

    /// Doubles the number of slots if more than half of them are taken. `hashes` must have the hash of every group.
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

    /// Looks up `keys` as hash tables of groups do, with hashes of `bits` bits so that many collide, and compares
    /// with a linear search.
    fn agrees_with_a_search<S: Slot>(keys: &[u16], bits: u32) {
        // Hashes collide in the slot, in the stored half of the hash, and in both.
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
