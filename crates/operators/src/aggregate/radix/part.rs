//! Groups of one partition of the rows (by the hash of their group keys), and how records (rows that are not
//! grouped yet) are added to them.

use super::records::Records;
use super::shape::Shape;
use crate::aggregate::aggregation::Aggregation;
use crate::aggregate::give::give;
use crate::aggregate::store::Store;
use crate::bits;
use crate::group::Groups;
use crate::project::Emit;
use farpool_model::Result;
use farpool_model::cast::{u32_checked, usize_saturating};
use std::ops::ControlFlow;

/// Groups of one partition, with their accumulators.
pub(crate) struct Part {
    pub(super) groups: Groups,
    stores: Vec<Store>,
}

/// Scratch memory for adding records: one vector for each kind of word of a record.
#[derive(Default)]
struct Columns {
    codes: Vec<i64>,
    values: Vec<i64>,
    valid: Vec<i64>,
    hashes: Vec<u64>,
    ids: Vec<u32>,
}

/// Records of one partition that are contiguous in memory.
#[derive(Clone, Copy)]
struct Piece<'a> {
    words: &'a [i64],
    /// Number of words of a record, without its group key if that is a sequence of words.
    width: usize,
    /// Start of each record; `None` if all records have the same length. They differ in length if each is followed by
    /// its group key as a sequence of words.
    starts: Option<&'a [usize]>,
}

impl Part {
    /// Creates a part without groups, with room for `expected` groups.
    pub(super) fn new(aggregation: &Aggregation, expected: usize) -> Self {
        let mut part = Part { groups: aggregation.groups(), stores: aggregation.stores() };
        part.groups.expect(expected);
        part
    }

    /// Returns the bytes of memory that the part takes.
    pub(super) fn bytes(&self) -> usize {
        self.groups.bytes() + self.stores.iter().map(Store::bytes).sum::<usize>()
    }

    /// Merges the groups `wanted` of another hash table into this part.
    ///
    /// # Errors
    /// Fails only on a bug in this crate.
    pub(super) fn add_groups(&mut self, groups: &Groups, stores: &[Store], wanted: &[u32]) -> Result<()> {
        let mut ids = Vec::new();
        self.groups.intern_groups(groups, wanted, &mut ids)?;
        for (store, other) in self.stores.iter_mut().zip(stores) {
            store.resize(self.groups.len());
            store.merge(other, wanted, &ids)?;
        }
        Ok(())
    }

    /// Merges all groups of another part into this one.
    ///
    /// # Errors
    /// Fails only on a bug in this crate.
    pub(super) fn add_part(&mut self, other: &Part) -> Result<()> {
        let all: Vec<u32> = (0..u32_checked(other.groups.len())).collect();
        self.add_groups(&other.groups, &other.stores, &all)
    }

    /// Emits all groups of the part.
    ///
    /// # Errors
    /// `Invalid` when a sum does not fit its type.
    pub(super) fn give(&self, aggregation: &Aggregation, emit: &mut Emit<'_>) -> Result<ControlFlow<()>> {
        let all: Vec<u32> = (0..u32_checked(self.groups.len())).collect();
        give(aggregation, &self.groups, &self.stores, &all, emit)
    }

    /// Adds the records of partition `partition`.
    ///
    /// # Errors
    /// Fails only on a bug in this crate.
    pub(super) fn add_records(&mut self, shape: &Shape, records: &Records, partition: usize) -> Result<()> {
        let mut columns = Columns::default();
        let mut starts = Vec::new();
        for words in records.of(partition) {
            let rows = if shape.has_rows {
                find_starts(words, shape.words, &mut starts);
                Some(&starts[..])
            } else {
                None
            };
            self.add_piece(shape, Piece { words, width: shape.words, starts: rows }, &mut columns)?;
        }
        Ok(())
    }

    fn add_piece(&mut self, shape: &Shape, piece: Piece<'_>, columns: &mut Columns) -> Result<()> {
        let Columns { codes, values, valid: valid_words, hashes, ids } = columns;
        piece.column(0, codes);
        let rows = codes.len();
        if shape.has_rows {
            hashes.clear();
            hashes.extend(codes.iter().map(|hash| hash.cast_unsigned()));
            self.groups.intern_rows(hashes, |row| piece.key(row), ids)?;
        } else {
            self.groups.intern_codes(codes, ids)?;
        }
        if !shape.masked.is_empty() {
            piece.column(shape.valid_word(), valid_words);
        }
        let groups = self.groups.len();
        for (source, store) in shape.sources.iter().zip(&mut self.stores) {
            store.resize(groups);
            let valid = source.bit.map(|bit| bits::collect(rows, |row| valid_words[row] >> bit & 1 == 1));
            let valid = valid.as_deref();
            if let Some(word) = source.word {
                piece.column(word, values);
            }
            match (source.word, valid) {
                (None, None) => store.count_rows(rows, Some(ids), None),
                // A count of rows ignores the values, so that the codes are passed in their place.
                (None, valid) => store.update_lanes(Some(ids), codes, valid),
                (Some(_), valid) => store.update_lanes(Some(ids), values, valid),
            }
        }
        Ok(())
    }
}

impl<'a> Piece<'a> {
    /// Replaces `out` by word number `word` of each record.
    fn column(&self, word: usize, out: &mut Vec<i64>) {
        out.clear();
        match self.starts {
            None => out.extend(self.words.chunks_exact(self.width).map(|record| record[word])),
            Some(starts) => out.extend(starts.iter().map(|start| self.words[start + word])),
        }
    }

    /// Returns the group key of a record that has it as a sequence of words.
    fn key(&self, record: usize) -> &'a [i64] {
        let start = self.starts.map_or(0, |starts| starts[record]) + self.width;
        &self.words[start..start + key_words(self.words, start)]
    }
}

/// Replaces `starts` by the start of each record, if each is followed by its group key as a sequence of words.
fn find_starts(words: &[i64], width: usize, starts: &mut Vec<usize>) {
    starts.clear();
    let mut start = 0;
    while start < words.len() {
        starts.push(start);
        start += width;
        start += key_words(words, start);
    }
}

/// Returns the length of the group key that begins at `start`, as a sequence of words. The word before the group key
/// has that length.
fn key_words(words: &[i64], start: usize) -> usize {
    usize_saturating(words[start - 1].cast_unsigned())
}
