//! Re-encodes chunks in which marked rows are replaced or removed.

use crate::body::EncodingKind;
use crate::chunk::{Chunk, RowGroup};
use crate::plain::{concatenate, plain_bytes};
use crate::strings;
use crate::table::Encoder;
use crate::zone::ZoneMap;
use arrow_array::{Array, ArrayRef, BooleanArray};
use arrow_buffer::{BooleanBuffer, Buffer};
use arrow_schema::{ArrowError, FieldRef};
use arrow_select::filter::filter;
use arrow_select::interleave::interleave;
use farpool_model::limits::ROW_GROUP_BYTES_MAX;
use farpool_model::{Error, Result};
use std::sync::Arc;

/// Divisor: compressed strings keep the chunk's symbol table if at least one part in this many of its rows stay.
const PICKED_PART: usize = 2;

/// New values for the marked rows of a row group, in the order of the rows and in the pieces in which they arrived.
#[derive(Debug, Default)]
pub struct NewValues {
    pieces: Vec<Vec<ArrayRef>>,
    bytes_plain: usize,
}

impl NewValues {
    /// Adds the new values of the next rows, as one array per column.
    ///
    /// # Errors
    /// `OverLimit` when the values are larger than a row group may be.
    pub fn add(&mut self, columns: &[ArrayRef]) -> Result<()> {
        self.bytes_plain += plain_bytes(columns);
        if self.bytes_plain > ROW_GROUP_BYTES_MAX {
            return Err(too_large());
        }
        self.pieces.resize_with(columns.len(), Vec::new);
        self.pieces.iter_mut().zip(columns).for_each(|(pieces, column)| pieces.push(column.clone()));
        Ok(())
    }

    /// Returns the size of the values in plain form, in bytes.
    pub fn bytes_plain(&self) -> usize {
        self.bytes_plain
    }

    fn column(&self, column: usize) -> Option<ArrayRef> {
        self.pieces.get(column).filter(|pieces| !pieces.is_empty()).map(|pieces| concatenate(pieces))
    }
}

impl Encoder {
    /// Encodes the rows of `chunk` that are not `marked`, as a chunk for the column at index `column`, in memory
    /// outside the pool.
    ///
    /// # Errors
    /// `Invalid` when the chunk's type is not that of the column, or `marked` has bits for another number of
    /// rows.
    pub fn encode_without(&self, column: usize, chunk: &Chunk, marked: &[u64]) -> Result<Chunk> {
        let marked = mask(chunk, marked)?;
        let unmarked = BooleanArray::new(!marked.values(), None);
        let is_of_column = |field: &FieldRef| field.data_type() == chunk.data_type();
        if self.schema().fields().get(column).is_some_and(is_of_column)
            && let Some(picked) = picked(chunk, unmarked.values())?
        {
            return Ok(picked);
        }
        let values = filter(&chunk.decode(0..chunk.rows())?, &unmarked).map_err(failed)?;
        self.encode_values(column, &values, values.len())
    }

    /// Returns the rows of `group` after its first `rows` rows, as a row group in the pool.
    ///
    /// # Errors
    /// `Invalid` when its columns are not those of the encoder; `OverLimit` when memory is short.
    pub fn without_first(&self, group: &RowGroup, rows: usize) -> Result<RowGroup> {
        let first = BooleanBuffer::from_iter((0..group.rows).map(|row| row < rows));
        let marked: Vec<u64> = first.bit_chunks().iter_padded().take(group.rows.div_ceil(64)).collect();
        let encode = |(column, chunk): (usize, &Arc<Chunk>)| self.encode_without(column, chunk, &marked);
        let chunks = group.chunks.iter().enumerate().map(encode).collect::<Result<Vec<_>>>()?;
        self.place(group.rows.saturating_sub(rows), chunks)
    }

