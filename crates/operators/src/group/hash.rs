//! The hash behind tables of groups and partitions of rows.
//!
//! Who chooses the keys of a table must not choose where they lie in a hash table: keys that collide under a hash that
//! is known would make every look-up a walk over all groups. So the hash has a key of its own, which nobody outside the
//! process knows. It is an argument like all randomness: the order in which groups come out depends on it, and a
//! simulation repeats a run by its seed.

/// What a hash depends on beside its value: the same for all tables of a program, whose groups are merged by hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashKey {
    mask: u64,
    factor: u64,
}

impl Default for HashKey {
    /// One that is known: for data that nobody chose to do harm.
    fn default() -> Self {
        HashKey { mask: 0x9e37_79b9_7f4a_7c15, factor: 0xe703_7ed1_a0b4_28db }
    }
}

impl HashKey {
    /// The key that `seed` gives, which is secret if the seed is.
    pub fn new(seed: u64) -> Self {
        let mask = mixed(seed.wrapping_add(0x9e37_79b9_7f4a_7c15));
        HashKey { mask, factor: mixed(mask ^ seed.rotate_left(32)) | 1 }
    }

    /// A well mixed hash of a key: the top bits name partitions, the low bits slots.
    #[inline]
    pub(crate) fn of_int(self, key: i64) -> u64 {
        self.fold(key.cast_unsigned())
    }

    /// A hash of a row of words; equal for equal rows in all tables.
    pub(super) fn of_row(self, row: &[i64]) -> u64 {
        row.iter().fold(0, |hash, word| self.fold(hash ^ word.cast_unsigned()))
    }

    /// Folded multiplication, as in wyhash: the halves of a 128-bit product.
    #[inline]
    fn fold(self, value: u64) -> u64 {
        let product = u128::from(value ^ self.mask) * u128::from(self.factor);
        (product >> 64) as u64 ^ product as u64
    }
}

/// The finalizer of SplitMix64 (Steele, Lea, Flood, 2014).
fn mixed(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
