//! Serialization of a chunk to bytes outside the pool, for a disk or a peer.
//!
//! Layout, all numbers little-endian: `FPC1`; the type; rows `u32`; whether there are validity bits `u8`, and
//! the bits; the encoding `u8`; its parts. Buffers and texts are preceded by their length as `u64`. Bounds
//! and counts are not stored: they are computed again from the values, so that they are always right.
//!
//! For any bytes, reading returns a chunk on which every operation is sound, or `Corrupt`.

use crate::arena::Arena;
use crate::body::Body;
use crate::chunk::Chunk;
use crate::decode::decode;
use crate::encode::{aligned_copy, encode};
use crate::ends::Ends;
use crate::fsst_text::SymbolTable;
use crate::packed::Packed;
use crate::strings::CHUNK_BYTES_MAX;
use crate::type_code;
use crate::views::Views;
use crate::zone::ZoneMap;
use arrow_array::{Array, ArrayRef};
use arrow_buffer::{BooleanBuffer, ScalarBuffer};
use arrow_schema::DataType;
use farpool_memory::Pool;
use farpool_model::limits::{BLOCK_ROWS, ROW_GROUP_ROWS, STRING_BYTES_MAX};
use farpool_model::{Error, Result, TenantName, schema};
use std::sync::Arc;

const MAGIC: &[u8; 4] = b"FPC1";

const CONSTANT: u8 = 0;
const PLAIN: u8 = 1;
const BIT_PACKED: u8 = 2;
const DICTIONARY: u8 = 3;
const PLAIN_BYTES: u8 = 4;
const FSST: u8 = 5;

impl Chunk {
    /// Serializes the chunk to bytes that [`Chunk::from_bytes`] reads.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.bytes_encoded() + 256);
        out.extend_from_slice(MAGIC);
        type_code::write(self.data_type(), &mut out);
        out.extend_from_slice(&farpool_model::cast::u32_checked(self.rows()).to_le_bytes());
        match self.validity_bits() {
            None => out.push(0),
            Some(bits) => {
                out.push(1);
                write_buffer(bits.inner(), &mut out);
            }
        }
        write_body(&self.body, self.data_type(), &mut out);
        out
    }

    /// Reads a chunk and places it in the pool.
    ///
    /// # Errors
    /// `Corrupt` when the bytes are not those of a chunk; `OverLimit` when memory is short.
    pub fn from_bytes(pool: &Arc<Pool>, tenant: &TenantName, bytes: &[u8]) -> Result<Chunk> {
        let chunk = read_chunk(bytes)?;
        let arena = Arena::new(Arc::clone(pool), tenant.clone());
        let placed = arena.place(vec![chunk])?.pop().and_then(Arc::into_inner);
        placed.ok_or_else(|| Error::internal("a chunk that was just placed is shared"))
    }
}

fn write_buffer(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
    out.extend_from_slice(bytes);
}

fn write_packed(packed: &Packed, out: &mut Vec<u8>) {
    out.extend_from_slice(&packed.reference.to_le_bytes());
    out.extend_from_slice(&packed.max.to_le_bytes());
    write_buffer(&packed.data, out);
}

fn write_views(values: &ArrayRef, out: &mut Vec<u8>) {
    let Views { views, data } = Views::of_array(values);
    write_buffer(views.inner(), out);
    write_buffer(&data, out);
}

fn write_ends(ends: &Ends, out: &mut Vec<u8>) {
    write_buffer(&ends.lines, out);
    write_packed(&ends.above, out);
}

