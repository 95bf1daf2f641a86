//! The hash function of keys, SipHash-1-3 with a secret seed, so that clients cannot choose keys with equal hashes; and
//! the bijection that each index applies to these hashes.
//!
//! The hash of a key is the same for all indexes, so that it is computed once per command. Each index then permutes the
//! hashes in its own way, because of this case:
//! 1. Table A is scanned: its keys are returned in the order of A's buckets.
//! 2. They are written to table B in this order, by `COPY`, or by a client with `HKEYS` or `SCAN`.
//! 3. If B arranged hashes as A does, all keys written so far would belong in B's first buckets, however many buckets B
//!    has, and these buckets would overflow.

use siphasher::sip::SipHasher13;
use std::sync::atomic::{AtomicU64, Ordering};

/// The hash function of keys, seeded with a secret of the process. Rust's own maps use the same function, SipHash-1-3,
/// against clients that choose keys with equal hashes; Redis uses SipHash-1-2.
#[derive(Clone, Copy)]
pub struct KeyHasher(SipHasher13);

impl KeyHasher {
    /// Creates a hasher whose secret seed is `key`, 128 random bits.
    pub fn new(key: [u8; 16]) -> KeyHasher {
        KeyHasher(SipHasher13::new_with_key(&key))
    }

    /// Returns the hash of a key. Indexes use all of its bits; bits 40 to 48 also select the shard of the key.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> u64 {
        self.0.hash(key)
    }
}

impl std::fmt::Debug for KeyHasher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeyHasher(..)")
    }
}

/// The permutation of hashes that one index uses: a bijection on 64-bit numbers, chosen by a seed.
#[derive(Clone, Copy, Debug)]
pub struct IndexOrder(u64);

/// 2^64 divided by the golden ratio: odd, so that multiplication is a bijection, and without a pattern in its bits.
const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

impl IndexOrder {
    /// Creates the permutation with this seed.
    pub fn new(seed: u64) -> IndexOrder {
        IndexOrder(seed)
    }

    /// Returns the number that the index uses for `hash`. Multiplication mixes bits upwards only, and the shift in
    /// `mixed` brings high bits down to the low ones, which select buckets. Two rounds, because after one, the
    /// permutations of some pairs of seeds were still correlated.
    #[inline]
    pub fn of(self, hash: u64) -> u64 {
        mixed(mixed(hash ^ self.0))
    }

    /// Returns the permutation that the same index uses after it has become empty.
    #[must_use]
    pub fn next(self) -> IndexOrder {
        IndexOrder(self.of(!self.0).rotate_left(29) ^ MULTIPLIER)
    }

    /// Returns the hash that [`IndexOrder::of`] maps to `ordered`.
    #[cfg(test)]
    pub fn inverse(self, ordered: u64) -> u64 {
        // Newton's iteration: each step doubles the number of correct low bits.
        let inverse = (0..6).fold(1u64, |inverse, _| {
            inverse.wrapping_mul(2u64.wrapping_sub(MULTIPLIER.wrapping_mul(inverse)))
        });
        let unmixed = |mixed: u64| (mixed ^ mixed >> 32).wrapping_mul(inverse);
        unmixed(unmixed(ordered)) ^ self.0
    }
}

#[inline]
fn mixed(bits: u64) -> u64 {
    let product = bits.wrapping_mul(MULTIPLIER);
    product ^ product >> 32
}

/// A generator of permutations for the indexes of a tenant; each index gets a different one.
#[derive(Debug)]
pub struct IndexOrders {
    hasher: KeyHasher,
    of_tenant: u64,
    given: AtomicU64,
}

impl IndexOrders {
    /// Creates the generator of the tenant with this name. `hasher` also derives the seeds.
    pub fn new(hasher: KeyHasher, tenant: &str) -> IndexOrders {
        IndexOrders { hasher, of_tenant: hasher.hash(tenant.as_bytes()), given: AtomicU64::new(0) }
    }

    /// Returns the hash function of the tenant's keys.
    pub fn hasher(&self) -> KeyHasher {
        self.hasher
    }

    /// Returns the permutation for a new index, with a seed derived from the tenant and a counter.
    pub fn next(&self) -> IndexOrder {
        let mut name = [0; 16];
        name[..8].copy_from_slice(&self.of_tenant.to_le_bytes());
        name[8..].copy_from_slice(&self.given.fetch_add(1, Ordering::Relaxed).to_le_bytes());
        IndexOrder(self.hasher.hash(&name))
    }
}
