//! Named spaces (namespaces of keys): each has the keys that begin with its prefix; if several prefixes match, the key
//! belongs to the space with the longest.
//!
//! Named spaces are part of space 0, the first of the spaces that clients select with `SELECT`. Keys that match no
//! prefix belong to space 0 itself.
//!
//! Example: with the prefixes `a:` and `a:b:`, the key `a:b:1` belongs to the second space and `a:c` to the first. So
//! creating or dropping a space moves keys between tables. All lookups must use the same definitions, because otherwise
//! a key could be read from one table and written to another.

use crate::packing::{Compression, Packer};
use crate::rows::RowSchema;
use crate::shard::SpaceId;
use farpool_model::cast::u32_checked;
use farpool_model::limits::KV_SPACES_MAX;
use farpool_model::{Error, Result, TableName};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The lowest id of a named space; lower ids are those of the spaces that clients select.
const FIRST: SpaceId = 16;

/// The definition of a named space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Space {
    /// Id of the space.
    pub id: SpaceId,
    /// Name, as `TableName::encoded` writes it; also the name of the space as a table in SQL.
    pub name: String,
    /// Prefix of the keys that belong to the space.
    pub prefix: Box<[u8]>,
    /// Columns of the rows, if the values are rows.
    pub schema: Option<RowSchema>,
    /// Whether keys and values have the type bytes when the space is read as a table in SQL; otherwise text.
    pub is_binary: bool,
    /// Codec with which values are compressed; `None` for none.
    pub compression: Option<Compression>,
}

impl Space {
    /// Returns the name as a person writes it, with its schema unless that is `public`.
    pub fn written_name(&self) -> String {
        TableName::decode(self.name.as_str()).map_or_else(|_| self.name.clone(), |name| name.written())
    }
}

/// The set of named spaces, sorted by prefix.
#[derive(Clone, Default)]
pub struct Spaces {
    /// The spaces, each with the index of the space whose prefix is the longest proper prefix of its own prefix, if
    /// there is one.
    by_prefix: Vec<(Arc<Space>, Option<usize>)>,
    /// Compressors of the spaces that have a codec, by id of the space.
    packers: BTreeMap<SpaceId, Arc<Packer>>,
}

impl Spaces {
    /// Returns whether there are no named spaces.
    pub fn is_empty(&self) -> bool {
        self.by_prefix.is_empty()
    }

    /// Returns the number of named spaces.
    pub fn len(&self) -> usize {
        self.by_prefix.len()
    }

