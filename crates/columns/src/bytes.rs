//! Chunk images: chunks as bytes to be stored on disk or sent to a peer, and read back without encoding the values
//! again.
//!
//! An image has two parts. The *head* is small and describes the chunk, including its minimum and maximum; the *data*
//! are the chunk's buffers in sequence, each at a multiple of 64 bytes, as in the pool. Layout of the head, all numbers
//! little-endian: `FPC2`; the type; rows `u32`; NULLs `u32`; size as a plain array `u64`; minimum and maximum; whether
//! there are validity bits `u8`; the encoding `u8` and its parameters. Where a buffer belongs, the head has its length
//! as `u64`.
//!
//! For any bytes, reading returns a chunk on which every operation is memory-safe, or `Corrupt`. The minimum and
//! maximum are only checked to be possible for the encoding, not to be right: detecting changed bytes is left to the
//! checksum stored with the image. Example: an image with the minimum 1 and the maximum 5 whose values are 7 is read
//! without an error, and a zone map would wrongly exclude it; an image with a dictionary code beyond the dictionary is
//! `Corrupt`.

use crate::arena::{ALIGNMENT, Arena};
use crate::body::{Body, EncodingKind};
use crate::chunk::Chunk;
use crate::ends::Ends;
use crate::fsst_text::SymbolTable;
use crate::packed::Packed;
use crate::strings::CHUNK_BYTES_MAX;
use crate::type_code;
use crate::views::Views;
use crate::zone::ZoneMap;
use arrow_array::{Array, ArrayRef};
use arrow_buffer::{BooleanBuffer, Buffer, ScalarBuffer};
use arrow_schema::DataType;
use bytes::Bytes;
use farpool_memory::{Pool, Tenure};
use farpool_model::cast::{u32_checked, u64_from};
use farpool_model::limits::{BLOCK_ROWS, ROW_GROUP_ROWS, STRING_BYTES_MAX};
use farpool_model::{Error, Literal, Result, TenantName, Value, schema};
use std::cmp::Ordering;
use std::sync::Arc;

const MAGIC: &[u8; 4] = b"FPC2";

/// Padding between two buffers.
static PADDING: [u8; ALIGNMENT] = [0; ALIGNMENT];

impl EncodingKind {
    /// Returns the byte that stands for the encoding in the head of an image.
    pub(crate) fn code(self) -> u8 {
        match self {
            EncodingKind::Constant => 0,
            EncodingKind::Plain => 1,
            EncodingKind::BitPacked => 2,
            EncodingKind::Dictionary => 3,
            EncodingKind::PlainBytes => 4,
            EncodingKind::Fsst => 5,
        }
    }

    /// Returns the encoding that `code`, a byte of a head, stands for.
    ///
    /// # Errors
    /// `Corrupt` if it stands for none.
    pub(crate) fn of_code(code: u8) -> Result<EncodingKind> {
        Ok(match code {
            0 => EncodingKind::Constant,
            1 => EncodingKind::Plain,
            2 => EncodingKind::BitPacked,
            3 => EncodingKind::Dictionary,
            4 => EncodingKind::PlainBytes,
            5 => EncodingKind::Fsst,
            other => return Err(Error::corrupt(format!("a chunk of encoding {other}, which is not known"))),
        })
    }
}

/// Keeps a buffer's memory alive until its bytes have been sent.
struct Owner(Buffer);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Returns the bytes of a buffer, not copied.
pub(crate) fn shared(buffer: Buffer) -> Bytes {
    Bytes::from_owner(Owner(buffer))
}

/// Image of a chunk: its head, and its data as the chunk's buffers. See the comment of this file.
#[derive(Clone, Debug, Default)]
pub struct Image {
    /// Description of the chunk, which precedes the data.
    pub head: Vec<u8>,
    buffers: Vec<Buffer>,
}

