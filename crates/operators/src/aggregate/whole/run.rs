//! Adds the rows of row groups to the array of groups of the *whole-table way* (see [`super`]).

use super::table::WholeTable;
use crate::aggregate::dense::{DenseRows, Scratch, Target, each_batch};
use crate::lanes::LaneBuffers;
use crate::pace::Batches;
use farpool_model::Result;

impl WholeTable {
    /// Adds the rows of some batches to the array. `rows` must be bound with group numbers of the whole table, not of
    /// the row group. Returns the number of rows that passed the filter.
    ///
    /// # Errors
    /// Errors of evaluating the filter and the conditions.
    pub(crate) fn add(
        &mut self,
        rows: &DenseRows<'_>,
        batches: &mut Batches<'_>,
        buffers: &mut LaneBuffers,
    ) -> Result<u64> {
        let mut scratch = Scratch::new(rows);
        let mut indices = Vec::new();
        each_batch(batches, buffers, |selection, buffers| {
            rows.each_part(selection, &mut indices, buffers, |part, buffers| {
                rows.add_part(part, buffers, &mut scratch, self)
            })
        })
    }
}

impl Target for WholeTable {
    fn add_sums(&mut self, _: usize, groups: Option<&[u32]>, sums: &[&[i64]]) {
        self.add_sums_of(groups.unwrap_or_default(), sums);
    }

    fn add_fold(&mut self, index: usize, groups: Option<&[u32]>, values: &[i64], mask: Option<&[u64]>) {
        self.add_fold_of(index, groups.unwrap_or_default(), values, mask);
    }
}
