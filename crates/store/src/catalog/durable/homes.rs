//! Where the durable copies of chunks are.
//!
//! A chunk gets a number when it is first written, and keeps it for ever; its copy may move from the log to a segment.
//!
//! Invariant: the file of a segment is there as long as a chunk in memory has its home in it or was merged from one that
//! has, unless it was written again since, or the segment is being written.

use crate::catalog::Catalog;
use farpool_columns::Chunk;
use farpool_disk::{Part, Segment, TableKey, segment_name};
use farpool_model::{Error, Result};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// The durable copy of a chunk.
#[derive(Debug)]
pub(super) struct Home {
    pub number: u64,
    place: Mutex<Place>,
    /// The key of the table, if it has one and the copy is in a segment.
    key: OnceLock<Arc<TableKey>>,
    /// The homes of the chunks that this one was merged from: until a manifest has it, these are needed to make it again.
    merged_from: Mutex<Vec<farpool_columns::Home>>,
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
}

impl SegmentFile {
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

/// Has segments removed when nothing in memory has its home in them any more.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    /// While this is there, what has its home in a segment and is still wanted is in memory.
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
            }
        }));
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // Beside this one, the directory's list has it.
        if let Place::Segment(file) = self.place.get_mut()
            && Arc::strong_count(file) == 2
        {
            let sweep = file.sweep.clone();
            // What is looked for must not have it any more.
            *self.place.get_mut() = Place::Nowhere;
            sweep.want();
        }
    }
}

impl Home {
    /// The home of a chunk; one that has none gets a number from `next`.
    pub fn of(chunk: &Chunk, next: &AtomicU64) -> Arc<Home> {
        Home::at(chunk.home(), next)
    }

    /// The home of a chunk that has one.
    pub fn existing(chunk: &Chunk) -> Option<Arc<Home>> {
        chunk.home().get()?.clone().downcast().ok()
    }

    /// The home that is kept at `slot`, likewise.
    pub fn at(slot: &OnceLock<farpool_columns::Home>, next: &AtomicU64) -> Arc<Home> {
        let home = slot.get_or_init(|| {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let (place, key) = (Mutex::new(Place::Nowhere), OnceLock::new());
            Arc::new(Home { number, place, key, merged_from: Mutex::default() })
        });
        home.clone().downcast().expect("chunks of a catalog have homes of its own")
    }

    /// Gives what was read from a segment, of a table with the key there, or from the record `record` of the log, its home.
    pub fn found(
        slot: &OnceLock<farpool_columns::Home>,
        number: u64,
        segment: Option<(Arc<SegmentFile>, Option<Arc<TableKey>>)>,
        record: u64,
    ) {
        let key = OnceLock::new();
        let place = match segment {
            Some((file, of_table)) => {
                of_table.into_iter().for_each(|of_table| drop(key.set(of_table)));
                Place::Segment(file)
            }
            None => Place::Log(record),
        };
        // Nobody else knows the chunk yet.
        let _ =
            slot.set(Arc::new(Home { number, place: Mutex::new(place), key, merged_from: Mutex::default() }));
    }

    /// Tells that the chunk was merged from others.
    pub fn set_merged_from<'a>(&self, others: impl Iterator<Item = &'a Chunk>) {
        *self.merged_from.lock() = others.filter_map(|chunk| chunk.home().get()).cloned().collect();
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

    /// Tells that the copy is in a segment, under the key of its table if that has one.
    pub fn put_in_segment(&self, segment: Arc<SegmentFile>, key: Option<Arc<TableKey>>) {
        // All versions of a table have the same key.
        key.into_iter().for_each(|key| drop(self.key.set(key)));
        *self.place.lock() = Place::Segment(segment);
    }
}