impl Image {
    /// Begins the head of an image with the fields before the encoding.
    pub(crate) fn opening(data_type: &DataType, rows: usize, zone: &ZoneMap, bytes_plain: usize) -> Image {
        let mut image = Image::default();
        image.bytes_of_head(MAGIC);
        type_code::write(data_type, &mut image.head);
        image.bytes_of_head(&u32_checked(rows).to_le_bytes());
        image.bytes_of_head(&u32_checked(zone.null_count).to_le_bytes());
        image.bytes_of_head(&u64_from(bytes_plain).to_le_bytes());
        image.bound(zone.min.as_ref());
        image.bound(zone.max.as_ref());
        image
    }

    /// Returns the size of the data, in bytes.
    pub fn data_bytes(&self) -> usize {
        self.buffers.iter().map(|buffer| buffer.len().next_multiple_of(ALIGNMENT)).sum()
    }

    /// Returns the data in pieces, with the padding between buffers. The pieces share the chunk's memory.
    pub fn pieces(&self) -> Vec<Bytes> {
        let padding = |buffer: &Buffer| buffer.len().next_multiple_of(ALIGNMENT) - buffer.len();
        let with_padding =
            |buffer: &Buffer| [shared(buffer.clone()), Bytes::from_static(&PADDING[..padding(buffer)])];
        self.buffers.iter().flat_map(with_padding).filter(|piece| !piece.is_empty()).collect()
    }

    /// Appends the data to `out`.
    pub fn write_data(&self, out: &mut Vec<u8>) {
        for buffer in &self.buffers {
            out.extend_from_slice(buffer);
            out.resize(out.len() + buffer.len().next_multiple_of(ALIGNMENT) - buffer.len(), 0);
        }
    }

    fn buffer(&mut self, buffer: &Buffer) {
        self.bytes_of_head(&u64_from(buffer.len()).to_le_bytes());
        if !buffer.is_empty() {
            self.buffers.push(buffer.clone());
        }
    }

    /// Appends bytes to the head, preceded by their length.
    pub(crate) fn text(&mut self, bytes: &[u8]) {
        self.bytes_of_head(&u64_from(bytes.len()).to_le_bytes());
        self.bytes_of_head(bytes);
    }

    fn bytes_of_head(&mut self, bytes: &[u8]) {
        self.head.extend_from_slice(bytes);
    }

    fn packed(&mut self, packed: &Packed) {
        self.bytes_of_head(&packed.reference.to_le_bytes());
        self.bytes_of_head(&packed.max.to_le_bytes());
        self.buffer(&packed.data);
    }

    fn views(&mut self, values: &ArrayRef) {
        let Views { views, data } = Views::of_array(values);
        self.buffer(views.inner());
        self.buffer(&data);
    }

    fn ends(&mut self, ends: &Ends) {
        self.buffer(&ends.lines);
        self.packed(&ends.above);
    }

    pub(crate) fn bound(&mut self, bound: Option<&Literal>) {
        let Some(bound) = bound else { return self.head.push(0) };
        self.head.push(1);
        match bound.value() {
            // Never written, because a minimum or maximum is never NULL.
            Value::Null => {}
            Value::Bool(value) => self.head.push(u8::from(*value)),
            Value::Int(value) => self.bytes_of_head(&value.to_le_bytes()),
            Value::Float(value) => self.bytes_of_head(&value.to_le_bytes()),
            Value::Text(text) => self.text(text.as_bytes()),
            Value::Bytes(bytes) => self.text(bytes),
        }
    }

