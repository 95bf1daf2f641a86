//! Wrapped keys: each is encrypted under another, and those at the top under the master key, which is not stored.
//!
//! A key may wrap others, such as that of a tenant those of its tables, so that a change of the master key wraps again
//! what it wraps itself and nothing else.
//!
//! Layout, all numbers little-endian: the format `u32`; the number of keys `u32`; the fingerprint of the master key, 8
//! bytes; then each key in [`ENTRY_BYTES`]: kind, tier, two zeros; its id and that of the key that wraps it, 16 bytes each,
//! zeros for the master key; a salt of 32 bytes; the tag, 16; the key, 32. A key is encrypted by AES-256-GCM under a key
//! that is derived from its parent and the salt; kind, tier and both ids are authenticated with it.
//!
//! AES key wrap (RFC 5649), which needs no salt, authenticates no associated data: a key of one kind could be put in the
//! place of one of another.

use crate::cipher::{Cipher, GCM_NONCE_BYTES, Mode, TAG_BYTES, Tag};
use crate::keys::{SALT_BYTES, Salt, Secret, random_salt};
use crate::master::{FINGERPRINT_BYTES, MASTER_KEY_BYTES, MasterKey, hex};
use farpool_model::limits::WRAPPED_KEYS_MAX;
use farpool_model::{Error, ErrorKind, Result, Tier};

const FORMAT: u32 = 1;
const HEADER_BYTES: usize = 16;
const ID_BYTES: usize = 16;
const KEY_BYTES: usize = 32;
const ENTRY_BYTES: usize = 4 + 2 * ID_BYTES + SALT_BYTES + TAG_BYTES + KEY_BYTES;

/// Levels of keys under the master key.
const LEVELS: usize = 4;

/// What a key is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// All files of a data directory.
    Directory,
    /// The keys of a tenant's tables.
    Tenant,
    /// One table.
    Table,
}

impl KeyKind {
    const ALL: [KeyKind; 3] = [KeyKind::Directory, KeyKind::Tenant, KeyKind::Table];
}

/// The id of a wrapped key: random, and the same for as long as the key is there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WrappedKeyId([u8; ID_BYTES]);

impl std::fmt::Debug for WrappedKeyId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

/// Keys that are wrapped by others and by a master key. What `Debug` shows is in files, too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRing {
    fingerprint: [u8; FINGERPRINT_BYTES],
    entries: Vec<Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    kind: KeyKind,
    tier: Tier,
    id: [u8; ID_BYTES],
    /// Zeros for the master key.
    parent: [u8; ID_BYTES],
    salt: Salt,
    tag: Tag,
    wrapped: [u8; KEY_BYTES],
}

impl KeyRing {
    /// A ring without keys.
    pub fn new(master: &MasterKey) -> KeyRing {
        KeyRing { fingerprint: *master.fingerprint_bytes(), entries: Vec::new() }
    }

    /// Draws a key and wraps it under `parent`, or under the master key.
    ///
    /// # Errors
    /// As [`KeyRing::unwrap`] of the parent; `OverLimit` where there are too many keys.
    pub fn add(
        &mut self,
        master: &MasterKey,
        parent: Option<WrappedKeyId>,
        kind: KeyKind,
        tier: Tier,
    ) -> Result<WrappedKeyId> {
        if self.entries.len() >= WRAPPED_KEYS_MAX {
            return Err(Error::over_limit(format!("more than {WRAPPED_KEYS_MAX} wrapped keys")));
        }
        let key = Secret::random(KEY_BYTES)?;
        let mut id = [0; ID_BYTES];
        id.copy_from_slice(&random_salt()?[..ID_BYTES]);
        let parent_id = parent.map_or([0; ID_BYTES], |parent| parent.0);
        let entry = match parent {
            None => Entry::wrap((kind, tier, id, parent_id), master.secret(), &key)?,
            Some(parent) => Entry::wrap((kind, tier, id, parent_id), &self.unwrap(master, parent)?, &key)?,
        };
        self.entries.push(entry);
        Ok(WrappedKeyId(id))
    }

