//! Handles: chunks whose values may be evicted from memory.
//!
//! A table may have a *handle* in place of a chunk. A handle has the type, the minimum and maximum, and the sizes of
//! the chunk. It has the values, in another chunk, while they are in memory; otherwise a [`ValueSource`] can read them
//! again. Code that processes values takes the chunk that has them ([`RowGroup::with_values`]). That chunk stays in
//! memory while it is held, even if the handle's values are evicted. Versions of a table, and statements that read
//! them, therefore hold handles and no pages of the pool.
//!
//! Example: a scan holds the chunk of row group 3 when the cache evicts its values. From then on the handle has no
//! values; the scan continues with its chunk, and the memory is freed when the scan drops it.

use crate::arena::OWN_BYTES_MIN;
use crate::body::{Body, EncodingKind};
use crate::chunk::{Chunk, RowGroup};
use crate::encrypted::{DICTIONARY_BYTES_MAX, DecryptedBounds, EncryptedBounds};
use crate::outline::Outline;
use crate::views;
use crate::zone::ZoneMap;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, make_array};
use arrow_buffer::{BooleanBuffer, Buffer};
use arrow_data::transform::MutableArrayData;
use arrow_schema::DataType;
use farpool_cipher::MemoryCipher;
use farpool_model::{Error, Residency, Result, TenantName};
use parking_lot::Mutex;
use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

/// Maximum of the number of uses that is counted for a handle's values.
const USES_MAX: u8 = 3;

/// Reads the values of handles from disk.
pub trait ValueSource: fmt::Debug + Send + Sync {
    /// Returns the tenant that the memory of the values is counted for.
    fn tenant(&self) -> &TenantName;

    /// Returns the bytes that are read from disk for the values of `handle`, which must be of this source.
    fn bytes_on_disk(&self, handle: &Chunk) -> usize {
        handle.bytes_encoded()
    }

    /// Called when a query begins to process the values of `handle`, which is of this source.
    fn used(&self, _handle: &Chunk) {}

    /// Starts reading the values of `handles`, all of which must be of this source, on another thread. Does not block;
    /// calls [`ValueReader::arrived`] of `reader` at the end.
    fn fetch(&self, handles: Vec<Arc<Chunk>>, reader: Box<dyn ValueReader>);
}

/// A query that waits for the values of handles.
pub trait ValueReader: Send {
    /// Returns whether the values are still wanted.
    fn is_waiting(&self) -> bool;

    /// Returns whether the values were read for this query before and evicted before it used them: this time they must
    /// stay.
    fn is_urgent(&self) -> bool {
        false
    }

    /// Called before any of the values is read, with those handles whose values nobody else waits for.
    fn asked_first(&self, _handles: &[Arc<Chunk>]) {}

    /// Called once, on any thread, when the values are in memory, or with the error if they cannot be read. The values
    /// stay in memory until the [`HeldValues`] are dropped, or memory becomes very short.
    fn arrived(self: Box<Self>, outcome: Result<HeldValues>);
}

/// Keeps values in memory that were read and are not used yet; dropping it allows their eviction.
pub type HeldValues = Arc<dyn Any + Send + Sync>;

/// State of a chunk that is a handle.
#[derive(Debug)]
pub(crate) struct Residence {
    source: Arc<dyn ValueSource>,
    outline: Outline,
    /// Copy of the dictionary entries if they are small (see [`DICTIONARY_BYTES_MAX`]): planning can read them when the
    /// values are not in memory.
    dictionary: OnceLock<ArrayRef>,
    values: Mutex<Option<Arc<Chunk>>>,
    /// Whether the values have been in memory at any time.
    came: AtomicBool,
    uses: AtomicU8,
    residency: AtomicU8,
}

/// Values of `residency`, the eviction policy of the handle; see [`farpool_model::Residency`].
const CACHED: u8 = 0;
const PINNED: u8 = 1;
const PASSING: u8 = 2;

