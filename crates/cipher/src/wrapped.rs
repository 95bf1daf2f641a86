//! Wrapped keys: keys that are encrypted under another key, their parent.
//!
//! Layout, [`WRAPPED_KEY_BYTES`]: kind, tier, two zeros; the id of the key and that of its parent, 16 bytes each, zeros
//! for the master key; a salt of 32 bytes; the tag, 16; the key, 32. A key is encrypted by AES-256-GCM under a key that
//! is derived from its parent and the salt; kind, tier and both ids are authenticated with it.
//!
//! Rejected: AES key wrap (RFC 5649), which needs no salt but authenticates no associated data, so that a key of one
//! kind could be put in the place of a key of another kind.

use crate::cipher::{Cipher, GCM_NONCE_BYTES, Mode, TAG_BYTES, Tag};
use crate::keys::{SALT_BYTES, Salt, Secret, random_salt};
use crate::master::{MASTER_KEY_BYTES, hex};
use farpool_model::{Error, Result, Tier};

const ID_BYTES: usize = 16;
const KEY_BYTES: usize = 32;
const ASSOCIATED_BYTES: usize = 4 + 2 * ID_BYTES;

/// Bytes of a wrapped key.
pub const WRAPPED_KEY_BYTES: usize = ASSOCIATED_BYTES + SALT_BYTES + TAG_BYTES + KEY_BYTES;

/// Purpose of a wrapped (encrypted) key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// Encrypts all files of a data directory, and wraps (encrypts) the keys of its tenants.
    Directory,
    /// Wraps (encrypts) the keys of a tenant's tables.
    Tenant,
    /// Encrypts the parts of one table.
    Table,
}

impl KeyKind {
    const ALL: [KeyKind; 3] = [KeyKind::Directory, KeyKind::Tenant, KeyKind::Table];
}

/// The id of a wrapped key, a random number. The id stays the same when the key is wrapped again under another key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WrappedKeyId([u8; ID_BYTES]);

impl WrappedKeyId {
    /// The id that stands for the master key.
    pub const MASTER: WrappedKeyId = WrappedKeyId([0; ID_BYTES]);

    /// Returns the id as bytes.
    pub fn bytes(&self) -> &[u8; ID_BYTES] {
        &self.0
    }
}

impl std::fmt::Debug for WrappedKeyId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

/// A key that is encrypted under its parent. `Debug` shows only data that are stored in files, too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrappedKey {
    kind: KeyKind,
    tier: Tier,
    id: WrappedKeyId,
    parent: WrappedKeyId,
    salt: Salt,
    tag: Tag,
    wrapped: [u8; KEY_BYTES],
}

impl WrappedKey {
    /// Generates a random key and wraps (encrypts) it under the key `under`, whose id is `parent`.
    ///
    /// # Errors
    /// `OverLimit` if the process may not lock more memory; `Internal` if the system provides no random bytes.
    pub fn draw(
        kind: KeyKind,
        tier: Tier,
        (parent, under): (WrappedKeyId, &Secret),
    ) -> Result<(WrappedKey, Secret)> {
        let key = Secret::random(KEY_BYTES)?;
        let mut id = [0; ID_BYTES];
        id.copy_from_slice(&random_salt()?[..ID_BYTES]);
        let wrapped = WrappedKey::wrap((kind, tier, WrappedKeyId(id), parent), under, &key)?;
        Ok((wrapped, key))
    }

    /// Returns the unwrapped key, which must be of this kind and wrapped under the key `under`, whose id is `parent`.
    ///
    /// # Errors
    /// `Corrupt` if it is of another kind, has another parent, or was changed; `OverLimit` if the process may not lock
    /// more memory.
    pub fn open(&self, kind: KeyKind, (parent, under): (WrappedKeyId, &Secret)) -> Result<Secret> {
        if self.kind != kind || self.parent != parent {
            return Err(Error::corrupt(format!("key {:?} is in the place of another", self.id)));
        }
        self.unwrap(under)
    }