    /// The first key of a kind, and its tier.
    pub fn first(&self, kind: KeyKind) -> Option<(WrappedKeyId, Tier)> {
        let entry = self.entries.iter().find(|entry| entry.kind == kind)?;
        Some((WrappedKeyId(entry.id), entry.tier))
    }

    /// Unwraps a key.
    ///
    /// # Errors
    /// `Denied` where the master key is another than the ring was made with; `Corrupt` where an entry was changed;
    /// `NotFound` where there is no such key.
    pub fn unwrap(&self, master: &MasterKey, id: WrappedKeyId) -> Result<Secret> {
        self.check_master(master)?;
        let mut path: Vec<&Entry> = Vec::new();
        let mut next = id.0;
        while next != [0; ID_BYTES] {
            let entry = self.entries.iter().find(|entry| entry.id == next);
            let entry = entry.ok_or_else(|| Error::not_found(format!("there is no key {}", hex(&next))))?;
            if path.len() == LEVELS {
                return Err(Error::corrupt(format!("key {id:?} is wrapped more than {LEVELS} times")));
            }
            path.push(entry);
            next = entry.parent;
        }
        let mut key: Option<Secret> = None;
        for entry in path.into_iter().rev() {
            key = Some(entry.unwrap(key.as_ref().unwrap_or(master.secret()))?);
        }
        key.ok_or_else(|| Error::not_found("there is no key of that id"))
    }

    /// Wraps what `old` wraps under `new`.
    ///
    /// # Errors
    /// As [`KeyRing::unwrap`] of any key under `old`.
    pub fn rotated(&self, old: &MasterKey, new: &MasterKey) -> Result<KeyRing> {
        self.check_master(old)?;
        let rotate = |entry: &Entry| match entry.parent == [0; ID_BYTES] {
            false => Ok(entry.clone()),
            true => {
                let what = (entry.kind, entry.tier, entry.id, entry.parent);
                Entry::wrap(what, new.secret(), &entry.unwrap(old.secret())?)
            }
        };
        let entries = self.entries.iter().map(rotate).collect::<Result<_>>()?;
        Ok(KeyRing { fingerprint: *new.fingerprint_bytes(), entries })
    }

    /// What tells the master key from others.
    pub fn fingerprint(&self) -> String {
        hex(&self.fingerprint)
    }

    /// The ring as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + ENTRY_BYTES * self.entries.len());
        bytes.extend_from_slice(&FORMAT.to_le_bytes());
        bytes.extend_from_slice(&(self.entries.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&self.fingerprint);
        for entry in &self.entries {
            bytes.extend_from_slice(&entry.associated());
            bytes.extend_from_slice(&entry.salt);
            bytes.extend_from_slice(&entry.tag);
            bytes.extend_from_slice(&entry.wrapped);
        }
        bytes
    }

    /// Reads what [`KeyRing::to_bytes`] made.
    ///
    /// # Errors
    /// `Corrupt` where it is not that; `Invalid` where it has another format.
    pub fn from_bytes(bytes: &[u8]) -> Result<KeyRing> {
        let damaged = || Error::corrupt("wrapped keys that cannot be decoded");
        let (header, rest) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or_else(damaged)?;
        let number =
            |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        if number(0) != FORMAT {
            let message = format!("wrapped keys of format {}, which this version does not know", number(0));
            return Err(Error::invalid(message).advise("open it with the version of farpool that wrote it"));
        }
        let (entries, behind) = rest.as_chunks::<ENTRY_BYTES>();
        if !behind.is_empty() || entries.len() != number(4) as usize || entries.len() > WRAPPED_KEYS_MAX {
            return Err(damaged());
        }
        let entries = entries.iter().map(Entry::decode).collect::<Option<Vec<_>>>().ok_or_else(damaged)?;
        let mut fingerprint = [0; FINGERPRINT_BYTES];
        fingerprint.copy_from_slice(&header[8..]);
        Ok(KeyRing { fingerprint, entries })
    }

