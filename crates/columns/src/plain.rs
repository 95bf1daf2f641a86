//! Rows of a row group before they are encoded, in the pieces in which they arrived.
//!
//! Pieces share memory with the batches from which they were sliced. That costs nothing if the rows are most of the
//! batch. But a batch may hold far more memory: strings of a few bytes in a buffer of many megabytes, or a header for
//! each of thousands of columns with one row. [`PlainGroup::tidy`] copies the values in such cases.
//!
//! Invariant: after [`PlainGroup::tidy`], a row group that waits for more rows holds at most twice the bytes of its
//! plain values, plus [`PLAIN_EXCESS_BYTES_MAX`].

use crate::encode::fixed_bytes;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, new_empty_array};
use arrow_buffer::Buffer;
use arrow_schema::DataType;
use farpool_model::limits::{PLAIN_EXCESS_BYTES_MAX, ROW_GROUP_BYTES_MAX};
use farpool_model::schema;
use std::sync::Arc;

/// Bytes counted for an array in addition to its values: header, type, and the reference counts of the array and its
/// buffers.
const ARRAY_BYTES: usize = 256;

/// Rows of a row group as they arrived: for each column several arrays, with the canonical types of the table.
#[derive(Debug, Default)]
pub struct PlainGroup {
    pieces: Vec<Vec<ArrayRef>>,
    rows: usize,
    bytes_plain: usize,
    bytes_held: usize,
}

impl PlainGroup {
    /// Creates a row group of these columns, which must have the same number of rows.
    pub fn of(columns: &[ArrayRef]) -> PlainGroup {
        PlainGroup {
            pieces: columns.iter().map(|column| vec![Arc::clone(column)]).collect(),
            rows: columns.first().map_or(0, |column| column.len()),
            bytes_plain: 0,
            bytes_held: 0,
        }
    }

    /// Concatenates row groups of the same columns. The result may have more rows than a row group otherwise may.
    pub fn join(groups: &[&PlainGroup]) -> PlainGroup {
        let columns = groups.first().map_or(0, |group| group.pieces.len());
        let column = |index: usize| groups.iter().flat_map(|group| &group.pieces[index]).cloned().collect();
        PlainGroup {
            pieces: (0..columns).map(column).collect(),
            rows: groups.iter().map(|group| group.rows).sum(),
            bytes_plain: groups.iter().map(|group| group.bytes_plain).sum(),
            bytes_held: groups.iter().map(|group| group.bytes_held).sum(),
        }
    }

