//! Records: rows that were partitioned by the hash of their group keys and are not grouped yet. A record has the
//! group key and the arguments of one row as 64-bit words.
//!
//! A record begins with the packed group key (all group keys in one word) or, if the group key is a sequence of
//! words, with its hash. The arguments follow, and then the group key if it is a sequence of words. The records of a
//! partition are in chunks of one large vector, in the order of arrival, except records that are too long for a
//! shared chunk. Skewed group keys do no harm, because a partition takes as many chunks as it needs.

use super::shape::{PARTITION_BITS, PARTITIONS};
use crate::group::{HashKey, Rows};
use farpool_columns::working;
use std::ops::Range;

/// Number of words per chunk of records, which then takes one page of the operating system. Smaller chunks would
/// waste less memory but need more calls.
pub(super) const CHUNK_WORDS: usize = 512;

/// Minimum number of words of a record that gets a chunk of its own.
const WORDS_ALONE: usize = CHUNK_WORDS / 2;

/// Records of one worker, by partition.
pub(crate) struct Records {
    /// Number of words of a record, without a group key that is a sequence of words.
    width: usize,
    hash_key: HashKey,
    /// Vector that is divided into chunks. Its capacity is reserved at the beginning, but a page takes memory only when
    /// a chunk in it is used.
    words: Vec<i64>,
    /// For each partition, the chunk to which records are appended.
    open: Vec<Open>,
    /// For each partition, the word ranges of the records in its full chunks.
    full: Vec<Vec<Range<usize>>>,
    /// Number of words of all chunks in use.
    used: usize,
}

/// A chunk to which records are appended.
#[derive(Clone, Copy, Default)]
struct Open {
    start: usize,
    /// Position at which the next record is written.
    next: usize,
    end: usize,
}

/// Returns the partition of a group key with this hash.
#[inline]
pub(super) fn partition_of(hash: u64) -> usize {
    (hash >> (u64::BITS - PARTITION_BITS)) as usize
}

impl Records {
    /// Reserves `bytes_max` bytes for records of `width` words each, not counting group keys that are sequences of
    /// words.
    pub(super) fn new(width: usize, bytes_max: usize, hash_key: HashKey) -> Self {
        let mut words = Vec::new();
        working::reserve(&mut words, bytes_max / size_of::<i64>());
        Records {
            width,
            hash_key,
            words,
            open: vec![Open::default(); PARTITIONS],
            full: vec![Vec::new(); PARTITIONS],
            used: 0,
        }
    }

    /// Returns the approximate number of records, computed from the words in use.
    pub(super) fn count(&self) -> usize {
        self.used / self.width
    }

    /// Returns the bytes of chunks in use. Chunks that were not used so far take no memory.
    pub(super) fn bytes(&self) -> usize {
        self.used * size_of::<i64>()
    }

    /// Returns whether there are no records.
    pub(super) fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Returns whether records of `words` words together are sure to fit. Assumes that each chunk is only half used,
    /// because a record that does not fit the rest of a chunk begins another one.
    pub(super) fn has_room(&self, words: usize) -> bool {
        self.used + 2 * words + PARTITIONS * CHUNK_WORDS <= self.words.capacity()
    }

    /// Makes sure that records of `words` words together fit; reserves more memory if necessary. Must be called
    /// without records, because the vector is replaced.
    pub(super) fn make_room(&mut self, words: usize) {
        if !self.has_room(words) {
            self.words = Vec::new();
            working::reserve(&mut self.words, 2 * words + PARTITIONS * CHUNK_WORDS);
        }
    }

    /// Appends a record for each packed group key. Their memory must have been reserved ([`Records::has_room`]).
    pub(super) fn push(&mut self, codes: &[i64], words: &[&[i64]]) {
        match self.width {
            1 => self.push_all::<1>(codes, words),
            2 => self.push_all::<2>(codes, words),
            3 => self.push_all::<3>(codes, words),
            4 => self.push_all::<4>(codes, words),
            _ => {
                for (row, code) in codes.iter().enumerate() {
                    let record = self.place(self.hash_key.of_int(*code), self.width);
                    record[0] = *code;
                    record[1..].iter_mut().zip(words).for_each(|(to, word)| *to = word[row]);
                }
            }
        }
    }

    #[inline]
    fn push_all<const WIDTH: usize>(&mut self, codes: &[i64], words: &[&[i64]]) {
        let rows = codes.len();
        let words: [&[i64]; WIDTH] =
            std::array::from_fn(|word| if word == 0 { codes } else { &words[word - 1][..rows] });
        for (row, code) in codes.iter().enumerate() {
            let record = self.place(self.hash_key.of_int(*code), WIDTH);
            for (to, word) in record.iter_mut().zip(&words) {
                *to = word[row];
            }
        }
    }

