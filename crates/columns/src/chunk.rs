//! A chunk: one encoded column of one row group, and the operations on it.

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

/// Heap bytes counted for a chunk: the chunk itself, its reference count, and a header for each of a few
/// buffers.
const CHUNK_HEADER_BYTES: usize = size_of::<Chunk>() + 256;

/// A number that nothing else of this process has, drawn when it is first asked for.
#[derive(Debug, Default)]
pub(crate) struct ProcessUniqueId(OnceLock<u64>);

impl ProcessUniqueId {
    pub fn get(&self) -> u64 {
        static LAST: AtomicU64 = AtomicU64::new(0);
        *self.0.get_or_init(|| LAST.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

/// Location of the durable copy of a chunk, in a form that only its owner interprets.
pub type Location = Arc<dyn Any + Send + Sync>;

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
    location: OnceLock<Location>,
    number: ProcessUniqueId,
    /// Why the values are lost, if they are.
    damage: Option<Box<Error>>,
    /// Set for a handle, whose values are in another chunk.
    residence: Option<Box<Residence>>,
    /// Set for an encrypted chunk: its encrypted values, and its encrypted bounds.
    hidden: Option<Box<EncryptedValues>>,
    facts: Option<Arc<EncryptedBounds>>,
    /// Whether the chunk is in memory that is wanted back: arrays that leave it are then copies.
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

    /// Returns the chunk, which is in memory that is wanted back.
    #[must_use]
    pub fn passing(self) -> Chunk {
        Chunk { is_passing: true, ..self }
    }

    pub(crate) fn is_passing(&self) -> bool {
        self.is_passing
    }

    /// Returns an array of decoded values in memory of its own, where it may share that of the chunk and must not.
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

    /// Decrypts the properties of an encrypted chunk; all are unknown if its bytes were tampered with.
    pub(crate) fn open_facts(&self) -> Option<DecryptedBounds> {
        self.facts.as_ref().map(|facts| facts.open(&self.data_type).unwrap_or_default())
    }

    pub(crate) fn residence(&self) -> Option<&Residence> {
        self.residence.as_deref()
    }

    /// Returns the chunk with the bounds `zone`, which must be those of its values.
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

    /// Checks that the values are available. Code that works on the encoded form must call this first; functions that
    /// return values do so themselves.
    ///
    /// # Errors
    /// `Corrupt` if the chunk's durable copy was damaged; `Internal` for a handle, and while the values are encrypted.
    pub fn check_intact(&self) -> Result<()> {
        if self.is_handle() || self.hidden.is_some() {
            return Err(not_in_memory());
        }
        self.damage.as_ref().map_or(Ok(()), |damage| Err(Error::clone(damage)))
    }

    /// Returns the durable copy of the chunk; empty where there is none yet.
    pub fn location(&self) -> &OnceLock<Location> {
        &self.location
    }

    /// Returns a number that no other chunk of this process has.
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

    /// Returns the bounds of the values.
    pub fn zone(&self) -> Cow<'_, ZoneMap> {
        match self.open_facts() {
            Some(open) => Cow::Owned(ZoneMap { null_count: self.zone.null_count, ..open.zone }),
            None => Cow::Borrowed(&self.zone),
        }
    }

    /// Returns the bounds that are in memory in the clear.
    pub(crate) fn clear_zone(&self) -> &ZoneMap {
        &self.zone
    }

    /// Returns the encoding of the values.
    pub fn encoding(&self) -> EncodingKind {
        let hidden = self.hidden().map(EncryptedValues::kind);
        hidden.or_else(|| self.residence().map(Residence::kind)).unwrap_or_else(|| self.body.kind())
    }

    /// Decodes the values of `rows` to an Arrow array of the chunk's type. Strings of a dictionary, of plain
    /// bytes and of a constant, and plain values of fixed width, are not copied: the array keeps the pages
    /// alive.
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

    /// Decodes values as [`Self::decode`] does, but into `room`, which saves allocating fresh memory.
    ///
    /// # Errors
    /// Errors of [`Chunk::decode`].
    pub fn decode_in(&self, rows: Range<usize>, room: &mut ResultBuffer) -> Result<ArrayRef> {
        self.check_rows(&rows)?;
        self.own(crate::decode::decode_in(self, rows, room)?)
    }

    /// Returns the values of the given rows, in their order; ascending rows are cheapest. The cost is proportional to
    /// the number of rows, and at most that of decoding the blocks of 1024 that contain them.
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

    /// Returns the rows whose bits are set as a chunk of the same encoding on the heap; bit 0 is row 0. The
    /// new chunk has no bounds. Costs a fraction of gathering the values and encoding them again.
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

    /// Returns the values as integers, if the chunk holds integers, decimals, dates or timestamps that all
    /// fit a signed 64-bit integer, and at least one is not NULL.
    pub fn integers(&self) -> Option<Integers<'_>> {
        match &self.body {
            Body::BitPacked(packed) => Some(Integers::new(packed)),
            Body::Constant { number: Some(packed), .. } if schema::is_integer_like(&self.data_type) => {
                Some(Integers::new(packed))
            }
            _ => None,
        }
    }

    /// Returns the values as floats, if the chunk holds floats that are not all equal.
    pub fn floats(&self) -> Option<Floats<'_>> {
        match &self.body {
            Body::Plain { values } => Floats::new(values, &self.data_type),
            _ => None,
        }
    }

    /// Returns the distinct values and a code for each row, if the chunk is a dictionary or a constant
    /// string.
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

    /// Returns the same chunk with `map` applied to each buffer; `map` must keep the bytes and their
    /// alignment.
    /// The same chunk, with the same buffers, for one that was just encoded: no handle, and without a location.
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

/// The distinct strings of a chunk, and a code for each row.
#[derive(Clone, Copy, Debug)]
pub struct Dictionary<'a> {
    values: &'a ArrayRef,
    codes: Integers<'a>,
}

impl<'a> Dictionary<'a> {
    /// Returns the distinct values, none of them NULL, in bytewise order: codes compare as the values do.
    pub fn values(&self) -> &'a ArrayRef {
        self.values
    }

    /// Returns for each row the position of its value in [`Dictionary::values`]; the code of a NULL row is arbitrary.
    pub fn codes(&self) -> Integers<'a> {
        self.codes
    }
}

/// Returns whether a row group with this many rows and bytes of plain values is large: large ones are not merged any
/// more, and their values may be evicted.
pub fn is_large(rows: usize, bytes_plain: usize) -> bool {
    rows >= LARGE_GROUP_ROWS || bytes_plain >= LARGE_GROUP_BYTES
}

/// All columns of a range of consecutive rows of a table.
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

    /// Bytes that the row group takes outside the pool: a header and bounds for each chunk.
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