    fn body(&mut self, body: &Body, data_type: &DataType) {
        self.head.push(body.kind().code());
        match body {
            Body::Constant { value, .. } => {
                self.head.push(u8::from(value.is_null(0)));
                if value.is_null(0) {
                } else if schema::is_bytes(data_type) {
                    self.views(value);
                } else {
                    // An array of one row of a fixed-width type has exactly one buffer.
                    self.text(&value.to_data().buffers()[0].as_slice()[..constant_width(data_type)]);
                }
            }
            Body::Plain { values } => self.buffer(values),
            Body::BitPacked(packed) => self.packed(packed),
            Body::Dictionary { values, codes } => {
                self.views(values);
                self.packed(codes);
            }
            Body::PlainBytes { ends, data } => {
                self.ends(ends);
                self.buffer(data);
            }
            Body::Fsst { table, ends, lengths, data } => {
                let (symbols, symbol_lengths) = table.parts();
                self.text(&symbols);
                self.text(symbol_lengths);
                self.ends(ends);
                self.packed(lengths);
                self.buffer(data);
            }
        }
    }
}

impl Chunk {
    /// Returns the chunk as an image, which [`Chunk::from_image`] reads. Shares the chunk's buffers, except that an
    /// encrypted chunk is decrypted to new ones, because images are not encrypted.
    ///
    /// # Errors
    /// As [`Chunk::check_intact`].
    pub fn to_image(&self) -> Result<Image> {
        if let Some(opened) = self.opened() {
            return opened.to_image();
        }
        self.check_intact()?;
        let mut image = Image::opening(self.data_type(), self.rows(), &self.zone(), self.bytes_plain());
        match self.validity_bits() {
            None => image.head.push(0),
            Some(bits) => {
                image.head.push(1);
                image.buffer(bits.inner());
            }
        }
        image.body(&self.body, self.data_type());
        Ok(image)
    }

    /// Reads a chunk from the head and the data of an image. The chunk shares the memory of `data` if that begins at a
    /// multiple of 64 bytes.
    ///
    /// # Errors
    /// `Corrupt` when the bytes are not those of a chunk.
    pub fn from_image(head: &[u8], data: &Buffer) -> Result<Chunk> {
        read_image(Reader::with_data(head, &aligned(data)))
    }

    /// Reads an image as [`Chunk::from_image`] does, but without checking the values again. The image must be one that
    /// this process has made of a sound chunk, and that cannot have been changed since.
    pub(crate) fn from_own_image(head: &[u8], data: &Buffer) -> Result<Chunk> {
        read_image(Reader { is_own: true, ..Reader::with_data(head, &aligned(data)) })
    }

    /// Creates a chunk in place of one whose data are lost. Its minimum and maximum are known from the head; reading
    /// its values fails with `damage`.
    ///
    /// # Errors
    /// `Corrupt` when the head is not that of a chunk.
    pub fn from_head(head: &[u8], damage: Error) -> Result<Chunk> {
        let HeadPrefix { data_type, rows, zone, bytes_plain } = read_head_prefix(&mut Reader::new(head))?;
        let body = Body::nulls(&data_type);
        Ok(Chunk::new(data_type, rows, None, zone, body, bytes_plain).with_damage(damage))
    }
}

/// Returns `data` if its address is a multiple of [`ALIGNMENT`]; otherwise a copy at such an address.
fn aligned(data: &Buffer) -> Buffer {
    match data.as_ptr().align_offset(ALIGNMENT) {
        0 => data.clone(),
        _ => Buffer::from_slice_ref(data),
    }
}

fn read_image(mut reader: Reader<'_>) -> Result<Chunk> {
    let chunk = read_chunk(&mut reader)?;
    match reader.is_empty() && reader.data.is_none_or(|data| reader.at == data.len()) {
        true => Ok(chunk),
        false => Err(Error::corrupt("a chunk with more than its parts")),
    }
}

/// Allocates pool memory for `tenant`, lets `fill` write it, and returns the memory with the result of `fill`.
///
/// # Errors
/// `OverLimit` when memory is short; errors of `fill`.
pub fn read_into_pool<T>(
    pool: &Arc<Pool>,
    tenant: &TenantName,
    bytes: usize,
    tenure: Tenure,
    fill: impl FnOnce(&mut [u8]) -> Result<T>,
) -> Result<(Buffer, T)> {
    Arena::new(Arc::clone(pool), tenant.clone()).read(bytes, tenure, fill)
}

