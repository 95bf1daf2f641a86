//! Numbers for distinct strings or binaries, NULL being one of them.

use super::KeyValues;
use ahash::RandomState;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BinaryViewArray, StringViewArray};
use arrow_schema::DataType;
use farpool_model::cast::u32_checked;
use farpool_model::{Error, Result};
use hashbrown::HashTable;
use std::sync::Arc;

/// No string has this number.
const NONE: u32 = u32::MAX;

/// The most bytes that a value adds besides its own: its end and hash in vectors that may have just grown,
/// and its place in a table that may have.
pub(super) const BYTES_PER_VALUE: usize = 2 * 16 + 4 * 5;

/// The distinct values of one key.
pub(crate) struct Texts {
    data_type: DataType,
    bytes: Vec<u8>,
    /// Where each value ends in `bytes`; it starts where the one before ends.
    ends: Vec<usize>,
    hashes: Vec<u64>,
    table: HashTable<u32>,
    null: u32,
    random: RandomState,
}

impl Texts {
    /// No values yet, of `data_type`.
    pub(crate) fn new(data_type: DataType) -> Self {
        // All tables must hash alike: no random seeds.
        let random = RandomState::with_seeds(0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344);
        Texts {
            data_type,
            bytes: Vec::new(),
            ends: Vec::new(),
            hashes: Vec::new(),
            table: HashTable::new(),
            null: NONE,
            random,
        }
    }

    /// The number of values.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.capacity() + self.ends.capacity() * 16 + self.table.capacity() * 5
    }

    /// Adds the number of each value to `ids`.
    ///
    /// # Errors
    /// None but defects.
    pub(crate) fn intern(&mut self, keys: &mut KeyValues<'_>, ids: &mut Vec<u32>) -> Result<()> {
        match keys {
            KeyValues::Array(array) => self.intern_array(array, ids)?,
            KeyValues::Codes { codes, values, known, nulls } => {
                known.resize(values.len(), NONE);
                for (row, code) in codes.iter().enumerate() {
                    if nulls.as_ref().is_some_and(|n| n.is_null(row)) {
                        ids.push(self.null());
                        continue;
                    }
                    let code = *code as usize;
                    if known[code] == NONE {
                        known[code] = self.insert(bytes_at(values, code));
                    }
                    ids.push(known[code]);
                }
            }
            KeyValues::Lane { .. } => return Err(Error::internal("integers where strings are wanted")),
        }
        Ok(())
    }

    /// The number here of the value `id` of `other`.
    pub(crate) fn adopt(&mut self, other: &Texts, id: u32) -> u32 {
        if id == other.null {
            return self.null();
        }
        self.insert_hashed(other.value(id as usize), other.hashes[id as usize])
    }

    /// The hash of a value; equal for equal values in all tables.
    pub(crate) fn hash(&self, id: u32) -> u64 {
        self.hashes[id as usize]
    }

    /// The values with these numbers, as an array.
    ///
    /// # Errors
    /// None but defects.
    pub(crate) fn array(&self, ids: impl Iterator<Item = u32>) -> Result<ArrayRef> {
        let values = ids.map(|id| (id != self.null).then(|| self.value(id as usize)));
        if self.data_type == DataType::BinaryView {
            return Ok(Arc::new(values.collect::<BinaryViewArray>()));
        }
        let texts = values.map(|v| v.map(std::str::from_utf8).transpose());
        let texts: std::result::Result<Vec<Option<&str>>, _> = texts.collect();
        let texts = texts.map_err(|_| Error::internal("a string that is not UTF-8"))?;
        Ok(Arc::new(StringViewArray::from(texts)))
    }

    fn intern_array(&mut self, array: &ArrayRef, ids: &mut Vec<u32>) -> Result<()> {
        if !matches!(array.data_type(), DataType::Utf8View | DataType::BinaryView) {
            return Err(Error::internal(format!("{} where strings are wanted", array.data_type())));
        }
        for row in 0..array.len() {
            let id = if array.is_null(row) { self.null() } else { self.insert(bytes_at(array, row)) };
            ids.push(id);
        }
        Ok(())
    }

    fn value(&self, id: usize) -> &[u8] {
        let start = if id == 0 { 0 } else { self.ends[id - 1] };
        &self.bytes[start..self.ends[id]]
    }

    fn null(&mut self) -> u32 {
        if self.null == NONE {
            self.null = self.push(&[], 0);
        }
        self.null
    }

    fn insert(&mut self, value: &[u8]) -> u32 {
        self.insert_hashed(value, self.random.hash_one(value))
    }

    fn insert_hashed(&mut self, value: &[u8], hash: u64) -> u32 {
        let same = |id: &u32| self.hashes[*id as usize] == hash && self.value(*id as usize) == value;
        if let Some(id) = self.table.find(hash, same) {
            return *id;
        }
        let id = self.push(value, hash);
        self.table.insert_unique(hash, id, |id| self.hashes[*id as usize]);
        id
    }

    fn push(&mut self, value: &[u8], hash: u64) -> u32 {
        let id = u32_checked(self.ends.len());
        self.bytes.extend_from_slice(value);
        self.ends.push(self.bytes.len());
        self.hashes.push(hash);
        id
    }
}

fn bytes_at(array: &ArrayRef, row: usize) -> &[u8] {
    match array.data_type() {
        DataType::Utf8View => array.as_string_view().value(row).as_bytes(),
        _ => array.as_binary_view().value(row),
    }
}
