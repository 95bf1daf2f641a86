//! The groups of one partition.

use super::records::Records;
use super::shape::Shape;
use crate::aggregate::compile::Aggregation;
use crate::aggregate::merge::give;
use crate::aggregate::store::Store;
use crate::bits;
use crate::group::Groups;
use crate::project::Emit;
use farpool_model::Result;
use farpool_model::cast::u32_checked;
use std::ops::ControlFlow;

/// Groups and their accumulators.
pub(crate) struct Part {
    pub(super) groups: Groups,
    stores: Vec<Store>,
}

/// The words of some records, each kind beside each other.
#[derive(Default)]
struct Columns {
    codes: Vec<i64>,
    values: Vec<i64>,
    ids: Vec<u32>,
}

impl Part {
    /// No groups yet, and room for `expected`.
    pub(super) fn new(aggregation: &Aggregation, expected: usize) -> Self {
        let mut part = Part { groups: aggregation.groups(), stores: aggregation.stores() };
        part.groups.expect(expected);
        part
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> usize {
        self.groups.bytes() + self.stores.iter().map(Store::bytes).sum::<usize>()
    }

    /// Adds the groups `wanted` of another table.
    ///
    /// # Errors
    /// None but defects.
    pub(super) fn add_groups(&mut self, groups: &Groups, stores: &[Store], wanted: &[u32]) -> Result<()> {
        let mut ids = Vec::new();
        self.groups.intern_groups(groups, wanted, &mut ids)?;
        for (store, other) in self.stores.iter_mut().zip(stores) {
            store.resize(self.groups.len());
            store.merge(other, wanted, &ids)?;
        }
        Ok(())
    }

    /// Adds all groups of another part.
    ///
    /// # Errors
    /// None but defects.
    pub(super) fn add_part(&mut self, other: &Part) -> Result<()> {
        let all: Vec<u32> = (0..u32_checked(other.groups.len())).collect();
        self.add_groups(&other.groups, &other.stores, &all)
    }

    /// Lets all groups go.
    ///
    /// # Errors
    /// `Invalid` when a sum does not fit its type.
    pub(super) fn give(&self, aggregation: &Aggregation, emit: &mut Emit<'_>) -> Result<ControlFlow<()>> {
        let all: Vec<u32> = (0..u32_checked(self.groups.len())).collect();
        give(aggregation, &self.groups, &self.stores, &all, emit)
    }

    /// Adds the records of a partition.
    ///
    /// # Errors
    /// None but defects.
    pub(super) fn add_records(
        &mut self,
        shape: &Shape,
        records: &Records,
        partition: usize,
    ) -> Result<()> {
        let mut columns = Columns::default();
        records.of(partition).try_for_each(|piece| self.add_piece(shape, piece, &mut columns))
    }

    fn add_piece(&mut self, shape: &Shape, piece: &[i64], columns: &mut Columns) -> Result<()> {
        let Columns { codes, values, ids } = columns;
        let rows = piece.len() / shape.words;
        column(piece, shape.words, 0, codes);
        self.groups.intern_codes(codes, ids)?;
        let groups = self.groups.len();
        for (source, store) in shape.sources.iter().zip(&mut self.stores) {
            store.resize(groups);
            let is_valid = |row: usize, bit: u32| piece[(row + 1) * shape.words - 1] >> bit & 1 == 1;
            let valid = source.bit.map(|bit| bits::collect(rows, |row| is_valid(row, bit)));
            let valid = valid.as_deref();
            if let Some(word) = source.word {
                column(piece, shape.words, word, values);
            }
            match (source.word, valid) {
                (None, None) => store.count_rows(rows, Some(ids), None),
                // Counts look at no value.
                (None, valid) => store.update_lanes(Some(ids), codes, valid),
                (Some(_), valid) => store.update_lanes(Some(ids), values, valid),
            }
        }
        Ok(())
    }
}

/// Replaces `out` by one word of each record.
fn column(piece: &[i64], width: usize, word: usize, out: &mut Vec<i64>) {
    out.clear();
    out.extend(piece.chunks_exact(width).map(|record| record[word]));
}
