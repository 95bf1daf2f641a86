//! Hash table of groups with open addressing ([`super::slots`]). The group keys of a group are stored as a *row*:
//! a sequence of 64-bit words ([`super::rows`]).

use super::hash::HashKey;
use super::rows::{Layout, Rows};
use super::slots::{NONE, Slots, Tagged};
use super::values::KeyValues;
use arrow_array::ArrayRef;
use arrow_schema::DataType;
use farpool_columns::working;
use farpool_model::Result;
use farpool_model::cast::u32_checked;

/// Number of batch rows that are looked up together. Reason: the stored rows of possible groups, which are read
/// first, must still be in the L1 cache when they are compared.
const ROWS_AT_A_TIME: usize = 256;

/// Minimum number of groups for reading their stored rows in advance. Reason: fewer fit the caches.
const GROUPS_TOUCHED: usize = 4096;

/// Maximum length, in words, of a stored row that is compared inline. Reason: a call costs as much as a few
/// comparisons of words.
const WORDS_IN_PLACE: usize = 4;

/// Maps rows of words to group ids.
pub(crate) struct RowTable {
    layout: Layout,
    rows: Blocks,
    groups: Vec<Group>,
    slots: Slots<Tagged>,
    scratch: Rows,
}

/// Position and hash of the stored row of a group.
struct Group {
    block: u32,
    start: u32,
    words: u32,
    hash: u64,
}

impl RowTable {
    /// Creates an empty table for group keys of these canonical types.
    pub(crate) fn new(types: &[DataType], hash_key: HashKey) -> Self {
        RowTable {
            layout: Layout::new(types, hash_key),
            rows: Blocks::default(),
            groups: Vec::new(),
            slots: Slots::new(),
            scratch: Rows::default(),
        }
    }

    /// Reserves room for `groups` groups, if the table is empty.
    pub(super) fn expect(&mut self, groups: usize) {
        if self.groups.is_empty() && self.slots.expect(groups) {
            working::reserve(&mut self.groups, groups);
        }
    }

    /// Returns the number of groups.
    pub(crate) fn len(&self) -> usize {
        self.groups.len()
    }

    /// Returns the bytes of memory that the table takes, without scratch memory for a batch.
    pub(crate) fn bytes(&self) -> usize {
        self.rows.capacity * size_of::<i64>()
            + self.groups.capacity() * size_of::<Group>()
            + self.slots.bytes()
    }

    /// Returns the maximum number of bytes that a group with group keys of `types` adds, without its strings. The
    /// maximum is reached right after vectors and slots have grown.
    pub(super) fn bytes_per_group(types: &[DataType]) -> usize {
        2 * Layout::new(types, HashKey::default()).bytes()
            + 2 * size_of::<Group>()
            + Slots::<Tagged>::BYTES_PER_GROUP
    }