/// Returns the size of a fixed-width constant in bytes; a boolean takes one.
fn constant_width(data_type: &DataType) -> usize {
    data_type.primitive_width().unwrap_or(1)
}

/// Reads the head of an image, which may be truncated anywhere, and the buffers of its data.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    data: Option<&'a Buffer>,
    /// Offset of the next buffer in the data.
    at: usize,
    /// Whether this process made the image, so that the values need not be checked.
    is_own: bool,
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { bytes, data: None, at: 0, is_own: false }
    }

    fn with_data(head: &'a [u8], data: &'a Buffer) -> Self {
        Reader { bytes: head, data: Some(data), at: 0, is_own: false }
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

    /// Reads bytes that are preceded by their length.
    pub fn text(&mut self) -> Result<&'a [u8]> {
        let length = u64::from_le_bytes(self.array()?);
        self.take(usize::try_from(length).unwrap_or(usize::MAX))
    }

    /// Takes the next buffer of the data, whose length comes next in the head.
    fn buffer(&mut self) -> Result<Buffer> {
        let length = usize::try_from(u64::from_le_bytes(self.array()?)).unwrap_or(usize::MAX);
        if length == 0 {
            return Ok(Buffer::default());
        }
        let data = self.data.filter(|data| length <= data.len() - self.at);
        let data = data.ok_or_else(|| Error::corrupt("a chunk that is cut off"))?;
        let buffer = data.slice_with_length(self.at, length);
        // The last buffer may end without padding, where the data end.
        self.at = (self.at + length.next_multiple_of(ALIGNMENT)).min(data.len());
        Ok(buffer)
    }

    /// Reads the minimum or maximum of values of `data_type`; `None` if the chunk has none.
    pub fn bound(&mut self, data_type: &DataType) -> Result<Option<Literal>> {
        if self.byte()? == 0 {
            return Ok(None);
        }
        let value = match data_type {
            DataType::Boolean => Value::Bool(self.byte()? != 0),
            DataType::Float32 | DataType::Float64 => Value::Float(f64::from_le_bytes(self.array()?)),
            DataType::Utf8View => {
                let text = std::str::from_utf8(self.text()?);
                Value::Text(text.map_err(|_| Error::corrupt("a bound that is not UTF-8"))?.to_string())
            }
            DataType::BinaryView => Value::Bytes(self.text()?.to_vec()),
            _ => Value::Int(i128::from_le_bytes(self.array()?)),
        };
        let literal = Literal::new(value, data_type.clone());
        literal.map(Some).map_err(|error| Error::corrupt(error.message))
    }

    /// Reads and checks a sequence of `rows` bit-packed values.
    fn packed(&mut self, rows: usize) -> Result<Packed> {
        let (reference, max) = (i64::from_le_bytes(self.array()?), i64::from_le_bytes(self.array()?));
        let width = crate::packed::width_of(max.wrapping_sub(reference) as u64);
        let packed = Packed { reference, max, width, rows, data: self.buffer()? };
        if !self.is_own {
            packed.check()?;
        }
        Ok(packed)
    }

    /// Reads the ends of `rows` strings. They are not checked here.
    fn ends(&mut self, rows: usize) -> Result<Ends> {
        let lines = self.buffer()?;
        Ok(Ends { lines, above: self.packed(rows)? })
    }

    /// Reads and checks the entries of a dictionary: views that lie within their bytes.
    fn views(&mut self, data_type: &DataType) -> Result<Views> {
        let (views, data) = (self.buffer()?, self.buffer()?);
        if !views.len().is_multiple_of(16) || data.len() > CHUNK_BYTES_MAX {
            return Err(Error::corrupt("a dictionary of another length than its values"));
        }
        let length = views.len() / 16;
        let views = Views { views: ScalarBuffer::new(views, 0, length), data };
        // Several views may point to the same bytes, and checking a view costs its length. So the sum of the lengths
        // is limited.
        let bytes = views.views.iter().map(|view| *view as u32 as usize).sum::<usize>();
        if length > ROW_GROUP_ROWS || bytes > CHUNK_BYTES_MAX {
            return Err(Error::corrupt("a dictionary of more values than a chunk may have"));
        }
        if !self.is_own {
            views.check(data_type)?;
        }
        Ok(views)
    }
}

