//! Hybrid public key encryption (RFC 9180) with the suite DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-128-GCM, in all
//! four modes: with and without authentication of the sender by its private key, and with and without a pre-shared
//! secret.
//!
//! Unlike in the RFC, a [`Context`] has no message counter: the caller numbers the messages and must use each number
//! once. Threads can therefore encrypt messages of one stream in parallel, and several streams need no second context.
//!
//! Rejected: `rustls::crypto::hpke` has only the mode without authentication, encrypts in order and copies each
//! message; the crate `hpke` has all modes, but encrypts in order and with its own AES. AWS-LC's own HPKE lacks
//! pre-shared keys and is not in `aws-lc-sys`. This file implements the key schedule of the RFC, sections 4.1 and 5.1,
//! with AWS-LC's functions.
//!
//! Invariant: shared secrets, and everything derived from them, are in locked memory; no `Debug` shows them.

use crate::cipher::{Cipher, GCM_NONCE_BYTES, Mode, Tag};
use crate::keys::Secret;
use crate::lc;
use crate::locked::Slot;
use crate::master::{hex, read_key_file};
use farpool_model::{Error, ErrorKind, Result};
use std::fmt;
use std::path::Path;

/// Bytes of private and public keys, and of the encapsulated key that the receiver needs to decrypt messages.
pub const KEY_BYTES: usize = 32;

/// Maximum bytes of `info`, and of the name of a pre-shared secret.
pub const INFO_BYTES_MAX: usize = 256;

/// Bytes of an AES key.
const AES_KEY_BYTES: usize = 16;

/// Bytes of a key that HKDF extracts: those of a SHA-256 digest.
const DIGEST_BYTES: usize = 32;

/// Ids of DHKEM(X25519, HKDF-SHA256), HKDF-SHA256 and AES-128-GCM in the registry of the RFC.
const KEM: [u8; 2] = [0x00, 0x20];
const KDF: [u8; 2] = [0x00, 0x01];
const AEAD: [u8; 2] = [0x00, 0x01];

/// A public key. It is not secret.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PublicKey(pub [u8; KEY_BYTES]);

impl PublicKey {
    /// Parses 64 hexadecimal digits, the form in which [`PublicKey`] is displayed; `None` for any other text.
    pub fn from_hex(text: &str) -> Option<PublicKey> {
        let mut bytes = [0; KEY_BYTES];
        let digits = text.as_bytes();
        if digits.len() != 2 * KEY_BYTES {
            return None;
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |place: usize| char::from(pair[place]).to_digit(16);
            *byte = (digit(0)? << 4 | digit(1)?) as u8;
        }
        Some(PublicKey(bytes))
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

/// A private key, with the public key that belongs to it.
pub struct PrivateKey {
    secret: Secret,
    public: PublicKey,
}

impl PrivateKey {
    /// Generates a random private key.
    ///
    /// # Errors
    /// Errors of [`Secret::random`].
    pub fn random() -> Result<PrivateKey> {
        PrivateKey::new(Secret::random(KEY_BYTES)?)
    }

    /// Creates a key from 32 bytes, which may have any value.
    ///
    /// # Errors
    /// `Invalid` for another length.
    pub fn new(secret: Secret) -> Result<PrivateKey> {
        let bytes = secret.bytes();
        let key = bytes.try_into().map_err(|_| {
            Error::invalid(format!("a private key of {} bytes: it has {KEY_BYTES}", bytes.len()))
        })?;
        let public = PublicKey(lc::x25519_public(key));
        Ok(PrivateKey { secret, public })
    }

    /// Reads a key from a file that only its owner may read: 32 bytes, or 64 hexadecimal digits.
    ///
    /// # Errors
    /// `Invalid`, `NotFound` or `Denied` with the problem of the file; `OverLimit` if the process may not lock more
    /// memory.
    pub fn read_file(path: &Path) -> Result<PrivateKey> {
        PrivateKey::new(read_key_file(path, "node key")?)
    }

    /// Returns the public key.
    pub fn public(&self) -> PublicKey {
        self.public
    }

    /// Returns the secret bytes of the key, to be written to a file that only its owner may read.
    pub fn bytes(&self) -> &[u8] {
        self.secret.bytes()
    }

    /// Writes the Diffie-Hellman shared secret of this key and `public` to `out`, at offset `at`.
    fn agree(&self, public: &PublicKey, out: &mut Secret, at: usize) -> Result<()> {
        let key = self.secret.bytes().try_into().map_err(|_| Error::internal("a key of another length"))?;
        let room = out.bytes_mut().get_mut(at..at + KEY_BYTES).and_then(|room| room.try_into().ok());
        let room = room.ok_or_else(|| Error::internal("no room for what was agreed on"))?;
        match lc::x25519(key, &public.0, room) {
            true => Ok(()),
            false => Err(Error::invalid("a public key with which nothing can be agreed on")),
        }
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrivateKey(of {})", self.public)
    }
}

/// Authentication of the sender. `K` is the private key of the sender at the sender, and its public key at the
/// receiver.
#[derive(Debug)]
pub struct Authentication<'a, K> {
    /// Key of the sender; `None` for no authentication by a key.
    pub key: Option<&'a K>,
    /// Pre-shared secret of both parties, of at least 32 unguessable bytes (RFC 9180, section 9.5), and its name;
    /// `None` for no authentication by a secret.
    pub shared: Option<(&'a Secret, &'a [u8])>,
}

impl<K> Authentication<'_, K> {
    /// Returns the mode's number in the RFC.
    fn mode(&self) -> u8 {
        u8::from(self.shared.is_some()) | u8::from(self.key.is_some()) << 1
    }
}

