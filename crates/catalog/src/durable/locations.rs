//! Where the durable copies of chunks are.
//!
//! A chunk gets a number when it is first written, and keeps it for ever; its copy may move from the log to a segment.
//!
//! Invariant: the file of a segment is there as long as a chunk in memory has its location in it or was merged from one that
//! has, unless it was written again since, or the segment is being written.

use crate::Catalog;
use farpool_columns::Chunk;
use farpool_disk::{Part, Segment, TableKey, segment_name};
use farpool_model::{Error, Result};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// The durable copy of a chunk.
#[derive(Debug)]
pub(super) struct Location {
    pub number: u64,
    place: Mutex<Place>,
    /// The key of the table, if it has one and the copy is in a segment.
    key: OnceLock<Arc<TableKey>>,
    /// The locations of the chunks that this one was merged from: until a manifest has it, these are needed to make it again.
    merged_from: Mutex<Vec<farpool_columns::Location>>,
}

#[derive(Clone, Debug)]
enum Place {
    /// Nowhere yet.
    Nowhere,
    /// In the record of this number.
    Log(u64),
    Segment(Arc<SegmentFile>),
}

/// A segment that is on disk.
#[derive(Debug)]
pub(super) struct SegmentFile {
    pub number: u64,
    pub segment: Segment,
    pub sweep: Arc<Sweep>,
    /// Bytes of all parts, and of the parts that are the location of a chunk in memory.
    bytes_of_parts: u64,
    bytes_live: AtomicU64,
    /// What was live when it was compacted last: as long as nothing more is gone, it is not compacted again.
    bytes_left: AtomicU64,
}

/// What a part takes in its file: its data, and about what the directory has of it.
fn weight(part: &Part) -> u64 {
    const ENTRY_BYTES: u64 = 64;
    part.bytes_stored + ENTRY_BYTES
}

impl SegmentFile {
    /// A segment that was just written: all of its parts are about to be locations.
    pub fn written(number: u64, segment: Segment, sweep: &Arc<Sweep>) -> Arc<SegmentFile> {
        let file = SegmentFile::found(number, segment, sweep);
        file.bytes_live.store(file.bytes_of_parts, Ordering::Relaxed);
        file
    }

    /// A segment that was on disk, before anything is found in it.
    pub fn found(number: u64, segment: Segment, sweep: &Arc<Sweep>) -> Arc<SegmentFile> {
        let bytes_of_parts = segment.parts().map(|(_, part)| weight(part)).sum();
        let (sweep, bytes_live, bytes_left) = (sweep.clone(), AtomicU64::new(0), AtomicU64::new(u64::MAX));
        Arc::new(SegmentFile { number, segment, sweep, bytes_of_parts, bytes_live, bytes_left })
    }

    /// What the parts take.
    pub fn bytes_of_parts(&self) -> u64 {
        self.bytes_of_parts
    }

    /// About what the parts take in which something in memory has its location: chunks that row groups shared before a start
    /// have several locations after it.
    pub fn bytes_live(&self) -> u64 {
        self.bytes_live.load(Ordering::Relaxed)
    }

    /// Whether less than half of it is live, and something is gone since it was compacted last.
    pub fn is_sparse(&self) -> bool {
        let live = self.bytes_live();
        live < self.bytes_of_parts / 2 && live < self.bytes_left.load(Ordering::Relaxed)
    }

    /// Tells that it is compacted now: what stays in it, also because that fails, does so until more is gone.
    pub fn is_compacted(&self) {
        self.bytes_left.store(self.bytes_live(), Ordering::Relaxed);
    }

    fn remove_live(&self, chunk: u64) {
        let gone = self.segment.part(chunk).map_or(0, weight);
        let less = |live: u64| Some(live.saturating_sub(gone));
        // It never fails.
        let _ = self.bytes_live.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// The part that has a chunk.
    ///
    /// # Errors
    /// `Corrupt` where there is none.
    pub fn part(&self, chunk: u64) -> Result<&Part> {
        let nowhere = || {
            Error::corrupt(format!("{} has no chunk {chunk}, which a table needs", segment_name(self.number)))
        };
        self.segment.part(chunk).ok_or_else(nowhere)
    }
}

/// Removes segments that are the location of no chunk in memory any more, and compacts those that are of few.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    /// While this is there, what has its location in a segment and is still wanted is in memory.
    catalog: Weak<Catalog>,
    is_wanted: AtomicBool,
}

impl Sweep {
    pub fn new(catalog: &Arc<Catalog>) -> Arc<Sweep> {
        Arc::new(Sweep { catalog: Arc::downgrade(catalog), is_wanted: AtomicBool::new(false) })
    }

