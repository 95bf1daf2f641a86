//! Locations of the copies of column chunks on disk.
//!
//! A chunk gets an id when it is first written and keeps it for ever. Its copy may move from the log to a segment, and
//! from one segment to another.
//!
//! Invariant: the file of a segment exists as long as a chunk in memory has its location in it, or was merged from a
//! chunk that has. Exceptions are chunks that were compacted since, and a segment that is being written.
//!
//! Example: chunks 1 and 2 in segment 3 are merged to chunk 9, which is in no file yet. Segment 3 must stay: after a
//! crash recovery reads chunks 1 and 2, because the record of the merge does not have the merged rows. Segment 3 may be
//! removed when a manifest has chunk 9.

use crate::Catalog;
use farpool_columns::Chunk;
use farpool_disk::{Part, Segment, TableKey, segment_name};
use farpool_model::{Error, Result};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// Location of the copy of a chunk on disk.
#[derive(Debug)]
pub(super) struct Location {
    pub number: u64,
    place: Mutex<Place>,
    /// Encryption key of the table; empty if it has none or the copy is not in a segment.
    key: OnceLock<Arc<TableKey>>,
    /// Locations of the chunks that this one was merged from. Recovery needs them until a manifest has the merged
    /// chunk.
    merged_from: Mutex<Vec<farpool_columns::Location>>,
}

#[derive(Clone, Debug)]
enum Place {
    /// There is no copy yet.
    Nowhere,
    /// Stored in the log record with this sequence number.
    Log(u64),
    Segment(Arc<SegmentFile>),
}

/// A segment on disk that is open for reading, with the number of its live bytes.
#[derive(Debug)]
pub(super) struct SegmentFile {
    pub number: u64,
    pub segment: Segment,
    pub collector: Arc<SegmentCollector>,
    /// Bytes of all parts of the segment. `bytes_live` counts those of the live parts, which are the location of a
    /// chunk in memory.
    bytes_of_parts: u64,
    bytes_live: AtomicU64,
    /// Number of live bytes at the latest compaction. The segment is not compacted again until it has fewer.
    bytes_left: AtomicU64,
}

/// Returns the bytes that a part takes in its file: its data, and approximately its directory entry.
fn weight(part: &Part) -> u64 {
    const ENTRY_BYTES: u64 = 64;
    part.bytes_stored + ENTRY_BYTES
}

impl SegmentFile {
    /// Creates the entry of a new segment, of which all parts are live.
    pub fn written(number: u64, segment: Segment, collector: &Arc<SegmentCollector>) -> Arc<SegmentFile> {
        let file = SegmentFile::found(number, segment, collector);
        file.bytes_live.store(file.bytes_of_parts, Ordering::Relaxed);
        file
    }

    /// Creates the entry of a segment that recovery found on disk. Its parts become live when locations in it are
    /// restored.
    pub fn found(number: u64, segment: Segment, collector: &Arc<SegmentCollector>) -> Arc<SegmentFile> {
        let bytes_of_parts = segment.parts().map(|(_, part)| weight(part)).sum();
        let (collector, bytes_live, bytes_left) =
            (collector.clone(), AtomicU64::new(0), AtomicU64::new(u64::MAX));
        Arc::new(SegmentFile { number, segment, collector, bytes_of_parts, bytes_live, bytes_left })
    }

    /// Returns the bytes of all parts.
    pub fn bytes_of_parts(&self) -> u64 {
        self.bytes_of_parts
    }

    /// Returns the approximate bytes of live parts, which are the location of a chunk in memory. Approximate, because a
    /// chunk that several row groups share has several locations after a restart.
    pub fn bytes_live(&self) -> u64 {
        self.bytes_live.load(Ordering::Relaxed)
    }

    /// Returns whether less than half of the segment is live, and fewer bytes than at its latest compaction.
    pub fn is_sparse(&self) -> bool {
        let live = self.bytes_live();
        live < self.bytes_of_parts / 2 && live < self.bytes_left.load(Ordering::Relaxed)
    }

    /// Records that the segment is being compacted. It is then not chosen again, even if the compaction fails, until
    /// more of it is dead.
    pub fn is_compacted(&self) {
        self.bytes_left.store(self.bytes_live(), Ordering::Relaxed);
    }

    fn remove_live(&self, chunk: u64) {
        let gone = self.segment.part(chunk).map_or(0, weight);
        let less = |live: u64| Some(live.saturating_sub(gone));
        // Cannot fail, because the closure never returns `None`.
        let _ = self.bytes_live.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// Returns the part of the chunk with this id.
    ///
    /// # Errors
    /// `Corrupt` if the segment has no such chunk.
    pub fn part(&self, chunk: u64) -> Result<&Part> {
        let nowhere = || {
            Error::corrupt(format!("{} has no chunk {chunk}, which a table needs", segment_name(self.number)))
        };
        self.segment.part(chunk).ok_or_else(nowhere)
    }
}

/// Background job that removes segments in which no chunk in memory is located, and compacts sparse ones.
#[derive(Debug, Default)]
pub(super) struct SegmentCollector {
    /// While the catalog exists, all chunks that are still needed are in memory. Without it, no segment may be removed.
    catalog: Weak<Catalog>,
    is_wanted: AtomicBool,
}

impl SegmentCollector {
    pub fn new(catalog: &Arc<Catalog>) -> Arc<SegmentCollector> {
        Arc::new(SegmentCollector { catalog: Arc::downgrade(catalog), is_wanted: AtomicBool::new(false) })
    }