    fn check_master(&self, master: &MasterKey) -> Result<()> {
        if self.fingerprint == *master.fingerprint_bytes() {
            return Ok(());
        }
        let (theirs, given) = (self.fingerprint(), master.fingerprint());
        Err(Error::new(
            ErrorKind::Denied,
            format!("its master key is {theirs}, and the one that was given is {given}"),
        )
        .advise("name the master key that the directory was made with, or that it was changed to last"))
    }
}

impl Entry {
    fn wrap(
        (kind, tier, id, parent): (KeyKind, Tier, [u8; ID_BYTES], [u8; ID_BYTES]),
        under: &Secret,
        key: &Secret,
    ) -> Result<Entry> {
        let (salt, wrapped, tag) = (random_salt()?, [0; KEY_BYTES], [0; TAG_BYTES]);
        let mut entry = Entry { kind, tier, id, parent, salt, tag, wrapped };
        // The plain bytes are never outside of locked memory.
        let mut sealed = Secret::zero(KEY_BYTES)?;
        sealed.bytes_mut().copy_from_slice(key.bytes());
        let tag =
            entry.cipher(under)?.encrypt(&[0; GCM_NONCE_BYTES], &entry.associated(), sealed.bytes_mut())?;
        entry.tag = tag.ok_or_else(|| Error::internal("a cipher without tags"))?;
        entry.wrapped.copy_from_slice(sealed.bytes());
        Ok(entry)
    }

    fn unwrap(&self, under: &Secret) -> Result<Secret> {
        let mut key = Secret::zero(KEY_BYTES)?;
        key.bytes_mut().copy_from_slice(&self.wrapped);
        let nonce = [0; GCM_NONCE_BYTES];
        let opened =
            self.cipher(under)?.decrypt(&nonce, &self.associated(), key.bytes_mut(), Some(&self.tag));
        opened.map_err(|_| Error::corrupt(format!("key {:?} was changed", WrappedKeyId(self.id))))?;
        Ok(key)
    }

    /// The cipher of this one wrap: the salt is drawn for it.
    fn cipher(&self, under: &Secret) -> Result<Cipher> {
        Cipher::new(Mode::Gcm, &under.derive(&self.salt, b"farpool wrapped key", MASTER_KEY_BYTES)?)
    }

    fn associated(&self) -> [u8; 4 + 2 * ID_BYTES] {
        let mut bytes = [0; 4 + 2 * ID_BYTES];
        let place = |all: &[Tier], tier: Tier| all.iter().position(|one| *one == tier).unwrap_or_default();
        bytes[0] = KeyKind::ALL.iter().position(|kind| *kind == self.kind).unwrap_or_default() as u8;
        bytes[1] = place(&Tier::ALL, self.tier) as u8;
        bytes[4..4 + ID_BYTES].copy_from_slice(&self.id);
        bytes[4 + ID_BYTES..].copy_from_slice(&self.parent);
        bytes
    }

    fn decode(bytes: &[u8; ENTRY_BYTES]) -> Option<Entry> {
        let mut rest = &bytes[..];
        let ([kind, tier, 0, 0], mut fields) = rest.split_first_chunk::<4>()? else { return None };
        let (id, parent) = (take(&mut fields)?, take(&mut fields)?);
        let (salt, tag, wrapped) = (take(&mut fields)?, take(&mut fields)?, take(&mut fields)?);
        rest = fields;
        let kind = *KeyKind::ALL.get(usize::from(*kind))?;
        let tier = *Tier::ALL.get(usize::from(*tier))?;
        rest.is_empty().then_some(Entry { kind, tier, id, parent, salt, tag, wrapped })
    }
}

