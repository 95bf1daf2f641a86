//! Grouping: a number for each distinct combination of key values (Farview, section 5.4).
//!
//! Contract. Input: key arrays of a batch. Output: a group number per row, dense from 0 in the order of
//! first appearance. NULL is a value like any other; -0.0 is the same key as 0.0, and NaNs are the same key
//! if their bits are, as Arrow's engines group them. Memory: the distinct keys and a hash table, reported by
//! [`Groups::bytes`]. Parallelism: none of its own; tables of different workers hash alike, so that they can
//! be merged partition by partition. Errors: none but defects.
//!
//! Keys that together take 64 bits, as the zone maps of a table have it, are one integer ([`packed`]); one key
//! of fixed width takes a table of integers ([`ints`]), one string a table of strings ([`texts`]), several
//! keys a table of tuples ([`tuples`]). Arrow's row format would do for all and was measured at ten
//! times the cost for two keys.

mod ints;
mod packed;
mod texts;
mod tuples;

use arrow_array::{Array, ArrayRef};
use arrow_buffer::NullBuffer;
use arrow_schema::DataType;
use farpool_model::{Error, Result, schema};
use ints::{IntTable, Width};
use packed::PackedTable;
use std::borrow::Cow;
use std::sync::Arc;
use texts::Texts;
use tuples::TupleTable;

pub(crate) use ints::fold as hash_of;
pub(crate) use packed::Packing;

/// The groups seen so far.
pub(crate) enum Groups {
    /// No keys: one group.
    Single,
    /// Keys of 64 bits together.
    Packed(PackedTable),
    /// One key of up to 64 bits.
    Narrow(IntTable<i64>),
    /// One decimal key.
    Wide(IntTable<i128>),
    /// One string or binary key.
    Text(Texts),
    /// Several keys.
    Tuples(TupleTable),
}

/// The values of one key for the rows of a batch, in the form in which they are at hand.
pub(crate) enum KeyValues<'a> {
    /// Of any type.
    Array(ArrayRef),
    /// Of an integer-like type.
    Lane {
        /// A value per row.
        values: &'a [i64],
        /// Rows that are NULL.
        nulls: Option<NullBuffer>,
    },
    /// Strings of a dictionary.
    Codes {
        /// For each row the place of its value.
        codes: &'a [u32],
        /// The dictionary.
        values: &'a ArrayRef,
        /// What the table found out about the dictionary so far; empty at first.
        known: &'a mut Vec<u32>,
        /// Rows that are NULL.
        nulls: Option<NullBuffer>,
    },
}

impl Groups {
    /// No groups yet (without keys: one), of keys of these canonical types, packed if `packing` is given.
    pub(crate) fn new(types: &[DataType], packing: Option<&Arc<Packing>>) -> Groups {
        if let Some(packing) = packing {
            return Groups::Packed(PackedTable::new(packing.clone()));
        }
        match types {
            [] => Groups::Single,
            [t] if schema::is_bytes(t) => Groups::Text(Texts::new(t.clone())),
            [t @ DataType::Decimal128(..)] => Groups::Wide(IntTable::new(t.clone())),
            [t] => Groups::Narrow(IntTable::new(t.clone())),
            _ => Groups::Tuples(TupleTable::new(types)),
        }
    }

    /// Makes room for `groups` groups where there are none yet.
    pub(crate) fn expect(&mut self, groups: usize) {
        if let Groups::Packed(table) = self {
            table.table.expect(groups);
        }
    }

