//! Reads parcels (encoded rows of a result) from peers, which are not trusted, and decodes them to record batches.
//!
//! Buffers stay in place in the message. Only those properties are checked here on which the memory safety of decoding
//! depends: lengths, dictionary codes, ends of strings, UTF-8. Compressed strings are checked while they are
//! decompressed, because checking them first would take as long again.

use super::coded::CodedStrings;
use super::{
    ALIGNMENT, BIT_PACKED, BYTES, CONSTANT, DICTIONARY, FSST, NULLS, PLAIN, TAIL_BLOCK, TAIL_LOOSE,
    block_bytes, loose_bytes,
};
use crate::body::Body;
use crate::bytes::Reader;
use crate::chunk::Chunk;
use crate::encode::{aligned_copy, numbered_constant};
use crate::ends::Ends;
use crate::fsst_text::SymbolTable;
use crate::lanes::{Lane, pack_block};
use crate::packed::{Packed, width_of, with_lane};
use crate::result_buffer::ResultBuffer;
use crate::strings::check_row_bytes;
use crate::views::{Views, view_of};
use crate::zone::ZoneMap;
use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_buffer::{BooleanBuffer, Buffer, MutableBuffer};
use arrow_schema::{DataType, SchemaRef};
use bytes::Bytes;
use farpool_model::limits::{BLOCK_ROWS, MESSAGE_BYTES_MAX, ROW_GROUP_ROWS, STRING_BYTES_MAX};
use farpool_model::{Error, Result, literal, schema};

/// A parcel that was read, with encoded rows of a result.
#[derive(Debug)]
pub struct Parcel {
    schema: SchemaRef,
    rows: usize,
    /// Number of rows that were returned so far.
    given: usize,
    columns: Vec<Column>,
}

#[derive(Debug)]
enum Column {
    Encoded(Box<Chunk>),
    Coded(Box<CodedStrings>),
}

impl Parcel {
    /// Reads a parcel whose columns must be those of `schema`, with canonical types. The parcel shares the memory of
    /// `body`.
    ///
    /// # Errors
    /// `Corrupt` when the bytes are not such a parcel; `OverLimit` when the strings of a column are longer together
    /// than those of a chunk may be.
    pub fn read(body: &Bytes, schema: &SchemaRef) -> Result<Parcel> {
        let mut reader = Reader::new(body);
        let head_bytes = number(&mut reader)?;
        let head = body.get(..head_bytes).ok_or_else(cut_off)?;
        let (rows, columns) = (number(&mut reader)?, number(&mut reader)?);
        if rows > ROW_GROUP_ROWS || columns != schema.fields().len() {
            return Err(Error::corrupt(format!("a parcel of {rows} rows and {columns} columns")));
        }
        // The three numbers are known to lie within the body; here they are checked to lie within the head.
        let head = head.get(12..).ok_or_else(cut_off)?;
        let mut parts = Parts { head: Reader::new(head), body, at: head_bytes, rows };
        let column = |field: &arrow_schema::FieldRef| {
            parts.column(field.data_type()).map_err(|error| error.at(field.name()))
        };
        let columns = schema.fields().iter().map(column).collect::<Result<_>>()?;
        if !parts.head.is_empty() || parts.at.next_multiple_of(ALIGNMENT) < body.len() {
            return Err(Error::corrupt("a parcel with more than its columns"));
        }
        Ok(Parcel { schema: schema.clone(), rows, given: 0, columns })
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the number of rows that were not returned yet.
    pub fn rows_left(&self) -> usize {
        self.rows - self.given
    }

    /// Decodes the next rows, at most `rows_max`, into the memory of `room` as far as it has any. Returns fewer rows if
    /// there are very many columns, so that fixed-width values take at most [`MESSAGE_BYTES_MAX`] at once, although
    /// they may take no bytes at all in a parcel.
    ///
    /// # Errors
    /// `Corrupt` when strings are corrupt, or a column that must not be NULL has a NULL. The parcel must not be used
    /// after an error.
    pub fn next(&mut self, rows_max: usize, room: &mut ResultBuffer) -> Result<RecordBatch> {
        let rows_max = rows_max.min(rows_at_once(&self.schema));
        let rows = self.given..self.given + rows_max.min(self.rows_left());
        let mut decode = |column: &mut Column| match column {
            Column::Encoded(chunk) => chunk.decode_in(rows.clone(), room),
            Column::Coded(coded) => coded.next(rows.len(), room),
        };
        let columns = self.columns.iter_mut().map(&mut decode).collect::<Result<_>>()?;
        self.given = rows.end;
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)
            .map_err(|error| Error::corrupt(format!("a parcel of other columns: {error}")))
    }
}