    /// Encodes the rows of `chunk`, with the `marked` ones replaced by the values that `values` has for the column at
    /// index `column`: one for each marked row.
    ///
    /// # Errors
    /// As [`Encoder::encode_without`]; `Invalid` for a different number of values, and for NULL where the
    /// column may not be NULL.
    pub fn encode_replaced(
        &self,
        column: usize,
        chunk: &Chunk,
        marked: &[u64],
        values: &NewValues,
    ) -> Result<Chunk> {
        let marked = mask(chunk, marked)?;
        let count = marked.values().count_set_bits();
        let new = values.column(column).filter(|new| new.len() == count);
        let Some(new) = new else {
            return Err(Error::invalid(format!("another number of values than {count} for column {column}")));
        };
        self.check_nulls(column, &new)?;
        if count == chunk.rows() {
            return self.encode_values(column, &new, count);
        }
        let old = chunk.decode(0..chunk.rows())?;
        if old.data_type() != new.data_type() {
            let (old, new) = (old.data_type(), new.data_type());
            return Err(Error::invalid(format!("values of type {new} for a column of type {old}")));
        }
        let mut next = 0;
        let place = |(row, is_marked): (usize, bool)| {
            if !is_marked {
                return (0, row);
            }
            next += 1;
            (1, next - 1)
        };
        let places: Vec<(usize, usize)> = marked.values().iter().enumerate().map(place).collect();
        let values = interleave(&[&*old, &*new], &places).map_err(failed)?;
        self.encode_values(column, &values, values.len())
    }

    /// Moves `chunks`, which must come from this encoder, to the pool. Returns `group` with these chunks in the columns
    /// with the indices `columns`, and with `rows` rows.
    ///
    /// # Errors
    /// `OverLimit` when the row group would be too large, or memory is short; `Invalid` when the columns do
    /// not match.
    pub fn replace_columns(
        &self,
        group: &RowGroup,
        rows: usize,
        columns: &[usize],
        chunks: Vec<Chunk>,
    ) -> Result<RowGroup> {
        let mut changed = RowGroup { rows, chunks: group.chunks.clone() };
        for (column, chunk) in columns.iter().zip(self.place(rows, chunks)?.chunks) {
            let place = changed.chunks.get_mut(*column);
            *place.ok_or_else(|| Error::invalid(format!("no column {column} in a row group")))? = chunk;
        }
        if changed.bytes_plain() > ROW_GROUP_BYTES_MAX && rows > 1 {
            return Err(too_large());
        }
        Ok(changed)
    }

    fn check_nulls(&self, column: usize, values: &ArrayRef) -> Result<()> {
        match self.schema().fields().get(column) {
            Some(field) if !field.is_nullable() && values.null_count() > 0 => {
                Err(Error::invalid(format!("column {:?} may not be NULL", field.name())))
            }
            _ => Ok(()),
        }
    }
}

/// Selects the rows of a chunk of FSST-compressed strings whose bits are set, if they are most of its rows. The
/// strings stay compressed, which saves most of the cost of encoding. Returns `None` for other chunks.
fn picked(chunk: &Chunk, selected: &BooleanBuffer) -> Result<Option<Chunk>> {
    let rows = selected.count_set_bits();
    if chunk.encoding() != EncodingKind::Fsst || PICKED_PART * rows < chunk.rows() {
        return Ok(None);
    }
    let words: Vec<u64> = selected.bit_chunks().iter_padded().take(chunk.rows().div_ceil(64)).collect();
    let picked = chunk.pick(&words)?;
    let values = picked.decode(0..rows)?;
    if values.null_count() == rows {
        return Ok(None);
    }
    let bounds = strings::bounds(&values, values.nulls());
    let zone = ZoneMap::of(bounds, chunk.data_type(), values.null_count());
    Ok(Some(picked.with_zone(zone)))
}

/// Returns the error for new values that would make a row group too large.
fn too_large() -> Error {
    Error::over_limit(format!(
        "a change would make the rows of one row group larger than {} MiB",
        ROW_GROUP_BYTES_MAX >> 20
    ))
}

fn mask(chunk: &Chunk, marked: &[u64]) -> Result<BooleanArray> {
    let rows = chunk.rows();
    if marked.len() != rows.div_ceil(64) {
        return Err(Error::invalid(format!("{} words of marks for {rows} rows", marked.len())));
    }
    Ok(BooleanArray::new(BooleanBuffer::new(Buffer::from_slice_ref(marked), 0, rows), None))
}

fn failed(error: ArrowError) -> Error {
    Error::internal(format!("replacing rows: {error}"))
}

#[cfg(test)]
mod tests;