impl Chunk {
    /// Returns a handle that has the values of `chunk` in memory. Returns `chunk` itself if it is a handle already, has
    /// a location on disk, has lost its values, or is so small that it is never evicted.
    pub fn handle(chunk: Arc<Chunk>, source: &Arc<dyn ValueSource>) -> Arc<Chunk> {
        let is_small = chunk.bytes_encoded() < OWN_BYTES_MIN || chunk.encoding() == EncodingKind::Constant;
        let is_lost = !chunk.is_encrypted() && chunk.check_intact().is_err();
        if is_small || chunk.is_handle() || chunk.location().get().is_some() || is_lost {
            return chunk;
        }
        let handle = Chunk::of_outline(Outline::of(&chunk), chunk.clear_zone().clone(), source.clone());
        let handle = match chunk.facts() {
            Some(facts) => handle.with_facts(facts.clone()),
            None => handle,
        };
        handle.put_values(chunk);
        Arc::new(handle)
    }

    /// Creates a handle without values from the head of an image; `None` if [`Chunk::handle`] would not make a handle
    /// of such a chunk. With a cipher, that of an encrypted table, the minimum and maximum are encrypted.
    ///
    /// # Errors
    /// `Corrupt` when the head is not that of a chunk.
    pub fn absent(
        head: &[u8],
        source: &Arc<dyn ValueSource>,
        cipher: Option<&Arc<MemoryCipher>>,
    ) -> Result<Option<Chunk>> {
        let (outline, zone) = Outline::of_head(head)?;
        if outline.bytes_encoded < OWN_BYTES_MIN || outline.kind == EncodingKind::Constant {
            return Ok(None);
        }
        let Some(cipher) = cipher else {
            return Ok(Some(Chunk::of_outline(outline, zone, source.clone())));
        };
        let null_count = zone.null_count;
        let (integers, distinct) = (outline.integers, outline.distinct);
        let facts =
            EncryptedBounds::new(cipher, &DecryptedBounds { zone, integers, distinct, dictionary: None })?;
        let outline = Outline { integers: None, distinct: None, ..outline };
        let zone = ZoneMap { null_count, ..ZoneMap::default() };
        Ok(Some(Chunk::of_outline(outline, zone, source.clone()).with_facts(facts)))
    }

    /// Encodes the type, minimum, maximum and sizes, from which [`Chunk::outlined`] creates a handle. Returns `None` if
    /// the chunk is so small that [`Chunk::handle`] would not make it a handle.
    ///
    /// # Errors
    /// `Invalid` for an encrypted chunk, because its minimum and maximum must not be written in the clear.
    pub fn to_outline(&self) -> Result<Option<Vec<u8>>> {
        if self.is_encrypted() {
            return Err(Error::invalid("a chunk that is encrypted in memory has no outline in the clear"));
        }
        let outline = Outline::of(self);
        let is_small = outline.bytes_encoded < OWN_BYTES_MIN || outline.kind == EncodingKind::Constant;
        Ok((!is_small).then(|| outline.write(self.clear_zone())))
    }

    /// Creates a handle without values from the output of [`Chunk::to_outline`].
    ///
    /// # Errors
    /// `Corrupt` for bytes that are not an outline.
    pub fn outlined(outline: &[u8], source: &Arc<dyn ValueSource>) -> Result<Chunk> {
        let (outline, zone) = Outline::read(outline)?;
        Ok(Chunk::of_outline(outline, zone, source.clone()))
    }

    fn of_outline(outline: Outline, zone: ZoneMap, source: Arc<dyn ValueSource>) -> Chunk {
        let nothing = Body::nulls(&outline.data_type);
        Chunk::without_values(outline, zone, source, nothing)
    }

    /// Creates a handle without values. `body` is a placeholder that is never read.
    pub(crate) fn without_values(
        outline: Outline,
        zone: ZoneMap,
        source: Arc<dyn ValueSource>,
        body: Body,
    ) -> Chunk {
        let (dictionary, values, uses) = (OnceLock::new(), Mutex::new(None), AtomicU8::new(0));
        let residency = AtomicU8::new(CACHED);
        let (data_type, rows, bytes_plain) = (outline.data_type.clone(), outline.rows, outline.bytes_plain);
        let came = AtomicBool::new(false);
        let residence = Residence { source, outline, dictionary, values, came, uses, residency };
        Chunk::new(data_type, rows, None, zone, body, bytes_plain).with_residence(residence)
    }