/// The keys for messages from one sender to one receiver.
#[derive(Debug)]
pub struct Context {
    key: Secret,
    base_nonce: [u8; GCM_NONCE_BYTES],
}

impl Context {
    /// Creates the context of a sender, whose messages only the owner of the private key for `receiver` can decrypt.
    /// `info`, of at most [`INFO_BYTES_MAX`], must be the same at both parties. Also returns the encapsulated key,
    /// which the receiver needs.
    ///
    /// # Errors
    /// `Invalid` if `receiver` is not a valid public key; `OverLimit` if the process may not lock more memory.
    pub fn sender(
        receiver: &PublicKey,
        info: &[u8],
        by: &Authentication<'_, PrivateKey>,
    ) -> Result<(PublicKey, Context)> {
        Context::sender_with(receiver, info, by, &PrivateKey::random()?)
    }

    fn sender_with(
        receiver: &PublicKey,
        info: &[u8],
        by: &Authentication<'_, PrivateKey>,
        ephemeral: &PrivateKey,
    ) -> Result<(PublicKey, Context)> {
        let mut agreed = Secret::zero(KEY_BYTES * (1 + usize::from(by.key.is_some())))?;
        ephemeral.agree(receiver, &mut agreed, 0)?;
        let mut parties = vec![ephemeral.public, *receiver];
        if let Some(key) = by.key {
            key.agree(receiver, &mut agreed, KEY_BYTES)?;
            parties.push(key.public);
        }
        Ok((ephemeral.public, Context::schedule(by.mode(), &agreed, &parties, info, by.shared)?))
    }

    /// Creates the context of the receiver, from the encapsulated key that [`Context::sender`] returned at the sender.
    ///
    /// # Errors
    /// Errors of [`Context::sender`]. A wrong sender is detected only when its first message is decrypted.
    pub fn receiver(
        receiver: &PrivateKey,
        encapsulated: &PublicKey,
        info: &[u8],
        by: &Authentication<'_, PublicKey>,
    ) -> Result<Context> {
        let mut agreed = Secret::zero(KEY_BYTES * (1 + usize::from(by.key.is_some())))?;
        receiver.agree(encapsulated, &mut agreed, 0)?;
        let mut parties = vec![*encapsulated, receiver.public];
        if let Some(key) = by.key {
            receiver.agree(key, &mut agreed, KEY_BYTES)?;
            parties.push(*key);
        }
        Context::schedule(by.mode(), &agreed, &parties, info, by.shared)
    }