fn write_body(body: &Body, data_type: &DataType, out: &mut Vec<u8>) {
    match body {
        Body::Constant { value, .. } => {
            out.push(CONSTANT);
            out.push(u8::from(value.is_null(0)));
            if value.is_null(0) {
            } else if schema::is_bytes(data_type) {
                write_views(value, out);
            } else {
                // A fixed-width array of one row has one buffer.
                write_buffer(&value.to_data().buffers()[0].as_slice()[..constant_width(data_type)], out);
            }
        }
        Body::Plain { values } => {
            out.push(PLAIN);
            write_buffer(values, out);
        }
        Body::BitPacked(packed) => {
            out.push(BIT_PACKED);
            write_packed(packed, out);
        }
        Body::Dictionary { values, codes } => {
            out.push(DICTIONARY);
            write_views(values, out);
            write_packed(codes, out);
        }
        Body::PlainBytes { ends, data } => {
            out.push(PLAIN_BYTES);
            write_ends(ends, out);
            write_buffer(data, out);
        }
        Body::Fsst { table, ends, lengths, data } => {
            out.push(FSST);
            let (symbols, symbol_lengths) = table.parts();
            write_buffer(&symbols, out);
            write_buffer(symbol_lengths, out);
            write_ends(ends, out);
            write_packed(lengths, out);
            write_buffer(data, out);
        }
    }
}

/// Size of a fixed-width constant in bytes; a boolean takes one.
fn constant_width(data_type: &DataType) -> usize {
    data_type.primitive_width().unwrap_or(1)
}

/// Reads from the front of bytes that may be truncated anywhere.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { bytes }
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let (front, rest) =
            self.bytes.split_at_checked(count).ok_or_else(|| Error::corrupt("a chunk that is cut off"))?;
        self.bytes = rest;
        Ok(front)
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let bytes = self.take(N)?;
        bytes.try_into().map_err(|_| Error::corrupt("a chunk that is cut off"))
    }

    pub fn byte(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    pub fn buffer(&mut self) -> Result<&'a [u8]> {
        let length = u64::from_le_bytes(self.array()?);
        self.take(usize::try_from(length).unwrap_or(usize::MAX))
    }

    /// Reads and checks a packed sequence of `rows` values.
    fn packed(&mut self, rows: usize) -> Result<Packed> {
        let (reference, max) = (i64::from_le_bytes(self.array()?), i64::from_le_bytes(self.array()?));
        let width = crate::packed::width_of(max.wrapping_sub(reference) as u64);
        let packed = Packed { reference, max, width, rows, data: aligned_copy(self.buffer()?) };
        packed.check()?;
        Ok(packed)
    }

    /// Reads the ends of `rows` values, which are not checked yet.
    fn ends(&mut self, rows: usize) -> Result<Ends> {
        let lines = aligned_copy(self.buffer()?);
        Ok(Ends { lines, above: self.packed(rows)? })
    }

    /// Reads and checks the values of a dictionary: valid views over their bytes.
    fn views(&mut self, data_type: &DataType) -> Result<Views> {
        let (views, data) = (aligned_copy(self.buffer()?), aligned_copy(self.buffer()?));
        if !views.len().is_multiple_of(16) || data.len() > CHUNK_BYTES_MAX {
            return Err(Error::corrupt("a dictionary of another length than its values"));
        }
        let length = views.len() / 16;
        let views = Views { views: ScalarBuffer::new(views, 0, length), data };
        // Views may share bytes, which are checked once for each view.
        let bytes = views.views.iter().map(|view| *view as u32 as usize).sum::<usize>();
        if length > ROW_GROUP_ROWS || bytes > CHUNK_BYTES_MAX {
            return Err(Error::corrupt("a dictionary of more values than a chunk may have"));
        }
        views.check(data_type)?;
        Ok(views)
    }
}