    /// Returns the id.
    pub fn id(&self) -> WrappedKeyId {
        self.id
    }

    /// Returns the purpose of the key.
    pub fn kind(&self) -> KeyKind {
        self.kind
    }

    /// Returns the tier of the ciphers that use the key.
    pub fn tier(&self) -> Tier {
        self.tier
    }

    /// Returns the id of the parent, the key that this one is wrapped under.
    pub fn parent(&self) -> WrappedKeyId {
        self.parent
    }

    /// Returns the wrapped key as bytes.
    pub fn to_bytes(&self) -> [u8; WRAPPED_KEY_BYTES] {
        let mut bytes = [0; WRAPPED_KEY_BYTES];
        let (front, rest) = bytes.split_at_mut(ASSOCIATED_BYTES);
        front.copy_from_slice(&self.associated());
        let (salt, rest) = rest.split_at_mut(SALT_BYTES);
        salt.copy_from_slice(&self.salt);
        let (tag, wrapped) = rest.split_at_mut(TAG_BYTES);
        tag.copy_from_slice(&self.tag);
        wrapped.copy_from_slice(&self.wrapped);
        bytes
    }

    /// Decodes the output of [`WrappedKey::to_bytes`]; nothing is verified before the key is unwrapped.
    ///
    /// # Errors
    /// `Corrupt` if the bytes are not a wrapped key.
    pub fn from_bytes(bytes: &[u8]) -> Result<WrappedKey> {
        WrappedKey::decode(bytes).ok_or_else(|| Error::corrupt("a wrapped key that cannot be decoded"))
    }

    fn decode(bytes: &[u8]) -> Option<WrappedKey> {
        let ([kind, tier, 0, 0], mut fields) = bytes.split_first_chunk::<4>()? else { return None };
        let (id, parent) = (WrappedKeyId(take(&mut fields)?), WrappedKeyId(take(&mut fields)?));
        let (salt, tag, wrapped) = (take(&mut fields)?, take(&mut fields)?, take(&mut fields)?);
        let kind = *KeyKind::ALL.get(usize::from(*kind))?;
        let tier = *Tier::ALL.get(usize::from(*tier))?;
        fields.is_empty().then_some(WrappedKey { kind, tier, id, parent, salt, tag, wrapped })
    }

    /// Returns the same key under another parent that has the same id.
    pub(crate) fn rewrapped(&self, old: &Secret, new: &Secret) -> Result<WrappedKey> {
        WrappedKey::wrap((self.kind, self.tier, self.id, self.parent), new, &self.unwrap(old)?)
    }

    fn wrap(
        (kind, tier, id, parent): (KeyKind, Tier, WrappedKeyId, WrappedKeyId),
        under: &Secret,
        key: &Secret,
    ) -> Result<WrappedKey> {
        let (salt, wrapped, tag) = (random_salt()?, [0; KEY_BYTES], [0; TAG_BYTES]);
        let mut made = WrappedKey { kind, tier, id, parent, salt, tag, wrapped };
        // A [`Secret`], so that the plain key is in locked memory only.
        let mut sealed = Secret::zero(KEY_BYTES)?;
        sealed.bytes_mut().copy_from_slice(key.bytes());
        let nonce = [0; GCM_NONCE_BYTES];
        let tag = made.cipher(under)?.encrypt(&nonce, &made.associated(), sealed.bytes_mut())?;
        made.tag = tag.ok_or_else(|| Error::internal("a cipher without tags"))?;
        made.wrapped.copy_from_slice(sealed.bytes());
        Ok(made)
    }

    fn unwrap(&self, under: &Secret) -> Result<Secret> {
        let mut key = Secret::zero(KEY_BYTES)?;
        key.bytes_mut().copy_from_slice(&self.wrapped);
        let nonce = [0; GCM_NONCE_BYTES];
        let opened =
            self.cipher(under)?.decrypt(&nonce, &self.associated(), key.bytes_mut(), Some(&self.tag));
        opened.map_err(|_| Error::corrupt(format!("key {:?} was changed", self.id)))?;
        Ok(key)
    }

