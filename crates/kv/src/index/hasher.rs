//! The hash function of keys: SipHash-1-3 with a secret key, so that clients cannot choose keys that collide.

use siphasher::sip::SipHasher13;

/// Hashes keys with a secret of the process. SipHash-1-3 is what Rust's own maps use against chosen keys; Redis uses
/// SipHash-1-2.
#[derive(Clone, Copy)]
pub struct KeyHasher(SipHasher13);

impl KeyHasher {
    /// Creates a hasher from 128 random bits.
    pub fn new(key: [u8; 16]) -> KeyHasher {
        KeyHasher(SipHasher13::new_with_key(&key))
    }

    /// Returns the hash of a key. An [`Index`](super::Index) uses bits 0 to 39 and 49 to 63; bits 40 to 48 are for
    /// whoever has to choose between indexes.
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
