//! Key ring: the keys that are wrapped (encrypted) by a master key, in the form in which they are stored. The master
//! key itself is not stored.
//!
//! A key of the ring may wrap others ([`WrappedKey`]): the key of a data directory wraps those of its tenants. When the
//! master key is changed, only the keys of the ring are wrapped again.
//!
//! Layout, all numbers little-endian: the format `u32`; the number of keys `u32`; the fingerprint of the master key, 8
//! bytes; then each key.

use crate::keys::Secret;
use crate::master::{FINGERPRINT_BYTES, MasterKey, hex};
use crate::wrapped::{KeyKind, WRAPPED_KEY_BYTES, WrappedKey, WrappedKeyId};
use farpool_model::limits::WRAPPED_KEYS_MAX;
use farpool_model::{Error, ErrorKind, Result, Tier};

const FORMAT: u32 = 1;
const HEADER_BYTES: usize = 16;

/// Keys wrapped by a master key. `Debug` shows only data that are stored in files, too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRing {
    fingerprint: [u8; FINGERPRINT_BYTES],
    entries: Vec<WrappedKey>,
}

impl KeyRing {
    /// Creates a ring without keys.
    pub fn new(master: &MasterKey) -> KeyRing {
        KeyRing { fingerprint: *master.fingerprint_bytes(), entries: Vec::new() }
    }

    /// Generates a random key and wraps (encrypts) it under the master key.
    ///
    /// # Errors
    /// `Denied` if `master` is not the master key of the ring; `OverLimit` if there are too many keys; errors of
    /// [`WrappedKey::draw`].
    pub fn add(&mut self, master: &MasterKey, kind: KeyKind, tier: Tier) -> Result<WrappedKeyId> {
        self.check_master(master)?;
        if self.entries.len() >= WRAPPED_KEYS_MAX {
            return Err(Error::over_limit(format!("more than {WRAPPED_KEYS_MAX} wrapped keys")));
        }
        let (wrapped, _) = WrappedKey::draw(kind, tier, (WrappedKeyId::MASTER, master.secret()))?;
        let id = wrapped.id();
        self.entries.push(wrapped);
        Ok(id)
    }

    /// Returns the id and tier of the first key of a kind; `None` if there is none.
    pub fn first(&self, kind: KeyKind) -> Option<(WrappedKeyId, Tier)> {
        let entry = self.entries.iter().find(|entry| entry.kind() == kind)?;
        Some((entry.id(), entry.tier()))
    }

    /// Unwraps (decrypts) a key.
    ///
    /// # Errors
    /// `Denied` if `master` is not the master key of the ring; `Corrupt` if an entry was changed; `NotFound` if there
    /// is no such key.
    pub fn unwrap(&self, master: &MasterKey, id: WrappedKeyId) -> Result<Secret> {
        self.check_master(master)?;
        let entry = self.entries.iter().find(|entry| entry.id() == id);
        let entry = entry.ok_or_else(|| Error::not_found(format!("there is no key {id:?}")))?;
        entry.open(entry.kind(), (WrappedKeyId::MASTER, master.secret()))
    }

    /// Returns a ring with the same keys, wrapped under `new`.
    ///
    /// # Errors
    /// Errors of [`KeyRing::unwrap`] for any key.
    pub fn rotated(&self, old: &MasterKey, new: &MasterKey) -> Result<KeyRing> {
        self.check_master(old)?;
        let rotate = |entry: &WrappedKey| entry.rewrapped(old.secret(), new.secret());
        let entries = self.entries.iter().map(rotate).collect::<Result<_>>()?;
        Ok(KeyRing { fingerprint: *new.fingerprint_bytes(), entries })
    }

    /// Returns the fingerprint of the master key, for comparison with [`MasterKey::fingerprint`].
    pub fn fingerprint(&self) -> String {
        hex(&self.fingerprint)
    }

    /// Encodes the ring.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + WRAPPED_KEY_BYTES * self.entries.len());
        bytes.extend_from_slice(&FORMAT.to_le_bytes());
        bytes.extend_from_slice(&(self.entries.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&self.fingerprint);
        self.entries.iter().for_each(|entry| bytes.extend_from_slice(&entry.to_bytes()));
        bytes
    }

    /// Decodes the output of [`KeyRing::to_bytes`].
    ///
    /// # Errors
    /// `Corrupt` if the bytes are not a key ring; `Invalid` if they have another format.
    pub fn from_bytes(bytes: &[u8]) -> Result<KeyRing> {
        let damaged = || Error::corrupt("wrapped keys that cannot be decoded");
        let (header, rest) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or_else(damaged)?;
        let number =
            |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        if number(0) != FORMAT {
            let message = format!("wrapped keys of format {}, which this version does not know", number(0));
            return Err(Error::invalid(message).advise("open it with the version of farpool that wrote it"));
        }
        let (entries, behind) = rest.as_chunks::<WRAPPED_KEY_BYTES>();
        if !behind.is_empty() || entries.len() != number(4) as usize || entries.len() > WRAPPED_KEYS_MAX {
            return Err(damaged());
        }
        let decode = |bytes: &[u8; WRAPPED_KEY_BYTES]| WrappedKey::from_bytes(bytes);
        let entries = entries.iter().map(decode).collect::<Result<Vec<_>>>()?;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn master(byte: u8) -> MasterKey {
        MasterKey::new(Secret::take(&mut [byte; 32]).unwrap()).unwrap()
    }

    /// Creates a ring with two keys under the master key.
    fn ring(master: &MasterKey) -> (KeyRing, [WrappedKeyId; 2]) {
        let mut ring = KeyRing::new(master);
        let directory = ring.add(master, KeyKind::Directory, Tier::Standard).unwrap();
        let other = ring.add(master, KeyKind::Tenant, Tier::Strict).unwrap();
        (ring, [directory, other])
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
        assert_eq!(again.first(KeyKind::Tenant), Some((ids[1], Tier::Strict)));
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
        assert!(rotated.entries.iter().zip(&ring.entries).all(|(new, old)| new != old));
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
}