    /// Returns the cipher for this wrapped key, which is derived from the parent and the salt, and used for one message
    /// only.
    fn cipher(&self, under: &Secret) -> Result<Cipher> {
        Cipher::new(Mode::Gcm, &under.derive(&self.salt, b"farpool wrapped key", MASTER_KEY_BYTES)?)
    }

    fn associated(&self) -> [u8; ASSOCIATED_BYTES] {
        let mut bytes = [0; ASSOCIATED_BYTES];
        let place = |all: &[Tier], tier: Tier| all.iter().position(|one| *one == tier).unwrap_or_default();
        bytes[0] = KeyKind::ALL.iter().position(|kind| *kind == self.kind).unwrap_or_default() as u8;
        bytes[1] = place(&Tier::ALL, self.tier) as u8;
        bytes[4..4 + ID_BYTES].copy_from_slice(&self.id.0);
        bytes[4 + ID_BYTES..].copy_from_slice(&self.parent.0);
        bytes
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
    use farpool_model::ErrorKind;

    fn secret(byte: u8) -> Secret {
        Secret::take(&mut [byte; 32]).unwrap()
    }

    /// Creates the key of a tenant under the key of a directory, and the key of a table under the tenant's key. Returns
    /// for each the wrapped key, the plain key, and the id and the plain key of its parent.
    fn chain() -> [(WrappedKey, Secret, WrappedKeyId, Secret); 2] {
        let directory = WrappedKeyId([7; 16]);
        let (tenant, tenant_key) =
            WrappedKey::draw(KeyKind::Tenant, Tier::Standard, (directory, &secret(1))).unwrap();
        let under = (tenant.id(), &tenant_key);
        let (table, table_key) = WrappedKey::draw(KeyKind::Table, Tier::Strict, under).unwrap();
        let of_table = tenant.open(KeyKind::Tenant, (directory, &secret(1))).unwrap();
        let parent = tenant.id();
        [(tenant, tenant_key, directory, secret(1)), (table, table_key, parent, of_table)]
    }

    #[test]
    fn a_key_is_opened_by_its_parent_as_what_it_is() {
        let keys = chain();
        for (place, (wrapped, key, parent, under)) in keys.iter().enumerate() {
            let read = WrappedKey::from_bytes(&wrapped.to_bytes()).unwrap();
            assert_eq!(read, *wrapped);
            assert_eq!(read.open(wrapped.kind(), (*parent, under)).unwrap().bytes(), key.bytes());
            let (_, _, other, other_key) = &keys[1 - place];
            let wrong = [
                read.open(KeyKind::Directory, (*parent, under)),
                read.open(wrapped.kind(), (*other, under)),
                read.open(wrapped.kind(), (*parent, other_key)),
            ];
            for opened in wrong {
                assert_eq!(opened.unwrap_err().kind, ErrorKind::Corrupt);
            }
            let bytes = read.to_bytes();
            assert!(!bytes.windows(32).any(|window| window == key.bytes()), "a key lies open");
        }
        assert_ne!(keys[0].1.bytes(), keys[1].1.bytes());
    }

    #[test]
    fn a_change_of_any_byte_is_noticed() {
        for (wrapped, _, parent, under) in chain() {
            let bytes = wrapped.to_bytes();
            for at in 0..bytes.len() {
                let mut changed = bytes;
                changed[at] ^= 1 << (at % 8);
                let Ok(read) = WrappedKey::from_bytes(&changed) else { continue };
                assert!(read.open(wrapped.kind(), (parent, &under)).is_err(), "byte {at}");
            }
            for end in 0..bytes.len() {
                assert!(WrappedKey::from_bytes(&bytes[..end]).is_err());
            }
        }
    }
}
