//! AES in four modes behind one interface. Data are encrypted and decrypted in place and keep their length.

use crate::aes_blocks::BlockKey;
use crate::keys::Secret;
use crate::lc::{AesKey, GcmKey};
use farpool_model::{Error, ErrorKind, Result, Tier};
use std::fmt;

/// Bytes of a GCM nonce.
pub const GCM_NONCE_BYTES: usize = 12;

/// Bytes of the initial counter block of CTR and of the initialization vector of CBC: one AES block.
pub const START_BYTES: usize = 16;

/// Bytes of a GCM tag.
pub const TAG_BYTES: usize = 16;

/// Authentication tag, by which changes of the data or their associated data are detected.
pub type Tag = [u8; TAG_BYTES];

/// Block cipher mode of AES (NIST SP 800-38A and 38D).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Encrypts and authenticates. The nonce has [`GCM_NONCE_BYTES`].
    Gcm,
    /// Encrypts without authentication: an attacker who can change the ciphertext can invert any bit of the data.
    /// Starts with an initial counter block.
    Ctr,
    /// Encrypts whole blocks, without authentication. For measurements and for data exchange. Starts with an
    /// initialization vector.
    Cbc,
    /// Encrypts each whole block independently, so that equal blocks stay equal. For measurements and for data
    /// exchange. Has no initialization vector.
    Ecb,
}

impl Mode {
    /// All cipher modes.
    pub const ALL: [Mode; 4] = [Mode::Gcm, Mode::Ctr, Mode::Cbc, Mode::Ecb];

    /// Returns the mode that a tier uses.
    pub const fn of(tier: Tier) -> Mode {
        match tier {
            Tier::Fast => Mode::Ctr,
            Tier::Standard | Tier::Strict => Mode::Gcm,
        }
    }

    /// Returns the bytes of the nonce, the initial counter block or the initialization vector, which must differ
    /// between messages under one key.
    pub const fn start_bytes(self) -> usize {
        match self {
            Mode::Gcm => GCM_NONCE_BYTES,
            Mode::Ctr | Mode::Cbc => START_BYTES,
            Mode::Ecb => 0,
        }
    }

    /// Returns whether the mode authenticates data, so that changes are noticed.
    pub const fn authenticates(self) -> bool {
        matches!(self, Mode::Gcm)
    }

    const fn takes_whole_blocks(self) -> bool {
        matches!(self, Mode::Cbc | Mode::Ecb)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::Gcm => "GCM",
            Mode::Ctr => "CTR",
            Mode::Cbc => "CBC",
            Mode::Ecb => "ECB",
        })
    }
}

/// A cipher: a mode and a key schedule for it, in locked memory. Threads may share it.
#[derive(Debug)]
pub struct Cipher {
    mode: Mode,
    keys: Keys,
}

#[derive(Debug)]
enum Keys {
    Gcm(GcmKey),
    Ctr(AesKey),
    Cbc { encrypt: AesKey, decrypt: AesKey, chains: BlockKey },
    Ecb(BlockKey),
}

impl Cipher {
    /// Computes the key schedule of a key of 128, 192 or 256 bits for `mode`.
    ///
    /// # Errors
    /// `Invalid` if the key has another length; `OverLimit` if the process may not lock more memory.
    pub fn new(mode: Mode, key: &Secret) -> Result<Cipher> {
        let key = key.bytes();
        if !matches!(key.len(), 16 | 24 | 32) {
            return Err(Error::invalid(format!("a key of {} bytes: AES takes 16, 24 or 32", key.len())));
        }
        let keys = match mode {
            Mode::Gcm => Keys::Gcm(GcmKey::new(key)?),
            Mode::Ctr => Keys::Ctr(AesKey::to_encrypt(key)?),
            Mode::Cbc => Keys::Cbc {
                encrypt: AesKey::to_encrypt(key)?,
                decrypt: AesKey::to_decrypt(key)?,
                chains: BlockKey::new(key)?,
            },
            Mode::Ecb => Keys::Ecb(BlockKey::new(key)?),
        };
        Ok(Cipher { mode, keys })
    }

    /// Encrypts `data` in place. `start` is the nonce, initial counter block or initialization vector, and must differ
    /// for each message under one key; it is empty for ECB. Returns the tag of `data` and of `associated`, which is not
    /// encrypted; `None` if the mode has no tag.
    ///
    /// # Errors
    /// `Invalid` if the lengths of `start` or `data` are not those of the mode, or if `associated` is not empty
    /// although the mode does not authenticate.
    pub fn encrypt(&self, start: &[u8], associated: &[u8], data: &mut [u8]) -> Result<Option<Tag>> {
        self.check(associated, data)?;
        match &self.keys {
            Keys::Gcm(key) => return key.seal(self.start(start)?, associated, data).map(Some),
            Keys::Ctr(key) => key.count(self.start(start)?, data),
            Keys::Cbc { encrypt, .. } => encrypt.chain(self.start(start)?, data, true),
            Keys::Ecb(key) => {
                self.start::<0>(start)?;
                key.encrypt(data);
            }
        }
        Ok(None)
    }