    /// The number of groups.
    pub(crate) fn len(&self) -> usize {
        match self {
            Groups::Single => 1,
            Groups::Packed(table) => table.table.len(),
            Groups::Narrow(table) => table.len(),
            Groups::Wide(table) => table.len(),
            Groups::Text(table) => table.len(),
            Groups::Tuples(table) => table.len(),
        }
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Groups::Single => 0,
            Groups::Packed(table) => table.table.bytes(),
            Groups::Narrow(table) => table.bytes(),
            Groups::Wide(table) => table.bytes(),
            Groups::Text(table) => table.bytes(),
            Groups::Tuples(table) => table.bytes(),
        }
    }

    /// The most bytes that a group of keys of these types adds to [`Groups::bytes`], strings aside.
    pub(crate) fn bytes_per_group(types: &[DataType], packed: bool) -> usize {
        match types {
            [] => 0,
            _ if packed => IntTable::<i64>::BYTES_PER_GROUP,
            [t] if schema::is_bytes(t) => texts::BYTES_PER_VALUE,
            [DataType::Decimal128(..)] => IntTable::<i128>::BYTES_PER_GROUP,
            [_] => IntTable::<i64>::BYTES_PER_GROUP,
            _ => TupleTable::bytes_per_group(types),
        }
    }

    /// Replaces `ids` by the group of each of `rows` rows, adding groups that are new.
    ///
    /// # Errors
    /// None but defects.
    pub(crate) fn intern(
        &mut self,
        keys: &mut [KeyValues<'_>],
        rows: usize,
        ids: &mut Vec<u32>,
    ) -> Result<()> {
        ids.clear();
        match (self, keys) {
            (Groups::Packed(table), keys) => table.intern(keys, rows, ids)?,
            (Groups::Narrow(table), [key]) => {
                let nulls = key.nulls().cloned();
                table.intern(&key.narrow()?, nulls.as_ref(), ids);
            }
            (Groups::Wide(table), [key]) => {
                let nulls = key.nulls().cloned();
                let keys: Vec<i128> = key.wide()?.collect();
                table.intern(&keys, nulls.as_ref(), ids);
            }
            (Groups::Text(table), [key]) => table.intern(key, ids)?,
            (Groups::Tuples(table), keys) => table.intern(keys, rows, ids)?,
            _ => return Err(Error::internal("keys of another program")),
        }
        Ok(())
    }

    /// Replaces `ids` by the group of each packed key.
    ///
    /// # Errors
    /// None but defects.
    pub(crate) fn intern_codes(&mut self, codes: &[i64], ids: &mut Vec<u32>) -> Result<()> {
        ids.clear();
        match self {
            Groups::Packed(table) => table.table.intern(codes, None, ids),
            _ => return Err(Error::internal("packed keys of another program")),
        }
        Ok(())
    }

    /// The same for keys that are all arrays.
    ///
    /// # Errors
    /// None but defects.
    pub(crate) fn intern_arrays(&mut self, keys: Vec<ArrayRef>, ids: &mut Vec<u32>) -> Result<()> {
        let rows = keys.first().map_or(0, |k| k.len());
        let mut keys: Vec<KeyValues<'_>> = keys.into_iter().map(KeyValues::Array).collect();
        self.intern(&mut keys, rows, ids)
    }

    /// Replaces `ids` by the numbers here of the groups `wanted` of `other`, adding those that are new.
    ///
    /// # Errors
    /// None but defects.
    pub(crate) fn intern_groups(&mut self, other: &Groups, wanted: &[u32], ids: &mut Vec<u32>) -> Result<()> {
        ids.clear();
        match (self, other) {
            (Groups::Single, Groups::Single) => ids.extend(wanted),
            (Groups::Packed(table), Groups::Packed(other)) => {
                table.table.intern_groups(&other.table, wanted, ids);
            }
            (Groups::Narrow(table), Groups::Narrow(other)) => table.intern_groups(other, wanted, ids),
            (Groups::Wide(table), Groups::Wide(other)) => table.intern_groups(other, wanted, ids),
            (Groups::Text(table), Groups::Text(other)) => table.adopt(other, wanted, ids),
            (Groups::Tuples(table), Groups::Tuples(other)) => table.intern_groups(other, wanted, ids),
            _ => return Err(Error::internal("groups of another program")),
        }
        Ok(())
    }

    /// The hash of a group; equal for equal keys in all tables.
    pub(crate) fn hash(&self, group: u32) -> u64 {
        match self {
            Groups::Single => 0,
            Groups::Packed(table) => table.table.hash(group),
            Groups::Narrow(table) => table.hash(group),
            Groups::Wide(table) => table.hash(group),
            Groups::Text(table) => table.hash(group),
            Groups::Tuples(table) => table.hash(group),
        }
    }

    /// The keys of the groups `wanted`, an array per key.
    ///
    /// # Errors
    /// None but defects.
    pub(crate) fn keys(&self, wanted: &[u32]) -> Result<Vec<ArrayRef>> {
        match self {
            Groups::Single => Ok(Vec::new()),
            Groups::Packed(table) => table.keys(wanted),
            Groups::Narrow(table) => table.keys(wanted).map(|k| vec![k]),
            Groups::Wide(table) => table.keys(wanted).map(|k| vec![k]),
            Groups::Text(table) => table.array(wanted.iter().copied()).map(|k| vec![k]),
            Groups::Tuples(table) => table.keys(wanted),
        }
    }
}

impl KeyValues<'_> {
    /// Rows that are NULL, if there are any.
    fn nulls(&self) -> Option<&NullBuffer> {
        let nulls = match self {
            KeyValues::Array(array) => array.nulls(),
            KeyValues::Lane { nulls, .. } | KeyValues::Codes { nulls, .. } => nulls.as_ref(),
        };
        nulls.filter(|n| n.null_count() > 0)
    }

    /// Keys of up to 64 bits.
    fn narrow(&self) -> Result<Cow<'_, [i64]>> {
        match self {
            KeyValues::Array(array) => i64::of_array(array).map(Cow::Owned),
            KeyValues::Lane { values, .. } => Ok(Cow::Borrowed(values)),
            KeyValues::Codes { .. } => Err(Error::internal("strings where numbers are wanted")),
        }
    }

    /// Decimal keys.
    fn wide(&self) -> Result<impl Iterator<Item = i128> + '_> {
        let (wide, narrow) = match self {
            KeyValues::Array(array) => (i128::of_array(array)?, [].as_slice()),
            KeyValues::Lane { values, .. } => (Vec::new(), *values),
            KeyValues::Codes { .. } => return Err(Error::internal("strings where numbers are wanted")),
        };
        Ok(wide.into_iter().chain(narrow.iter().map(|v| i128::from(*v))))
    }
}