    /// Iterates over the spaces in ascending order of their prefixes, as bytes.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Space>> {
        self.by_prefix.iter().map(|(space, _)| space)
    }

    /// Returns the space with this name; `None` if there is none.
    pub fn named(&self, name: &str) -> Option<&Arc<Space>> {
        self.iter().find(|space| space.name == name)
    }

    /// Returns the space with this id; `None` if there is none.
    pub fn numbered(&self, id: SpaceId) -> Option<&Arc<Space>> {
        self.iter().find(|space| space.id == id)
    }

    /// Returns the compressor of a space; `None` if its values are not compressed.
    pub(crate) fn packer(&self, id: SpaceId) -> Option<&Arc<Packer>> {
        self.packers.get(&id)
    }

    /// Iterates over the compressors, with the ids of their spaces.
    pub(crate) fn packers(&self) -> impl Iterator<Item = (SpaceId, &Arc<Packer>)> {
        self.packers.iter().map(|(id, packer)| (*id, packer))
    }

    /// Returns a copy in which the space `id` has the compressor `packer`; `None` if there is no such space or it has
    /// another codec.
    pub(crate) fn with_packer(&self, id: SpaceId, packer: &Arc<Packer>) -> Option<Spaces> {
        let compression = self.numbered(id)?.compression?;
        let mut spaces = Spaces { by_prefix: self.by_prefix.clone(), packers: self.packers.clone() };
        (compression == packer.compression()).then(|| spaces.packers.insert(id, Arc::clone(packer)))?;
        Some(spaces)
    }

    /// Takes over the compressors, with their dictionaries, from `before` for spaces that have the same id, name and
    /// codec there.
    pub(crate) fn keeping_packers_of(mut self, before: &Spaces) -> Spaces {
        for (id, packer) in &mut self.packers {
            let name = |spaces: &[(Arc<Space>, _)]| {
                let space = spaces.iter().map(|(space, _)| space).find(|space| space.id == *id);
                space.map(|space| space.name.clone())
            };
            let old = before.packer(*id).filter(|old| old.compression() == packer.compression());
            if let Some(old) = old.filter(|_| name(&self.by_prefix) == name(&before.by_prefix)) {
                *packer = Arc::clone(old);
            }
        }
        self
    }

    /// Returns the named space that a key belongs to; `None` if no prefix matches.
    pub fn owner(&self, key: &[u8]) -> Option<&Arc<Space>> {
        let behind = self.by_prefix.partition_point(|(space, _)| &*space.prefix <= key);
        // The prefixes of `key` are all on the chain that begins at the last space with a prefix <= `key` and follows
        // the indexes of enclosing spaces (`outer`).
        let mut at = behind.checked_sub(1)?;
        loop {
            let (space, outer) = &self.by_prefix[at];
            if key.starts_with(&space.prefix) {
                return Some(space);
            }
            at = (*outer)?;
        }
    }

    /// Returns the lowest unused id of a named space.
    pub fn free_id(&self) -> SpaceId {
        let mut ids: Vec<SpaceId> = self.iter().map(|space| space.id).collect();
        ids.sort_unstable();
        ids.into_iter().fold(FIRST, |free, id| if id == free { free + 1 } else { free })
    }

    /// Returns a copy with the additional space `space`, whose name, id and prefix must be unused.
    #[must_use]
    pub fn with(&self, space: Space) -> Spaces {
        Spaces::of(self.iter().cloned().chain([Arc::new(space)])).keeping_packers_of(self)
    }

    /// Returns a copy without space `id`.
    #[must_use]
    pub fn without(&self, id: SpaceId) -> Spaces {
        Spaces::of(self.iter().filter(|space| space.id != id).cloned()).keeping_packers_of(self)
    }

    /// Returns the encoded definitions of all spaces, one after the other. A definition has the id (4 bytes), one byte
    /// with `is_binary` in bit 0 and the number of the codec (0 for none) in the other bits, then the name, the prefix
    /// and the text of the schema, each preceded by its length. Numbers of 4 bytes are little-endian.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for space in self.iter() {
            bytes.extend_from_slice(&space.id.to_le_bytes());
            let compression = space.compression.map_or(0, Compression::number);
            bytes.push(u8::from(space.is_binary) | compression << 1);
            let schema = space.schema.as_ref().map_or_else(String::new, RowSchema::text);
            for part in [space.name.as_bytes(), &space.prefix, schema.as_bytes()] {
                bytes.extend_from_slice(&u32_checked(part.len()).to_le_bytes());
                bytes.extend_from_slice(part);
            }
        }
        bytes
    }

    /// Decodes the output of [`Spaces::to_bytes`].
    ///
    /// # Errors
    /// `Corrupt` when the bytes are not definitions of spaces, or name an unknown codec.
    pub(crate) fn from_bytes(mut bytes: &[u8]) -> Result<Spaces> {
        let damaged = || Error::corrupt("the definitions of spaces are damaged");
        let mut spaces: Vec<Arc<Space>> = Vec::new();
        while !bytes.is_empty() {
            let (id, rest) = bytes.split_first_chunk().ok_or_else(damaged)?;
            let (flags, mut rest) = rest.split_first().ok_or_else(damaged)?;
            let mut part = || {
                let (length, behind) = rest.split_first_chunk()?;
                let (part, behind) = behind.split_at_checked(u32::from_le_bytes(*length) as usize)?;
                rest = behind;
                Some(part)
            };
            let (name, prefix) = part().zip(part()).ok_or_else(damaged)?;
            let schema = std::str::from_utf8(part().ok_or_else(damaged)?).map_err(|_| damaged())?;
            bytes = rest;
            let space = Space {
                id: u32::from_le_bytes(*id),
                name: std::str::from_utf8(name).map_err(|_| damaged())?.to_string(),
                prefix: prefix.into(),
                schema: Some(schema).filter(|text| !text.is_empty()).map(RowSchema::parse).transpose()?,
                is_binary: flags & 1 != 0,
                compression: match flags >> 1 {
                    0 => None,
                    number => Some(Compression::numbered(number).ok_or_else(|| {
                        Error::corrupt("a space has a compression that this version of farpool does not know")
                    })?),
                },
            };
            let is_new = spaces.iter().all(|other| {
                other.id != space.id && other.name != space.name && other.prefix != space.prefix
            });
            let most = FIRST as usize + KV_SPACES_MAX;
            if !is_new || space.id < FIRST || space.id as usize >= most || space.prefix.is_empty() {
                return Err(damaged());
            }
            spaces.push(Arc::new(space));
        }
        Ok(Spaces::of(spaces.into_iter()))
    }

    fn of(spaces: impl Iterator<Item = Arc<Space>>) -> Spaces {
        let mut spaces: Vec<Arc<Space>> = spaces.collect();
        spaces.sort_unstable_by(|a, b| a.prefix.cmp(&b.prefix));
        let mut by_prefix: Vec<(Arc<Space>, Option<usize>)> = Vec::with_capacity(spaces.len());
        for space in spaces {
            let mut outer = by_prefix.len().checked_sub(1);
            while let Some(at) = outer.filter(|at| !space.prefix.starts_with(&by_prefix[*at].0.prefix)) {
                outer = by_prefix[at].1;
            }
            by_prefix.push((space, outer));
        }
        let packers = by_prefix.iter().filter_map(|(space, _)| {
            let packer = Packer::new(space.compression?, &[]);
            Some((space.id, Arc::new(packer)))
        });
        Spaces { packers: packers.collect(), by_prefix }
    }
}