    /// Decrypts `data` in place.
    ///
    /// # Errors
    /// `Corrupt`, with zeros in `data`, if the tag does not match; `Invalid` as for [`Cipher::encrypt`], and if a tag
    /// is given for a mode without tags, or none for a mode with tags.
    pub fn decrypt(&self, start: &[u8], associated: &[u8], data: &mut [u8], tag: Option<&Tag>) -> Result<()> {
        self.check(associated, data)?;
        match (&self.keys, tag) {
            (Keys::Gcm(key), Some(tag)) => match key.open(self.start(start)?, associated, data, tag) {
                true => return Ok(()),
                false => return Err(changed()),
            },
            (Keys::Gcm(_), None) | (Keys::Ctr(_) | Keys::Cbc { .. } | Keys::Ecb(_), Some(_)) => {
                return Err(Error::invalid(format!("a tag belongs to GCM, and this is {}", self.mode)));
            }
            (Keys::Ctr(key), None) => key.count(self.start(start)?, data),
            (Keys::Cbc { decrypt, .. }, None) => decrypt.chain(self.start(start)?, data, false),
            (Keys::Ecb(key), None) => {
                self.start::<0>(start)?;
                key.decrypt(data);
            }
        }
        Ok(())
    }

    /// Decrypts `encrypted` into `data`, which must have the same length. Only for the modes that tiers use, GCM and
    /// CTR.
    ///
    /// # Errors
    /// Errors of [`Cipher::decrypt`]; `Invalid` for other modes or if the lengths differ.
    pub fn decrypt_to(
        &self,
        start: &[u8],
        associated: &[u8],
        encrypted: &[u8],
        data: &mut [u8],
        tag: Option<&Tag>,
    ) -> Result<()> {
        self.check(associated, encrypted)?;
        if encrypted.len() != data.len() {
            let (from, to) = (encrypted.len(), data.len());
            return Err(Error::invalid(format!("{from} encrypted bytes are not {to} bytes of data")));
        }
        match (&self.keys, tag) {
            (Keys::Gcm(key), Some(tag)) => {
                match key.open_to(self.start(start)?, associated, encrypted, data, tag) {
                    true => Ok(()),
                    false => Err(changed()),
                }
            }
            (Keys::Ctr(key), None) => {
                key.count_to(self.start(start)?, encrypted, data);
                Ok(())
            }
            _ => Err(Error::invalid(format!("{} does not decrypt to other memory", self.mode))),
        }
    }

    /// Encrypts many messages in CBC mode at once. `data` has as many messages as there are `starts`, one after the
    /// other and all of the same length. The result is the same as from one call of [`Cipher::encrypt`] per message,
    /// several times as fast.
    ///
    /// # Errors
    /// `Invalid` for another mode, or if the messages are not whole blocks of the same length.
    pub fn encrypt_chains(&self, starts: &[[u8; START_BYTES]], data: &mut [u8]) -> Result<()> {
        let Keys::Cbc { chains, .. } = &self.keys else {
            return Err(Error::invalid(format!("chains belong to CBC, and this is {}", self.mode)));
        };
        let chain_bytes = data.len().checked_div(starts.len()).unwrap_or(0);
        if chain_bytes * starts.len() != data.len() || !chain_bytes.is_multiple_of(START_BYTES) {
            let message = format!("{} bytes are not {} chains of whole blocks", data.len(), starts.len());
            return Err(Error::invalid(message));
        }
        if chain_bytes > 0 {
            chains.encrypt_chains(starts, chain_bytes, data);
        }
        Ok(())
    }

    fn check(&self, associated: &[u8], data: &[u8]) -> Result<()> {
        if !associated.is_empty() && !self.mode.authenticates() {
            return Err(Error::invalid(format!("{} does not authenticate associated data", self.mode)));
        }
        if self.mode.takes_whole_blocks() && !data.len().is_multiple_of(START_BYTES) {
            return Err(Error::invalid(format!(
                "{} bytes: {} takes whole blocks of {START_BYTES} bytes",
                data.len(),
                self.mode
            )));
        }
        Ok(())
    }

    fn start<'a, const N: usize>(&self, start: &'a [u8]) -> Result<&'a [u8; N]> {
        start
            .try_into()
            .map_err(|_| Error::invalid(format!("a start of {} bytes: {} takes {N}", start.len(), self.mode)))
    }
}

fn changed() -> Error {
    Error::new(ErrorKind::Corrupt, "encrypted bytes were changed, or the key is wrong")
}