    /// Returns whether a value of a column is NULL.
    pub fn has_nulls(&self, column: usize) -> bool {
        self.pieces.get(column).is_some_and(|pieces| pieces.iter().any(|piece| piece.null_count() > 0))
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the bytes of memory that the rows hold. If a batch was divided among row groups, its memory counts for
    /// the row group with its last rows.
    pub fn bytes_held(&self) -> usize {
        self.bytes_held
    }

    /// Returns the number of columns.
    pub fn columns_count(&self) -> usize {
        self.pieces.len()
    }

    /// Returns a column as one array; `None` if there is no such column. It is concatenated only now, by the thread
    /// that encodes it, so that it is still in that core's cache.
    pub fn column(&self, index: usize) -> Option<ArrayRef> {
        self.pieces.get(index).map(|pieces| concatenate(pieces))
    }

    /// Returns how many of the first `rows` rows of `piece` fit the row group, and their bytes as plain values. At
    /// least one row fits an empty row group.
    pub(crate) fn fitting(&self, piece: &[ArrayRef], rows: usize) -> (usize, usize) {
        let total = plain_bytes(piece);
        let left = ROW_GROUP_BYTES_MAX.saturating_sub(self.bytes_plain);
        if total <= left {
            return (rows, total);
        }
        let fixed: usize = piece.iter().map(|column| bytes_fixed(column.data_type())).sum();
        let strings: Vec<&ArrayRef> = piece.iter().filter(|c| schema::is_bytes(c.data_type())).collect();
        let mut by_row = vec![fixed; rows];
        for column in strings {
            by_row.iter_mut().zip(lengths(column)).for_each(|(sum, length)| *sum += length);
        }
        let (mut fitting, mut bytes) = (0, 0);
        for length in by_row {
            let first = self.rows + fitting == 0;
            if bytes + length > left && !first {
                break;
            }
            bytes += length;
            fitting += 1;
        }
        (fitting, bytes)
    }

    /// Adds `rows` rows, which have `bytes_plain` bytes as plain values.
    pub(crate) fn add(
        &mut self,
        columns: impl ExactSizeIterator<Item = ArrayRef>,
        rows: usize,
        bytes_plain: usize,
    ) {
        self.pieces.resize_with(columns.len(), Vec::new);
        self.pieces.iter_mut().zip(columns).for_each(|(pieces, column)| pieces.push(column));
        self.rows += rows;
        self.bytes_plain += bytes_plain;
    }

    /// Adds `bytes` to the bytes of memory that the rows hold.
    pub(crate) fn hold(&mut self, bytes: usize) {
        self.bytes_held += bytes;
    }

    /// Copies the values to new memory if they hold much more than their plain size. The cost is proportional to the
    /// bytes that were added since the last copy.
    pub(crate) fn tidy(&mut self) {
        if self.bytes_held <= 2 * self.bytes_plain + PLAIN_EXCESS_BYTES_MAX {
            return;
        }
        for pieces in &mut self.pieces {
            *pieces = vec![copied(pieces)];
        }
        let columns: Vec<ArrayRef> = self.pieces.iter().flatten().cloned().collect();
        self.bytes_held = bytes_held(&columns);
    }
}

/// Returns the bytes of memory that arrays hold. Buffers that they share count once.
pub(crate) fn bytes_held(columns: &[ArrayRef]) -> usize {
    let mut buffers: Vec<(usize, usize)> = Vec::new();
    let mut add = |buffer: &Buffer| buffers.push((buffer.data_ptr().as_ptr() as usize, buffer.capacity()));
    for column in columns {
        let data = column.to_data();
        data.buffers().iter().for_each(&mut add);
        data.nulls().into_iter().for_each(|nulls| add(nulls.buffer()));
    }
    buffers.sort_unstable();
    buffers.dedup();
    columns.len() * ARRAY_BYTES + buffers.iter().map(|(_, bytes)| bytes).sum::<usize>()
}

/// Returns the bytes of arrays of the same length as plain values.
pub(crate) fn plain_bytes(columns: &[ArrayRef]) -> usize {
    let bytes = |column: &ArrayRef| {
        let strings = if schema::is_bytes(column.data_type()) { lengths(column).sum::<usize>() } else { 0 };
        column.len() * bytes_fixed(column.data_type()) + strings
    };
    columns.iter().map(bytes).sum()
}

/// Returns the bytes of a value of a type, without the bytes of its string.
fn bytes_fixed(data_type: &DataType) -> usize {
    match data_type {
        _ if schema::is_bytes(data_type) => size_of::<u128>(),
        other => fixed_bytes(other, 8, false).div_ceil(8),
    }
}

/// Returns the lengths of strings or binaries.
fn lengths(column: &ArrayRef) -> impl Iterator<Item = usize> {
    let views = match column.data_type() {
        DataType::Utf8View => column.as_string_view().views(),
        _ => column.as_binary_view().views(),
    };
    views.iter().map(|view| *view as u32 as usize)
}

/// Concatenates pieces of one type; there must be at least one.
pub(crate) fn concatenate(pieces: &[ArrayRef]) -> ArrayRef {
    if let [only] = pieces {
        return Arc::clone(only);
    }
    let pieces: Vec<&dyn Array> = pieces.iter().map(|piece| &**piece).collect();
    arrow_select::concat::concat(&pieces).expect("there are pieces, and all have the column's type")
}

/// Copies the values of pieces, of which there must be at least one, to memory of their own.
fn copied(pieces: &[ArrayRef]) -> ArrayRef {
    // `concat` would return a single array without copying it; with an additional empty array, it copies.
    let empty = new_empty_array(pieces[0].data_type());
    let both: Vec<ArrayRef> = pieces.iter().cloned().chain([empty]).collect();
    let all = concatenate(&both);
    match all.data_type() {
        DataType::Utf8View => Arc::new(all.as_string_view().gc()),
        DataType::BinaryView => Arc::new(all.as_binary_view().gc()),
        _ => all,
    }
}