    /// Looks for such segments soon, elsewhere.
    pub fn want(self: &Arc<Self>) {
        let Some(catalog) = self.catalog.upgrade() else { return };
        if self.is_wanted.swap(true, Ordering::Relaxed) {
            return;
        }
        let (sweep, background) = (self.clone(), catalog.background.clone());
        drop(catalog);
        background.write(Box::new(move || {
            sweep.is_wanted.store(false, Ordering::Relaxed);
            // A catalog that is gone has left its tables on disk.
            let Some(catalog) = sweep.catalog.upgrade() else { return };
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
        // Beside this one, the directory's list has it.
        if Arc::strong_count(file) == 2 || file.is_sparse() {
            let sweep = file.sweep.clone();
            // What is looked for must not have it any more.
            *self.place.get_mut() = Place::Nowhere;
            sweep.want();
        }
    }
}

impl Location {
    /// The location of a chunk; one that has none gets a number from `next`.
    pub fn of(chunk: &Chunk, next: &AtomicU64) -> Arc<Location> {
        Location::at(chunk.location(), next)
    }

    /// The location of a chunk that has one.
    pub fn existing(chunk: &Chunk) -> Option<Arc<Location>> {
        Location::existing_at(chunk.location())
    }

    /// The location that is kept at `slot`, if there is one.
    pub fn existing_at(slot: &OnceLock<farpool_columns::Location>) -> Option<Arc<Location>> {
        slot.get()?.clone().downcast().ok()
    }

    /// The location that is kept at `slot`, likewise.
    pub fn at(slot: &OnceLock<farpool_columns::Location>, next: &AtomicU64) -> Arc<Location> {
        let location = slot.get_or_init(|| {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let (place, key) = (Mutex::new(Place::Nowhere), OnceLock::new());
            Arc::new(Location { number, place, key, merged_from: Mutex::default() })
        });
        location.clone().downcast().expect("chunks of a catalog have locations of its own")
    }

    /// Gives what was read from a segment, of a table with the key there, or from the record `record` of the log, its location.
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
        // Nobody else knows the chunk yet.
        let _ = slot.set(Arc::new(Location {
            number,
            place: Mutex::new(place),
            key,
            merged_from: Mutex::default(),
        }));
    }

    /// Tells that the chunk was merged from others.
    pub fn set_merged_from<'a>(&self, others: impl Iterator<Item = &'a Chunk>) {
        *self.merged_from.lock() = others.filter_map(|chunk| chunk.location().get()).cloned().collect();
    }

    /// Tells that a durable manifest has the chunk.
    pub fn is_in_manifest(&self) {
        self.merged_from.lock().clear();
    }

    /// The segment that the copy is in; 0 where it is in a record of the log that is not older than `floor`. `None`
    /// where there is no copy.
    pub fn segment(&self, floor: u64) -> Option<u64> {
        match &*self.place.lock() {
            Place::Segment(segment) => Some(segment.number),
            Place::Log(record) if *record >= floor => Some(0),
            Place::Log(_) | Place::Nowhere => None,
        }
    }

    /// The segment that the copy is in, if it is in one.
    pub fn file(&self) -> Option<Arc<SegmentFile>> {
        match &*self.place.lock() {
            Place::Segment(file) => Some(file.clone()),
            Place::Log(_) | Place::Nowhere => None,
        }
    }

    /// The key of the table whose segment the copy is in, if it has one.
    pub fn key(&self) -> Option<&Arc<TableKey>> {
        self.key.get()
    }

    /// Whether the copy is in a segment.
    pub fn is_in_segment(&self) -> bool {
        matches!(*self.place.lock(), Place::Segment(_))
    }

    /// Tells that the copy is in a record of the log.
    pub fn put_in_log(&self, record: u64) {
        let mut place = self.place.lock();
        if !matches!(*place, Place::Segment(_)) {
            *place = Place::Log(record);
        }
    }

    /// Tells that the copy is in a segment that was just written, under the key of its table if that has one, and no longer
    /// where it was before.
    pub fn put_in_segment(&self, segment: &Arc<SegmentFile>, key: Option<Arc<TableKey>>) {
        // All versions of a table have the same key.
        key.into_iter().for_each(|key| drop(self.key.set(key)));
        let before = std::mem::replace(&mut *self.place.lock(), Place::Segment(segment.clone()));
        if let Place::Segment(before) = before
            && !Arc::ptr_eq(&before, segment)
        {
            before.remove_live(self.number);
        }
    }
}
