//! A chunk: one column of one row group, encoded, and how it is asked.

use crate::body::{Body, EncodingKind};
use crate::floats::Floats;
use crate::integers::Integers;
use crate::room::Room;
use crate::zone::ZoneMap;
use arrow_array::ArrayRef;
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow_schema::DataType;
use farpool_model::{Error, Result, schema};
use std::ops::Range;
use std::sync::Arc;

/// Bytes of a chunk on the heap: itself, what counts its owners, and a header for each of a few buffers.
const CHUNK_HEADER_BYTES: usize = size_of::<Chunk>() + 256;

/// One column of one row group, encoded, in memory of the pool. Immutable.
#[derive(Debug)]
pub struct Chunk {
    data_type: DataType,
    rows: usize,
    /// `None` when no row is NULL, and in a constant.
    validity: Option<BooleanBuffer>,
    zone: ZoneMap,
    pub(crate) body: Body,
    bytes_encoded: usize,
    bytes_plain: usize,
}

impl Chunk {
    pub(crate) fn new(
        data_type: DataType,
        rows: usize,
        validity: Option<BooleanBuffer>,
        zone: ZoneMap,
        body: Body,
        bytes_plain: usize,
    ) -> Chunk {
        let validity_bytes = validity.as_ref().map_or(0, |bits| bits.inner().len());
        let bytes_encoded = body.bytes(&data_type) + validity_bytes;
        Chunk { data_type, rows, validity, zone, body, bytes_encoded, bytes_plain }
    }

    /// The same chunk with these bounds, which are those of its values.
    pub(crate) fn with_zone(self, zone: ZoneMap) -> Chunk {
        Chunk { zone, ..self }
    }

    /// The canonical type of the values.
    pub fn data_type(&self) -> &DataType {
        &self.data_type
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// NULLs.
    pub fn null_count(&self) -> usize {
        self.zone.null_count
    }

    /// Bytes of the encoded form.
    pub fn bytes_encoded(&self) -> usize {
        self.bytes_encoded
    }

    /// Bytes of the values as a plain Arrow array (strings with 32-bit offsets).
    pub fn bytes_plain(&self) -> usize {
        self.bytes_plain
    }

    /// The bounds of the values.
    pub fn zone(&self) -> &ZoneMap {
        &self.zone
    }

    /// How the values are encoded.
    pub fn encoding(&self) -> EncodingKind {
        self.body.kind()
    }

    /// The values of `rows` as an Arrow array of the chunk's type. Strings of a dictionary, of plain bytes
    /// and of a constant, and plain values of fixed width, are not copied: the array keeps the pages.
    ///
    /// # Errors
    /// `Invalid` when there are no such rows.
    pub fn decode(&self, rows: Range<usize>) -> Result<ArrayRef> {
        self.check_rows(&rows)?;
        crate::decode::decode(self, rows)
    }

    fn check_rows(&self, rows: &Range<usize>) -> Result<()> {
        if rows.start > rows.end || rows.end > self.rows {
            return Err(Error::invalid(format!("rows {rows:?} of a chunk of {}", self.rows)));
        }
        Ok(())
    }

    /// As [`Self::decode`], in `room`: what is unpacked there needs no fresh memory.
    ///
    /// # Errors
    /// As [`Chunk::decode`].
    pub fn decode_in(&self, rows: Range<usize>, room: &mut Room) -> Result<ArrayRef> {
        self.check_rows(&rows)?;
        crate::decode::decode_in(self, rows, room)
    }

    /// The values of the given rows, in their order; ascending rows are cheapest. Costs in proportion to
    /// the rows asked for, and no more than decoding the blocks of 1024 that they lie in.
    ///
    /// # Errors
    /// `Invalid` when there is no such row.
    pub fn gather(&self, rows: &[u32]) -> Result<ArrayRef> {
        if let Some(row) = rows.iter().find(|row| **row as usize >= self.rows) {
            return Err(Error::invalid(format!("row {row} of a chunk of {}", self.rows)));
        }
        crate::gather::gather(self, rows)
    }

    /// The rows whose bits are set, as a chunk of the same form on the heap; bit 0 is row 0. Its bounds are
    /// not known. Costs a part of what gathering the values and encoding them again does.
    ///
    /// # Errors
    /// `Invalid` when there is another number of words than the rows fill, or a bit behind them is set.
    pub fn pick(&self, selected: &[u64]) -> Result<Chunk> {
        let behind = selected.last().map_or(0, |word| match self.rows % 64 {
            0 => 0,
            used => word >> used,
        });
        if selected.len() != self.rows.div_ceil(64) || behind != 0 {
            return Err(Error::invalid(format!(
                "a selection of other rows than those of a chunk of {}",
                self.rows
            )));
        }
        let count = selected.iter().map(|word| word.count_ones() as usize).sum();
        crate::pick::pick(self, selected, count)
    }

    /// A bit for each of `rows`: whether it is not NULL. `None` when no row of the chunk is NULL.
    ///
    /// # Panics
    /// When there are no such rows.
    pub fn validity(&self, rows: Range<usize>) -> Option<BooleanBuffer> {
        if self.is_null_constant() {
            return Some(BooleanBuffer::new_unset(rows.len()));
        }
        self.validity.as_ref().map(|bits| bits.slice(rows.start, rows.len()))
    }

    /// The values as integers, if the chunk holds integers, decimals, dates or timestamps that all fit 64
    /// bits with sign, and at least one is not NULL.
    pub fn integers(&self) -> Option<Integers<'_>> {
        match &self.body {
            Body::BitPacked(packed) => Some(Integers::new(packed)),
            Body::Constant { number: Some(packed), .. } if schema::is_integer_like(&self.data_type) => {
                Some(Integers::new(packed))
            }
            _ => None,
        }
    }