impl fmt::Debug for Spaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn spaces(prefixes: &[&str]) -> Spaces {
        prefixes.iter().fold(Spaces::default(), |spaces, prefix| {
            let (id, name) = (spaces.free_id(), (*prefix).to_string());
            spaces.with(Space {
                id,
                name,
                prefix: prefix.as_bytes().into(),
                schema: None,
                is_binary: false,
                compression: None,
            })
        })
    }

    #[test]
    fn numbers_are_given_again() {
        let three = spaces(&["a", "b", "c"]);
        let id = three.named("b").unwrap().id;
        let two = three.without(id);
        assert_eq!((three.free_id(), two.free_id(), two.len()), (FIRST + 3, id, 2));
        assert!(two.numbered(id).is_none());
    }

    #[test]
    fn definitions_are_read_as_they_were_written() {
        let schema = RowSchema::parse("id u64, name utf8").unwrap();
        let more = Space {
            id: 20,
            name: "é".into(),
            prefix: b"\xff".as_slice().into(),
            schema: Some(schema),
            is_binary: true,
            compression: Some(Compression::Fsst),
        };
        let all = spaces(&["a", "ab"]).with(more);
        let bytes = all.to_bytes();
        let read = Spaces::from_bytes(&bytes).unwrap();
        assert_eq!(read.iter().collect::<Vec<_>>(), all.iter().collect::<Vec<_>>());
        assert_eq!(read.owner(b"abc").unwrap().name, "ab");
        for cut in 1..bytes.len() {
            // If the bytes are truncated at the end of a definition, they are a valid, shorter list.
            let is_less = Spaces::from_bytes(&bytes[..cut]).map_or(true, |read| read.len() < all.len());
            assert!(is_less, "{cut}");
        }
        assert!(Spaces::from_bytes(&[&bytes[..], &bytes].concat()).is_err());
    }

    proptest! {
        #[test]
        fn the_longest_prefix_owns_a_key(
            prefixes in prop::collection::btree_set("[ab]{1,4}", 0..12),
            keys in prop::collection::vec("[ab]{0,6}", 1..20),
        ) {
            let prefixes: Vec<&str> = prefixes.iter().map(String::as_str).collect();
            let spaces = spaces(&prefixes);
            for key in keys {
                let longest = prefixes.iter().filter(|prefix| key.starts_with(**prefix)).max_by_key(|p| p.len());
                prop_assert_eq!(spaces.owner(key.as_bytes()).map(|space| &*space.name), longest.copied());
            }
        }
    }
}
