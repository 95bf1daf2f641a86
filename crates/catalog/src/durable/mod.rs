//! The data directory of a catalog: every change is recorded in a log, and large row groups lie in segments.
//!
//! A *record* says what a change does to a table: which row groups it puts in the place of which rows, not what the table
//! is then. Chunks of small changes lie in their record, others in segments that are durable before the record is appended.
//! A *checkpoint* (`checkpoint.rs`) moves what is left of the former to a segment and writes a *manifest*, which has
//! everything up to one of the records, so that the log before it is not read any more. *Recovery* (`recovery.rs`) reads
//! the manifest, does again what the records behind it say, and reads the chunks of what is there then.
//!
//! Segments of which little is needed any more are *compacted* (`compact.rs`): a checkpoint writes that anew. A chunk that
//! was moved is in the newest of the segments that manifest and records name for it.
//!
//! Merges of small row groups are not recorded. They only join neighbours, so that a row at which a change begins or ends
//! also begins a row group of what recovery has made of the records before.
//!
//! How many records are durable is noted in a file beside the log, about once a second, so that a log that has lost its end
//! is told from one whose last write was torn (`mark.rs` in the log of `farpool_disk`).
//!
//! Invariants: what a record refers to was durable before it was appended; a file is removed when no record or manifest
//! that may be read again needs it for a table that is still there.

mod awaited;
mod backup;
mod cache;
mod checkpoint;
mod chunk_writer;
mod compact;
mod hot_chunks;
mod keys;
mod locations;
mod preload;
mod prepare;
mod profiles;
mod proto;
mod reads;
mod recovery;
mod replay;
mod sources;
#[cfg(test)]
mod tests;
mod trace;

pub use awaited::Awaited;
pub use backup::{Backup, adopt_backup};
pub use cache::Cache;
pub(crate) use chunk_writer::ChunkWriter;
pub(super) use keys::fits_key;
pub(super) use prepare::{Change, Prepared};
pub(super) use profiles::StoredProfile;
pub(crate) use reads::Patience;
pub use recovery::{Recovery, check_data};
pub use trace::{Access, AccessKind, AccessTrace, PlaceOnDisk, Recorded, place_on_disk};

use super::{Catalog, merge};
use farpool_columns::{Chunk, RowGroup};
use farpool_disk::{Directory, Log, Observer, Segment, SegmentWriter, segment_name};
use farpool_model::{Error, Result, TenantName, Version};
use keys::TenantKeys;
use locations::{Location, SegmentFile, Sweep};
use parking_lot::Mutex;
use reads::Reads;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::Builder;

/// The data directory of a catalog.
#[derive(Debug)]
pub(super) struct Durable {
    directory: Arc<dyn Directory>,
    log: Log,
    /// The number that the directory was given when it was made.
    node: u64,
    /// The numbers of the next chunk and segment: none is used twice.
    next_chunk: AtomicU64,
    next_segment: AtomicU64,
    tenant_keys: TenantKeys,
    /// Chunks in records before this one can no longer be read.
    floor: AtomicU64,
    segments: Mutex<BTreeMap<u64, Arc<SegmentFile>>>,
    reads: Arc<Reads>,
    sweep: Arc<Sweep>,
    /// Held while a checkpoint is made.
    latest: Mutex<Latest>,
    /// Bytes that were written to the log when the latest checkpoint was begun.
    log_bytes: AtomicU64,
    is_checkpoint_wanted: AtomicBool,
    /// Whether a job that writes the log's mark waits ([`Catalog::write_records`]).
    is_mark_wanted: AtomicBool,
    /// Whether nothing more is to be read that nobody has asked for.
    is_closed: AtomicBool,
}

/// The latest checkpoint.
#[derive(Debug)]
struct Latest {
    /// The number of its manifest, and that of the first record behind it.
    manifest: u64,
    next_record: u64,
    /// Segments that the manifest names, and that were written anew since: they stay until there is another one.
    replaced: Vec<Arc<SegmentFile>>,
}

impl Durable {
    /// Whether everything in the directory is encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.directory.keys().is_some()
    }

    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    fn floor(&self) -> u64 {
        self.floor.load(Ordering::Relaxed)
    }

    /// Appends a prepared record with the version that its change makes, under the lock of the names. `None` where that
    /// must be tried again after [`Durable::mend`].
    pub fn append(&self, record: &mut Prepared, version: Version) -> Result<Option<u64>> {
        if record.floor != self.floor() {
            return Ok(None);
        }
        record.set_version(version);
        let number = self.log.try_append(record.bytes(), record.urgency())?;
        if let Some(number) = number {
            record.locations().iter().for_each(|location| location.put_in_log(number));
        }
        Ok(number)
    }

    /// Makes room for a record, and prepares it again where chunks that it refers to have moved.
    pub fn mend(self: &Arc<Self>, record: &mut Prepared) -> Result<()> {
        if record.floor != self.floor() {
            record.prepare_again(self)?;
        }
        self.log.make_room(record.bytes().len(), record.urgency())
    }

    /// Notes what a row group was merged from.
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
        let file = SegmentFile::written(number, segment, &self.sweep);
        self.segments.lock().insert(number, file.clone());
        file
    }

    fn discard_segment(&self, writer: SegmentWriter) {
        let name = segment_name(writer.number());
        drop(writer);
        // Recovery removes it otherwise.
        let _ = self.directory.remove(&name);
    }

    /// Removes the segments in which nothing in memory has its location any more. What no longer refers to them must be
    /// durable.
    fn remove_unused_segments(&self) {
        // Nobody gets a reference from the list, so that one that is held by the list alone stays so.
        let mut segments = self.segments.lock();
        let unused: Vec<u64> = segments
            .iter()
            .filter(|(_, file)| Arc::strong_count(file) == 1)
            .map(|(number, _)| *number)
            .collect();
        unused.iter().for_each(|number| drop(segments.remove(number)));
        drop(segments);
        for number in unused {
            // Recovery removes it otherwise.
            let _ = self.directory.remove(&segment_name(number));
        }
    }
}

