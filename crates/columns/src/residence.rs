//! Handles: chunks whose values may leave memory.
//!
//! A table may hold a *handle* instead of a chunk. A handle has the type, the bounds and the sizes of the chunk, and
//! the values while they are in memory; otherwise a [`ValueSource`] reads them again. Code that works on values takes
//! the chunk that has them ([`RowGroup::with_values`]), which stays in memory as long as it is held, even if the
//! handle's values are evicted. Versions of a table, and statements that read them, therefore hold handles rather than
//! pages of the pool.
//!
//! Example: a scan holds the chunk of row group 3 when the cache evicts it. The handle becomes absent at once, the scan
//! goes on with its chunk, and the memory is free when the scan drops it.

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

/// Uses of a handle's values are counted up to this.
const USES_MAX: u8 = 3;

/// Reads the values of handles.
pub trait ValueSource: fmt::Debug + Send + Sync {
    /// Returns the tenant whose memory the values take.
    fn tenant(&self) -> &TenantName;

    /// Bytes that are read from disk for the values of a handle of this source.
    fn bytes_on_disk(&self, handle: &Chunk) -> usize {
        handle.bytes_encoded()
    }

    /// Called when a query begins to process the values of a handle of this source.
    fn used(&self, _handle: &Chunk) {}

    /// Starts reading the values of `handles`, all of this source, into memory on another thread, and notifies
    /// `reader`.
    fn fetch(&self, handles: Vec<Arc<Chunk>>, reader: Box<dyn ValueReader>);
}

/// Waits for the values of handles.
pub trait ValueReader: Send {
    /// Returns whether they are still wanted.
    fn is_waiting(&self) -> bool;

    /// Returns whether they were read for it before and left before they were used, so that they must stay now.
    fn is_urgent(&self) -> bool {
        false
    }

    /// Called before any of them is read, with the handles for whose values no other reader waits.
    fn asked_first(&self, _handles: &[Arc<Chunk>]) {}

    /// Called once, by any thread, when the values are in memory, or with the reason why they cannot be. They stay
    /// there until the first is dropped, or memory becomes very short.
    fn arrived(self: Box<Self>, outcome: Result<HeldValues>);
}

/// Keeps values in memory that were read and have not been used yet.
pub type HeldValues = Arc<dyn Any + Send + Sync>;

/// Additional state of a chunk that is a handle.
#[derive(Debug)]
pub(crate) struct Residence {
    source: Arc<dyn ValueSource>,
    outline: Outline,
    /// The values of a small dictionary.
    dictionary: OnceLock<ArrayRef>,
    values: Mutex<Option<Arc<Chunk>>>,
    /// Whether they have ever been in memory.
    came: AtomicBool,
    uses: AtomicU8,
    residency: AtomicU8,
}

/// States of a handle's residency; see [`farpool_model::Residency`].
const CACHED: u8 = 0;
const PINNED: u8 = 1;
const PASSING: u8 = 2;

impl Chunk {
    /// Returns a handle that has the values of `chunk` in memory; `chunk` itself where that is a handle, has a home, or
    /// is so small that it always stays.
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

    /// Returns a handle without values from the head of an image, if one that [`Chunk::handle`] would make. Of a table
    /// that is encrypted in memory, its bounds are, too.
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

    /// Encodes the type, bounds and sizes from which [`Chunk::outlined`] creates a handle. `None` if the chunk is too
    /// small for [`Chunk::handle`] to make it a handle.
    ///
    /// # Errors
    /// `Invalid` for an encrypted chunk, whose bounds are encrypted, too.
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
    /// `Corrupt` for any other bytes.
    pub fn outlined(outline: &[u8], source: &Arc<dyn ValueSource>) -> Result<Chunk> {
        let (outline, zone) = Outline::read(outline)?;
        Ok(Chunk::of_outline(outline, zone, source.clone()))
    }

    fn of_outline(outline: Outline, zone: ZoneMap, source: Arc<dyn ValueSource>) -> Chunk {
        let nothing = Body::nulls(&outline.data_type);
        Chunk::without_values(outline, zone, source, nothing)
    }

