//! Grouping: a number for each distinct combination of key values (Farview, section 5.4).
//!
//! Contract. Input: key arrays of a batch. Output: a group number per row, dense from 0 in the order of
//! first appearance. NULL is a value like any other; -0.0 is the same key as 0.0, and NaNs are the same key
//! if their bits are, as Arrow's engines group them. Memory: the distinct keys and a hash table, reported by
//! [`Groups::bytes`]. Parallelism: none of its own; tables of different workers hash alike, so that they can
//! be merged partition by partition. Errors: none but defects.
//!
//! One key of fixed width takes a table of integers ([`ints`]); anything else goes through Arrow's row format
//! ([`rows`]).

mod ints;
mod rows;

use crate::failure;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type};
use arrow_array::{Array, ArrayRef};
use arrow_buffer::NullBuffer;
use arrow_row::{RowConverter, SortField};
use arrow_schema::DataType;
use farpool_model::{Error, Result, schema};
use ints::{IntTable, Width};
use rows::RowTable;
use std::sync::Arc;

/// The groups seen so far.
pub(crate) enum Groups {
    /// No keys: one group.
    Single,
    /// One key of up to 64 bits.
    Narrow(IntTable<i64>),
    /// One decimal key.
    Wide(IntTable<i128>),
    /// Any keys.
    Rows(RowTable),
}

/// The types of the keys of one aggregation, and what all its tables share.
pub(crate) struct KeyTypes {
    types: Vec<DataType>,
    converter: Option<Arc<RowConverter>>,
}

impl KeyTypes {
    /// Keys of these canonical types.
    ///
    /// # Errors
    /// None but defects: every canonical type can be a key.
    pub(crate) fn new(types: Vec<DataType>) -> Result<Self> {
        let one = types.len() == 1 && !schema::is_bytes(&types[0]);
        if types.is_empty() || one {
            return Ok(KeyTypes { types, converter: None });
        }
        let fields = types.iter().cloned().map(SortField::new).collect();
        let converter = RowConverter::new(fields).map_err(failure::of_kernel)?;
        Ok(KeyTypes { types, converter: Some(Arc::new(converter)) })
    }
}

impl Groups {
    /// No groups yet; without keys, one.
    pub(crate) fn new(keys: &KeyTypes) -> Groups {
        match (&keys.converter, keys.types.first()) {
            (Some(converter), _) => Groups::Rows(RowTable::new(converter.clone())),
            (None, None) => Groups::Single,
            (None, Some(t @ DataType::Decimal128(..))) => Groups::Wide(IntTable::new(t.clone())),
            (None, Some(t)) => Groups::Narrow(IntTable::new(t.clone())),
        }
    }

    /// The number of groups.
    pub(crate) fn len(&self) -> usize {
        match self {
            Groups::Single => 1,
            Groups::Narrow(table) => table.len(),
            Groups::Wide(table) => table.len(),
            Groups::Rows(table) => table.len(),
        }
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Groups::Single => 0,
            Groups::Narrow(table) => table.bytes(),
            Groups::Wide(table) => table.bytes(),
            Groups::Rows(table) => table.bytes(),
        }
    }

    /// Replaces `ids` by the group of each row of `keys`, adding groups that are new.
    ///
    /// # Errors
    /// None but defects.
    pub(crate) fn intern(&mut self, keys: &[ArrayRef], ids: &mut Vec<u32>) -> Result<()> {
        ids.clear();
        match self {
            Groups::Single => return Err(Error::internal("keys where there are none")),
            Groups::Narrow(table) => table.intern(&i64::of_array(&keys[0])?, keys[0].nulls(), ids),
            Groups::Wide(table) => table.intern(&i128::of_array(&keys[0])?, keys[0].nulls(), ids),
            Groups::Rows(table) => {
                let keys: Vec<ArrayRef> = keys.iter().map(without_negative_zero).collect();
                table.intern(&keys, ids)?;
            }
        }
        Ok(())
    }

    /// Replaces `ids` by the group of each key, of keys that are integers on lanes; `false` when this table
    /// does not hold single integers.
    pub(crate) fn intern_lanes(
        &mut self,
        keys: &[i64],
        nulls: Option<&NullBuffer>,
        ids: &mut Vec<u32>,
    ) -> bool {
        ids.clear();
        match self {
            Groups::Narrow(table) => table.intern(keys, nulls, ids),
            Groups::Wide(table) => {
                let keys: Vec<i128> = keys.iter().map(|key| i128::from(*key)).collect();
                table.intern(&keys, nulls, ids);
            }
            _ => return false,
        }
        true
    }

    /// Replaces `ids` by the numbers here of the groups `wanted` of `other`, adding those that are new.
    ///
    /// # Errors
    /// None but defects.
    pub(crate) fn intern_groups(&mut self, other: &Groups, wanted: &[u32], ids: &mut Vec<u32>) -> Result<()> {
        ids.clear();
        match (self, other) {
            (Groups::Single, Groups::Single) => ids.extend(wanted),
            (Groups::Narrow(table), Groups::Narrow(other)) => table.intern_groups(other, wanted, ids),
            (Groups::Wide(table), Groups::Wide(other)) => table.intern_groups(other, wanted, ids),
            (Groups::Rows(table), Groups::Rows(other)) => table.intern_groups(other, wanted, ids),
            _ => return Err(Error::internal("groups of different programs")),
        }
        Ok(())
    }

    /// The hash of a group; equal for equal keys in all tables.
    pub(crate) fn hash(&self, group: u32) -> u64 {
        match self {
            Groups::Single => 0,
            Groups::Narrow(table) => table.hash(group),
            Groups::Wide(table) => table.hash(group),
            Groups::Rows(table) => table.hash(group),
        }
    }

    /// The keys of the groups `wanted`, an array per key.
    ///
    /// # Errors
    /// None but defects.
    pub(crate) fn keys(&self, wanted: &[u32]) -> Result<Vec<ArrayRef>> {
        match self {
            Groups::Single => Ok(Vec::new()),
            Groups::Narrow(table) => table.keys(wanted).map(|k| vec![k]),
            Groups::Wide(table) => table.keys(wanted).map(|k| vec![k]),
            Groups::Rows(table) => table.keys(wanted),
        }
    }
}

fn without_negative_zero(array: &ArrayRef) -> ArrayRef {
    match array.data_type() {
        DataType::Float32 => {
            Arc::new(array.as_primitive::<Float32Type>().unary::<_, Float32Type>(|v| v + 0.0))
        }
        DataType::Float64 => {
            Arc::new(array.as_primitive::<Float64Type>().unary::<_, Float64Type>(|v| v + 0.0))
        }
        _ => array.clone(),
    }
}
