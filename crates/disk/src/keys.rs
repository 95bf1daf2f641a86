//! The keys of an encrypted directory.
//!
//! One random key of the directory is wrapped by the master key. It wraps those of tenants and, through them, of tables
//! (`table_keys.rs`). What a message is encrypted with is derived from one of these, the directory's or a table's, from what
//! it is for, and from a random salt that lies beside what it encrypts. The salt is drawn anew for each file, and for
//! each process that writes batches of a log, so that no nonce is used twice with one key: not after a crash that made a
//! process write the same batch or segment again, nor by two nodes that were restored from one backup.
//!
//! What is authenticated beside the data says what they are: the kind of file, its number, the number of the part or
//! batch, and the id of the table's key. None can be put in the place of another.

use farpool_cipher::{
    Cipher, GCM_NONCE_BYTES, KeyKind, KeyRing, MasterKey, MemoryCipher, Mode, SALT_BYTES, Salt, Secret,
    TAG_BYTES, Tag, Tier, WrappedKeyId, random_salt, wipe_freed_memory,
};
use farpool_model::cast::u64_from;
use farpool_model::{Error, Result};
use std::sync::Arc;

/// Bytes that a message takes beside its data: its salt and its tag.
pub(crate) const SEAL_BYTES: usize = SALT_BYTES + TAG_BYTES;

/// What a key is for.
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

/// The key of a directory, and how strong its ciphers are.
#[derive(Debug)]
pub struct Keys {
    tier: Tier,
    id: WrappedKeyId,
    directory: Secret,
    heads: Arc<MemoryCipher>,
}

/// What is known of one encrypted message beside its bytes.
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

    /// The seal in front of a message, and the message.
    pub fn split(bytes: &[u8]) -> Option<(Seal, &[u8])> {
        let (salt, rest) = bytes.split_first_chunk()?;
        let (tag, rest) = rest.split_first_chunk()?;
        Some((Seal { salt: *salt, tag: *tag }, rest))
    }
}

impl Keys {
    /// The keys that a ring has for a directory.
    ///
    /// # Errors
    /// As [`KeyRing::unwrap`]; `Corrupt` where the ring has none.
    pub(crate) fn of(ring: &KeyRing, master: &MasterKey) -> Result<Keys> {
        let first = ring.first(KeyKind::Directory).filter(|(_, tier)| tier.authenticates());
        let (id, tier) = first.ok_or_else(|| Error::corrupt("there is no key for a directory"))?;
        // What is decrypted from now on lies in memory that is freed at some time.
        wipe_freed_memory();
        Ok(Keys { tier, id, directory: ring.unwrap(master, id)?, heads: MemoryCipher::new(tier)? })
    }

    /// What heads of parts are encrypted with in memory.
    pub(crate) fn heads(&self) -> &Arc<MemoryCipher> {
        &self.heads
    }

    /// What the files are encrypted with.
    pub fn tier(&self) -> Tier {
        self.tier
    }

    /// The directory's key and its id, as what wraps others.
    pub(crate) fn parent(&self) -> (WrappedKeyId, &Secret) {
        (self.id, &self.directory)
    }

    /// The key for what has this salt.
    pub(crate) fn derive(&self, purpose: Purpose, salt: &Salt) -> Result<Secret> {
        self.directory.derive(salt, purpose.text(), self.tier.key_bytes())
    }

    /// Encrypts one message in place under a key of its own.
    pub(crate) fn seal(&self, purpose: Purpose, associated: &[u8], data: &mut [u8]) -> Result<Seal> {
        let salt = random_salt()?;
        let cipher = cipher(&self.derive(purpose, &salt)?)?;
        Ok(Seal { salt, tag: encrypt(&cipher, Nonce::Only, associated, data)? })
    }

    /// Decrypts what [`Keys::seal`] has encrypted.
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

/// The cipher of a key that [`Keys::derive`] has made: all tiers on disk have one mode.
pub(crate) fn cipher(key: &Secret) -> Result<Cipher> {
    Cipher::new(Mode::Gcm, key)
}

/// What tells messages under one key apart.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Nonce {
    /// The key has one message.
    Only,
    /// A part of a segment: the place at which it was added, counted from 0.
    Part(u32),
    /// A block of a part that is compressed: the place of the part, and the block's.
    Block(u32, u32),
    /// The head of a part of a segment: the place of the part.
    Head(u32),
    /// The directory of a segment.
    Directory,
    /// The batch of a log of this number.
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

/// Numbers and a name as what is authenticated beside data.
pub(crate) fn associated(numbers: &[u64], name: &str) -> Vec<u8> {
    let mut bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    bytes.extend_from_slice(&u64_from(name.len()).to_le_bytes());
    bytes.extend_from_slice(name.as_bytes());
    bytes
}

/// As [`associated`], of what is encrypted under a key of the table whose key has the id `table`, if there is one.
pub(crate) fn associated_of(table: Option<WrappedKeyId>, numbers: &[u64], name: &str) -> Vec<u8> {
    let mut bytes = associated(numbers, name);
    bytes.extend(table.iter().flat_map(|id| id.bytes()));
    bytes
}