    /// The values as floats, if the chunk holds floats that are not all equal.
    pub fn floats(&self) -> Option<Floats<'_>> {
        match &self.body {
            Body::Plain { values } => Floats::new(values, &self.data_type),
            _ => None,
        }
    }

    /// The distinct values and a code for each row, if the chunk is a dictionary, or a constant string.
    pub fn dictionary(&self) -> Option<Dictionary<'_>> {
        match &self.body {
            Body::Dictionary { values, codes } => Some(Dictionary { values, codes: Integers::new(codes) }),
            Body::Constant { value, number: Some(packed) } if schema::is_bytes(&self.data_type) => {
                Some(Dictionary { values: value, codes: Integers::new(packed) })
            }
            _ => None,
        }
    }

    pub(crate) fn is_null_constant(&self) -> bool {
        self.zone.null_count == self.rows && matches!(self.body, Body::Constant { .. })
    }

    /// The NULLs of `rows` as arrays want them: `None` where there are none.
    pub(crate) fn nulls(&self, rows: Range<usize>) -> Option<NullBuffer> {
        let bits = self.validity.as_ref()?.slice(rows.start, rows.len());
        Some(NullBuffer::new(bits)).filter(|nulls| nulls.null_count() > 0)
    }

    pub(crate) fn validity_bits(&self) -> Option<&BooleanBuffer> {
        self.validity.as_ref()
    }

    /// The same chunk with `map` applied to each buffer; `map` keeps bytes and alignment.
    pub(crate) fn map_buffers(self, map: &mut dyn FnMut(&Buffer) -> Buffer) -> Chunk {
        let validity = self.validity.map(|bits| BooleanBuffer::new(map(bits.inner()), 0, self.rows));
        let body = self.body.map_buffers(&self.data_type, map);
        Chunk { validity, body, ..self }
    }
}

/// A chunk's distinct strings and which of them each row holds.
#[derive(Clone, Copy, Debug)]
pub struct Dictionary<'a> {
    values: &'a ArrayRef,
    codes: Integers<'a>,
}

impl<'a> Dictionary<'a> {
    /// The distinct values, none of them NULL, in bytewise order: codes compare as the values do.
    pub fn values(&self) -> &'a ArrayRef {
        self.values
    }

    /// The place of each row's value in [`Dictionary::values`]; a NULL row has some code.
    pub fn codes(&self) -> Integers<'a> {
        self.codes
    }
}

/// All columns of some consecutive rows of a table.
#[derive(Debug)]
pub struct RowGroup {
    /// Rows, at most [`farpool_model::limits::ROW_GROUP_ROWS`].
    pub rows: usize,
    /// A chunk for each column of the schema.
    pub chunks: Vec<Arc<Chunk>>,
}

impl RowGroup {
    /// Bytes of the encoded chunks.
    pub fn bytes_encoded(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.bytes_encoded()).sum()
    }

    /// Bytes that the row group takes outside the pool: a header and bounds for each chunk.
    pub fn bytes_outside_pool(&self) -> usize {
        self.chunks.iter().map(|chunk| CHUNK_HEADER_BYTES + chunk.zone.bytes_held()).sum()
    }

    /// Bytes of the chunks as plain Arrow arrays.
    pub fn bytes_plain(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.bytes_plain()).sum()
    }
}
