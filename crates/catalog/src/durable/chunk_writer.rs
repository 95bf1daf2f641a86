//! Writes chunks to segments.

use super::locations::{Location, SegmentFile};
use super::{Durable, proto};
use crate::errands::{Errands, Purpose};
use crate::pieces::{PieceDone, PieceOutcome};
use crate::tap::Gathered;
use farpool_columns::{Chunk, RowGroup};
use farpool_disk::{NewPart, SegmentWriter, TableKey};
use farpool_model::cast::{u64_from, usize_saturating};
use farpool_model::{Error, Result};
use prost::Message;
use std::mem;
use std::sync::Arc;

/// Encoded bytes up to which a change lies in its record of the log: below, a file of its own would cost more.
pub(super) const INLINE_BYTES: usize = 1 << 20;

/// Bytes after which another segment is begun, if the pool is large. What a segment has cannot leave memory before it is
/// complete, so that it is a small part of the pool.
const SEGMENT_BYTES: u64 = 1 << 30;
const SEGMENT_BYTES_MIN: u64 = 1 << 20;
const POOL_PART: u64 = 8;

/// Writes the row groups of a load, or of a change, to segments. Nothing is written as long as they fit a record of the
/// log.
#[derive(Debug)]
pub(crate) struct ChunkWriter {
    durable: Arc<Durable>,
    /// Bytes after which another segment is begun.
    segment_bytes: u64,
    waiting: Vec<Arc<RowGroup>>,
    waiting_bytes: usize,
    open: Option<Open>,
    /// Those of the load, if another thread is to wait for the disk.
    errands: Option<Arc<Errands>>,
}

/// A segment that is being written, and what is in it.
#[derive(Debug)]
struct Open {
    writer: SegmentWriter,
    written: Vec<Written>,
}

/// A chunk or a profile whose location a segment is to be.
#[derive(Debug)]
struct Written {
    location: Arc<Location>,
    /// The chunk, if it is a handle.
    handle: Option<Arc<Chunk>>,
    /// The key of the table, if it has one.
    key: Option<Arc<TableKey>>,
}

/// What is to be written of a chunk or a profile.
struct Image {
    head: Vec<u8>,
    bytes: usize,
    may_be_packed: bool,
}

impl ChunkWriter {
    /// Creates a writer that waits for the disk itself.
    pub fn new(durable: Arc<Durable>) -> ChunkWriter {
        let segment_bytes = SEGMENT_BYTES.min(durable.reads.pool_bytes() / POOL_PART).max(SEGMENT_BYTES_MIN);
        ChunkWriter {
            durable,
            segment_bytes,
            waiting: Vec::new(),
            waiting_bytes: 0,
            open: None,
            errands: None,
        }
    }

    /// Creates the writer of a load, for which another thread waits for the disk: segments are durable when none of its
    /// `errands` for that is left.
    pub fn beside(durable: Arc<Durable>, errands: &Arc<Errands>) -> ChunkWriter {
        let mut writer = ChunkWriter::new(durable);
        writer.errands = Some(errands.clone());
        writer
    }

