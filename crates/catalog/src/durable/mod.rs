//! The data directory of a catalog: every change is a record of the log, and large row groups are stored in segments.
//!
//! A *record* describes a change as a delta: which row groups replace which rows of a table. Column chunks of small
//! changes are stored in their record (*inline*); others are in segments, which are durable before the record is
//! appended. A *checkpoint* (`checkpoint.rs`) moves the remaining inline chunks to a segment and writes a *manifest*,
//! which describes all tables and views up to one record, so that earlier records need not be replayed. *Recovery*
//! (`recovery.rs`) reads the manifest, replays the records after it, and reads the chunks of the resulting tables.
//!
//! Sparse segments are *compacted* (`compact.rs`): a checkpoint copies their live chunks to a new segment. If the
//! manifest and records name several segments for a chunk, the one with the highest id has it.
//!
//! A record of a merge of small row groups says which rows are in one row group from then on, and not what is in it:
//! the node that applies the record merges its own row groups. The ranges of later records begin and end at the new row
//! group boundaries. Example: groups A (rows 0-9) and B (rows 10-19) are merged, and a change replaces rows 0-19.
//! Recovery marks A and B as one row group, and the next record removes both before anything was read.
//!
//! Chunks and segments have ids with an origin ([`farpool_disk::PartId`]), so that nodes that share their records can
//! write segments of their own. A single node may merge small row groups further when it starts, without a record,
//! because no other node has to have the same boundaries, and replay works with finer ones.
//!
//! The number of durable records is written about once a second to a mark file, by which a log that lost its end is
//! distinguished from one with a torn last write (`mark.rs` in the log of `farpool_disk`).
//!
//! Invariants: all chunks that a record refers to were durable before the record was appended; a file is removed only
//! when no record or manifest that may still be replayed needs it for an existing table.
//!
//! Example: a checkpoint moves a chunk from record 7 to segment 3 and writes manifest 2. If record 7 were removed
//! before the manifest is durable, a crash would leave manifest 1, which needs record 7.

mod backup;
mod cache;
mod checkpoint;
mod chunk_writer;
mod compact;
mod decode;
mod hot_chunks;
mod keys;
mod locations;
mod preload;
mod prepare;
mod profiles;
mod proto;
mod reads;
mod received;
mod recovery;
mod replay;
mod sources;
#[cfg(test)]
mod tests;
mod trace;
mod value_requests;

pub use backup::{Backup, adopt_backup};
pub use cache::Cache;
pub(crate) use chunk_writer::ChunkWriter;
pub(super) use keys::fits_key;
pub(super) use prepare::Prepared;
pub(super) use profiles::StoredProfile;
pub(crate) use reads::RetryBudget;
pub use recovery::{Recovery, check_data};
pub use trace::{Access, AccessKind, AccessTrace, PlaceOnDisk, Recorded, place_on_disk};
pub use value_requests::ValueRequests;

use super::{Catalog, merge};
use farpool_columns::{Chunk, RowGroup};
use farpool_disk::{ChangeLog, Directory, Observer, Segment, SegmentWriter, segment_name};
use farpool_model::{Error, Result, TenantName, Version};
use keys::TenantKeys;
use locations::{Location, SegmentCollector, SegmentFile};
use parking_lot::Mutex;
use reads::Reads;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// The data directory of a catalog.
#[derive(Debug)]
pub(super) struct Durable {
    directory: Arc<dyn Directory>,
    log: Box<dyn ChangeLog>,
    /// Id of the directory, given when it was created or restored.
    node: u64,
    /// Origin of the ids that this directory gives to chunks and segments.
    origin: u16,
    /// Ids of the next column chunk and the next segment. No id is used twice.
    next_chunk: AtomicU64,
    next_segment: AtomicU64,
    tenant_keys: TenantKeys,
    /// Sequence number of the oldest log record whose inline chunks new records may refer to. Older records may be
    /// removed.
    floor: AtomicU64,
    segments: Mutex<BTreeMap<u64, Arc<SegmentFile>>>,
    reads: Arc<Reads>,
    collector: Arc<SegmentCollector>,
    /// The latest checkpoint. Locked during a checkpoint.
    latest: Mutex<LatestCheckpoint>,
    /// Bytes written to the log when the latest checkpoint began.
    log_bytes: AtomicU64,
    is_checkpoint_wanted: AtomicBool,
    /// Whether a job that writes the durability mark of the log is queued ([`Catalog::write_records`]).
    is_mark_wanted: AtomicBool,
    /// Whether the directory was closed, so that background reads must stop.
    is_closed: AtomicBool,
}