    /// Returns whether the chunk is a handle.
    pub fn is_handle(&self) -> bool {
        self.residence().is_some()
    }

    /// Returns the tenant that the memory of a handle's values is counted for; `None` for other chunks.
    pub fn tenant(&self) -> Option<&TenantName> {
        self.residence().map(|residence| residence.source.tenant())
    }

    /// Returns the bytes that are read from disk for the values of a handle; 0 for other chunks.
    pub fn bytes_on_disk(&self) -> usize {
        self.residence().map_or(0, |residence| residence.source.bytes_on_disk(self))
    }

    /// Returns the chunk that has the values: for a handle `None` if they are not in memory, for other chunks the chunk
    /// itself.
    pub fn values(self: &Arc<Self>) -> Option<Arc<Chunk>> {
        match self.residence() {
            Some(residence) => residence.values.lock().clone(),
            None => Some(self.clone()),
        }
    }

    /// Returns whether the chunk is a handle whose values are not in memory.
    pub fn is_absent(&self) -> bool {
        self.residence().is_some_and(|residence| residence.values.lock().is_none())
    }

    /// Returns whether the chunk is a handle whose values are in memory, or were and have been evicted.
    pub fn has_come(&self) -> bool {
        self.residence().is_some_and(|residence| residence.came.load(Ordering::Relaxed))
    }

    /// Gives a handle its values: `chunk` has them. Does nothing for other chunks.
    pub fn put_values(&self, chunk: Arc<Chunk>) {
        let Some(residence) = self.residence() else { return };
        if let Some(dictionary) = chunk.dictionary()
            && dictionary.values().get_buffer_memory_size() <= DICTIONARY_BYTES_MAX
        {
            let copy = || {
                views::moved(dictionary.values(), &self.data_type().clone(), &mut |buffer| {
                    Buffer::from_slice_ref(buffer)
                })
            };
            residence.dictionary.get_or_init(copy);
        }
        residence.uses.store(0, Ordering::Relaxed);
        residence.came.store(true, Ordering::Relaxed);
        let before = residence.values.lock().replace(chunk);
        drop(before);
    }

    /// Evicts the values of a handle and returns the chunk that has them. The memory is freed when nobody holds that
    /// chunk any more.
    pub fn take_values(&self) -> Option<Arc<Chunk>> {
        self.residence()?.values.lock().take()
    }

    /// Returns whether anybody holds the values of a handle at present.
    pub fn is_in_use(&self) -> bool {
        let is_shared = |residence: &Residence| {
            residence.values.lock().as_ref().is_some_and(|chunk| Arc::strong_count(chunk) > 1)
        };
        self.residence().is_some_and(is_shared)
    }

    /// Sets the eviction policy for the values of a handle.
    pub fn set_residency(&self, residency: Residency) {
        let state = match residency {
            Residency::Cached => CACHED,
            Residency::Pinned => PINNED,
            Residency::Passing => PASSING,
        };
        if let Some(residence) = self.residence() {
            residence.residency.store(state, Ordering::Relaxed);
        }
    }

    /// Returns whether the chunk is a handle whose values must stay once they are in memory.
    pub fn is_pinned(&self) -> bool {
        self.residence().is_some_and(|residence| residence.residency.load(Ordering::Relaxed) == PINNED)
    }

    /// Returns whether the chunk is a handle whose values should be evicted soon, because no query has used them yet.
    pub fn is_to_leave(&self) -> bool {
        self.residence().is_some_and(|residence| residence.residency.load(Ordering::Relaxed) == PASSING)
    }

    /// Counts one use of the values of a handle.
    pub fn count_use(&self) {
        if let Some(residence) = self.residence() {
            // Values that a query uses have the policy of cached values from now on.
            let _ =
                residence.residency.compare_exchange(PASSING, CACHED, Ordering::Relaxed, Ordering::Relaxed);
            let more = |uses: u8| (uses < USES_MAX).then_some(uses + 1);
            // An error means that the count is at its maximum, where it stays.
            let _ = residence.uses.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
            residence.source.used(self);
        }
    }

