//! Ciphers and keys: AES in four modes behind one interface ([`Cipher`]), encryption of data in memory
//! ([`MemoryCipher`]), keys in locked memory ([`Secret`]), sources of the master key ([`MasterKey`]), the keys that it
//! wraps ([`KeyRing`], [`WrappedKey`]), and encryption to the holder of a public key ([`hpke`]).
//!
//! AES is that of AWS-LC, called directly rather than through `aws-lc-rs`, so that expanded keys are in locked memory,
//! too, and messages need no allocation. Independent blocks (ECB, and CBC of many chains) use the `aes` crate, which
//! processes many at once. Decrypted data are overwritten when they are freed ([`Wiping`]).
//!
//! Invariants: the bytes of a key, expanded or not, are in memory that is neither swapped out nor part of a core dump,
//! and that is overwritten before it is reused; no `Debug` shows them. No nonce is used twice with one key: keys are
//! derived from a parent and a random salt ([`Secret::derive`]), for one file or one message. Example: with one key for
//! all files, block 0 of two files would share a nonce, and the XOR of their ciphertexts would be that of their
//! contents.

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