    /// Returns a handle without values. `body` stands where these would be, and is never read.
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

    /// Returns the tenant whose memory the values of a handle take; `None` for other chunks.
    pub fn tenant(&self) -> Option<&TenantName> {
        self.residence().map(|residence| residence.source.tenant())
    }

    /// Bytes that are read from disk for the values of a handle; 0 for other chunks.
    pub fn bytes_on_disk(&self) -> usize {
        self.residence().map_or(0, |residence| residence.source.bytes_on_disk(self))
    }

    /// Returns the chunk that has the values: this one, unless it is a handle; `None` where they are not in memory.
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

    /// Returns whether the chunk is a handle whose values are in memory, or were and have left it.
    pub fn has_come(&self) -> bool {
        self.residence().is_some_and(|residence| residence.came.load(Ordering::Relaxed))
    }

    /// Gives a handle the chunk with its values.
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

    /// Evicts the values of a handle; they are freed once they are no longer in use.
    pub fn take_values(&self) -> Option<Arc<Chunk>> {
        self.residence()?.values.lock().take()
    }

    /// Returns whether the values of a handle are in use at present.
    pub fn is_in_use(&self) -> bool {
        let is_shared = |residence: &Residence| {
            residence.values.lock().as_ref().is_some_and(|chunk| Arc::strong_count(chunk) > 1)
        };
        self.residence().is_some_and(is_shared)
    }

    /// Sets the residency of the values of a handle.
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

    /// Returns whether the chunk is a handle whose values stay in memory once they are there.
    pub fn is_pinned(&self) -> bool {
        self.residence().is_some_and(|residence| residence.residency.load(Ordering::Relaxed) == PINNED)
    }

    /// Returns whether the chunk is a handle whose values are to leave memory, since no query has used them yet.
    pub fn is_to_leave(&self) -> bool {
        self.residence().is_some_and(|residence| residence.residency.load(Ordering::Relaxed) == PASSING)
    }

    /// Counts a use of the values of a handle.
    pub fn count_use(&self) {
        if let Some(residence) = self.residence() {
            // Values in use are cached from now on.
            let _ =
                residence.residency.compare_exchange(PASSING, CACHED, Ordering::Relaxed, Ordering::Relaxed);
            let more = |uses: u8| (uses < USES_MAX).then_some(uses + 1);
            // Fails only if the count has reached its maximum, where it stays.
            let _ = residence.uses.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
            residence.source.used(self);
        }
    }

    /// Returns the number of uses of a handle's values since they came, less those that were taken off, a few at most.
    pub fn uses(&self) -> u8 {
        self.residence().map_or(0, |residence| residence.uses.load(Ordering::Relaxed))
    }

