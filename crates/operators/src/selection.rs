//! The rows of a batch that passed the filter, and the decoding of their columns.

use crate::bits;
use crate::evaluate::Frame;
use crate::failure;
use arrow_array::ArrayRef;
use arrow_select::filter::FilterBuilder;
use farpool_columns::RowGroup;
use farpool_model::Result;
use farpool_model::cast::u32_checked;
use std::ops::Range;

/// Selectivity below which selected values are gathered from the encoded chunk; above it, whole ranges are
/// decoded and filtered. On four decimal columns, gathering took 88 % of the time at one row in two (and
/// chunks unpack whole blocks themselves where many rows of a block are wanted).
const GATHER_BELOW: (usize, usize) = (3, 4);

/// Some rows of one batch of a row group.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    /// The rows of the row group that the batch covers; starts on a block.
    pub(crate) range: Range<usize>,
    /// A bit per row of the batch; `None` when all are selected.
    pub(crate) bits: Option<Vec<u64>>,
    /// The number of selected rows.
    pub(crate) count: usize,
}

impl Selection {
    /// Returns all rows of `range`.
    pub(crate) fn all(range: Range<usize>) -> Self {
        Selection { bits: None, count: range.len(), range }
    }

    /// Returns the rows of `range` whose bit is set.
    pub(crate) fn new(range: Range<usize>, selected: Vec<u64>) -> Self {
        let count = bits::count(&selected);
        let bits = (count < range.len()).then_some(selected);
        Selection { range, bits, count }
    }

    /// Returns the rows whose bit is set in `passing`, too, which has one for each row of the row group.
    pub(crate) fn within(self, passing: &[u64]) -> Self {
        // Batches start on whole words.
        let first = self.range.start / 64;
        let mut alive = self.bits.unwrap_or_else(|| bits::ones(self.range.len()));
        alive.iter_mut().zip(&passing[first..]).for_each(|(alive, passing)| *alive &= passing);
        Selection::new(self.range, alive)
    }

    /// Returns whether gathering the selected values is cheaper than decoding the whole range.
    pub(crate) fn is_sparse(&self) -> bool {
        self.count * GATHER_BELOW.1 < self.range.len() * GATHER_BELOW.0
    }

    /// Appends the selected rows to `indices`, numbered from the start of the row group.
    pub(crate) fn extend_indices(&self, indices: &mut Vec<u32>) {
        let start = u32_checked(self.range.start);
        match &self.bits {
            None => indices.extend(start..u32_checked(self.range.end)),
            Some(bits) => {
                indices.reserve(self.count);
                bits::for_each(bits, |row| indices.push(start + u32_checked(row)));
            }
        }
    }

    /// Decodes `columns` (sorted) for the selected rows.
    pub(crate) fn frame(&self, group: &RowGroup, columns: &[usize]) -> Result<Frame> {
        if self.is_sparse() && !columns.is_empty() {
            let mut indices = Vec::new();
            self.extend_indices(&mut indices);
            return gathered(group, columns, &indices);
        }
        let decode = |&column: &usize| Ok((column, group.chunks[column].decode(self.range.clone())?));
        let mut arrays: Vec<(usize, ArrayRef)> = columns.iter().map(decode).collect::<Result<_>>()?;
        if let Some(bits) = &self.bits {
            let mask = bits::to_array(bits, self.range.len());
            let predicate = FilterBuilder::new(&mask).optimize().build();
            for (_, array) in &mut arrays {
                *array = predicate.filter(array).map_err(failure::of_kernel)?;
            }
        }
        Ok(Frame::new(self.count, arrays))
    }
}

/// Decodes `columns` (sorted) for the rows at `indices` of `group`.
pub(crate) fn gathered(group: &RowGroup, columns: &[usize], indices: &[u32]) -> Result<Frame> {
    let gather = |&column: &usize| Ok((column, group.chunks[column].gather(indices)?));
    Ok(Frame::new(indices.len(), columns.iter().map(gather).collect::<Result<_>>()?))
}