/// The fields of a head before the encoding.
pub(crate) struct HeadPrefix {
    pub data_type: DataType,
    pub rows: usize,
    pub zone: ZoneMap,
    pub bytes_plain: usize,
}

pub(crate) fn read_head_prefix(reader: &mut Reader<'_>) -> Result<HeadPrefix> {
    if reader.take(MAGIC.len())? != MAGIC {
        return Err(Error::corrupt("bytes that are not a chunk"));
    }
    let data_type = type_code::read(reader)?;
    let rows = u32::from_le_bytes(reader.array()?) as usize;
    if rows > ROW_GROUP_ROWS {
        return Err(Error::corrupt(format!("a chunk of {rows} rows")));
    }
    let null_count = u32::from_le_bytes(reader.array()?) as usize;
    let bytes_plain = usize::try_from(u64::from_le_bytes(reader.array()?)).unwrap_or(usize::MAX);
    if null_count > rows || bytes_plain > BYTES_PLAIN_MAX {
        return Err(Error::corrupt("a chunk that is larger than one may be"));
    }
    let (min, max) = (reader.bound(&data_type)?, reader.bound(&data_type)?);
    Ok(HeadPrefix { zone: ZoneMap { min, max, null_count }, data_type, rows, bytes_plain })
}

fn read_chunk(reader: &mut Reader<'_>) -> Result<Chunk> {
    let HeadPrefix { data_type, rows, zone, bytes_plain } = read_head_prefix(reader)?;
    let validity = match reader.byte()? {
        0 => None,
        _ => Some(read_validity(reader, rows)?),
    };
    let body = read_body(reader, &data_type, rows)?;
    let is_null = matches!(&body, Body::Constant { value, .. } if value.is_null(0));
    if validity.is_some() && is_null {
        return Err(Error::corrupt("a chunk with more than its parts"));
    }
    let null_count = match (&validity, is_null) {
        (_, true) => rows,
        (Some(bits), _) => rows - bits.count_set_bits(),
        _ => 0,
    };
    if null_count != zone.null_count {
        return Err(Error::corrupt("a chunk of another number of NULLs"));
    }
    check_zone(&zone, &body, rows)?;
    Ok(Chunk::new(data_type, rows, validity, zone, body, bytes_plain))
}

/// Maximum size of a chunk as a plain Arrow array: its strings, their offsets, and validity bits.
const BYTES_PLAIN_MAX: usize = CHUNK_BYTES_MAX + 17 * ROW_GROUP_ROWS + 64;

/// Checks that the minimum and maximum are possible for the type and encoding of the values.
fn check_zone(zone: &ZoneMap, body: &Body, rows: usize) -> Result<()> {
    let ZoneMap { min, max, null_count } = zone;
    let is_nan = |bound: &Literal| matches!(bound.value(), Value::Float(value) if value.is_nan());
    let are_ordered = match (min, max) {
        (Some(min), Some(max)) => min.compare(max).is_some_and(Ordering::is_le),
        _ => true,
    };
    let bounds = || min.iter().chain(max);
    let is_within = match body {
        Body::BitPacked(packed) => {
            let range = i128::from(packed.reference)..=i128::from(packed.max);
            bounds().all(|bound| bound.as_int().is_some_and(|bound| range.contains(&bound)))
        }
        _ => true,
    };
    let are_of_values = *null_count < rows || bounds().next().is_none();
    match are_ordered && is_within && are_of_values && !bounds().any(is_nan) {
        true => Ok(()),
        false => Err(Error::corrupt("bounds that cannot be those of a chunk")),
    }
}