/// Returns the maximum number of rows to decode at once, according to the width of their values.
fn rows_at_once(schema: &SchemaRef) -> usize {
    let width =
        |field: &arrow_schema::FieldRef| field.data_type().primitive_width().unwrap_or(size_of::<u128>());
    let row_bytes: usize = schema.fields().iter().map(width).sum();
    (MESSAGE_BYTES_MAX / row_bytes.max(1)).max(1)
}

fn cut_off() -> Error {
    Error::corrupt("a parcel that is cut off")
}

fn number(reader: &mut Reader<'_>) -> Result<usize> {
    Ok(u32::from_le_bytes(reader.array()?) as usize)
}

/// The part of a parcel that is not read yet.
struct Parts<'a> {
    head: Reader<'a>,
    body: &'a Bytes,
    /// End of the last buffer that was read.
    at: usize,
    rows: usize,
}

impl Parts<'_> {
    fn column(&mut self, data_type: &DataType) -> Result<Column> {
        let validity = match self.head.byte()? {
            0 => None,
            _ => Some(self.validity()?),
        };
        let encoding = self.head.byte()?;
        if encoding == FSST && schema::is_bytes(data_type) {
            return self.fsst(data_type, validity).map(|coded| Column::Coded(Box::new(coded)));
        }
        let null_count = match (&validity, encoding) {
            (None, NULLS) => self.rows,
            (Some(_), NULLS) => return Err(Error::corrupt("validity bits of a column of NULLs")),
            (Some(bits), _) => self.rows - bits.count_set_bits(),
            (None, _) => 0,
        };
        let body = self.encoded(encoding, data_type)?;
        if let Body::Dictionary { values, codes } = &body {
            check_row_bytes(values, codes, validity.as_ref())?;
        }
        let zone = ZoneMap { null_count, ..ZoneMap::default() };
        Ok(Column::Encoded(Box::new(Chunk::new(data_type.clone(), self.rows, validity, zone, body, 0))))
    }

    fn encoded(&mut self, encoding: u8, data_type: &DataType) -> Result<Body> {
        let is_bytes = schema::is_bytes(data_type);
        match encoding {
            NULLS => Ok(Body::nulls(data_type)),
            CONSTANT if !is_bytes => {
                let value = aligned_copy(self.head.take(data_type.primitive_width().unwrap_or(1))?);
                Ok(numbered_constant(crate::decode::plain(&value, 0..1, data_type, None)?, self.rows))
            }
            PLAIN if !is_bytes => {
                let values = self.aligned()?;
                let rows = self.rows;
                if values.len() != data_type.primitive_width().map_or(rows.div_ceil(8), |width| width * rows)
                {
                    return Err(Error::corrupt("plain values of another number than rows"));
                }
                Ok(Body::Plain { values })
            }
            BIT_PACKED if schema::is_integer_like(data_type) => {
                let packed = self.packed()?;
                let (min, max) = literal::integer_range(data_type).unwrap_or((0, 0));
                if i128::from(packed.reference) < min || i128::from(packed.max) > max {
                    return Err(Error::corrupt(format!("packed integers beyond {data_type}")));
                }
                Ok(Body::BitPacked(packed))
            }
            DICTIONARY if is_bytes => self.dictionary(data_type),
            BYTES if is_bytes => {
                let ends = Ends { lines: self.aligned()?, above: self.packed()? };
                let data = Buffer::from(self.next()?);
                ends.check(self.rows, data.len())?;
                check_text(&data, ends.bounds(0..self.rows).into_iter().skip(1), data_type)?;
                Ok(Body::PlainBytes { ends, data })
            }
            other => Err(Error::corrupt(format!("encoding {other} of a column of type {data_type}"))),
        }
    }

    /// Returns the next buffer, in place.
    fn next(&mut self) -> Result<Bytes> {
        let length = number(&mut self.head)?;
        let start = self.at.next_multiple_of(ALIGNMENT);
        let end = start.checked_add(length).filter(|end| *end <= self.body.len()).ok_or_else(cut_off)?;
        self.at = end;
        Ok(self.body.slice(start..end))
    }

    /// Returns the next buffer, aligned for the widest values. It is copied if it is not aligned in place.
    fn aligned(&mut self) -> Result<Buffer> {
        let bytes = self.next()?;
        let in_place = (bytes.as_ptr() as usize).is_multiple_of(ALIGNMENT);
        Ok(if in_place { Buffer::from(bytes) } else { aligned_copy(&bytes) })
    }

    fn validity(&mut self) -> Result<BooleanBuffer> {
        let bits = Buffer::from(self.next()?);
        if bits.len() != self.rows.div_ceil(8) {
            return Err(Error::corrupt("validity bits of another number than rows"));
        }
        Ok(BooleanBuffer::new(bits, 0, self.rows))
    }

    /// Reads bit-packed values, one for each row of the parcel. Only their number is checked.
    fn packed(&mut self) -> Result<Packed> {
        let reference = i64::from_le_bytes(self.head.array()?);
        let max = i64::from_le_bytes(self.head.array()?);
        if max < reference {
            return Err(Error::corrupt("packed integers whose bounds are the wrong way round"));
        }
        let width = width_of(max.wrapping_sub(reference) as u64);
        let (blocks, rest) = (self.rows / BLOCK_ROWS, self.rows % BLOCK_ROWS);
        let (data, expected) = match self.head.byte()? {
            TAIL_BLOCK => (self.aligned()?, self.rows.div_ceil(BLOCK_ROWS) * block_bytes(width)),
            TAIL_LOOSE => {
                let (whole, loose) = (self.next()?, self.next()?);
                if whole.len() != blocks * block_bytes(width) || loose.len() != rest * loose_bytes(width) {
                    return Err(Error::corrupt("packed integers of another number than rows"));
                }
                let data = with_tail(&whole, &loose, rest, width);
                let expected = data.len();
                (data, expected)
            }
            other => return Err(Error::corrupt(format!("packed integers that end in way {other}"))),
        };
        if data.len() != expected {
            return Err(Error::corrupt("packed integers of another number than rows"));
        }
        Ok(Packed { reference, max, width, rows: self.rows, data })
    }

    fn dictionary(&mut self, data_type: &DataType) -> Result<Body> {
        let (ends, data) = (self.next()?, Buffer::from(self.next()?));
        let (ends, rest) = ends.as_chunks::<4>();
        let mut previous = 0;
        let ends: Vec<u32> = ends.iter().map(|end| u32::from_le_bytes(*end)).collect();
        let sound = rest.is_empty() && ends.iter().all(|end| std::mem::replace(&mut previous, *end) <= *end);
        if !sound || previous as usize != data.len() {
            return Err(Error::corrupt("a dictionary of another length than its values"));
        }
        check_text(&data, ends.iter().copied(), data_type)?;
        let codes = self.packed()?;
        if codes.reference != 0 || usize::try_from(codes.max).map_or(true, |max| max >= ends.len()) {
            return Err(Error::corrupt("codes beyond their dictionary"));
        }
        codes.check()?;
        let mut start = 0;
        let views: Vec<u128> = ends
            .iter()
            .map(|end| {
                let from = std::mem::replace(&mut start, *end as usize);
                view_of(&data, from, *end as usize - from)
            })
            .collect();
        // SAFETY: the views were made over this data, and its values were just checked.
        let values = unsafe { Views { views: views.into(), data }.into_array(data_type, None) };
        Ok(Body::Dictionary { values, codes })
    }

    fn fsst(&mut self, data_type: &DataType, validity: Option<BooleanBuffer>) -> Result<CodedStrings> {
        let table = Box::new(SymbolTable::from_parts(&self.next()?, &self.next()?)?);
        let lengths = self.packed()?;
        let codes = self.next()?;
        if lengths.reference != 0 {
            return Err(Error::corrupt("lengths of strings that do not count from 0"));
        }
        Ok(CodedStrings { data_type: data_type.clone(), validity, table, lengths, codes, row: 0, at: 0 })
    }
}