    /// Returns the number of uses of a handle's values since they came into memory, minus those removed by
    /// [`Chunk::take_use`]; at most a few.
    pub fn uses(&self) -> u8 {
        self.residence().map_or(0, |residence| residence.uses.load(Ordering::Relaxed))
    }

    /// Returns the number of uses as [`Chunk::uses`] does, and decrements it.
    pub fn take_use(&self) -> u8 {
        let Some(residence) = self.residence() else { return 0 };
        residence
            .uses
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |uses| uses.checked_sub(1))
            .unwrap_or(0)
    }

    /// Returns the minimum and maximum of [`Chunk::integers`], also if the values are not in memory; `None` for a chunk
    /// without them.
    pub fn integer_bounds(&self) -> Option<(i64, i64)> {
        match (self.open_facts(), self.residence()) {
            (Some(open), _) => open.integers,
            (None, Some(residence)) => residence.outline.integers,
            (None, None) => self.integers().map(|integers| (integers.min(), integers.max())),
        }
    }

    /// Returns the number of dictionary entries; `None` for a chunk without a dictionary.
    pub fn dictionary_len(&self) -> Option<usize> {
        match (self.open_facts(), self.residence()) {
            (Some(open), _) => open.distinct,
            (None, Some(residence)) => residence.outline.distinct,
            (None, None) => self.dictionary().map(|dictionary| dictionary.values().len()),
        }
    }

    /// Returns the dictionary entries; `None` for a chunk without a dictionary, and if the entries are not in memory.
    /// Small dictionaries that are not encrypted stay in memory when the values are evicted. Large ones that are
    /// encrypted are never returned.
    pub fn dictionary_values(self: &Arc<Self>) -> Option<ArrayRef> {
        if self.is_encrypted() {
            // The handle may have been created without its dictionary, so that the chunk with the values is read.
            return self.values()?.open_facts()?.dictionary;
        }
        let kept = self.residence().and_then(|residence| residence.dictionary.get());
        kept.cloned().or_else(|| {
            let values = self.values()?;
            let dictionary = values.dictionary()?;
            // A plan may keep the dictionary for long, so that it gets a copy if the chunk's memory should be freed
            // soon.
            if values.is_passing() {
                copied_array(dictionary.values()).ok()
            } else {
                Some(dictionary.values().clone())
            }
        })
    }
}

impl Residence {
    pub fn kind(&self) -> EncodingKind {
        self.outline.kind
    }

    pub fn bytes_encoded(&self) -> usize {
        self.outline.bytes_encoded
    }

    /// Returns the bytes on the heap, in addition to those that every chunk takes.
    pub fn bytes_held(&self) -> usize {
        let has_small = self
            .outline
            .distinct
            .is_some_and(|distinct| size_of::<u128>() * distinct <= DICTIONARY_BYTES_MAX);
        let dictionary = if has_small { 2 * DICTIONARY_BYTES_MAX } else { 0 };
        size_of::<Residence>() + size_of::<Chunk>() + dictionary
    }
}

impl RowGroup {
    /// Returns the row group with the values of `columns` in memory, encrypted ones decrypted into heap memory. Returns
    /// `Ok(None)` if the row group itself has all of them.
    ///
    /// # Errors
    /// If values of `columns` are not in memory, the error is the list of the handles that lack them.
    pub fn with_values(
        &self,
        columns: impl Iterator<Item = usize> + Clone,
    ) -> std::result::Result<Option<RowGroup>, Vec<Arc<Chunk>>> {
        let is_here = |chunk: &Chunk| !chunk.is_handle() && !chunk.is_encrypted();
        if columns.clone().all(|column| is_here(&self.chunks[column])) {
            return Ok(None);
        }
        let chunks_of = || columns.clone().map(|column| &self.chunks[column]);
        // Absent values are checked first, since decrypting some chunks would be wasted work if the values of others
        // are missing.
        let absent: Vec<Arc<Chunk>> = chunks_of().filter(|chunk| chunk.is_absent()).cloned().collect();
        if !absent.is_empty() {
            return Err(absent);
        }
        let mut chunks = self.chunks.clone();
        for column in columns {
            // The values may have been evicted since they were checked above.
            let values = self.chunks[column].values().ok_or_else(|| vec![self.chunks[column].clone()])?;
            chunks[column] = values.opened().map_or(values, Arc::new);
        }
        Ok(Some(RowGroup { rows: self.rows, chunks }))
    }

