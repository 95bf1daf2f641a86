//! Grouping: assigns an id to each distinct combination of group keys (Korolija et al., *Farview*, CIDR 2022, section
//! 5.4).
//!
//! Input: the group keys of a batch. Output: a group id per row; ids are consecutive from 0, in the order of first
//! appearance. NULL is a value like any other. -0.0 is the same group key as 0.0, and NaNs are the same if their bits
//! are, as in engines that use Arrow. Memory: the distinct group keys and a hash table, reported by [`Groups::bytes`].
//! Parallelism: each worker has a table of its own; all tables use the same hash function, so that they can be merged
//! partition by partition. Errors: only on a bug in this crate.
//!
//! If all group keys of a row together fit 64 bits, according to the zone maps and dictionaries of the table, they are
//! packed into one integer ([`packed`]); otherwise they are stored as rows of words ([`rows`]) in a [`row_table`].

mod hash;
mod ints;
mod packed;
mod row_table;
mod rows;
mod slots;
mod text_codes;
mod values;

use arrow_array::ArrayRef;
use arrow_schema::DataType;
use farpool_model::{Error, Result};
use packed::PackedTable;
use row_table::RowTable;
use std::sync::Arc;

pub use hash::HashKey;
pub(crate) use hash::INLINE_BYTES;
pub(crate) use packed::{KeyBounds, Packing};
pub(crate) use rows::Rows;
pub(crate) use text_codes::{TextCodes, text_bytes};
pub(crate) use values::{KeyValues, lanes_of_array};

/// Hash table of the groups so far.
pub(crate) enum Groups {
    /// There are no group keys: all rows belong to one group.
    Single,
    /// Group keys that together fit 64 bits.
    Packed(PackedTable),
    /// All other group keys.
    Rows(Box<RowTable>),
}

impl Groups {
    /// Creates an empty table (without group keys: one with a single group) for group keys of these canonical types.
    /// They are packed if `packing` is given.
    pub(crate) fn new(types: &[DataType], packing: Option<&Arc<Packing>>, hash_key: HashKey) -> Groups {
        match packing {
            _ if types.is_empty() => Groups::Single,
            Some(packing) => Groups::Packed(PackedTable::new(packing.clone(), hash_key)),
            None => Groups::Rows(Box::new(RowTable::new(types, hash_key))),
        }
    }

    /// Reserves room for `groups` groups, if there are none yet.
    pub(crate) fn expect(&mut self, groups: usize) {
        match self {
            Groups::Single => {}
            Groups::Packed(table) => table.table.expect(groups),
            Groups::Rows(table) => table.expect(groups),
        }
    }

    /// Returns the number of groups.
    pub(crate) fn len(&self) -> usize {
        match self {
            Groups::Single => 1,
            Groups::Packed(table) => table.table.len(),
            Groups::Rows(table) => table.len(),
        }
    }

    /// Returns the bytes of memory that the table takes.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Groups::Single => 0,
            Groups::Packed(table) => table.table.bytes(),
            Groups::Rows(table) => table.bytes(),
        }
    }

    /// Returns the maximum number of bytes that a group with group keys of these types adds to [`Groups::bytes`],
    /// without its strings.
    pub(crate) fn bytes_per_group(types: &[DataType], packed: bool) -> usize {
        match types {
            [] => 0,
            _ if packed => ints::IntTable::BYTES_PER_GROUP,
            _ => RowTable::bytes_per_group(types),
        }
    }

    /// Replaces `ids` by the group id of each of `rows` rows. Adds groups that are new.
    ///
    /// # Errors
    /// Fails only on a bug in this crate.
    pub(crate) fn intern(&mut self, keys: &[KeyValues<'_>], rows: usize, ids: &mut Vec<u32>) -> Result<()> {
        ids.clear();
        match self {
            Groups::Single => Err(Error::internal("keys of another program")),
            Groups::Packed(table) => table.intern(keys, rows, ids),
            Groups::Rows(table) => table.intern(keys, rows, ids),
        }
    }

    /// Finds groups as [`Groups::intern`] does, for group keys that are all arrays.
    ///
    /// # Errors
    /// Fails only on a bug in this crate.
    pub(crate) fn intern_arrays(&mut self, keys: Vec<ArrayRef>, ids: &mut Vec<u32>) -> Result<()> {
        let rows = keys.first().map_or(0, |k| k.len());
        let keys: Vec<KeyValues<'_>> = keys.into_iter().map(KeyValues::Array).collect();
        self.intern(&keys, rows, ids)
    }

    /// Replaces `ids` by the group id of each packed group key. Adds groups that are new.
    ///
    /// # Errors
    /// Fails only on a bug in this crate.
    pub(crate) fn intern_codes(&mut self, codes: &[i64], ids: &mut Vec<u32>) -> Result<()> {
        ids.clear();
        match self {
            Groups::Packed(table) => table.table.intern(codes, ids),
            _ => return Err(Error::internal("packed keys of another program")),
        }
        Ok(())
    }

    /// Replaces `out` by the group keys of `rows` rows, encoded for [`Groups::intern_rows`].
    ///
    /// # Errors
    /// Fails only on a bug in this crate.
    pub(crate) fn encode(&self, keys: &[KeyValues<'_>], rows: usize, out: &mut Rows) -> Result<()> {
        match self {
            Groups::Rows(table) => table.encode(keys, rows, out),
            _ => Err(Error::internal("keys in rows of another program")),
        }
    }

    /// Replaces `ids` by the group id of each encoded row; `hashes` has the hashes of the rows. Adds groups that are
    /// new.
    ///
    /// # Errors
    /// Fails only on a bug in this crate.
    pub(crate) fn intern_rows<'r>(
        &mut self,
        hashes: &[u64],
        row: impl Fn(usize) -> &'r [i64],
        ids: &mut Vec<u32>,
    ) -> Result<()> {
        ids.clear();
        match self {
            Groups::Rows(table) => table.look_up(hashes, row, ids),
            _ => return Err(Error::internal("keys in rows of another program")),
        }
        Ok(())
    }

    /// Replaces `ids` by the ids in this table of the groups `wanted`, which are ids in `other`. Adds groups that are
    /// new.
    ///
    /// # Errors
    /// Fails only on a bug in this crate.
    pub(crate) fn intern_groups(&mut self, other: &Groups, wanted: &[u32], ids: &mut Vec<u32>) -> Result<()> {
        ids.clear();
        match (self, other) {
            (Groups::Single, Groups::Single) => ids.extend(wanted),
            (Groups::Packed(table), Groups::Packed(other)) => {
                table.table.intern_groups(&other.table, wanted, ids);
            }
            (Groups::Rows(table), Groups::Rows(other)) => table.intern_groups(other, wanted, ids),
            _ => return Err(Error::internal("groups of another program")),
        }
        Ok(())
    }

    /// Returns the hash of a group's group keys. Equal group keys have equal hashes in all tables with the same
    /// secret key of the hash function.
    pub(crate) fn hash(&self, group: u32) -> u64 {
        match self {
            Groups::Single => 0,
            Groups::Packed(table) => table.table.hash(group),
            Groups::Rows(table) => table.hash(group),
        }
    }

    /// Returns the group keys of the groups `wanted`, one array per group key.
    ///
    /// # Errors
    /// Fails only on a bug in this crate.
    pub(crate) fn keys(&self, wanted: &[u32]) -> Result<Vec<ArrayRef>> {
        match self {
            Groups::Single => Ok(Vec::new()),
            Groups::Packed(table) => table.keys(wanted),
            Groups::Rows(table) => table.keys(wanted),
        }
    }
}
