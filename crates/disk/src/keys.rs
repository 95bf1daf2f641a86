//! The encryption keys of an encrypted directory.
//!
//! The master key wraps (encrypts) one random key of the directory, which wraps the keys of tenants and, through them,
//! of tables (`table_keys.rs`). The key that encrypts a message is derived from the key of the directory or a table,
//! from a purpose, and from a random salt that is stored next to the ciphertext. A new salt is drawn for each file, and
//! by each process that appends batches to a log, so that no nonce is used twice with one key. Example: after a crash a
//! process writes batch 7 or segment 12 again, or two nodes are restored from one backup and both write batch 7. The
//! salts differ, and so do the keys.
//!
//! The associated data of a message state its identity: the kind of file, its id, the id of the part or batch, and the
//! id of the table's key. A message that is moved to another place therefore fails authentication.

use farpool_cipher::{
    Cipher, GCM_NONCE_BYTES, KeyKind, KeyRing, MasterKey, MemoryCipher, Mode, SALT_BYTES, Salt, Secret,
    TAG_BYTES, Tag, Tier, WrappedKeyId, random_salt, wipe_freed_memory,
};
use farpool_model::cast::u64_from;
use farpool_model::{Error, Result};
use std::sync::Arc;

/// Bytes that an encrypted message takes in addition to its ciphertext: a salt and a tag.
pub(crate) const SEAL_BYTES: usize = SALT_BYTES + TAG_BYTES;

/// Purpose of a derived key. Keys for different purposes are independent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    SealedFile,
    Segment,
    /// The parts of one table in a segment.
    TableSegment,
    LogFile,
    LogBatches,
}

impl Purpose {
    pub fn text(self) -> &'static [u8] {
        match self {
            Purpose::SealedFile => b"farpool sealed file",
            Purpose::Segment => b"farpool segment",
            Purpose::TableSegment => b"farpool segment of a table",
            Purpose::LogFile => b"farpool log file",
            Purpose::LogBatches => b"farpool log batches",
        }
    }
}

/// Key of an encrypted directory, and the security tier of the ciphers of its files.
#[derive(Debug)]
pub struct Keys {
    tier: Tier,
    id: WrappedKeyId,
    directory: Secret,
    heads: Arc<MemoryCipher>,
}

/// Salt and tag of one encrypted message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seal {
    pub salt: Salt,
    pub tag: Tag,
}

impl Seal {
    pub fn encode(&self) -> [u8; SEAL_BYTES] {
        let mut bytes = [0; SEAL_BYTES];
        bytes[..SALT_BYTES].copy_from_slice(&self.salt);
        bytes[SALT_BYTES..].copy_from_slice(&self.tag);
        bytes
    }

    /// Splits a message into the seal at its front and the ciphertext.
    pub fn split(bytes: &[u8]) -> Option<(Seal, &[u8])> {
        let (salt, rest) = bytes.split_first_chunk()?;
        let (tag, rest) = rest.split_first_chunk()?;
        Some((Seal { salt: *salt, tag: *tag }, rest))
    }
}

impl Keys {
    /// Unwraps the key of a directory from its key ring.
    ///
    /// # Errors
    /// Errors of [`KeyRing::unwrap`]; `Corrupt` if the ring has no key for a directory.
    pub(crate) fn of(ring: &KeyRing, master: &MasterKey) -> Result<Keys> {
        let first = ring.first(KeyKind::Directory).filter(|(_, tier)| tier.authenticates());
        let (id, tier) = first.ok_or_else(|| Error::corrupt("there is no key for a directory"))?;
        // From now on freed memory may contain decrypted data.
        wipe_freed_memory();
        Ok(Keys { tier, id, directory: ring.unwrap(master, id)?, heads: MemoryCipher::new(tier)? })
    }

    /// Returns the cipher that encrypts the heads of parts in memory, under a key of this process.
    pub(crate) fn heads(&self) -> &Arc<MemoryCipher> {
        &self.heads
    }

    /// Returns the security tier of the ciphers of the files.
    pub fn tier(&self) -> Tier {
        self.tier
    }