/// Reads a chunk onto the heap.
fn read_chunk(bytes: &[u8]) -> Result<Chunk> {
    let mut reader = Reader::new(bytes);
    if reader.take(MAGIC.len())? != MAGIC {
        return Err(Error::corrupt("bytes that are not a chunk"));
    }
    let data_type = type_code::read(&mut reader)?;
    let rows = u32::from_le_bytes(reader.array()?) as usize;
    if rows > ROW_GROUP_ROWS {
        return Err(Error::corrupt(format!("a chunk of {rows} rows")));
    }
    let validity = match reader.byte()? {
        0 => None,
        _ => Some(read_validity(&mut reader, rows)?),
    };
    let body = read_body(&mut reader, &data_type, rows)?;
    let is_null = matches!(&body, Body::Constant { value, .. } if value.is_null(0));
    if !reader.is_empty() || (validity.is_some() && is_null) {
        return Err(Error::corrupt("a chunk with more than its parts"));
    }
    let null_count = match (&validity, is_null) {
        (_, true) => rows,
        (Some(bits), _) => rows - bits.count_set_bits(),
        _ => 0,
    };
    finish_chunk(data_type, rows, validity, body, null_count)
}

fn read_validity(reader: &mut Reader<'_>, rows: usize) -> Result<BooleanBuffer> {
    let bits = aligned_copy(reader.buffer()?);
    if bits.len() != rows.div_ceil(8) {
        return Err(Error::corrupt("validity bits of another number than rows"));
    }
    Ok(BooleanBuffer::new(bits, 0, rows))
}

/// Computes what is not stored. Encoding the decoded values again yields bounds and sizes by the same code
/// that computed them the first time; this costs as much as a load, which is why chunks on a hot path stay in
/// memory.
fn finish_chunk(
    data_type: DataType,
    rows: usize,
    validity: Option<BooleanBuffer>,
    body: Body,
    null_count: usize,
) -> Result<Chunk> {
    let zone = ZoneMap { null_count, ..ZoneMap::default() };
    let bare = Chunk::new(data_type.clone(), rows, validity.clone(), zone, body, 0);
    let values = decode(&bare, 0..rows)?;
    let (zone, bytes_plain) = if rows == 0 {
        (ZoneMap::default(), 0)
    } else {
        let again = encode(&values).map_err(|error| Error::corrupt(error.message))?;
        (again.zone().clone(), again.bytes_plain())
    };
    Ok(Chunk::new(data_type, rows, validity, zone, bare.body, bytes_plain))
}

fn read_body(reader: &mut Reader<'_>, data_type: &DataType, rows: usize) -> Result<Body> {
    let is_bytes = schema::is_bytes(data_type);
    match reader.byte()? {
        CONSTANT => read_constant(reader, data_type, rows),
        PLAIN if !is_bytes => read_plain(reader, data_type, rows),
        BIT_PACKED if schema::is_integer_like(data_type) => {
            let packed = reader.packed(rows)?;
            let (min, max) = farpool_model::literal::integer_range(data_type).unwrap_or((0, 0));
            if i128::from(packed.reference) < min || i128::from(packed.max) > max {
                return Err(Error::corrupt(format!("packed integers beyond {data_type}")));
            }
            Ok(Body::BitPacked(packed))
        }
        DICTIONARY if is_bytes => read_dictionary(reader, data_type, rows),
        PLAIN_BYTES if is_bytes => {
            let (ends, data) = (reader.ends(rows)?, aligned_copy(reader.buffer()?));
            check_text(&ends, rows, data.len())?;
            let bounds = ends.bounds(0..rows);
            check_values(bounds.windows(2).map(|w| &data[w[0] as usize..w[1] as usize]), data_type)?;
            Ok(Body::PlainBytes { ends, data })
        }
        FSST if is_bytes => read_fsst(reader, data_type, rows),
        other => Err(Error::corrupt(format!("encoding {other} of a column of type {data_type}"))),
    }
}

fn check_text(ends: &Ends, rows: usize, bytes: usize) -> Result<()> {
    if bytes > CHUNK_BYTES_MAX {
        return Err(Error::corrupt("strings that are longer together than a chunk may be"));
    }
    ends.check(rows, bytes)
}

