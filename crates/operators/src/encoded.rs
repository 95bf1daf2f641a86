//! Returns the rows of a row group that passed the filter as encoded chunks, without decoding them.
//!
//! A *batch* is the rows of a row group that are processed at a time, some thousand. A *step* is the work of a thread
//! at a time.

use crate::bits;
use crate::pace::{Pace, Picked};
use crate::selection::Selection;
use farpool_columns::RowGroup;
use farpool_model::{Result, limits};
use std::sync::Arc;

/// Maximum ratio of rows to selected rows in a row group for returning the selected rows encoded, in a message of
/// their own. If fewer are selected, they are decoded and share a message with rows of other row groups.
const ENCODED_PART_MIN: usize = 8;

impl Picked {
    /// Records which rows of a batch are selected. The batch must begin where the previous batch ended, or be another
    /// part of the same block.
    pub(crate) fn add(&mut self, selection: &Selection) {
        // Batches start at multiples of 64 rows, that is, on whole words of the bitmap.
        let words = selection.range.start / 64..selection.range.end.div_ceil(64);
        self.selected.resize(words.end, 0);
        let selected = &mut self.selected[words];
        match &selection.bits {
            Some(bits) => bits::or(selected, bits),
            None => selected.copy_from_slice(&bits::ones(selection.range.len())),
        }
    }

    /// Returns whether enough rows of `group` are selected for returning them encoded.
    pub(crate) fn are_many(&self, group: &RowGroup) -> bool {
        let rows = bits::count(&self.selected);
        rows > 0 && rows >= group.rows / ENCODED_PART_MIN
    }

    /// Returns the selected rows as one [`Selection`] for each batch of the row group.
    pub(crate) fn selections(&self, group: &RowGroup) -> impl Iterator<Item = Selection> {
        let words = self.selected.chunks(limits::BATCH_ROWS / 64);
        (0..group.rows).step_by(limits::BATCH_ROWS).zip(words).map(|(start, words)| {
            Selection::new(start..group.rows.min(start + limits::BATCH_ROWS), words.to_vec())
        })
    }

    /// Copies the selected rows of `columns` to new encoded chunks. Returns `None` if the step ends before all
    /// columns are copied; the next call continues with the remaining columns.
    ///
    /// # Errors
    /// Errors of picking values out of a chunk.
    pub(crate) fn pick(
        &mut self,
        group: &RowGroup,
        columns: &[usize],
        pace: &mut dyn Pace,
    ) -> Result<Option<RowGroup>> {
        while let Some(column) = columns.get(self.chunks.len()) {
            self.chunks.push(Arc::new(group.chunks[*column].pick(&self.selected)?));
            if self.chunks.len() < columns.len() && pace.ends() {
                return Ok(None);
            }
        }
        let chunks = std::mem::take(&mut self.chunks);
        Ok(Some(RowGroup { rows: bits::count(&self.selected), chunks }))
    }
}