/// Whether the values of a chunk can be read again.
pub(super) fn is_in_segment(chunk: &Chunk) -> bool {
    Location::existing(chunk).is_some_and(|location| location.is_in_segment())
}

impl Catalog {
    /// Returns a row group of `tenant` whose values may leave memory where there is a data directory, if it is large: small
    /// ones are soon merged.
    pub(super) fn with_handles(&self, tenant: &TenantName, group: RowGroup) -> RowGroup {
        let Some(durable) = self.durable.get().filter(|_| merge::is_large(&group)) else { return group };
        let source = durable.reads.source(tenant);
        let chunks = group.chunks.into_iter().map(|chunk| Chunk::handle(chunk, &source)).collect();
        RowGroup { rows: group.rows, chunks }
    }

    /// Blocks until the record `number` is durable and visible.
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

    /// Whether the catalog has a data directory.
    pub fn is_durable(&self) -> bool {
        self.durable.get().is_some()
    }

    /// Writes records to the log as they come, until [`Catalog::close`]: for a thread of the host. Beside it, another one
    /// notes once a second how many are durable ([`Log::mark`]).
    #[expect(
        clippy::disallowed_methods,
        reason = "no record waits for a note of those before, which takes two syncs"
    )]
    pub fn write_log(&self) {
        let Some(durable) = self.durable.get() else { return };
        let log = &durable.log;
        std::thread::scope(|scope| {
            // Where the system has no more threads, the note is written at a clean stop only.
            drop(Builder::new().name("farpool-mark".into()).spawn_scoped(scope, || log.keep_marked()));
            while log.write_next() {}
        });
    }

    /// Writes the records that wait, as [`Catalog::write_log`] does when they come; returns whether there were any. For a
    /// host without a thread for that: the note of how many are durable becomes a job of [`Background::write`].
    ///
    /// [`Background::write`]: crate::Background::write
    pub fn write_records(&self) -> bool {
        let Some(durable) = self.durable.get().filter(|_| self.records_waiting() > 0) else { return false };
        // Those who wait for it are told what comes of it.
        let is_written = durable.log.commit(durable.log.next_record() - 1).is_ok();
        if !durable.is_mark_wanted.swap(true, Ordering::Relaxed) {
            let durable = Arc::downgrade(durable);
            self.background.write(Box::new(move || {
                let Some(durable) = durable.upgrade() else { return };
                durable.is_mark_wanted.store(false, Ordering::Relaxed);
                // Where it cannot be written, the one before is still right.
                drop(durable.log.mark());
            }));
        }
        is_written
    }

    /// Number of records that are not durable.
    pub fn records_waiting(&self) -> u64 {
        let durable = self.state.read().durable_records;
        self.durable.get().map_or(0, |of| of.log.next_record().saturating_sub(durable))
    }

    /// Makes everything durable and closes the data directory; changes are refused from then on. A checkpoint before it
    /// makes the next start faster.
    ///
    /// # Errors
    /// Those of the disk. What was acknowledged is durable all the same.
    pub fn close(self: &Arc<Self>) -> Result<()> {
        let Some(durable) = self.durable.get() else { return Ok(()) };
        durable.is_closed.store(true, Ordering::Relaxed);
        let checkpoint = self.checkpoint();
        durable.write_hot_chunks();
        durable.log.stop();
        let closed = durable.log.close();
        // So that it is an error if what is there now is missing at the next start.
        drop(durable.log.mark());
        closed.and(checkpoint)
    }
}

/// Makes changes visible once they are durable.
#[derive(Debug)]
struct Watch(Weak<Catalog>);

impl Observer for Watch {
    fn durable(&self, count: u64) {
        let Some(catalog) = self.0.upgrade() else { return };
        let (wakes, replaced) = catalog.state.write().durable(count);
        wakes.into_iter().for_each(|wake| wake(Ok(())));
        if !replaced.is_empty() {
            // Elsewhere: the log is not to wait for memory that is freed.
            catalog.background.write(Box::new(move || drop(replaced)));
        }
    }

    fn failed(&self, error: &Error) {
        let Some(catalog) = self.0.upgrade() else { return };
        let wakes = catalog.state.write().failed(error);
        wakes.into_iter().for_each(|wake| wake(Err(error.clone())));
    }
}
