//! A chunk: one column of one row group, encoded, and the operations on it.
//!
//! A *handle* is a chunk whose values may be evicted from memory and read again ([`crate::residence`]).

use crate::body::{Body, EncodingKind};
use crate::encrypted::{DecryptedBounds, EncryptedBounds, EncryptedValues};
use crate::floats::Floats;
use crate::integers::Integers;
use crate::residence::{Residence, copied_array, not_in_memory};
use crate::result_buffer::ResultBuffer;
use crate::zone::ZoneMap;
use arrow_array::ArrayRef;
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow_schema::DataType;
use farpool_model::limits::{LARGE_GROUP_BYTES, LARGE_GROUP_ROWS};
use farpool_model::{Error, Result, schema};
use std::any::Any;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Heap bytes that are counted for a chunk: the struct, its reference count, and the headers of a few buffers.
const CHUNK_HEADER_BYTES: usize = size_of::<Chunk>() + 256;

/// An id that is unique within this process. It is assigned when it is first read.
#[derive(Debug, Default)]
pub(crate) struct ProcessUniqueId(OnceLock<u64>);

impl ProcessUniqueId {
    pub fn get(&self) -> u64 {
        static LAST: AtomicU64 = AtomicU64::new(0);
        *self.0.get_or_init(|| LAST.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

/// Location of the durable copy of a chunk, in a form that only the store which wrote it understands.
pub type Location = Arc<dyn Any + Send + Sync>;

/// One column of one row group, encoded and immutable. The values are in the pool, or (for a handle) may be on disk
/// only.
#[derive(Debug)]
pub struct Chunk {
    data_type: DataType,
    rows: usize,
    /// Bitmap of the rows that are not NULL; `None` when no row is NULL, and for a constant.
    validity: Option<BooleanBuffer>,
    zone: ZoneMap,
    pub(crate) body: Body,
    bytes_encoded: usize,
    bytes_plain: usize,
    location: OnceLock<Location>,
    number: ProcessUniqueId,
    /// Set for a chunk whose values are lost: the error that readers of the values get.
    damage: Option<Box<Error>>,
    /// Set for a handle: the state of its values, which are in another chunk while they are in memory.
    residence: Option<Box<Residence>>,
    /// Set for an encrypted chunk: its encrypted values and, in `facts`, its encrypted minimum, maximum and other
    /// properties.
    hidden: Option<Box<EncryptedValues>>,
    facts: Option<Arc<EncryptedBounds>>,
    /// Whether the chunk is in memory that should be freed soon. Decoded arrays are then copies, so that they do not
    /// keep that memory in use.
    is_passing: bool,
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
        let (location, number) = (OnceLock::new(), ProcessUniqueId::default());
        let (damage, residence, is_passing, hidden, facts) = (None, None, false, None, None);
        Chunk {
            data_type,
            rows,
            validity,
            zone,
            body,
            bytes_encoded,
            bytes_plain,
            location,
            number,
            damage,
            residence,
            hidden,
            facts,
            is_passing,
        }
    }

    /// Marks the chunk as being in memory that should be freed soon, so that decoded arrays do not share that memory.
    #[must_use]
    pub fn passing(self) -> Chunk {
        Chunk { is_passing: true, ..self }
    }

    pub(crate) fn is_passing(&self) -> bool {
        self.is_passing
    }

    /// Copies a decoded array to its own memory if it may share the chunk's memory and that should be freed soon.
    fn own(&self, array: ArrayRef) -> Result<ArrayRef> {
        let may_share = match self.body.kind() {
            EncodingKind::Plain | EncodingKind::Dictionary | EncodingKind::PlainBytes => true,
            EncodingKind::Constant | EncodingKind::BitPacked | EncodingKind::Fsst => false,
        };
        if self.is_passing && may_share { copied_array(&array) } else { Ok(array) }
    }

    pub(crate) fn with_residence(self, residence: Residence) -> Chunk {
        let bytes_encoded = residence.bytes_encoded();
        Chunk { bytes_encoded, residence: Some(Box::new(residence)), ..self }
    }

    pub(crate) fn with_hidden(self, hidden: EncryptedValues) -> Chunk {
        Chunk { bytes_encoded: hidden.bytes.len(), hidden: Some(Box::new(hidden)), ..self }
    }

    pub(crate) fn with_facts(self, facts: Arc<EncryptedBounds>) -> Chunk {
        Chunk { facts: Some(facts), ..self }
    }

    pub(crate) fn hidden(&self) -> Option<&EncryptedValues> {
        self.hidden.as_deref()
    }

    pub(crate) fn facts(&self) -> Option<&Arc<EncryptedBounds>> {
        self.facts.as_ref()
    }

    /// Decrypts the minimum, maximum and other properties of an encrypted chunk; `None` if the chunk is not encrypted.
    /// All properties are unknown if their bytes were tampered with.
    pub(crate) fn open_facts(&self) -> Option<DecryptedBounds> {
        self.facts.as_ref().map(|facts| facts.open(&self.data_type).unwrap_or_default())
    }

    pub(crate) fn residence(&self) -> Option<&Residence> {
        self.residence.as_deref()
    }

    /// Sets the minimum and maximum, which must be those of the values.
    pub(crate) fn with_zone(self, zone: ZoneMap) -> Chunk {
        Chunk { zone, ..self }
    }

    /// Returns the canonical type of the values.
    pub fn data_type(&self) -> &DataType {
        &self.data_type
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    pub(crate) fn with_damage(self, damage: Error) -> Chunk {
        Chunk { damage: Some(Box::new(damage)), ..self }
    }

    /// Checks that the values are in memory in the clear. Code that works on the encoded form must call this first;
    /// functions that return values do so themselves.
    ///
    /// # Errors
    /// `Corrupt` if the chunk's durable copy was corrupt; `Internal` for a handle and for an encrypted chunk.
    pub fn check_intact(&self) -> Result<()> {
        if self.is_handle() || self.hidden.is_some() {
            return Err(not_in_memory());
        }
        self.damage.as_ref().map_or(Ok(()), |damage| Err(Error::clone(damage)))
    }

    /// Returns where the durable copy of the chunk is; empty until it has been written.
    pub fn location(&self) -> &OnceLock<Location> {
        &self.location
    }

    /// Returns the id of the chunk, which no other chunk of this process has.
    pub fn number(&self) -> u64 {
        self.number.get()
    }

    /// Returns the number of NULLs.
    pub fn null_count(&self) -> usize {
        self.zone.null_count
    }

    /// Returns the size of the encoded form, in bytes.
    pub fn bytes_encoded(&self) -> usize {
        self.bytes_encoded
    }

    /// Returns the size of the values as a plain Arrow array (strings with 32-bit offsets), in bytes.
    pub fn bytes_plain(&self) -> usize {
        self.bytes_plain
    }

    /// Returns the minimum, the maximum and the number of NULLs; decrypts them for an encrypted chunk.
    pub fn zone(&self) -> Cow<'_, ZoneMap> {
        match self.open_facts() {
            Some(open) => Cow::Owned(ZoneMap { null_count: self.zone.null_count, ..open.zone }),
            None => Cow::Borrowed(&self.zone),
        }
    }

    /// Returns the zone map without decrypting anything: an encrypted chunk has only the number of NULLs in it.
    pub(crate) fn clear_zone(&self) -> &ZoneMap {
        &self.zone
    }

    /// Returns the encoding of the values.
    pub fn encoding(&self) -> EncodingKind {
        let hidden = self.hidden().map(EncryptedValues::kind);
        hidden.or_else(|| self.residence().map(Residence::kind)).unwrap_or_else(|| self.body.kind())
    }

    /// Decodes the values of `rows` to an Arrow array of the chunk's type. The array shares the pool's memory, and
    /// keeps it in use, if the chunk is a dictionary, has plain strings or plain values, or is a constant string; in
    /// other cases the values are copied.
    ///
    /// # Errors
    /// `Invalid` when the chunk does not have these rows.
    pub fn decode(&self, rows: Range<usize>) -> Result<ArrayRef> {
        self.check_rows(&rows)?;
        self.own(crate::decode::decode(self, rows)?)
    }

    fn check_rows(&self, rows: &Range<usize>) -> Result<()> {
        self.check_intact()?;
        if rows.start > rows.end || rows.end > self.rows {
            return Err(Error::invalid(format!("rows {rows:?} of a chunk of {}", self.rows)));
        }
        Ok(())
    }

    /// Decodes values as [`Self::decode`] does, but into the memory of `room`, which is reused.
    ///
    /// # Errors
    /// Errors of [`Chunk::decode`].
    pub fn decode_in(&self, rows: Range<usize>, room: &mut ResultBuffer) -> Result<ArrayRef> {
        self.check_rows(&rows)?;
        self.own(crate::decode::decode_in(self, rows, room)?)
    }

    /// Decodes the values of the given rows, in the order given; ascending rows are fastest. The cost is proportional
    /// to the number of rows, and at most that of decoding the blocks of 1024 rows that contain them.
    ///
    /// # Errors
    /// `Invalid` when the chunk does not have one of the rows.
    pub fn gather(&self, rows: &[u32]) -> Result<ArrayRef> {
        self.check_intact()?;
        if let Some(row) = rows.iter().find(|row| **row as usize >= self.rows) {
            return Err(Error::invalid(format!("row {row} of a chunk of {}", self.rows)));
        }
        self.own(crate::gather::gather(self, rows)?)
    }

    /// Returns the rows whose bits are set as a new chunk with the same encoding, on the heap; bit 0 is row 0. The new
    /// chunk has no minimum and maximum. Costs a fraction of decoding the rows and encoding them again.
    ///
    /// # Errors
    /// `Invalid` when the number of words is not that of the chunk's rows, or a bit behind the last row is
    /// set.
    pub fn pick(&self, selected: &[u64]) -> Result<Chunk> {
        self.check_intact()?;
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

    /// Returns a bit for each of `rows`, set if the row is not NULL. `None` when no row of the chunk is NULL.
    ///
    /// # Panics
    /// When the chunk does not have these rows.
    pub fn validity(&self, rows: Range<usize>) -> Option<BooleanBuffer> {
        if self.is_null_constant() {
            return Some(BooleanBuffer::new_unset(rows.len()));
        }
        self.validity.as_ref().map(|bits| bits.slice(rows.start, rows.len()))
    }

    /// Returns the values in bit-packed form. `None` unless the chunk holds integers, decimals, dates or timestamps
    /// that all fit a signed 64-bit integer, at least one of them not NULL.
    pub fn integers(&self) -> Option<Integers<'_>> {
        match &self.body {
            Body::BitPacked(packed) => Some(Integers::new(packed)),
            Body::Constant { number: Some(packed), .. } if schema::is_integer_like(&self.data_type) => {
                Some(Integers::new(packed))
            }
            _ => None,
        }
    }

    /// Returns the values of a chunk of floats; `None` for other types, and for a constant.
    pub fn floats(&self) -> Option<Floats<'_>> {
        match &self.body {
            Body::Plain { values } => Floats::new(values, &self.data_type),
            _ => None,
        }
    }

    /// Returns the distinct values and the dictionary code of each row; `None` unless the chunk is a dictionary or a
    /// constant string.
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

    /// Returns the null buffer of `rows` for an Arrow array; `None` if no row is NULL.
    pub(crate) fn nulls(&self, rows: Range<usize>) -> Option<NullBuffer> {
        let mut bits = self.validity.as_ref()?.slice(rows.start, rows.len());
        if self.is_passing {
            bits = BooleanBuffer::new(Buffer::from_slice_ref(bits.sliced().as_slice()), 0, rows.len());
        }
        Some(NullBuffer::new(bits)).filter(|nulls| nulls.null_count() > 0)
    }

    pub(crate) fn validity_bits(&self) -> Option<&BooleanBuffer> {
        self.validity.as_ref()
    }

    /// Returns a chunk with the same buffers and without a location. The chunk must have just been encoded: it must not
    /// be a handle.
    pub fn shared(&self) -> Chunk {
        let (data_type, zone, body) = (self.data_type.clone(), self.zone.clone(), self.body.clone());
        let (hidden, facts) = (self.hidden.clone(), self.facts.clone());
        let chunk = Chunk::new(data_type, self.rows, self.validity.clone(), zone, body, self.bytes_plain);
        Chunk {
            hidden,
            facts,
            bytes_encoded: self.bytes_encoded,
            damage: self.damage.clone(),
            is_passing: self.is_passing,
            ..chunk
        }
    }

    pub(crate) fn map_buffers(mut self, map: &mut dyn FnMut(&Buffer) -> Buffer) -> Chunk {
        if let Some(hidden) = &mut self.hidden {
            hidden.bytes = map(&hidden.bytes);
            return self;
        }
        let validity = self.validity.map(|bits| BooleanBuffer::new(map(bits.inner()), 0, self.rows));
        let body = self.body.map_buffers(&self.data_type, map);
        Chunk { validity, body, ..self }
    }
}

/// A dictionary-encoded chunk: its distinct strings, and a code for each row.
#[derive(Clone, Copy, Debug)]
pub struct Dictionary<'a> {
    values: &'a ArrayRef,
    codes: Integers<'a>,
}

