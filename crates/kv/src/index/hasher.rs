//! The hash function of keys, SipHash-1-3 with a secret key, so that clients cannot choose keys that collide; and the
//! order in which each index arranges these hashes.
//!
//! The hash of a key is the same in all indexes, so that it is computed once per command. The order in which an index
//! stores its entries is its own:
//! 1. Table A is scanned: its keys come in the order of its buckets.
//! 2. They are written to table B in this order, by `COPY`, or by a client with `HKEYS` or `SCAN`.
//! 3. If B had the same order, all keys would go to the first of its buckets, however many buckets B had by then.

use siphasher::sip::SipHasher13;
use std::sync::atomic::{AtomicU64, Ordering};

/// The hash function of keys, keyed with a secret of the process. SipHash-1-3 is the function that Rust's own maps use
/// against chosen keys; Redis uses SipHash-1-2.
#[derive(Clone, Copy)]
pub struct KeyHasher(SipHasher13);

impl KeyHasher {
    /// Creates a hasher from 128 random bits.
    pub fn new(key: [u8; 16]) -> KeyHasher {
        KeyHasher(SipHasher13::new_with_key(&key))
    }

    /// Returns the hash of a key. Bits 40 to 48 also choose between the shards of a tenant.
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

/// The order of one index: a bijection on hashes.
#[derive(Clone, Copy, Debug)]
pub struct IndexOrder(u64);

/// Odd, and without a pattern in its bits: 2^64 divided by the golden ratio.
const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

impl IndexOrder {
    /// Creates the order with this seed.
    pub fn new(seed: u64) -> IndexOrder {
        IndexOrder(seed)
    }

    /// Returns a hash as the index uses it. The product has its entropy in the high bits, and the shift moves it to
    /// those that select buckets; after a single round, the orders of some pairs of seeds were still correlated.
    #[inline]
    pub fn of(self, hash: u64) -> u64 {
        mixed(mixed(hash ^ self.0))
    }

    /// Returns the order of the same index once it has been empty.
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

/// A generator of orders for all indexes of a tenant; each index gets a different one.
#[derive(Debug)]
pub struct IndexOrders {
    hasher: KeyHasher,
    of_tenant: u64,
    given: AtomicU64,
}

impl IndexOrders {
    /// Creates the generator of the tenant with this name.
    pub fn new(hasher: KeyHasher, tenant: &str) -> IndexOrders {
        IndexOrders { hasher, of_tenant: hasher.hash(tenant.as_bytes()), given: AtomicU64::new(0) }
    }

    /// Returns the hash function of the keys.
    pub fn hasher(&self) -> KeyHasher {
        self.hasher
    }

    /// Returns an order that no other index has.
    pub fn next(&self) -> IndexOrder {
        let mut name = [0; 16];
        name[..8].copy_from_slice(&self.of_tenant.to_le_bytes());
        name[8..].copy_from_slice(&self.given.fetch_add(1, Ordering::Relaxed).to_le_bytes());
        IndexOrder(self.hasher.hash(&name))
    }
}
