//! A trace of the accesses to the pool as a cache, and of the reads from disk that they cause. It shows how many more
//! reads there are than with an optimal eviction order. Off unless the node enables it.
//!
//! Invariant: a trace takes bounded memory; accesses beyond its limit are counted but not recorded.

use super::locations::Location;
use farpool_columns::Chunk;
use parking_lot::Mutex;

/// Records in order which column chunks queries use and which are read from disk.
#[derive(Debug)]
pub struct AccessTrace {
    len_limit: usize,
    recorded: Mutex<Recorded>,
}

/// Contents of a trace.
#[derive(Clone, Debug, Default)]
pub struct Recorded {
    /// Ordered from oldest to newest.
    pub accesses: Vec<Access>,
    /// Number of accesses that were not recorded because the trace was full.
    pub lost: u64,
}

/// One access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Id of the column chunk, unique within its data directory.
    pub chunk: u64,
    /// Kind of the access.
    pub kind: AccessKind,
    /// Bytes of the values in memory.
    pub bytes: usize,
    /// Bytes of the values on disk; fewer than `bytes` if they are compressed.
    pub bytes_on_disk: usize,
}

/// Kind of an access to the values of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessKind {
    /// A query began to process the values. Recorded each time a query starts with their row group.
    Used,
    /// The values were read from disk, for a query or in the background.
    Read,
}

/// Position of the values of a chunk on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceOnDisk {
    /// Name of the file in the data directory.
    pub file: String,
    /// Offset of the first byte.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
}

impl AccessTrace {
    /// Creates a trace of at most `len_limit` accesses, 32 bytes each.
    pub fn new(len_limit: usize) -> AccessTrace {
        AccessTrace { len_limit, recorded: Mutex::default() }
    }

    /// Takes the recorded accesses, leaving the trace empty.
    pub fn take(&self) -> Recorded {
        std::mem::take(&mut self.recorded.lock())
    }

    pub(super) fn add(&self, handle: &Chunk, kind: AccessKind) {
        let Some(location) = Location::existing(handle) else { return };
        let access = Access {
            chunk: location.number,
            kind,
            bytes: handle.bytes_encoded(),
            bytes_on_disk: handle.bytes_on_disk(),
        };
        let mut recorded = self.recorded.lock();
        match recorded.accesses.len() < self.len_limit {
            true => recorded.accesses.push(access),
            false => recorded.lost += 1,
        }
    }
}

/// Returns the position of the values of a chunk on disk; `None` if they are not in a segment.
pub fn place_on_disk(chunk: &Chunk) -> Option<PlaceOnDisk> {
    let location = Location::existing(chunk)?;
    let file = location.file()?;
    let part = file.part(location.number).ok()?;
    Some(PlaceOnDisk {
        file: farpool_disk::segment_name(file.number),
        offset: part.offset,
        bytes: part.bytes_stored,
    })
}
