//! Rows that wait to be grouped, by partition.
//!
//! A record is a packed key and some more words. The records of a partition lie in chunks of one large
//! vector, in the order in which they came. Skew does no harm: a partition takes as many chunks as it needs.

use super::{PARTITION_BITS, PARTITIONS};
use crate::group::hash_of;
use farpool_columns::working;

/// Words of a chunk: a page of the system. Smaller ones would be left half empty less often and cost more
/// calls each.
pub(super) const CHUNK_WORDS: usize = 512;

/// Records.
pub(crate) struct Records {
    /// Words of a record.
    width: usize,
    words: Vec<i64>,
    /// Where the next record of each partition goes, and where its last chunk ends.
    ends: Vec<(usize, usize)>,
    /// The chunks of each partition, by the word that they start at.
    chunks: Vec<Vec<usize>>,
    /// Words of chunks that are in use.
    used: usize,
}

/// The partition of a packed key.
#[inline]
pub(super) fn partition_of(code: i64) -> usize {
    (hash_of(code.cast_unsigned()) >> (u64::BITS - PARTITION_BITS)) as usize
}

impl Records {
    /// None yet, of `width` words each. There will be room for `bytes_max` bytes of them.
    pub(super) fn new(width: usize, bytes_max: usize) -> Self {
        Records {
            width,
            words: working::zeros(bytes_max / size_of::<i64>() / CHUNK_WORDS * CHUNK_WORDS),
            ends: vec![(0, 0); PARTITIONS],
            chunks: vec![Vec::new(); PARTITIONS],
            used: 0,
        }
    }

    /// Bytes that have been used so far: no others take memory.
    pub(super) fn bytes(&self) -> usize {
        self.used * size_of::<i64>()
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Whether `rows` more records surely fit.
    pub(super) fn has_room(&self, rows: usize) -> bool {
        let chunks = PARTITIONS + rows / (CHUNK_WORDS / self.width);
        self.used + (chunks + 1) * CHUNK_WORDS <= self.words.len()
    }

    /// Adds a record for each code; there is room.
    pub(super) fn push(&mut self, codes: &[i64], words: &[&[i64]]) {
        match self.width {
            1 => self.push_all::<1>(codes, words),
            2 => self.push_all::<2>(codes, words),
            3 => self.push_all::<3>(codes, words),
            4 => self.push_all::<4>(codes, words),
            _ => {
                for (row, code) in codes.iter().enumerate() {
                    let record = self.place(*code, self.width);
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
            let record = self.place(*code, WIDTH);
            for (to, word) in record.iter_mut().zip(&words) {
                *to = word[row];
            }
        }
    }

    /// The place of the next record of a code's partition.
    #[inline]
    fn place(&mut self, code: i64, width: usize) -> &mut [i64] {
        let partition = partition_of(code);
        let (mut next, end) = self.ends[partition];
        if next + width > end {
            next = self.open(partition);
        }
        self.ends[partition].0 = next + width;
        &mut self.words[next..next + width]
    }

    #[cold]
    fn open(&mut self, partition: usize) -> usize {
        let start = self.used;
        self.used += CHUNK_WORDS;
        self.chunks[partition].push(start);
        self.ends[partition].1 = self.used;
        start
    }

    /// The records of a partition, words beside each other, in pieces.
    pub(super) fn of(&self, partition: usize) -> impl Iterator<Item = &[i64]> {
        let chunks = &self.chunks[partition];
        let whole = CHUNK_WORDS / self.width * self.width;
        chunks.iter().enumerate().map(move |(index, start)| {
            let is_last = index + 1 == chunks.len();
            &self.words[*start..if is_last { self.ends[partition].0 } else { start + whole }]
        })
    }

    /// Lets all records go, but not the memory.
    pub(super) fn clear(&mut self) {
        self.used = 0;
        self.ends.fill((0, 0));
        self.chunks.iter_mut().for_each(Vec::clear);
    }
}