    /// Replaces `out` by the group keys of `rows` rows, encoded in the layout of this table.
    ///
    /// # Errors
    /// Fails only on a bug in this crate.
    pub(crate) fn encode(&self, keys: &[KeyValues<'_>], rows: usize, out: &mut Rows) -> Result<()> {
        self.layout.encode(keys, rows, out)
    }

    /// Appends the group id of each of `rows` rows to `ids`. Adds groups that are new.
    ///
    /// # Errors
    /// Fails only on a bug in this crate.
    pub(crate) fn intern(&mut self, keys: &[KeyValues<'_>], rows: usize, ids: &mut Vec<u32>) -> Result<()> {
        let mut scratch = std::mem::take(&mut self.scratch);
        self.layout.encode(keys, rows, &mut scratch)?;
        self.look_up(scratch.hashes(), |row| scratch.row(row), ids);
        self.scratch = scratch;
        Ok(())
    }

    /// Appends to `ids` the ids in this table of the groups `wanted`, which are ids in `other`. Adds groups that are
    /// new.
    pub(super) fn intern_groups(&mut self, other: &Self, wanted: &[u32], ids: &mut Vec<u32>) {
        for wanted in wanted.chunks(ROWS_AT_A_TIME) {
            let hashes: Vec<u64> = wanted.iter().map(|group| other.hash(*group)).collect();
            // The stored rows of these groups are far apart in memory, so they are read in advance.
            other.touch(wanted);
            self.look_up(&hashes, |row| other.row(wanted[row]), ids);
        }
    }

    /// Appends the group id of each row to `ids`; `hashes` has the hashes of the rows. Adds groups that are new.
    pub(super) fn look_up<'r>(
        &mut self,
        hashes: &[u64],
        row: impl Fn(usize) -> &'r [i64],
        ids: &mut Vec<u32>,
    ) {
        for (piece, hashes) in hashes.chunks(ROWS_AT_A_TIME).enumerate() {
            let first = ids.len();
            self.slots.first_looks(hashes.iter().copied(), ids);
            self.touch(&ids[first..]);
            for (index, hash) in hashes.iter().enumerate() {
                let row = row(piece * ROWS_AT_A_TIME + index);
                let id = &mut ids[first + index];
                if *id == NONE || !equal(self.row(*id), row) {
                    *id = self.insert(row, *hash);
                }
            }
        }
    }

    /// Returns the hash of a group.
    pub(super) fn hash(&self, group: u32) -> u64 {
        self.groups[group as usize].hash
    }

    /// Returns the group keys of the groups `wanted`, one array per group key.
    ///
    /// # Errors
    /// Fails only on a bug in this crate.
    pub(super) fn keys(&self, wanted: &[u32]) -> Result<Vec<ArrayRef>> {
        self.layout.arrays(&wanted.iter().map(|group| self.row(*group)))
    }

    fn row(&self, group: u32) -> &[i64] {
        self.rows.row(&self.groups[group as usize])
    }

    /// Reads the first word of each group's row, so that the cache misses of all rows overlap. Comparisons, each
    /// followed by a branch, would overlap only few of them. Does nothing in a table with few groups.
    fn touch(&self, groups: &[u32]) {
        if self.groups.len() < GROUPS_TOUCHED {
            return;
        }
        let known = groups.iter().filter(|group| **group != NONE);
        std::hint::black_box(known.fold(0, |sum, group| sum ^ self.row(*group)[0]));
    }

    fn insert(&mut self, row: &[i64], hash: u64) -> u32 {
        let next = u32_checked(self.groups.len());
        let (rows, groups) = (&mut self.rows, &mut self.groups);
        let group = self.slots.find_or_take(hash, next, |group| rows.row(&groups[group as usize]) == row);
        if group == next {
            working::reserve(groups, 1);
            let (block, start) = rows.push(row);
            groups.push(Group { block, start, words: u32_checked(row.len()), hash });
            self.slots.make_room(groups.iter().map(|group| group.hash));
        }
        group
    }
}

#[inline]
fn equal(left: &[i64], right: &[i64]) -> bool {
    if left.len() > WORDS_IN_PLACE {
        return left == right;
    }
    left.len() == right.len() && left.iter().zip(right).all(|(left, right)| left == right)
}

/// Stored rows, in blocks that never move. A single vector would be copied each time it grows. Less than half of the
/// memory is unused, except in the first block.
#[derive(Default)]
struct Blocks {
    blocks: Vec<Vec<i64>>,
    /// Index of the block to which rows are appended.
    current: usize,
    /// Capacity of all blocks together, in words.
    capacity: usize,
}

impl Blocks {
    const WORDS_MIN: usize = 128;
    const WORDS_MAX: usize = 1 << 20;

    /// Divisor: a row that takes more than one part in this many of a block gets a block of its own, so that little
    /// of other blocks is left unused.
    const PART_OF_A_BLOCK: usize = 8;

    /// Appends a row; returns the index of its block and its start in the block.
    fn push(&mut self, row: &[i64]) -> (u32, u32) {
        let room = self.blocks.get(self.current).map(|block| block.capacity() - block.len());
        let block = match room {
            Some(room) if row.len() <= room => self.current,
            _ => self.make_room(row.len()),
        };
        let words = &mut self.blocks[block];
        let start = words.len();
        words.extend_from_slice(row);
        (u32_checked(block), u32_checked(start))
    }

    /// Returns the row of a group.
    fn row(&self, group: &Group) -> &[i64] {
        &self.blocks[group.block as usize][group.start as usize..][..group.words as usize]
    }

    /// Adds a block for a row of `length` words; returns the index of the block.
    fn make_room(&mut self, length: usize) -> usize {
        let wanted = (self.capacity / 2).clamp(Self::WORDS_MIN, Self::WORDS_MAX);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_keep_what_they_are_given_in_little_more_than_its_room() {
        let lengths = [1, 1, 3, 17, 5, 125, 8, 375, 2, 9, 90, 5000, 4];
        let mut blocks = Blocks::default();
        let mut kept: Vec<(Vec<i64>, (u32, u32))> = Vec::new();
        let mut words = 0;
        for (index, length) in lengths.iter().cycle().take(20_000).enumerate() {
            let row = vec![index as i64; *length];
            words += length;
            let place = blocks.push(&row);
            kept.push((row, place));
            assert!(blocks.capacity <= 2 * words + Blocks::WORDS_MIN, "{} for {words}", blocks.capacity);
            assert_eq!(blocks.capacity, blocks.blocks.iter().map(Vec::capacity).sum::<usize>());
        }
        for (row, (block, start)) in kept {
            let (block, start) = (&blocks.blocks[block as usize], start as usize);
            assert_eq!(block[start..start + row.len()], row);
        }
        assert!(blocks.blocks.len() < 4000, "{} blocks", blocks.blocks.len());
    }
}
