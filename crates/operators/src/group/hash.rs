//! The hash function of group keys, for hash tables of groups and for partitioning rows.
//!
//! The hash function has a secret key, which is not known outside the process. Otherwise a client that chooses the
//! grouping values could choose values with equal hashes, and every look-up would visit all groups (hash flooding). The
//! secret key is an argument, like everything random, because the order in which groups are returned depends on it, and
//! a simulation must repeat an execution from its seed.

/// Secret key of the hash function. All hash tables of one execution must have the same key, because the groups of
/// different workers are merged by their hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashKey {
    mask: u64,
    factor: u64,
}

impl Default for HashKey {
    /// Creates a fixed key, which is not secret: for data that is trusted.
    fn default() -> Self {
        HashKey { mask: 0x9e37_79b9_7f4a_7c15, factor: 0xe703_7ed1_a0b4_28db }
    }
}

impl HashKey {
    /// Derives a key from `seed`. The key is secret if the seed is.
    pub fn new(seed: u64) -> Self {
        let mask = mixed(seed.wrapping_add(0x9e37_79b9_7f4a_7c15));
        HashKey { mask, factor: mixed(mask ^ seed.rotate_left(32)) | 1 }
    }

    /// Returns the hash of a 64-bit group key. Its top bits select the partition, its low bits the slot in a hash
    /// table.
    #[inline]
    pub(crate) fn of_int(self, key: i64) -> u64 {
        self.fold(key.cast_unsigned())
    }

    /// Returns the hash of the group keys of a row, encoded as a sequence of words. Equal sequences have equal hashes
    /// in all tables with this secret key.
    pub(super) fn of_row(self, row: &[i64]) -> u64 {
        row.iter().fold(0, |hash, word| self.fold(hash ^ word.cast_unsigned()))
    }

    /// Returns the folded product, as in wyhash: the XOR of the two halves of a 128-bit product.
    #[inline]
    fn fold(self, value: u64) -> u64 {
        let product = u128::from(value ^ self.mask) * u128::from(self.factor);
        (product >> 64) as u64 ^ product as u64
    }
}

/// Applies the finalizer of SplitMix64 (Steele, Lea, Flood, 2014), which mixes all bits.
fn mixed(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