fn read_validity(reader: &mut Reader<'_>, rows: usize) -> Result<BooleanBuffer> {
    let bits = reader.buffer()?;
    if bits.len() != rows.div_ceil(8) {
        return Err(Error::corrupt("validity bits of another number than rows"));
    }
    Ok(BooleanBuffer::new(bits, 0, rows))
}

fn read_body(reader: &mut Reader<'_>, data_type: &DataType, rows: usize) -> Result<Body> {
    let is_bytes = schema::is_bytes(data_type);
    match EncodingKind::of_code(reader.byte()?)? {
        EncodingKind::Constant => read_constant(reader, data_type, rows),
        EncodingKind::Plain if !is_bytes => read_plain(reader, data_type, rows),
        EncodingKind::BitPacked if schema::is_integer_like(data_type) => {
            let packed = reader.packed(rows)?;
            let (min, max) = farpool_model::literal::integer_range(data_type).unwrap_or((0, 0));
            if i128::from(packed.reference) < min || i128::from(packed.max) > max {
                return Err(Error::corrupt(format!("packed integers beyond {data_type}")));
            }
            Ok(Body::BitPacked(packed))
        }
        EncodingKind::Dictionary if is_bytes => read_dictionary(reader, data_type, rows),
        EncodingKind::PlainBytes if is_bytes => {
            let (ends, data) = (reader.ends(rows)?, reader.buffer()?);
            if reader.is_own {
                return Ok(Body::PlainBytes { ends, data });
            }
            check_text(&ends, rows, data.len())?;
            let bounds = ends.bounds(0..rows);
            if bounds.windows(2).any(|w| (w[1] - w[0]) as usize > STRING_BYTES_MAX) {
                return Err(Error::corrupt("a string that is too long"));
            }
            let first = bounds.first().map_or(0, |first| *first as usize);
            let last = bounds.last().map_or(0, |last| *last as usize);
            check_texts(&data[first..last], bounds.iter().map(|end| *end as usize - first), data_type)?;
            Ok(Body::PlainBytes { ends, data })
        }
        EncodingKind::Fsst if is_bytes => read_fsst(reader, data_type, rows),
        other => Err(Error::corrupt(format!("encoding {other:?} of a column of type {data_type}"))),
    }
}

fn check_text(ends: &Ends, rows: usize, bytes: usize) -> Result<()> {
    if bytes > CHUNK_BYTES_MAX {
        return Err(Error::corrupt("strings that are longer together than a chunk may be"));
    }
    ends.check(rows, bytes)
}

/// Checks that each value is valid for the type: not too long, and UTF-8 if the type is strings.
fn check_values<'a>(mut values: impl Iterator<Item = &'a [u8]>, data_type: &DataType) -> Result<()> {
    let is_text = *data_type == DataType::Utf8View;
    let sound = values
        .all(|value| value.len() <= STRING_BYTES_MAX && (!is_text || std::str::from_utf8(value).is_ok()));
    if sound { Ok(()) } else { Err(Error::corrupt("a string that is too long or not UTF-8")) }
}

/// Checks values that are consecutive in `values` and end at `ends`: strings must be UTF-8.
fn check_texts(values: &[u8], mut ends: impl Iterator<Item = usize>, data_type: &DataType) -> Result<()> {
    if *data_type != DataType::Utf8View {
        return Ok(());
    }
    let sound = std::str::from_utf8(values).is_ok_and(|text| ends.all(|end| text.is_char_boundary(end)));
    if sound { Ok(()) } else { Err(Error::corrupt("a string that is not UTF-8")) }
}

