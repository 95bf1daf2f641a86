//! Groups of any keys, through Arrow's row format: one byte string per combination of keys.

use crate::failure;
use ahash::RandomState;
use arrow_array::ArrayRef;
use arrow_row::{Row, RowConverter, Rows};
use farpool_model::Result;
use farpool_model::cast::u32_checked;
use hashbrown::HashTable;
use std::sync::Arc;

/// A table of groups.
pub(crate) struct RowTable {
    /// Tables that are merged must share it.
    converter: Arc<RowConverter>,
    rows: Rows,
    hashes: Vec<u64>,
    table: HashTable<u32>,
    random: RandomState,
}

impl RowTable {
    /// An empty table of the keys that `converter` converts.
    pub(crate) fn new(converter: Arc<RowConverter>) -> Self {
        // All tables must hash alike: no random seeds.
        let random = RandomState::with_seeds(0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344);
        let rows = converter.empty_rows(0, 0);
        RowTable { converter, rows, hashes: Vec::new(), table: HashTable::new(), random }
    }

    /// The number of groups.
    pub(crate) fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        self.rows.size() + self.hashes.capacity() * 8 + self.table.capacity() * 5
    }

    /// Adds the group of each row to `ids`.
    pub(crate) fn intern(&mut self, keys: &[ArrayRef], ids: &mut Vec<u32>) -> Result<()> {
        let batch = self.converter.convert_columns(keys).map_err(failure::of_kernel)?;
        for row in &batch {
            let hash = self.random.hash_one(row.data());
            ids.push(self.insert(row, hash));
        }
        Ok(())
    }

    /// Adds the numbers here of the groups `wanted` of `other` to `ids`.
    pub(crate) fn intern_groups(&mut self, other: &Self, wanted: &[u32], ids: &mut Vec<u32>) {
        for group in wanted {
            let group = *group as usize;
            ids.push(self.insert(other.rows.row(group), other.hashes[group]));
        }
    }

    /// The hash of a group.
    pub(crate) fn hash(&self, group: u32) -> u64 {
        self.hashes[group as usize]
    }

    /// The keys of the groups `wanted`.
    pub(crate) fn keys(&self, wanted: &[u32]) -> Result<Vec<ArrayRef>> {
        let wanted = wanted.iter().map(|group| self.rows.row(*group as usize));
        self.converter.convert_rows(wanted).map_err(failure::of_kernel)
    }

    fn insert(&mut self, row: Row<'_>, hash: u64) -> u32 {
        let (rows, hashes) = (&mut self.rows, &mut self.hashes);
        let same = |group: &u32| {
            let group = *group as usize;
            hashes[group] == hash && rows.row(group).data() == row.data()
        };
        if let Some(group) = self.table.find(hash, same) {
            return *group;
        }
        let group = u32_checked(hashes.len());
        rows.push(row);
        hashes.push(hash);
        self.table.insert_unique(hash, group, |group| hashes[*group as usize]);
        group
    }
}