impl<'a> Dictionary<'a> {
    /// Returns the distinct values in bytewise order, none of them NULL. Codes therefore compare as their values do.
    pub fn values(&self) -> &'a ArrayRef {
        self.values
    }

    /// Returns for each row the position of its value in [`Dictionary::values`]; the code of a NULL row is arbitrary.
    pub fn codes(&self) -> Integers<'a> {
        self.codes
    }
}

/// Returns whether a row group with this many rows and bytes of plain values is large. Large row groups are not merged
/// any more, and their values may be evicted.
pub fn is_large(rows: usize, bytes_plain: usize) -> bool {
    rows >= LARGE_GROUP_ROWS || bytes_plain >= LARGE_GROUP_BYTES
}

/// Consecutive rows of a table: one chunk for each column.
#[derive(Debug)]
pub struct RowGroup {
    /// Number of rows, at most [`farpool_model::limits::ROW_GROUP_ROWS`].
    pub rows: usize,
    /// A chunk for each column of the schema.
    pub chunks: Vec<Arc<Chunk>>,
}

impl RowGroup {
    /// Returns the size of the encoded chunks, in bytes.
    pub fn bytes_encoded(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.bytes_encoded()).sum()
    }

    /// Returns the bytes that the row group takes outside the pool: for each chunk a header, its minimum and its
    /// maximum.
    pub fn bytes_outside_pool(&self) -> usize {
        let of_handle =
            |chunk: &Chunk| chunk.residence().map_or(0, |held| held.bytes_held() + chunk.zone.bytes_held());
        let of_facts = |chunk: &Chunk| {
            chunk.facts().map_or(0, |facts| facts.bytes_held() + size_of::<EncryptedValues>())
        };
        let of_chunk =
            |chunk: &Chunk| CHUNK_HEADER_BYTES + chunk.zone.bytes_held() + of_handle(chunk) + of_facts(chunk);
        self.chunks.iter().map(|chunk| of_chunk(chunk)).sum()
    }

    /// Returns the size of the chunks as plain Arrow arrays, in bytes.
    pub fn bytes_plain(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.bytes_plain()).sum()
    }
}