    /// Appends a record for each group key that is a sequence of words. Their memory must have been reserved
    /// ([`Records::has_room`]).
    pub(super) fn push_rows(&mut self, rows: &Rows, words: &[&[i64]]) {
        let width = self.width;
        for (row, hash) in rows.hashes().iter().enumerate() {
            let key = rows.row(row);
            let (record, behind) = self.place(*hash, width + key.len()).split_at_mut(width);
            record[0] = hash.cast_signed();
            record[1..width - 1].iter_mut().zip(words).for_each(|(to, word)| *to = word[row]);
            record[width - 1] = key.len() as i64;
            behind.copy_from_slice(key);
        }
    }

    /// Returns the memory for the next record in the partition of `hash`.
    #[inline]
    fn place(&mut self, hash: u64, width: usize) -> &mut [i64] {
        let partition = partition_of(hash);
        let Open { mut next, end, .. } = self.open[partition];
        if next + width > end {
            if width > WORDS_ALONE {
                return self.place_alone(partition, width);
            }
            next = self.begin(partition);
        }
        self.open[partition].next = next + width;
        &mut self.words[next..next + width]
    }

    /// Returns the memory for a record with a chunk of its own.
    #[cold]
    fn place_alone(&mut self, partition: usize, width: usize) -> &mut [i64] {
        let start = self.take(width);
        self.full[partition].push(start..start + width);
        &mut self.words[start..start + width]
    }

    #[cold]
    fn begin(&mut self, partition: usize) -> usize {
        let Open { start, next, .. } = self.open[partition];
        if next > start {
            self.full[partition].push(start..next);
        }
        let start = self.take(CHUNK_WORDS);
        self.open[partition] = Open { start, next: start, end: self.used };
        start
    }

    /// Takes `words` more words into use. Returns where they start.
    fn take(&mut self, words: usize) -> usize {
        let start = self.used;
        self.used += words;
        if self.words.len() < self.used {
            self.words.resize(self.used, 0);
        }
        start
    }

    /// Returns the records of a partition, in pieces that are contiguous in memory.
    pub(super) fn of(&self, partition: usize) -> impl Iterator<Item = &[i64]> {
        let Open { start, next, .. } = self.open[partition];
        let pieces = self.full[partition].iter().cloned().chain((next > start).then_some(start..next));
        pieces.map(|piece| &self.words[piece])
    }

    /// Drops the records of a partition. Their memory can be reused only after [`Records::clear`].
    pub(super) fn forget(&mut self, partition: usize) {
        self.open[partition] = Open::default();
        self.full[partition].clear();
    }

    /// Drops all records and keeps the memory.
    pub(super) fn clear(&mut self) {
        self.used = 0;
        self.open.fill(Open::default());
        self.full.iter_mut().for_each(Vec::clear);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// Returns all records by group key, in order.
    fn held(records: &Records, width: usize) -> HashMap<i64, Vec<Vec<i64>>> {
        let mut held: HashMap<i64, Vec<Vec<i64>>> = HashMap::new();
        for partition in 0..PARTITIONS {
            for record in records.of(partition).flat_map(|piece| piece.chunks(width)) {
                assert_eq!(partition_of(records.hash_key.of_int(record[0])), partition);
                held.entry(record[0]).or_default().push(record[1..].to_vec());
            }
        }
        held
    }

    #[test]
    fn records_come_back_in_order_from_their_partition() {
        for width in 1..7 {
            let mut records = Records::new(width, 8 << 20, HashKey::new(width as u64));
            // Every second row has the same group key, so that one partition is much larger than the others.
            let code = |row: i64| if row % 2 == 0 { 5 } else { row * 7919 % 3001 };
            let columns: Vec<Vec<i64>> =
                (0..width as i64 - 1).map(|c| (0..9000).map(|row| row * 10 + c).collect()).collect();
            let (codes, words): (Vec<i64>, Vec<&[i64]>) =
                ((0..9000).map(code).collect(), columns.iter().map(Vec::as_slice).collect());
            for _ in 0..2 {
                assert!(records.is_empty() && records.has_room(codes.len() * width));
                records.push(&codes, &words);
                let mut expected: HashMap<i64, Vec<Vec<i64>>> = HashMap::new();
                for (row, code) in codes.iter().enumerate() {
                    expected.entry(*code).or_default().push(words.iter().map(|word| word[row]).collect());
                }
                assert_eq!(held(&records, width), expected, "{width} words");
                records.clear();
            }
        }
    }
}