    /// Derives the keys of a context (the key schedule of RFC 9180): by section 4.1 for the shared secret, section 5.1
    /// for the rest.
    fn schedule(
        mode: u8,
        agreed: &Secret,
        parties: &[PublicKey],
        info: &[u8],
        shared: Option<(&Secret, &[u8])>,
    ) -> Result<Context> {
        if info.len().max(shared.map_or(0, |(_, id)| id.len())) > INFO_BYTES_MAX {
            return Err(Error::internal(format!("more than {INFO_BYTES_MAX} bytes of info")));
        }
        let kem = [b"KEM".as_slice(), &KEM].concat();
        let parties: Vec<u8> = parties.iter().flat_map(|party| party.0).collect();
        let extracted = extract(&kem, b"", b"eae_prk", agreed.bytes())?;
        let encapsulated = expand(&kem, &extracted, b"shared_secret", &parties, DIGEST_BYTES)?;

        let suite = [b"HPKE".as_slice(), &KEM, &KDF, &AEAD].concat();
        let (secret, id) = shared.map_or((&[][..], &[][..]), |(secret, id)| (secret.bytes(), id));
        let mut context = vec![mode];
        context.extend_from_slice(extract(&suite, b"", b"psk_id_hash", id)?.bytes());
        context.extend_from_slice(extract(&suite, b"", b"info_hash", info)?.bytes());
        let secret = extract(&suite, encapsulated.bytes(), b"secret", secret)?;
        let key = expand(&suite, &secret, b"key", &context, AES_KEY_BYTES)?;
        let nonce = expand(&suite, &secret, b"base_nonce", &context, GCM_NONCE_BYTES)?;
        let mut base_nonce = [0; GCM_NONCE_BYTES];
        base_nonce.copy_from_slice(nonce.bytes());
        Ok(Context { key, base_nonce })
    }

    /// Computes the AES key schedule for messages, which takes a kilobyte of locked memory instead of 64 bytes.
    ///
    /// # Errors
    /// `OverLimit` if the process may not lock more memory.
    pub fn expand(&self) -> Result<Messages> {
        Ok(Messages { cipher: Cipher::new(Mode::Gcm, &self.key)?, base_nonce: self.base_nonce })
    }
}

/// Encrypts and decrypts the messages of a [`Context`]. Threads may share it.
#[derive(Debug)]
pub struct Messages {
    cipher: Cipher,
    base_nonce: [u8; GCM_NONCE_BYTES],
}

impl Messages {
    /// Encrypts `data` in place as message `number`, and returns the tag of `data` and `associated`. No other message
    /// of the context may have this number, because the nonce is made from it.
    ///
    /// # Errors
    /// Fails only on a bug.
    pub fn seal(&self, number: u64, associated: &[u8], data: &mut [u8]) -> Result<Tag> {
        let tag = self.cipher.encrypt(&self.nonce(number), associated, data)?;
        tag.ok_or_else(|| Error::internal("messages are authenticated"))
    }

    /// Decrypts message `number` in place.
    ///
    /// # Errors
    /// `Corrupt`, with zeros in `data`, if the message was changed, has another number or other associated data, or is
    /// from another sender.
    pub fn open(&self, number: u64, associated: &[u8], data: &mut [u8], tag: &Tag) -> Result<()> {
        self.cipher.decrypt(&self.nonce(number), associated, data, Some(tag))
    }

    /// Returns the nonce of the message `number` (RFC 9180, section 5.2).
    fn nonce(&self, number: u64) -> [u8; GCM_NONCE_BYTES] {
        let mut nonce = self.base_nonce;
        let last = &mut nonce[GCM_NONCE_BYTES - 8..];
        last.iter_mut().zip(number.to_be_bytes()).for_each(|(byte, of_number)| *byte ^= of_number);
        nonce
    }
}

/// Prefix of all labels in key derivations (RFC 9180, section 4).
const VERSION: &[u8] = b"HPKE-v1";

/// Extracts a key from `secret`: `LabeledExtract` of RFC 9180, section 4.
fn extract(suite: &[u8], salt: &[u8], label: &[u8], secret: &[u8]) -> Result<Secret> {
    let parts = [VERSION, suite, label, secret];
    let mut labeled = Slot::new(parts.iter().map(|part| part.len()).sum())?;
    let mut at = 0;
    for part in parts {
        labeled[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    let mut extracted = Secret::zero(DIGEST_BYTES)?;
    match extracted.bytes_mut().try_into() {
        Ok(out) => lc::hkdf_extract(salt, &labeled, out)?,
        Err(_) => return Err(Error::new(ErrorKind::Internal, "a digest of another length")),
    }
    Ok(extracted)
}

/// Derives `bytes` bytes from `key`: `LabeledExpand` of RFC 9180, section 4.
fn expand(suite: &[u8], key: &Secret, label: &[u8], info: &[u8], bytes: usize) -> Result<Secret> {
    let length = (bytes as u16).to_be_bytes();
    let labeled = [&length[..], VERSION, suite, label, info].concat();
    let mut expanded = Secret::zero(bytes)?;
    lc::hkdf_expand(key.bytes(), &labeled, expanded.bytes_mut())?;
    Ok(expanded)
}

#[cfg(test)]
#[path = "hpke_tests.rs"]
mod tests;