/// The latest checkpoint.
#[derive(Debug)]
struct LatestCheckpoint {
    /// Number of the manifest, and sequence number of the first record after it.
    manifest: u64,
    next_record: u64,
    /// Segments that this manifest names and that were compacted since. They are kept until the next manifest is
    /// durable.
    replaced: Vec<Arc<SegmentFile>>,
}

impl Durable {
    /// Returns whether every file of the directory is encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.directory.keys().is_some()
    }

    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    fn floor(&self) -> u64 {
        self.floor.load(Ordering::Relaxed)
    }

    /// Appends a prepared record with the version that its change creates. The caller holds the lock of the names.
    /// Returns `None` if the caller must call [`Durable::mend`] and retry.
    pub fn append(&self, record: &mut Prepared, version: Version) -> Result<Option<u64>> {
        if record.is_outdated(self.floor()) {
            return Ok(None);
        }
        record.set_version(version);
        let number = match record.is_awaited() {
            true => self.log.try_append(record.bytes(), record.reserve_policy())?,
            false => self.log.try_append_unawaited(record.bytes(), record.reserve_policy())?,
        };
        if let Some(number) = number {
            record.locations().iter().for_each(|location| location.put_in_log(number));
        }
        Ok(number)
    }

    /// Makes room in the log for a record, and prepares the record again if chunks that it refers to have moved. May
    /// block.
    pub fn mend(self: &Arc<Self>, record: &mut Prepared) -> Result<()> {
        if record.is_outdated(self.floor()) {
            record.prepare_again(self)?;
        }
        self.log.make_room(record.bytes().len(), record.reserve_policy())
    }

    /// Turns the chunks of a large row group of `tenant` into handles.
    fn with_handles(&self, tenant: &TenantName, group: RowGroup) -> RowGroup {
        if !merge::is_large(&group) {
            return group;
        }
        let source = self.reads.source(tenant);
        let chunks = group.chunks.into_iter().map(|chunk| Chunk::handle(chunk, &source)).collect();
        RowGroup { rows: group.rows, chunks }
    }

    /// Records which row groups a row group was merged from, so that their chunks stay on disk until a manifest has the
    /// merged ones.
    pub fn merged(&self, merged: &RowGroup, from: &[Arc<RowGroup>]) {
        for (column, chunk) in merged.chunks.iter().enumerate() {
            let location = Location::of(chunk, &self.next_chunk);
            location.set_merged_from(from.iter().map(|group| &*group.chunks[column]));
        }
    }

    fn new_segment(&self) -> Result<SegmentWriter> {
        let number = self.next_segment.fetch_add(1, Ordering::Relaxed);
        SegmentWriter::create(self.directory.clone(), number)
    }

    /// Adds a segment that is durable.
    fn add_segment(&self, number: u64, segment: Segment) -> Arc<SegmentFile> {
        let file = SegmentFile::written(number, segment, &self.collector);
        self.segments.lock().insert(number, file.clone());
        file
    }

    fn discard_segment(&self, writer: SegmentWriter) {
        let name = segment_name(writer.number());
        drop(writer);
        // The result is ignored, because recovery removes leftover files.
        let _ = self.directory.remove(&name);
    }

    /// Removes the segments that hold no chunk of a row group in memory. The changes that dropped the last references
    /// must be durable.
    fn remove_unused_segments(&self) {
        // While the list of segments is locked, nobody gets a new reference from it, so that a count of 1 cannot
        // rise.
        let mut segments = self.segments.lock();
        let unused: Vec<u64> = segments
            .iter()
            .filter(|(_, file)| Arc::strong_count(file) == 1)
            .map(|(number, _)| *number)
            .collect();
        unused.iter().for_each(|number| drop(segments.remove(number)));
        drop(segments);
        for number in unused {
            // The result is ignored, because recovery removes leftover files.
            let _ = self.directory.remove(&segment_name(number));
        }
    }
}

/// Returns true if the values of a chunk may be evicted from memory, because a segment has a copy.
pub(super) fn is_in_segment(chunk: &Chunk) -> bool {
    Location::existing(chunk).is_some_and(|location| location.is_in_segment())
}

impl Catalog {
    /// Turns the chunks of a large row group of `tenant` into handles, whose values may leave memory, if there is a
    /// data directory. Small row groups stay in memory, since they are merged soon.
    pub(super) fn with_handles(&self, tenant: &TenantName, group: RowGroup) -> RowGroup {
        match self.durable.get() {
            Some(durable) => durable.with_handles(tenant, group),
            None => group,
        }
    }

