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
    bytes: Blocks,
    entries: Vec<Entry>,
    /// The upper half of the hash, and the number. A power of two, at most half of them taken.
    slots: Vec<(u32, u32)>,
    null: u32,
    random: RandomState,
    hashes: Vec<u64>,
}

/// A value: where its bytes are.
struct Entry {
    block: u32,
    start: u32,
    length: u32,
    hash: u64,
}

/// The bytes of values in blocks that stay where they are: one vector would be copied, and new memory cleared for it,
/// each time that it grows. Less than half of what is held is unused, but for the first block.
#[derive(Default)]
struct Blocks {
    blocks: Vec<Vec<u8>>,
    /// The block that is being filled.
    current: usize,
    /// Bytes of all of them.
    capacity: usize,
}

impl Blocks {
    const BYTES_MIN: usize = 1 << 10;
    const BYTES_MAX: usize = 8 << 20;

    /// A value longer than such a part of a block has one of its own: little of the others is then left over.
    const PART_OF_A_BLOCK: usize = 8;

    /// Keeps a value: in which block, and where it begins there.
    fn push(&mut self, value: &[u8]) -> (u32, u32) {
        let room = self.blocks.get(self.current).map(|block| block.capacity() - block.len());
        let block = match room {
            Some(room) if value.len() <= room => self.current,
            _ => self.make_room(value.len()),
        };
        let bytes = &mut self.blocks[block];
        let start = bytes.len();
        bytes.extend_from_slice(value);
        (u32_checked(block), u32_checked(start))
    }

    /// A new block for a value of `length`.
    fn make_room(&mut self, length: usize) -> usize {
        let wanted = (self.capacity / 2).clamp(Self::BYTES_MIN, Self::BYTES_MAX);
        let alone = length > wanted / Self::PART_OF_A_BLOCK;
        let mut block = Vec::new();
        working::reserve(&mut block, if alone { length } else { wanted });
        self.capacity += block.capacity();
        self.blocks.push(block);
        if !alone {
            self.current = self.blocks.len() - 1;
        }
        self.blocks.len() - 1
    }
}

impl Texts {
    /// No values yet, of `data_type`.
    pub(crate) fn new(data_type: DataType) -> Self {
        // All tables must hash alike: no random seeds.
        let random = RandomState::with_seeds(0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344);
        Texts {
            data_type,
            bytes: Blocks::default(),
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
        self.bytes.capacity + self.entries.capacity() * size_of::<Entry>() + self.slots.capacity() * 8
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

    /// Adds the numbers here of the values `wanted` of `other` to `ids`.
    pub(crate) fn adopt(&mut self, other: &Texts, wanted: &[u32], ids: &mut Vec<u32>) {
        for wanted in wanted.chunks(ROWS_AT_A_TIME) {
            let first = ids.len();
            ids.extend(wanted.iter().map(|id| self.look_up(other.hash(*id))));
            // They lie far apart: as in `intern_rows`, what is read now need not be waited for one by one.
            let theirs = wanted.iter().map(|id| other.begin_of(*id));
            std::hint::black_box(theirs.sum::<u32>());
            self.touch(&ids[first..]);
            for (id, theirs) in ids[first..].iter_mut().zip(wanted) {
                if *theirs == other.null {
                    *id = self.null();
                } else if *id == NONE || self.value(*id) != other.value(*theirs) {
                    *id = self.insert_hashed(other.value(*theirs), other.hash(*theirs));
                }
            }
        }
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
        ids.extend(hashes.iter().map(|hash| self.look_up(*hash)));
        self.touch(&ids[first..]);
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

    /// The value in the place of a hash that may be the one; [`NONE`] if it is not.
    fn look_up(&self, hash: u64) -> u32 {
        let (tag, id) = self.slots[hash as usize & (self.slots.len() - 1)];
        if tag == tag_of(hash) { id } else { NONE }
    }

    /// Reads the beginnings of values, where there are some: calls to compare strings would overlap few of the misses
    /// of what they compare with.
    fn touch(&self, ids: &[u32]) {
        let known = ids.iter().filter(|id| **id != NONE);
        std::hint::black_box(known.map(|id| self.begin_of(*id)).sum::<u32>());
    }

    fn begin_of(&self, id: u32) -> u32 {
        self.value(id).first().copied().unwrap_or(0).into()
    }

    fn value(&self, id: u32) -> &[u8] {
        let Entry { block, start, length, .. } = self.entries[id as usize];
        &self.bytes.blocks[block as usize][start as usize..][..length as usize]
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
        let (block, start) = self.bytes.push(value);
        self.entries.push(Entry { block, start, length: u32_checked(value.len()), hash });
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_keep_what_they_are_given_in_little_more_than_its_room() {
        let lengths = [0, 1, 27, 130, 5, 1000, 64, 3000, 2, 9, 700, 40_000, 33];
        let mut blocks = Blocks::default();
        let mut kept: Vec<(Vec<u8>, (u32, u32))> = Vec::new();
        let mut bytes = 0;
        for (index, length) in lengths.iter().cycle().take(20_000).enumerate() {
            let value = vec![index as u8; *length];
            bytes += length;
            let place = blocks.push(&value);
            kept.push((value, place));
            assert!(blocks.capacity <= 2 * bytes + Blocks::BYTES_MIN, "{} for {bytes}", blocks.capacity);
            assert_eq!(blocks.capacity, blocks.blocks.iter().map(Vec::capacity).sum::<usize>());
        }
        for (value, (block, start)) in kept {
            let (block, start) = (&blocks.blocks[block as usize], start as usize);
            assert_eq!(block[start..start + value.len()], value);
        }
        assert!(blocks.blocks.len() < 4000, "{} blocks", blocks.blocks.len());
    }
}
