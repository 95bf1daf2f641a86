//! Writing of column chunks to segments (files of chunks in a data directory).

use super::locations::{Location, SegmentFile};
use super::{Durable, proto};
use crate::load_waits::{LoadWaits, WaitReason};
use crate::pieces::{PieceDone, PieceOutcome};
use crate::tap::CollectedProfile;
use farpool_columns::{Chunk, RowGroup};
use farpool_disk::{NewPart, SegmentWriter, TableKey};
use farpool_model::cast::{u64_from, usize_saturating};
use farpool_model::{Error, Result};
use prost::Message;
use std::mem;
use std::sync::Arc;

/// Maximum number of encoded bytes of a change's chunks for storing them in its log record. Reason: for fewer bytes,
/// a segment would cost more than the record.
pub(super) const INLINE_BYTES: usize = 1 << 20;

/// Number of bytes at which a segment is finished, in a large pool.
const SEGMENT_BYTES: u64 = 1 << 30;

/// Divisor: a segment is finished at one eighth of the pool's size, if that is less than [`SEGMENT_BYTES`]. Reason: the
/// chunks of an unfinished segment cannot be evicted, so it must leave most of the pool to other data.
const POOL_PART: u64 = 8;

/// Number of bytes below which no segment is finished, however small the pool is. Reason: each segment is a file.
const SEGMENT_BYTES_MIN: u64 = 1 << 20;

/// Writes the row groups of a load or another change to segments. Writes nothing while they are small enough to be
/// stored in a log record.
#[derive(Debug)]
pub(crate) struct ChunkWriter {
    durable: Arc<Durable>,
    /// Size in bytes at which the segment is finished and another one begun.
    segment_bytes: u64,
    waiting: Vec<Arc<RowGroup>>,
    waiting_bytes: usize,
    open: Option<OpenSegment>,
    /// Waits of the load, if another thread makes segments durable; `None` if this writer blocks on the disk.
    waits: Option<Arc<LoadWaits>>,
}

/// An unfinished segment and the parts written to it.
#[derive(Debug)]
struct OpenSegment {
    writer: SegmentWriter,
    written: Vec<WrittenPart>,
}

/// A column chunk or profile that gets its location when the segment is durable.
#[derive(Debug)]
struct WrittenPart {
    location: Arc<Location>,
    /// The chunk, if its values may be evicted when the segment is durable.
    handle: Option<Arc<Chunk>>,
    /// Encryption key of the table's data in segments; `None` if the table has none.
    key: Option<Arc<TableKey>>,
}

/// Bytes to be written for a column chunk or profile: head and data.
struct PartImage {
    head: Vec<u8>,
    bytes: usize,
    may_be_packed: bool,
}

impl ChunkWriter {
    /// Creates a writer that blocks on the disk.
    pub fn new(durable: Arc<Durable>) -> ChunkWriter {
        let segment_bytes = SEGMENT_BYTES.min(durable.reads.pool_bytes() / POOL_PART).max(SEGMENT_BYTES_MIN);
        ChunkWriter { durable, segment_bytes, waiting: Vec::new(), waiting_bytes: 0, open: None, waits: None }
    }

    /// Creates the writer of a load that must not block: another thread syncs the segments. They are durable when no
    /// wait for the disk is left in `waits`.
    pub fn beside(durable: Arc<Durable>, waits: &Arc<LoadWaits>) -> ChunkWriter {
        let mut writer = ChunkWriter::new(durable);
        writer.waits = Some(waits.clone());
        writer
    }

    /// Adds a row group of a table with the encryption key `key`.
    ///
    /// # Errors
    /// Errors of the disk.
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

    /// Writes a column chunk of a table with the encryption key `key`, unless a segment has it already.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn write(&mut self, chunk: &Arc<Chunk>, key: Option<&Arc<TableKey>>) -> Result<()> {
        let location = Location::of(chunk, &self.durable.next_chunk);
        if location.is_in_segment() {
            return Ok(());
        }
        // Values are in memory here, because they are evicted only after their chunk is in a segment.
        let values =
            chunk.values().ok_or_else(|| Error::internal("values left memory before they were kept"))?;
        let image = values.to_image()?;
        let (head, bytes, may_be_packed) = (image.head.clone(), image.data_bytes(), !chunk.is_encrypted());
        let handle = chunk.is_handle().then(|| chunk.clone());
        let new = PartImage { head, bytes, may_be_packed };
        self.put(WrittenPart { location, handle, key: key.cloned() }, new, |out| image.write_data(out))
    }

    /// Copies a chunk or profile from a segment that is being compacted, whether or not it is in memory. If it cannot
    /// be read, it stays where it is.
    ///
    /// # Errors
    /// Errors of writing.
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
        let again = PartImage { head, bytes: data.len(), may_be_packed };
        self.put(WrittenPart { location, handle: None, key }, again, |out| out.extend_from_slice(&data))
    }

    /// Writes the states of a profile of a table with the encryption key `key`, unless they are in a segment that is not
    /// compacted.
    ///
    /// # Errors
    /// Errors of the disk.
    pub(super) fn write_profile(
        &mut self,
        collected: &CollectedProfile,
        key: Option<&Arc<TableKey>>,
        stays: impl Fn(&SegmentFile) -> bool,
    ) -> Result<()> {
        let location = Location::at(&collected.location, &self.durable.next_chunk);
        if location.file().is_some_and(|file| stays(&file)) {
            return Ok(());
        }
        let states = collected.states();
        let head = proto::Profile { lengths: states.iter().map(|state| u64_from(state.len())).collect() };
        let bytes = states.iter().map(|state| state.len()).sum();
        let new = PartImage { head: head.encode_to_vec(), bytes, may_be_packed: true };
        self.put(WrittenPart { location, handle: None, key: key.cloned() }, new, |out| {
            states.iter().for_each(|state| out.extend_from_slice(state));
        })
    }

    fn put(
        &mut self,
        new: WrittenPart,
        PartImage { head, bytes, may_be_packed }: PartImage,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<()> {
        let open = match &mut self.open {
            Some(open) => open,
            None => {
                let writer = self.durable.new_segment()?;
                self.open.insert(OpenSegment { writer, written: Vec::new() })
            }
        };
        let part = NewPart { number: new.location.number, head, bytes, key: new.key.as_ref(), may_be_packed };
        open.writer.add(part, write)?;
        open.written.push(new);
        if open.writer.bytes() >= self.segment_bytes { self.finish_segment() } else { Ok(()) }
    }

    /// Finishes the open segment, on this thread or, for a load that must not block, on another one.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn finish(&mut self) -> Result<()> {
        if self.open.is_some() { self.finish_segment() } else { Ok(()) }
    }

    fn finish_segment(&mut self) -> Result<()> {
        let Some(open) = self.open.take() else { return Ok(()) };
        let Some(waits) = &self.waits else { return open.store(&self.durable) };
        let (durable, wait) = (self.durable.clone(), waits.begin(WaitReason::Disk));
        self.durable.reads.background.write(Box::new(move || {
            wait.end(open.store(&durable).map(|()| PieceDone(PieceOutcome::Stored)));
        }));
        Ok(())
    }
}

impl OpenSegment {
    /// Makes the segment durable, and then sets the location of each part.
    fn store(self, durable: &Arc<Durable>) -> Result<()> {
        let number = self.writer.number();
        let file = durable.add_segment(number, self.writer.finish()?);
        for WrittenPart { location, handle, key } in self.written {
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
        // If the writer is dropped with an unfinished segment, the load has failed, and the segment is removed.
        if let Some(open) = self.open.take() {
            self.durable.discard_segment(open.writer);
        }
    }
}
