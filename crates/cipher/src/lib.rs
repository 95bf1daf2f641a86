//! Ciphers and keys: AES in four modes behind one interface ([`Cipher`]), encryption of data in memory
//! ([`MemoryCipher`]), keys in locked memory ([`Secret`]), sources of the master key ([`MasterKey`]), the keys that it
//! wraps ([`KeyRing`], [`WrappedKey`]), and encryption for the owner of a public key ([`hpke`]).
//!
//! AES is that of AWS-LC, called directly and not through `aws-lc-rs`, so that key schedules are in locked memory, too,
//! and messages need no allocation. Independent blocks (ECB, and CBC of many messages) use the `aes` crate, which
//! processes many at once. Decrypted data are overwritten when they are freed ([`Wiping`]).
//!
//! Invariants: the bytes of a key and its key schedule are in memory that is neither swapped out nor part of a core
//! dump, and that is overwritten before it is reused; no `Debug` shows them. No nonce is used twice with one key: each
//! file or message has its own key, derived from a parent key and a random salt ([`Secret::derive`]). Example: with one
//! key for all files, block 0 of two files would have the same nonce, and the XOR of their ciphertexts would be the XOR
//! of their contents.

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
pub use memory::{MemoryCipher, MessageTag};
pub use ring::KeyRing;
pub use wiping::{Wiping, wipe_freed_memory};
pub use wrapped::{KeyKind, WRAPPED_KEY_BYTES, WrappedKey, WrappedKeyId};
