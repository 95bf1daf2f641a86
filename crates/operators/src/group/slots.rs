//! The slots of an open-addressing table: which group a hash leads to.
//!
//! Rows of a batch are looked up in two passes. The first follows no chain: it reads one slot per row, so that the
//! processor overlaps the cache misses of many rows. The second compares keys, and follows the chains of those that
//! are not where they would be alone. Measured at 1 M groups, open addressing with overlapped misses took a third of
//! the time of a `hashbrown` map.
//!
//! Slots hold no keys: many more of them fit a cache.

use farpool_columns::working;
use farpool_model::cast::u32_checked;

/// No group.
pub(super) const NONE: u32 = u32::MAX;

const SLOTS_MIN: usize = 256;

/// What a slot holds of a group.
pub(super) trait Slot: Copy {
    /// A slot without a group.
    const FREE: Self;

    /// The slot of `group`, whose key has `hash`.
    fn of(group: u32, hash: u64) -> Self;

    /// The group, [`NONE`] if there is none.
    fn group(self) -> u32;

    /// Whether the key of the group, if there is one, can have `hash`.
    fn may_have(self, hash: u64) -> bool;
}

/// Only the group: where keys are compared as fast as anything that stood beside it.
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

/// Slots, a power of two, of which at most half are taken.
pub(super) struct Slots<S> {
    slots: Vec<S>,
}

impl<S: Slot> Slots<S> {
    /// The most bytes per group, once there are some: slots just grown.
    pub(super) const BYTES_PER_GROUP: usize = 4 * size_of::<S>();

    /// Slots of no group.
    pub(super) fn new() -> Self {
        Slots { slots: working::filled(S::FREE, SLOTS_MIN) }
    }

    /// Makes room for `groups` groups in slots that are all free; whether there was too little.
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

    /// Adds to `groups` which group each key may have, by the slot where it would be alone; [`NONE`] where it has
    /// another or none.
    #[inline]
    pub(super) fn first_looks(&self, hashes: impl Iterator<Item = u64>, groups: &mut Vec<u32>) {
        let mask = self.slots.len() - 1;
        groups.extend(hashes.map(|hash| {
            let slot = self.slots[hash as usize & mask];
            if slot.may_have(hash) { slot.group() } else { NONE }
        }));
    }

    /// The group whose key has `hash` and of which `is_it` is true, or, where there is none, `next`, which has its slot
    /// from now on. Then [`Self::make_room`] is called.
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

    /// Doubles the slots if more than half of them are taken by the groups whose hashes are `hashes`.
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
    /// Slots between where groups would be alone and where they are: what looking all of them up costs.
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

    /// Interns `keys`, whose hashes are few, as tables do, and compares with a list that is searched.
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