    /// Adds a row group of the table with this key.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn add(&mut self, group: Arc<RowGroup>, key: Option<&Arc<TableKey>>) -> Result<()> {
        self.waiting_bytes += group.bytes_encoded();
        self.waiting.push(group);
        if self.open.is_none() && self.waiting_bytes <= INLINE_BYTES {
            return Ok(());
        }
        self.waiting_bytes = 0;
        for group in mem::take(&mut self.waiting) {
            for chunk in &group.chunks {
                self.write(chunk, key)?;
            }
        }
        Ok(())
    }

    /// Writes a chunk of the table with this key, unless it is in a segment already.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn write(&mut self, chunk: &Arc<Chunk>, key: Option<&Arc<TableKey>>) -> Result<()> {
        let location = Location::of(chunk, &self.durable.next_chunk);
        if location.is_in_segment() {
            return Ok(());
        }
        // Values stay in memory as long as they have no location in a segment.
        let values =
            chunk.values().ok_or_else(|| Error::internal("values left memory before they were kept"))?;
        let image = values.to_image()?;
        let (head, bytes, may_be_packed) = (image.head.clone(), image.data_bytes(), !chunk.is_encrypted());
        let handle = chunk.is_handle().then(|| chunk.clone());
        let new = Image { head, bytes, may_be_packed };
        self.put(Written { location, handle, key: key.cloned() }, new, |out| image.write_data(out))
    }

    /// Writes a chunk or a profile that is in a segment, whether or not it is in memory, once more. What cannot be read stays
    /// where it is.
    ///
    /// # Errors
    /// Those of writing.
    pub(super) fn write_again(
        &mut self,
        location: Arc<Location>,
        may_be_packed: bool,
        file: &SegmentFile,
    ) -> Result<()> {
        let read = || {
            let part = file.part(location.number)?;
            let mut data = vec![0; usize_saturating(part.bytes)];
            file.segment.read(part, location.key(), &mut data)?;
            Ok::<_, Error>((file.segment.head(part, location.key())?.into_owned(), data))
        };
        let Ok((head, data)) = read() else { return Ok(()) };
        let key = location.key().cloned();
        let again = Image { head, bytes: data.len(), may_be_packed };
        self.put(Written { location, handle: None, key }, again, |out| out.extend_from_slice(&data))
    }

    /// Writes the states of a profile of the table with this key, unless they are in a segment that stays.
    ///
    /// # Errors
    /// Those of the disk.
    pub(super) fn write_profile(
        &mut self,
        gathered: &Gathered,
        key: Option<&Arc<TableKey>>,
        stays: impl Fn(&SegmentFile) -> bool,
    ) -> Result<()> {
        let location = Location::at(&gathered.location, &self.durable.next_chunk);
        if location.file().is_some_and(|file| stays(&file)) {
            return Ok(());
        }
        let states = gathered.states();
        let head = proto::Profile { lengths: states.iter().map(|state| u64_from(state.len())).collect() };
        let bytes = states.iter().map(|state| state.len()).sum();
        let new = Image { head: head.encode_to_vec(), bytes, may_be_packed: true };
        self.put(Written { location, handle: None, key: key.cloned() }, new, |out| {
            states.iter().for_each(|state| out.extend_from_slice(state));
        })
    }

    fn put(
        &mut self,
        new: Written,
        Image { head, bytes, may_be_packed }: Image,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<()> {
        let open = match &mut self.open {
            Some(open) => open,
            None => {
                let writer = self.durable.new_segment()?;
                self.open.insert(Open { writer, written: Vec::new() })
            }
        };
        let part = NewPart { number: new.location.number, head, bytes, key: new.key.as_ref(), may_be_packed };
        open.writer.add(part, write)?;
        open.written.push(new);
        if open.writer.bytes() >= self.segment_bytes { self.finish_segment() } else { Ok(()) }
    }

    /// Makes durable what was written, or begins to.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn finish(&mut self) -> Result<()> {
        if self.open.is_some() { self.finish_segment() } else { Ok(()) }
    }

    fn finish_segment(&mut self) -> Result<()> {
        let Some(open) = self.open.take() else { return Ok(()) };
        let Some(errands) = &self.errands else { return open.store(&self.durable) };
        let (durable, errand) = (self.durable.clone(), errands.begin(Purpose::Disk));
        self.durable.reads.background.write(Box::new(move || {
            errand.end(open.store(&durable).map(|()| PieceDone(PieceOutcome::Stored)));
        }));
        Ok(())
    }
}

impl Open {
    /// Makes the segment durable, and the location of what is in it.
    fn store(self, durable: &Arc<Durable>) -> Result<()> {
        let number = self.writer.number();
        let file = durable.add_segment(number, self.writer.finish()?);
        for Written { location, handle, key } in self.written {
            location.put_in_segment(&file, key);
            let Some(handle) = handle else { continue };
            if handle.is_to_leave() {
                drop(handle.take_values());
            } else {
                durable.reads.cache.add(&handle, location.number);
            }
        }
        Ok(())
    }
}

impl Drop for ChunkWriter {
    fn drop(&mut self) {
        // A load that has failed leaves no file.
        if let Some(open) = self.open.take() {
            self.durable.discard_segment(open.writer);
        }
    }
}