    /// Returns the directory's key and its id, for wrapping the keys of tenants.
    pub(crate) fn parent(&self) -> (WrappedKeyId, &Secret) {
        (self.id, &self.directory)
    }

    /// Derives the key for this purpose and salt.
    pub(crate) fn derive(&self, purpose: Purpose, salt: &Salt) -> Result<Secret> {
        self.directory.derive(salt, purpose.text(), self.tier.key_bytes())
    }

    /// Encrypts one message in place under a key that is derived with a new salt, and returns the salt and the tag.
    pub(crate) fn seal(&self, purpose: Purpose, associated: &[u8], data: &mut [u8]) -> Result<Seal> {
        let salt = random_salt()?;
        let cipher = cipher(&self.derive(purpose, &salt)?)?;
        Ok(Seal { salt, tag: encrypt(&cipher, Nonce::Only, associated, data)? })
    }

    /// Decrypts in place a message that [`Keys::seal`] encrypted.
    ///
    /// # Errors
    /// `Corrupt` if the message, its seal, its purpose or the associated data differ from those at encryption.
    pub(crate) fn open(
        &self,
        purpose: Purpose,
        associated: &[u8],
        seal: &Seal,
        data: &mut [u8],
    ) -> Result<()> {
        let cipher = cipher(&self.derive(purpose, &seal.salt)?)?;
        decrypt(&cipher, Nonce::Only, associated, data, &seal.tag)
    }
}

/// Creates the cipher of a derived key. The mode is GCM, which all tiers use on disk.
pub(crate) fn cipher(key: &Secret) -> Result<Cipher> {
    Cipher::new(Mode::Gcm, key)
}

/// Nonce of a message. Each message under one key has another nonce.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Nonce {
    /// Nonce of a message that is the only one under its key.
    Only,
    /// Data of a part of a segment: the part's index in order of addition, from 0.
    Part(u32),
    /// Block of a compressed part: the index of the part, and the index of the block.
    Block(u32, u32),
    /// Head of a part of a segment: the index of the part.
    Head(u32),
    /// The nonce of the encrypted directory (list of parts) of a segment.
    Directory,
    /// Batch of a log, with its sequence number.
    Batch(u64),
}

impl Nonce {
    fn bytes(self) -> [u8; GCM_NONCE_BYTES] {
        let (kind, number) = match self {
            Nonce::Only => (0_u32, 0),
            Nonce::Part(place) => (1, u64::from(place)),
            Nonce::Directory => (2, 0),
            Nonce::Batch(number) => (3, number),
            Nonce::Block(place, block) => (4, u64::from(place) << 32 | u64::from(block)),
            Nonce::Head(place) => (5, u64::from(place)),
        };
        let mut bytes = [0; GCM_NONCE_BYTES];
        bytes[..4].copy_from_slice(&kind.to_le_bytes());
        bytes[4..].copy_from_slice(&number.to_le_bytes());
        bytes
    }
}

pub(crate) fn encrypt(cipher: &Cipher, nonce: Nonce, associated: &[u8], data: &mut [u8]) -> Result<Tag> {
    let tag = cipher.encrypt(&nonce.bytes(), associated, data)?;
    tag.ok_or_else(|| Error::internal("what is on disk is authenticated"))
}

pub(crate) fn decrypt(
    cipher: &Cipher,
    nonce: Nonce,
    associated: &[u8],
    data: &mut [u8],
    tag: &Tag,
) -> Result<()> {
    cipher.decrypt(&nonce.bytes(), associated, data, Some(tag))
}

/// Encodes numbers and a name as associated data. The length of the name is included, so that the encoding is
/// unambiguous.
pub(crate) fn associated(numbers: &[u64], name: &str) -> Vec<u8> {
    let mut bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    bytes.extend_from_slice(&u64_from(name.len()).to_le_bytes());
    bytes.extend_from_slice(name.as_bytes());
    bytes
}

/// Encodes associated data as [`associated`] does, for a message under the key of a table if `table` is given.
pub(crate) fn associated_of(table: Option<WrappedKeyId>, numbers: &[u64], name: &str) -> Vec<u8> {
    let mut bytes = associated(numbers, name);
    bytes.extend(table.iter().flat_map(|id| id.bytes()));
    bytes
}