fn take<const N: usize>(fields: &mut &[u8]) -> Option<[u8; N]> {
    let (front, rest) = fields.split_first_chunk::<N>()?;
    *fields = rest;
    Some(*front)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn master(byte: u8) -> MasterKey {
        MasterKey::new(Secret::take(&mut [byte; 32]).unwrap()).unwrap()
    }

    /// A key under the master key, one under that, and one under that.
    fn ring(master: &MasterKey) -> (KeyRing, [WrappedKeyId; 3]) {
        let mut ring = KeyRing::new(master);
        let directory = ring.add(master, None, KeyKind::Directory, Tier::Standard).unwrap();
        let tenant = ring.add(master, Some(directory), KeyKind::Tenant, Tier::Standard).unwrap();
        let table = ring.add(master, Some(tenant), KeyKind::Table, Tier::Strict).unwrap();
        (ring, [directory, tenant, table])
    }

    #[test]
    fn keys_are_unwrapped_by_their_master_key_only() {
        let (ring, ids) = ring(&master(1));
        let keys = ids.map(|id| ring.unwrap(&master(1), id).unwrap());
        assert!(keys.windows(2).all(|pair| pair[0].bytes() != pair[1].bytes()));
        let again = KeyRing::from_bytes(&ring.to_bytes()).unwrap();
        assert_eq!(again, ring);
        for (id, key) in ids.iter().zip(&keys) {
            assert_eq!(again.unwrap(&master(1), *id).unwrap().bytes(), key.bytes());
            let error = again.unwrap(&master(2), *id).unwrap_err();
            assert!(
                error.kind == ErrorKind::Denied && error.message.contains(&ring.fingerprint()),
                "{error}"
            );
        }
        assert_eq!(again.first(KeyKind::Table), Some((ids[2], Tier::Strict)));
        let bytes = ring.to_bytes();
        for key in &keys {
            assert!(!bytes.windows(32).any(|window| window == key.bytes()), "a key lies open");
        }
    }

    #[test]
    fn another_master_key_changes_its_wraps_and_no_key() {
        let (ring, ids) = ring(&master(1));
        let rotated = ring.rotated(&master(1), &master(2)).unwrap();
        for id in ids {
            let old = ring.unwrap(&master(1), id).unwrap();
            assert_eq!(rotated.unwrap(&master(2), id).unwrap().bytes(), old.bytes());
            assert_eq!(rotated.unwrap(&master(1), id).unwrap_err().kind, ErrorKind::Denied);
        }
        assert_ne!(rotated.entries[0], ring.entries[0]);
        assert_eq!(rotated.entries[1..], ring.entries[1..]);
        assert_eq!(ring.rotated(&master(3), &master(2)).unwrap_err().kind, ErrorKind::Denied);
    }

    #[test]
    fn a_change_of_any_byte_is_noticed() {
        let (ring, ids) = ring(&master(1));
        let bytes = ring.to_bytes();
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut changed = bytes.clone();
                changed[at] ^= 1 << bit;
                let Ok(read) = KeyRing::from_bytes(&changed) else { continue };
                let all = ids.iter().try_for_each(|id| read.unwrap(&master(1), *id).map(drop));
                assert!(all.is_err(), "bit {bit} of byte {at}");
            }
        }
        for end in 0..bytes.len() {
            assert!(KeyRing::from_bytes(&bytes[..end]).is_err());
        }
    }

    #[test]
    fn keys_that_wrap_one_another_end() {
        let (mut ring, ids) = ring(&master(1));
        let table = ring.entries[2].id;
        ring.entries[0].parent = table;
        assert_eq!(ring.unwrap(&master(1), ids[0]).unwrap_err().kind, ErrorKind::Corrupt);
        ring.entries.truncate(1);
        assert_eq!(ring.unwrap(&master(1), ids[0]).unwrap_err().kind, ErrorKind::NotFound);
    }
}
