//! Numbers for distinct strings or binaries, NULL being one of them.
//!
//! An open-addressing table, looked up as in [`super::ints`]: a pass over slots first, whose cache misses
//! overlap, then the strings. A slot holds half of the hash beside the number, so that most strings are
//! compared with none but their own.

use super::KeyValues;
use ahash::RandomState;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BinaryViewArray, StringViewArray};
use arrow_buffer::NullBuffer;
use arrow_schema::DataType;
use farpool_columns::working;
use farpool_model::cast::u32_checked;
use farpool_model::{Error, Result};
use std::ops::Range;
use std::sync::Arc;

/// No string has this number.
const NONE: u32 = u32::MAX;

const SLOTS_MIN: usize = 256;

/// Rows that are looked up at a time: what they were compared with first stays in the L1 cache until it is
/// compared.
const ROWS_AT_A_TIME: usize = 256;

/// The most bytes that a value adds besides its own: its entry in a vector that may have just grown, and its
/// slot in a table that may have.
pub(super) const BYTES_PER_VALUE: usize = 2 * size_of::<Entry>() + 4 * 8;

/// The distinct values of one key.
pub(crate) struct Texts {
    data_type: DataType,
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    /// The upper half of the hash, and the number. A power of two, at most half of them taken.
    slots: Vec<(u32, u32)>,
    null: u32,
    random: RandomState,
    hashes: Vec<u64>,
}

/// A value: where its bytes are.
struct Entry {
    start: usize,
    length: usize,
    hash: u64,
}

impl Texts {
    /// No values yet, of `data_type`.
    pub(crate) fn new(data_type: DataType) -> Self {
        // All tables must hash alike: no random seeds.
        let random = RandomState::with_seeds(0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344);
        Texts {
            data_type,
            bytes: Vec::new(),
            entries: Vec::new(),
            slots: working::filled((0, NONE), SLOTS_MIN),
            null: NONE,
            random,
            hashes: Vec::new(),
        }
    }

    /// The number of values.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Bytes held, but for those of a batch.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.capacity() + self.entries.capacity() * size_of::<Entry>() + self.slots.capacity() * 8
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
        self.insert_hashed(other.value(id), other.hash(id))
    }

    /// The hash of a value; equal for equal values in all tables.
    pub(crate) fn hash(&self, id: u32) -> u64 {
        self.entries[id as usize].hash
    }

    /// The values with these numbers, as an array.
    ///
    /// # Errors
    /// None but defects.
    pub(crate) fn array(&self, ids: impl Iterator<Item = u32>) -> Result<ArrayRef> {
        let values = ids.map(|id| (id != self.null).then(|| self.value(id)));
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
        let nulls = array.nulls().filter(|nulls| nulls.null_count() > 0);
        for start in (0..array.len()).step_by(ROWS_AT_A_TIME) {
            self.intern_rows(array, start..array.len().min(start + ROWS_AT_A_TIME), nulls, ids);
        }
        Ok(())
    }

    fn intern_rows(
        &mut self,
        array: &ArrayRef,
        rows: Range<usize>,
        nulls: Option<&NullBuffer>,
        ids: &mut Vec<u32>,
    ) {
        let mut hashes = std::mem::take(&mut self.hashes);
        hashes.clear();
        hashes.extend(rows.clone().map(|row| self.random.hash_one(bytes_at(array, row))));
        let first = ids.len();
        let mask = self.slots.len() - 1;
        ids.extend(hashes.iter().map(|hash| {
            let (tag, id) = self.slots[*hash as usize & mask];
            if tag == tag_of(*hash) { id } else { NONE }
        }));
        // Calls to compare strings would overlap few of the misses of what they compare with.
        let known = ids[first..].iter().filter_map(|id| self.entries.get(*id as usize));
        let begins = known.map(|entry| u32::from(self.bytes.get(entry.start).copied().unwrap_or(0)));
        std::hint::black_box(begins.sum::<u32>());
        for ((row, hash), index) in rows.zip(&hashes).zip(first..) {
            let id = &mut ids[index];
            if nulls.is_some_and(|nulls| nulls.is_null(row)) {
                *id = self.null();
                continue;
            }
            let value = bytes_at(array, row);
            if *id == NONE || self.value(*id) != value {
                *id = self.insert_hashed(value, *hash);
            }
        }
        self.hashes = hashes;
    }

    fn value(&self, id: u32) -> &[u8] {
        let Entry { start, length, .. } = self.entries[id as usize];
        &self.bytes[start..start + length]
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
        let mask = self.slots.len() - 1;
        let mut slot = hash as usize & mask;
        loop {
            match self.slots[slot] {
                (_, NONE) => break,
                (tag, id) if tag == tag_of(hash) && self.value(id) == value => return id,
                _ => slot = (slot + 1) & mask,
            }
        }
        let id = self.push(value, hash);
        self.slots[slot] = (tag_of(hash), id);
        if self.entries.len() * 2 > self.slots.len() {
            self.grow();
        }
        id
    }

    fn push(&mut self, value: &[u8], hash: u64) -> u32 {
        let id = u32_checked(self.entries.len());
        working::reserve(&mut self.entries, 1);
        working::reserve(&mut self.bytes, value.len());
        self.entries.push(Entry { start: self.bytes.len(), length: value.len(), hash });
        self.bytes.extend_from_slice(value);
        id
    }

    fn grow(&mut self) {
        let mask = self.slots.len() * 2 - 1;
        let mut slots = working::filled((0, NONE), mask + 1);
        for (id, entry) in self.entries.iter().enumerate() {
            // NULL is found without the table.
            if u32_checked(id) == self.null {
                continue;
            }
            let mut slot = entry.hash as usize & mask;
            while slots[slot].1 != NONE {
                slot = (slot + 1) & mask;
            }
            slots[slot] = (tag_of(entry.hash), u32_checked(id));
        }
        self.slots = slots;
    }
}

/// The half of a hash that does not choose the slot.
fn tag_of(hash: u64) -> u32 {
    (hash >> 32) as u32
}

fn bytes_at(array: &ArrayRef, row: usize) -> &[u8] {
    match array.data_type() {
        DataType::Utf8View => array.as_string_view().value(row).as_bytes(),
        _ => array.as_binary_view().value(row),
    }
}