    /// Returns the row group as [`RowGroup::with_values`] does, for all columns, after reading values that are not in
    /// memory. Blocks on the disk.
    ///
    /// # Errors
    /// Errors of reading the values.
    pub fn read_values(&self) -> Result<Option<RowGroup>> {
        loop {
            let absent = match self.with_values(0..self.chunks.len()) {
                Ok(filled) => return Ok(filled),
                Err(absent) => absent,
            };
            let (sender, receiver) = std::sync::mpsc::sync_channel(1);
            fetch(absent, Box::new(Blocked(sender)));
            let lost = || Error::internal("nobody reads the values of a chunk");
            let kept = receiver.recv().map_err(|_| lost())??;
            if let Ok(filled) = self.with_values(0..self.chunks.len()) {
                return Ok(filled);
            }
            drop(kept);
        }
    }
}

impl Chunk {
    /// Copies the chunk to heap memory.
    fn copied(&self) -> Result<Chunk> {
        self.check_intact()?;
        let (data_type, rows) = (self.data_type().clone(), self.rows());
        let copy = &mut |buffer: &Buffer| Buffer::from_slice_ref(buffer);
        let validity = self.validity_bits().map(|bits| BooleanBuffer::new(copy(bits.inner()), 0, rows));
        let body = self.body.clone().map_buffers(&data_type, copy);
        Ok(Chunk::new(data_type, rows, validity, self.zone().into_owned(), body, self.bytes_plain()))
    }
}

impl RowGroup {
    /// Copies the row group to heap memory, so that it does not keep values of handles in memory.
    ///
    /// # Errors
    /// As [`Chunk::check_intact`].
    pub fn copied(&self) -> Result<RowGroup> {
        let chunks = self.chunks.iter().map(|chunk| chunk.copied().map(Arc::new)).collect::<Result<_>>()?;
        Ok(RowGroup { rows: self.rows, chunks })
    }
}

/// Copies an array to heap memory.
pub(crate) fn copied_array(array: &ArrayRef) -> Result<ArrayRef> {
    let array: ArrayRef = match array.data_type() {
        // Copies only those bytes that views point to.
        DataType::Utf8View => Arc::new(array.as_string_view().gc()),
        DataType::BinaryView => Arc::new(array.as_binary_view().gc()),
        _ => array.clone(),
    };
    let data = array.to_data();
    let mut copy = MutableArrayData::new(vec![&data], false, data.len());
    copy.try_extend(0, 0, data.len()).map_err(|error| Error::internal(error.to_string()))?;
    Ok(make_array(copy.freeze()))
}

/// Starts reading the values of `handles`, of which there must be at least one, by their source. Does not block.
pub fn fetch(handles: Vec<Arc<Chunk>>, reader: Box<dyn ValueReader>) {
    let source =
        handles.first().and_then(|handle| handle.residence()).map(|residence| residence.source.clone());
    match source {
        Some(source) => source.fetch(handles, reader),
        None => reader.arrived(Err(Error::internal("a chunk that is no handle has no values"))),
    }
}

/// A reader that unblocks a thread when values are in memory.
struct Blocked(std::sync::mpsc::SyncSender<Result<HeldValues>>);

impl ValueReader for Blocked {
    fn is_waiting(&self) -> bool {
        true
    }

    fn arrived(self: Box<Self>, outcome: Result<HeldValues>) {
        // Sending fails only if the thread has stopped waiting, which it does not.
        let _ = self.0.send(outcome);
    }
}

/// Returns the error for code that treats a handle as a chunk with values.
pub(crate) fn not_in_memory() -> Error {
    Error::internal("the values of a chunk are wanted that are not in memory")
}