    /// Queues the job, unless it is queued already.
    pub fn want(self: &Arc<Self>) {
        let Some(catalog) = self.catalog.upgrade() else { return };
        if self.is_wanted.swap(true, Ordering::Relaxed) {
            return;
        }
        let (collector, background) = (self.clone(), catalog.background.clone());
        drop(catalog);
        background.write(Box::new(move || {
            collector.is_wanted.store(false, Ordering::Relaxed);
            // If the catalog was dropped, no chunk is in memory although its tables are still needed on disk, so that
            // no segment may be removed.
            let Some(catalog) = collector.catalog.upgrade() else { return };
            if let Some(durable) = catalog.durable.get() {
                durable.remove_unused_segments();
                catalog.compact_where_it_pays();
            }
        }));
    }
}

impl Drop for Location {
    fn drop(&mut self) {
        let Place::Segment(file) = self.place.get_mut() else { return };
        file.remove_live(self.number);
        // Of two references, one is this location's, and the other is in the directory's list of segments.
        if Arc::strong_count(file) == 2 || file.is_sparse() {
            let collector = file.collector.clone();
            // Releases the reference to the segment before the job looks for unreferenced ones.
            *self.place.get_mut() = Place::Nowhere;
            collector.want();
        }
    }
}

impl Location {
    /// Returns the location of a chunk. A chunk without one gets the next id.
    pub fn of(chunk: &Chunk, next: &AtomicU64) -> Arc<Location> {
        Location::at(chunk.location(), next)
    }

    /// Returns the location of a chunk; `None` if it has none.
    pub fn existing(chunk: &Chunk) -> Option<Arc<Location>> {
        Location::existing_at(chunk.location())
    }

    /// Returns the location in `slot`; `None` if it is empty.
    pub fn existing_at(slot: &OnceLock<farpool_columns::Location>) -> Option<Arc<Location>> {
        slot.get()?.clone().downcast().ok()
    }

    /// Returns the location in `slot`. An empty slot gets a location with the next id.
    pub fn at(slot: &OnceLock<farpool_columns::Location>, next: &AtomicU64) -> Arc<Location> {
        let location = slot.get_or_init(|| {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let (place, key) = (Mutex::new(Place::Nowhere), OnceLock::new());
            Arc::new(Location { number, place, key, merged_from: Mutex::default() })
        });
        location.clone().downcast().expect("chunks of a catalog have locations of its own")
    }

    /// Sets the location of a chunk that was read from a segment, with its table's key, or from record `record` of the
    /// log.
    pub fn found(
        slot: &OnceLock<farpool_columns::Location>,
        number: u64,
        segment: Option<(Arc<SegmentFile>, Option<Arc<TableKey>>)>,
        record: u64,
    ) {
        let key = OnceLock::new();
        let place = match segment {
            Some((file, of_table)) => {
                file.bytes_live.fetch_add(file.segment.part(number).map_or(0, weight), Ordering::Relaxed);
                of_table.into_iter().for_each(|of_table| drop(key.set(of_table)));
                Place::Segment(file)
            }
            None => Place::Log(record),
        };
        // Cannot fail: the slot is empty, since no other thread has the chunk yet.
        let _ = slot.set(Arc::new(Location {
            number,
            place: Mutex::new(place),
            key,
            merged_from: Mutex::default(),
        }));
    }

    /// Records which chunks this one was merged from.
    pub fn set_merged_from<'a>(&self, others: impl Iterator<Item = &'a Chunk>) {
        *self.merged_from.lock() = others.filter_map(|chunk| chunk.location().get()).cloned().collect();
    }

    /// Records that a durable manifest has the chunk.
    pub fn is_in_manifest(&self) {
        self.merged_from.lock().clear();
    }

    /// Returns the id of the segment with the copy, or 0 if the copy is in a log record from sequence number `floor`
    /// on. `None` if there is no usable copy.
    pub fn segment(&self, floor: u64) -> Option<u64> {
        match &*self.place.lock() {
            Place::Segment(segment) => Some(segment.number),
            Place::Log(record) if *record >= floor => Some(0),
            Place::Log(_) | Place::Nowhere => None,
        }
    }

    /// Returns the segment with the copy; `None` if it is in none.
    pub fn file(&self) -> Option<Arc<SegmentFile>> {
        match &*self.place.lock() {
            Place::Segment(file) => Some(file.clone()),
            Place::Log(_) | Place::Nowhere => None,
        }
    }

    /// Returns the encryption key of the table, if the copy is in a segment under that key; `None` otherwise.
    pub fn key(&self) -> Option<&Arc<TableKey>> {
        self.key.get()
    }

    /// Returns whether the copy is in a segment.
    pub fn is_in_segment(&self) -> bool {
        matches!(*self.place.lock(), Place::Segment(_))
    }

    /// Records that a copy is stored in a log record. A copy in a segment takes precedence.
    pub fn put_in_log(&self, record: u64) {
        let mut place = self.place.lock();
        match *place {
            Place::Segment(_) => {}
            Place::Nowhere => *place = Place::Log(record),
            Place::Log(before) => {
                assert!(before <= record, "records are appended in order: {record} after {before}");
                *place = Place::Log(record);
            }
        }
    }

    /// Records that the copy is in a segment that was just written, under the table's encryption key if there is one,
    /// and no longer at its previous location.
    pub fn put_in_segment(&self, segment: &Arc<SegmentFile>, key: Option<Arc<TableKey>>) {
        // Setting the key twice is harmless, because all versions of a table share it.
        key.into_iter().for_each(|key| drop(self.key.set(key)));
        let before = std::mem::replace(&mut *self.place.lock(), Place::Segment(segment.clone()));
        if let Place::Segment(before) = before
            && !Arc::ptr_eq(&before, segment)
        {
            before.remove_live(self.number);
        }
    }
}
