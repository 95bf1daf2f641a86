//! Hash table of groups for 64-bit group keys, with open addressing ([`super::slots`]).

use super::hash::HashKey;
use super::slots::Slots;
use farpool_columns::working;
use farpool_model::cast::u32_checked;

/// Maps 64-bit group keys to group ids.
pub(crate) struct IntTable {
    slots: Slots<u32>,
    /// Group key of each group.
    keys: Vec<i64>,
    hash_key: HashKey,
}

impl IntTable {
    /// Maximum number of bytes per group, reached right after the vector of group keys and the slots have grown.
    pub(super) const BYTES_PER_GROUP: usize = 2 * size_of::<i64>() + Slots::<u32>::BYTES_PER_GROUP;

    /// Creates an empty table.
    pub(crate) fn new(hash_key: HashKey) -> Self {
        IntTable { slots: Slots::new(), keys: Vec::new(), hash_key }
    }

    /// Reserves room for `groups` groups, if the table is empty.
    pub(super) fn expect(&mut self, groups: usize) {
        if self.keys.is_empty() && self.slots.expect(groups) {
            working::reserve(&mut self.keys, groups);
        }
    }

    /// Returns the number of groups.
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Returns the bytes of memory that the table takes.
    pub(crate) fn bytes(&self) -> usize {
        self.slots.bytes() + self.keys.capacity() * size_of::<i64>()
    }

    /// Appends the id of each group key's group to `ids`. Adds groups that are new.
    pub(crate) fn intern(&mut self, keys: &[i64], ids: &mut Vec<u32>) {
        let first = ids.len();
        let hash_key = self.hash_key;
        self.slots.first_looks(keys.iter().map(|key| hash_key.of_int(*key)), ids);
        for (id, key) in ids[first..].iter_mut().zip(keys) {
            if self.keys.get(*id as usize) != Some(key) {
                *id = self.insert(*key);
            }
        }
    }

    /// Appends to `ids`, for each group id of `wanted` (ids in `other`), the id of the same group in this table. Adds
    /// groups that are new.
    pub(super) fn intern_groups(&mut self, other: &Self, wanted: &[u32], ids: &mut Vec<u32>) {
        ids.extend(wanted.iter().map(|group| self.insert(other.key(*group))));
    }

    /// Returns the hash of a group.
    pub(super) fn hash(&self, group: u32) -> u64 {
        self.hash_key.of_int(self.key(group))
    }

    /// Returns the group key of a group.
    pub(super) fn key(&self, group: u32) -> i64 {
        self.keys[group as usize]
    }

    fn insert(&mut self, key: i64) -> u32 {
        let (keys, hash_key) = (&mut self.keys, self.hash_key);
        let next = u32_checked(keys.len());
        let group = self.slots.find_or_take(hash_key.of_int(key), next, |group| keys[group as usize] == key);
        if group == next {
            working::reserve(keys, 1);
            keys.push(key);
            self.slots.make_room(keys.iter().map(|key| hash_key.of_int(*key)));
        }
        group
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: usize = 4096;

    /// Returns group keys that all have the same slot under the default secret key, in a table with twice as many
    /// slots as group keys.
    fn colliding() -> Vec<i64> {
        let slots = 2 * KEYS as u64;
        let collides = |key: &i64| HashKey::default().of_int(*key).is_multiple_of(slots);
        (0..).filter(collides).take(KEYS).collect()
    }

    /// Returns the cost of looking up all groups, as the number of probe steps.
    fn steps(hash_key: HashKey, keys: &[i64]) -> usize {
        let mut table = IntTable::new(hash_key);
        let mut ids = Vec::new();
        table.intern(keys, &mut ids);
        assert!(ids.iter().copied().eq(0..KEYS as u32));
        table.slots.steps(|group| table.hash(group))
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