/// Returns bit-packed values made of the whole blocks `whole` and of the last block, which is packed here from loose
/// values.
fn with_tail(whole: &[u8], loose: &[u8], rest: usize, width: u32) -> Buffer {
    let tail = if rest > 0 { block_bytes(width) } else { 0 };
    let mut data = MutableBuffer::from_len_zeroed(whole.len() + tail);
    data[..whole.len()].copy_from_slice(whole);
    if rest > 0 && width > 0 {
        with_lane!(width, L => {
            let mut values = [L::default(); BLOCK_ROWS];
            for (value, bytes) in values.iter_mut().zip(loose.chunks_exact(loose_bytes(width))) {
                let mut wide = [0; 8];
                wide[..bytes.len()].copy_from_slice(bytes);
                *value = L::truncate(u64::from_le_bytes(wide));
            }
            let at = whole.len() / size_of::<L>();
            pack_block(width, &values, &mut data.typed_data_mut::<L>()[at..]);
        });
    }
    data.into()
}

/// Checks values that are consecutive in `data`, ending at `ends`: they must be short enough, and strings must be
/// UTF-8.
pub(super) fn check_text(data: &[u8], ends: impl Iterator<Item = u32>, data_type: &DataType) -> Result<()> {
    let wrong = || Error::corrupt("a string that is too long or not UTF-8");
    if data.len() > i32::MAX as usize {
        return Err(wrong());
    }
    let text = match data_type {
        DataType::Utf8View => Some(std::str::from_utf8(data).map_err(|_| wrong())?),
        _ => None,
    };
    let mut start = 0;
    let mut sound = true;
    for end in ends {
        let short = end.wrapping_sub(start) as usize <= STRING_BYTES_MAX;
        sound &= short && text.is_none_or(|text| text.is_char_boundary(end as usize));
        start = end;
    }
    if sound { Ok(()) } else { Err(wrong()) }
}
