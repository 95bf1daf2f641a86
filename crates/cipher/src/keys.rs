//! Secret keys of any kind, in locked memory (never swapped out, wiped when freed), and deriving keys from them.

use crate::lc;
use crate::locked::Slot;
use farpool_model::{Error, Result};
use std::fmt;
use zeroize::Zeroize;

/// Bytes of a [`Salt`]: enough that two nodes restored from the same backup never generate the same salt.
pub const SALT_BYTES: usize = 32;

/// Random input of a key derivation, because of which each derived key is different.
pub type Salt = [u8; SALT_BYTES];

/// Generates a random salt.
///
/// # Errors
/// `Internal` if the system provides no random bytes.
pub fn random_salt() -> Result<Salt> {
    let mut salt = [0; SALT_BYTES];
    lc::random(&mut salt)?;
    Ok(salt)
}

/// Returns the SHA-256 (FIPS 180-4) of `bytes`.
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    lc::sha256(bytes)
}

/// Bytes of a secret key, in locked memory. Wiped when dropped, and not shown by `Debug`.
pub struct Secret {
    slot: Slot,
}

impl Secret {
    /// Creates a secret from up to 64 bytes, and wipes the given bytes.
    ///
    /// # Errors
    /// `Invalid` if there are more bytes; `OverLimit` if the process may not lock more memory.
    pub fn take(bytes: &mut [u8]) -> Result<Secret> {
        let mut secret = Secret::zero(bytes.len())?;
        secret.slot.copy_from_slice(bytes);
        bytes.zeroize();
        Ok(secret)
    }

    /// Generates a random key of `bytes` bytes.
    ///
    /// # Errors
    /// Errors of [`Secret::take`]; `Internal` if the system provides no random bytes.
    pub fn random(bytes: usize) -> Result<Secret> {
        let mut secret = Secret::zero(bytes)?;
        lc::random(&mut secret.slot)?;
        Ok(secret)
    }

    /// Derives a key of `bytes` bytes by HKDF-SHA-256 (RFC 5869). `salt` distinguishes the uses of a kind (such as
    /// files), and `purpose` the kinds of use.
    ///
    /// # Errors
    /// Errors of [`Secret::take`].
    pub fn derive(&self, salt: &[u8], purpose: &[u8], bytes: usize) -> Result<Secret> {
        let mut derived = Secret::zero(bytes)?;
        lc::hkdf_sha256(self.bytes(), salt, purpose, &mut derived.slot)?;
        Ok(derived)
    }

    /// Returns an id derived from the key, which identifies the key without revealing it. It may be shown to anybody if
    /// the key is unguessable.
    ///
    /// # Errors
    /// Fails only on a bug.
    pub fn name(&self, purpose: &[u8]) -> Result<[u8; 16]> {
        let mut name = [0; 16];
        lc::hkdf_sha256(self.bytes(), b"", purpose, &mut name)?;
        Ok(name)
    }

    pub(crate) fn zero(bytes: usize) -> Result<Secret> {
        if bytes > 64 {
            return Err(Error::invalid(format!("a key of {bytes} bytes: the longest has 64")));
        }
        Ok(Secret { slot: Slot::new(bytes)? })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.slot
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.slot
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({} bytes)", self.slot.len())
    }
}