/// Checks that values are valid for the type: short enough, and strings UTF-8.
fn check_values<'a>(mut values: impl Iterator<Item = &'a [u8]>, data_type: &DataType) -> Result<()> {
    let is_text = *data_type == DataType::Utf8View;
    let sound = values
        .all(|value| value.len() <= STRING_BYTES_MAX && (!is_text || std::str::from_utf8(value).is_ok()));
    if sound { Ok(()) } else { Err(Error::corrupt("a string that is too long or not UTF-8")) }
}

fn read_constant(reader: &mut Reader<'_>, data_type: &DataType, rows: usize) -> Result<Body> {
    if reader.byte()? != 0 {
        return Ok(Body::Constant { value: arrow_array::new_null_array(data_type, 1), number: None });
    }
    if schema::is_bytes(data_type) {
        let views = reader.views(data_type)?;
        if views.views.len() != 1 {
            return Err(Error::corrupt("a constant of several values"));
        }
        let number = Some(Packed::constant(0, rows));
        // SAFETY: the views were checked against their bytes.
        return Ok(Body::Constant { value: unsafe { views.into_array(data_type, None) }, number });
    }
    let bytes = reader.buffer()?;
    if bytes.len() != constant_width(data_type) {
        return Err(Error::corrupt("a constant of another width than its type"));
    }
    let value = crate::decode::plain(&aligned_copy(bytes), 0..1, data_type, None)?;
    Ok(crate::encode::numbered_constant(value, rows))
}

fn read_plain(reader: &mut Reader<'_>, data_type: &DataType, rows: usize) -> Result<Body> {
    let bytes = reader.buffer()?;
    let expected = data_type.primitive_width().map_or(rows.div_ceil(8), |width| width * rows);
    if bytes.len() != expected {
        return Err(Error::corrupt("plain values of another number than rows"));
    }
    Ok(Body::Plain { values: aligned_copy(bytes) })
}

fn read_dictionary(reader: &mut Reader<'_>, data_type: &DataType, rows: usize) -> Result<Body> {
    let views = reader.views(data_type)?;
    let codes = reader.packed(rows)?;
    let distinct = views.views.len();
    if codes.reference != 0 || usize::try_from(codes.max).map_or(true, |max| max >= distinct) {
        return Err(Error::corrupt("codes beyond their dictionary"));
    }
    // SAFETY: the views were checked against their bytes.
    let values = unsafe { views.into_array(data_type, None) };
    let slices = crate::views::slices(&values);
    check_values(slices.iter().copied(), data_type)?;
    if !slices.is_sorted_by(|a, b| a < b) {
        return Err(Error::corrupt("a dictionary that is not in order"));
    }
    Ok(Body::Dictionary { values, codes })
}

fn read_fsst(reader: &mut Reader<'_>, data_type: &DataType, rows: usize) -> Result<Body> {
    let table = Box::new(SymbolTable::from_parts(reader.buffer()?, reader.buffer()?)?);
    let (ends, lengths) = (reader.ends(rows)?, reader.packed(rows)?);
    let data = aligned_copy(reader.buffer()?);
    check_text(&ends, rows, data.len())?;
    if lengths.reference != 0 || lengths.max > STRING_BYTES_MAX as i64 {
        return Err(Error::corrupt("a string that is too long"));
    }
    let mut text = Vec::new();
    let mut total = 0;
    for block in (0..rows).step_by(BLOCK_ROWS) {
        let block = block..rows.min(block + BLOCK_ROWS);
        let bounds = ends.bounds(block.clone());
        for (row, w) in block.zip(bounds.windows(2)) {
            let codes = &data[w[0] as usize..w[1] as usize];
            let length = lengths.value_at(row) as usize;
            total += length;
            text.clear();
            if total > CHUNK_BYTES_MAX || !table.decode(codes, length, &mut text) {
                return Err(Error::corrupt("a string whose codes stand for another length"));
            }
            check_values(std::iter::once(&text[..]), data_type)?;
        }
    }
    Ok(Body::Fsst { table, ends, lengths, data })
}