    /// Returns the count as [`Chunk::uses`] does, and decrements it.
    pub fn take_use(&self) -> u8 {
        let Some(residence) = self.residence() else { return 0 };
        residence
            .uses
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |uses| uses.checked_sub(1))
            .unwrap_or(0)
    }

    /// Returns the least and the greatest of the integers in their encoded form, as [`Chunk::integers`] has them.
    pub fn integer_bounds(&self) -> Option<(i64, i64)> {
        match (self.open_facts(), self.residence()) {
            (Some(open), _) => open.integers,
            (None, Some(residence)) => residence.outline.integers,
            (None, None) => self.integers().map(|integers| (integers.min(), integers.max())),
        }
    }

    /// Returns the number of values of the dictionary; `None` for a chunk without one.
    pub fn dictionary_len(&self) -> Option<usize> {
        match (self.open_facts(), self.residence()) {
            (Some(open), _) => open.distinct,
            (None, Some(residence)) => residence.outline.distinct,
            (None, None) => self.dictionary().map(|dictionary| dictionary.values().len()),
        }
    }

    /// Returns the values of the dictionary; `None` for a chunk without one, where they are not in memory, and for
    /// large ones that are encrypted.
    pub fn dictionary_values(self: &Arc<Self>) -> Option<ArrayRef> {
        if self.is_encrypted() {
            // A handle may have been made without its values.
            return self.values()?.open_facts()?.dictionary;
        }
        let kept = self.residence().and_then(|residence| residence.dictionary.get());
        kept.cloned().or_else(|| {
            let values = self.values()?;
            let dictionary = values.dictionary()?;
            // A plan may be kept for long.
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

    /// Returns the heap bytes in addition to those that every chunk takes.
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
    /// Returns the row group with the values of `columns` in memory, those that are encrypted in memory of their own:
    /// `None` where it is that itself.
    ///
    /// # Errors
    /// The handles whose values are not in memory.
    pub fn with_values(
        &self,
        columns: impl Iterator<Item = usize> + Clone,
    ) -> std::result::Result<Option<RowGroup>, Vec<Arc<Chunk>>> {
        let is_here = |chunk: &Chunk| !chunk.is_handle() && !chunk.is_encrypted();
        if columns.clone().all(|column| is_here(&self.chunks[column])) {
            return Ok(None);
        }
        let chunks_of = || columns.clone().map(|column| &self.chunks[column]);
        // Decrypting some chunks would be wasted work if others are absent.
        let absent: Vec<Arc<Chunk>> = chunks_of().filter(|chunk| chunk.is_absent()).cloned().collect();
        if !absent.is_empty() {
            return Err(absent);
        }
        let mut chunks = self.chunks.clone();
        for column in columns {
            // They may have left memory since.
            let values = self.chunks[column].values().ok_or_else(|| vec![self.chunks[column].clone()])?;
            chunks[column] = values.opened().map_or(values, Arc::new);
        }
        Ok(Some(RowGroup { rows: self.rows, chunks }))
    }

    /// Returns the row group as [`RowGroup::with_values`] does for all columns, reading absent values. Blocks on the
    /// disk.
    ///
    /// # Errors
    /// Errors of reading.
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
    /// Returns the same chunk in memory of its own.
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
    /// Returns the row group in memory of its own, so that it keeps no values of handles in memory.
    ///
    /// # Errors
    /// As [`Chunk::check_intact`].
    pub fn copied(&self) -> Result<RowGroup> {
        let chunks = self.chunks.iter().map(|chunk| chunk.copied().map(Arc::new)).collect::<Result<_>>()?;
        Ok(RowGroup { rows: self.rows, chunks })
    }
}

/// Returns the same values in memory of their own.
pub(crate) fn copied_array(array: &ArrayRef) -> Result<ArrayRef> {
    let array: ArrayRef = match array.data_type() {
        // Of the bytes that views point into, only those are copied.
        DataType::Utf8View => Arc::new(array.as_string_view().gc()),
        DataType::BinaryView => Arc::new(array.as_binary_view().gc()),
        _ => array.clone(),
    };
    let data = array.to_data();
    let mut copy = MutableArrayData::new(vec![&data], false, data.len());
    copy.try_extend(0, 0, data.len()).map_err(|error| Error::internal(error.to_string()))?;
    Ok(make_array(copy.freeze()))
}

/// Has the values of `handles`, one at least, read.
pub fn fetch(handles: Vec<Arc<Chunk>>, reader: Box<dyn ValueReader>) {
    let source =
        handles.first().and_then(|handle| handle.residence()).map(|residence| residence.source.clone());
    match source {
        Some(source) => source.fetch(handles, reader),
        None => reader.arrived(Err(Error::internal("a chunk that is no handle has no values"))),
    }
}

/// A thread that waits for values.
struct Blocked(std::sync::mpsc::SyncSender<Result<HeldValues>>);

impl ValueReader for Blocked {
    fn is_waiting(&self) -> bool {
        true
    }

    fn arrived(self: Box<Self>, outcome: Result<HeldValues>) {
        // The thread waits for nothing else.
        let _ = self.0.send(outcome);
    }
}

/// Returns the error of code that treats a handle as a chunk with values.
pub(crate) fn not_in_memory() -> Error {
    Error::internal("the values of a chunk are wanted that are not in memory")
}