fn read_constant(reader: &mut Reader<'_>, data_type: &DataType, rows: usize) -> Result<Body> {
    if reader.byte()? != 0 {
        return Ok(Body::nulls(data_type));
    }
    if schema::is_bytes(data_type) {
        let views = reader.views(data_type)?;
        if views.views.len() != 1 {
            return Err(Error::corrupt("a constant of several values"));
        }
        let number = Some(Packed::constant(0, rows));
        // SAFETY: the views were checked against their bytes, here or before the process made the image.
        return Ok(Body::Constant { value: unsafe { views.into_array(data_type, None) }, number });
    }
    let bytes = reader.text()?;
    if bytes.len() != constant_width(data_type) {
        return Err(Error::corrupt("a constant of another width than its type"));
    }
    let value = crate::decode::plain(&Buffer::from_slice_ref(bytes), 0..1, data_type, None)?;
    Ok(crate::encode::numbered_constant(value, rows))
}

fn read_plain(reader: &mut Reader<'_>, data_type: &DataType, rows: usize) -> Result<Body> {
    let bytes = reader.buffer()?;
    let expected = data_type.primitive_width().map_or(rows.div_ceil(8), |width| width * rows);
    if bytes.len() != expected {
        return Err(Error::corrupt("plain values of another number than rows"));
    }
    Ok(Body::Plain { values: bytes })
}

fn read_dictionary(reader: &mut Reader<'_>, data_type: &DataType, rows: usize) -> Result<Body> {
    let views = reader.views(data_type)?;
    let codes = reader.packed(rows)?;
    let distinct = views.views.len();
    if codes.reference != 0 || usize::try_from(codes.max).map_or(true, |max| max >= distinct) {
        return Err(Error::corrupt("codes beyond their dictionary"));
    }
    // SAFETY: the views were checked against their bytes, here or before the process made the image.
    let values = unsafe { views.into_array(data_type, None) };
    if reader.is_own {
        return Ok(Body::Dictionary { values, codes });
    }
    let slices = crate::views::slices(&values);
    check_values(slices.iter().copied(), data_type)?;
    if !slices.is_sorted_by(|a, b| a < b) {
        return Err(Error::corrupt("a dictionary that is not in order"));
    }
    Ok(Body::Dictionary { values, codes })
}

fn read_fsst(reader: &mut Reader<'_>, data_type: &DataType, rows: usize) -> Result<Body> {
    let table = Box::new(SymbolTable::from_parts(reader.text()?, reader.text()?)?);
    let (ends, lengths) = (reader.ends(rows)?, reader.packed(rows)?);
    let data = reader.buffer()?;
    if reader.is_own {
        return Ok(Body::Fsst { table, ends, lengths, data });
    }
    check_text(&ends, rows, data.len())?;
    if lengths.reference != 0 || lengths.max > STRING_BYTES_MAX as i64 {
        return Err(Error::corrupt("a string that is too long"));
    }
    let wrong = || Error::corrupt("a string whose codes stand for another length");
    let (mut text, mut text_ends) = (Vec::new(), Vec::new());
    let mut total = 0;
    for block in (0..rows).step_by(BLOCK_ROWS) {
        let block = block..rows.min(block + BLOCK_ROWS);
        let bounds = ends.bounds(block.clone());
        text_ends.clear();
        let mut end = 0;
        for (row, w) in block.zip(bounds.windows(2)) {
            let length = lengths.value_at(row) as usize;
            if table.decoded_len(&data[w[0] as usize..w[1] as usize]) != Some(length) {
                return Err(wrong());
            }
            end += length;
            text_ends.push(end);
        }
        total += end;
        let codes = bounds.first().zip(bounds.last()).map(|(first, last)| *first as usize..*last as usize);
        text.clear();
        // All strings are decoded in one pass. That gives the same result as decoding each by itself, because no
        // string ends within an escape.
        if total > CHUNK_BYTES_MAX || !table.decode(&data[codes.unwrap_or_default()], end, &mut text) {
            return Err(wrong());
        }
        check_texts(&text, text_ends.iter().copied(), data_type)?;
    }
    Ok(Body::Fsst { table, ends, lengths, data })
}
