//! Groups of keys of 64 bits, in an open-addressing table.
//!
//! Keys of a batch are looked up in two passes. The first follows no chain: it reads one slot per key, so
//! that the processor overlaps the cache misses of many keys. The second compares the keys, and follows the
//! chains of those that are not where they would be alone. Measured at 1 M groups, open addressing with
//! overlapped misses took a third of the time of a `hashbrown` map.
//!
//! Slots hold group numbers only, not keys as well: four times as many groups then fit a cache.

use super::hash::HashKey;
use farpool_columns::working;
use farpool_model::cast::u32_checked;

/// No group: a slot that is free.
const NONE: u32 = u32::MAX;

const SLOTS_MIN: usize = 256;

/// A table of groups.
pub(crate) struct IntTable {
    /// A power of two, at most half of them taken.
    slots: Vec<u32>,
    /// The key of each group.
    keys: Vec<i64>,
    hash_key: HashKey,
}

impl IntTable {
    /// The most bytes per group, once there are some: the vector of keys and the slots, just grown.
    pub(super) const BYTES_PER_GROUP: usize = 2 * size_of::<i64>() + 4 * size_of::<u32>();

    /// An empty table.
    pub(super) fn new(hash_key: HashKey) -> Self {
        IntTable { slots: working::filled(NONE, SLOTS_MIN), keys: Vec::new(), hash_key }
    }

    /// Makes room for `groups` groups in a table that is empty.
    pub(super) fn expect(&mut self, groups: usize) {
        let slots = (groups * 2).next_power_of_two().max(SLOTS_MIN);
        if self.keys.is_empty() && slots > self.slots.len() {
            self.slots = working::filled(NONE, slots);
            working::reserve(&mut self.keys, groups);
        }
    }

    /// The number of groups.
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<u32>() + self.keys.capacity() * size_of::<i64>()
    }

    /// Adds the group of each key to `ids`.
    pub(super) fn intern(&mut self, keys: &[i64], ids: &mut Vec<u32>) {
        let first = ids.len();
        let (mask, hash_key) = (self.slots.len() - 1, self.hash_key);
        ids.extend(keys.iter().map(|key| self.slots[hash_key.of_int(*key) as usize & mask]));
        for (id, key) in ids[first..].iter_mut().zip(keys) {
            if self.keys.get(*id as usize) != Some(key) {
                *id = self.insert(*key);
            }
        }
    }

    /// Adds the numbers here of the groups `wanted` of `other` to `ids`.
    pub(super) fn intern_groups(&mut self, other: &Self, wanted: &[u32], ids: &mut Vec<u32>) {
        ids.extend(wanted.iter().map(|group| self.insert(other.key(*group))));
    }

    /// The hash of a group.
    pub(super) fn hash(&self, group: u32) -> u64 {
        self.hash_key.of_int(self.key(group))
    }

    /// The key of a group.
    pub(super) fn key(&self, group: u32) -> i64 {
        self.keys[group as usize]
    }

    fn insert(&mut self, key: i64) -> u32 {
        let mask = self.slots.len() - 1;
        let mut slot = self.hash_key.of_int(key) as usize & mask;
        loop {
            match self.slots[slot] {
                NONE => break,
                group if self.keys[group as usize] == key => return group,
                _ => slot = (slot + 1) & mask,
            }
        }
        let group = u32_checked(self.keys.len());
        working::reserve(&mut self.keys, 1);
        self.keys.push(key);
        self.slots[slot] = group;
        if self.keys.len() * 2 > self.slots.len() {
            self.grow();
        }
        group
    }

    fn grow(&mut self) {
        let mask = self.slots.len() * 2 - 1;
        let mut slots = working::filled(NONE, mask + 1);
        for (group, key) in self.keys.iter().enumerate() {
            let mut slot = self.hash_key.of_int(*key) as usize & mask;
            while slots[slot] != NONE {
                slot = (slot + 1) & mask;
            }
            slots[slot] = u32_checked(group);
        }
        self.slots = slots;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: usize = 4096;

    /// Keys that all have the same slot in a table of twice as many slots, under the key that is known.
    fn colliding() -> Vec<i64> {
        let slots = 2 * KEYS as u64;
        let collides = |key: &i64| HashKey::default().of_int(*key).is_multiple_of(slots);
        (0..).filter(collides).take(KEYS).collect()
    }

    /// Slots between where the groups would be alone and where they are: what looking all of them up costs.
    fn steps(hash_key: HashKey, keys: &[i64]) -> usize {
        let mut table = IntTable::new(hash_key);
        let mut ids = Vec::new();
        table.intern(keys, &mut ids);
        assert!(ids.iter().copied().eq(0..KEYS as u32));
        let mask = table.slots.len() - 1;
        let taken = table.slots.iter().enumerate().filter(|(_, group)| **group != NONE);
        taken.map(|(slot, group)| slot.wrapping_sub(table.hash(*group) as usize) & mask).sum()
    }

    #[test]
    fn keys_made_to_collide_do_not_under_another_key() {
        let keys = colliding();
        assert!(
            steps(HashKey::default(), &keys) > KEYS * KEYS / 4,
            "they do not collide under the known key"
        );
        for seed in [0, 1, 2, u64::MAX, 1 << 63] {
            let steps = steps(HashKey::new(seed), &keys);
            assert!(steps < 4 * KEYS, "{steps} steps for {KEYS} keys");
        }
    }
}