    /// Blocks until the record with sequence number `number` is durable and its change is visible.
    pub(super) fn commit(&self, number: u64) -> Result<()> {
        match self.durable.get() {
            Some(durable) => durable.log.commit(number),
            None => Err(Error::internal("a catalog in memory has no records")),
        }
    }

    pub(super) fn when_durable(&self, number: u64, wake: super::state::Wake) {
        let at_once = self.state.write().when_durable(number, wake);
        if let Some((wake, durable)) = at_once {
            wake(durable);
        }
    }

    /// Returns whether the catalog has a data directory.
    pub fn is_durable(&self) -> bool {
        self.durable.get().is_some()
    }

    /// Writes records to the log as they are appended, and blocks until [`Catalog::close`]. For a thread of the node.
    pub fn write_log(&self) {
        let Some(durable) = self.durable.get() else { return };
        while durable.log.write_next() {}
    }

    /// Writes the durability mark of the log ([`ChangeLog::mark`]) about once a second, and blocks until
    /// [`Catalog::close`]. For a separate thread of the node, because writing the mark takes two syncs, for which no
    /// record should wait.
    pub fn mark_log(&self) {
        let Some(durable) = self.durable.get() else { return };
        durable.log.keep_marked();
    }

    /// Writes the buffered records and returns whether there were any and they are durable. For a node without a log
    /// thread: writing the durability mark becomes a job of [`Background::write`].
    ///
    /// [`Background::write`]: crate::Background::write
    pub fn write_records(&self) -> bool {
        let Some(durable) = self.durable.get().filter(|_| self.records_waiting() > 0) else { return false };
        // The error is not lost: callers that wait for the records get it.
        let is_written = durable.log.commit(durable.log.next_record() - 1).is_ok();
        if !durable.is_mark_wanted.swap(true, Ordering::Relaxed) {
            let durable = Arc::downgrade(durable);
            self.background.write(Box::new(move || {
                let Some(durable) = durable.upgrade() else { return };
                durable.is_mark_wanted.store(false, Ordering::Relaxed);
                // The result is ignored, because the previous mark stays correct.
                drop(durable.log.mark());
            }));
        }
        is_written
    }

    /// Returns the number of committed records, whose changes readers see.
    pub fn records_committed(&self) -> u64 {
        self.state.read().durable_records
    }

    /// Returns the number of records that are not committed yet.
    pub fn records_waiting(&self) -> u64 {
        let committed = self.records_committed();
        self.durable.get().map_or(0, |of| of.log.next_record().saturating_sub(committed))
    }

    /// Makes all changes durable, makes a checkpoint so that the next start is faster, and closes the data directory,
    /// which refuses changes afterwards. Blocks until then.
    ///
    /// # Errors
    /// Errors of the disk. Acknowledged changes are durable in any case.
    pub fn close(self: &Arc<Self>) -> Result<()> {
        let Some(durable) = self.durable.get() else { return Ok(()) };
        durable.is_closed.store(true, Ordering::Relaxed);
        if self.records_waiting() > 0 {
            // Merges append records that nobody waits for. They are written first, so that the checkpoint covers them.
            // The error is not lost: closing the log below returns it, too.
            let _ = durable.log.commit(durable.log.next_record() - 1);
        }
        let checkpoint = self.checkpoint();
        durable.write_hot_chunks();
        durable.log.stop();
        let closed = durable.log.close();
        // The mark is written last, so that the next start detects the loss of any record.
        drop(durable.log.mark());
        closed.and(checkpoint)
    }
}

/// Observer of the log that makes changes visible when their records are durable.
#[derive(Debug)]
struct DurabilityObserver(Weak<Catalog>);

impl Observer for DurabilityObserver {
    fn durable(&self, count: u64) {
        let Some(catalog) = self.0.upgrade() else { return };
        let (wakes, replaced) = catalog.state.write().durable(count);
        wakes.into_iter().for_each(|wake| wake(Ok(())));
        if !replaced.is_empty() {
            // Memory is freed in the background, so that the log need not wait for that.
            catalog.background.write(Box::new(move || drop(replaced)));
        }
    }

    fn failed(&self, error: &Error) {
        let Some(catalog) = self.0.upgrade() else { return };
        let wakes = catalog.state.write().failed(error);
        wakes.into_iter().for_each(|wake| wake(Err(error.clone())));
    }
}
