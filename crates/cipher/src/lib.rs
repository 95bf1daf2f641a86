//! Ciphers and keys: AES in four modes behind one interface ([`Cipher`]), data that are encrypted in memory
//! ([`MemoryCipher`]), keys that lie in locked memory ([`Secret`]), where the master key comes from ([`MasterKey`]),
//! the keys that it wraps ([`KeyRing`], [`WrappedKey`]), and encryption to the holder of a public key ([`hpke`]).
//!
//! AES itself is that of AWS-LC, called directly and not through `aws-lc-rs`, so that expanded keys lie in locked
//! memory too and nothing is allocated for a message. Blocks that do not depend on one another (ECB, and CBC of many
//! chains) are those of the `aes` crate, which works on many at once. What was decrypted is overwritten when it is
//! freed ([`Wiping`]).
//!
//! Invariants: bytes of a key, expanded or not, are in memory that is neither swapped out nor part of a core dump, and
//! that is overwritten before it is used again; no `Debug` shows them. No nonce is used twice with one key: keys are
//! derived from a parent and a random salt ([`Secret::derive`]), for one file or one message.

mod aes_blocks;
mod cipher;
pub mod hpke;
mod keys;
mod lc;
mod locked;
mod master;
mod memory;
mod ring;
mod sys;
#[cfg(test)]
mod tests;
mod wiping;
mod wrapped;

pub use cipher::{Cipher, GCM_NONCE_BYTES, Mode, START_BYTES, TAG_BYTES, Tag};
pub use farpool_model::Tier;
pub use keys::{SALT_BYTES, Salt, Secret, random_salt, sha256};
pub use master::{KeySource, MASTER_KEY_BYTES, MasterKey};
pub use memory::{Mark, MemoryCipher};
pub use ring::KeyRing;
pub use wiping::{Wiping, wipe_freed_memory};
pub use wrapped::{KeyKind, WRAPPED_KEY_BYTES, WrappedKey, WrappedKeyId};
