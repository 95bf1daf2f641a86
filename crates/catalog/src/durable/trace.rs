//! A trace of what is asked of the pool as a cache of the data directory, and of what is read for it: with it, what was read
//! can be compared with the least that any order of eviction would have read. Off unless a host asks for it.
//!
//! Invariant: a trace takes a bounded amount of memory; what comes when it is full is counted and not recorded.

use super::locations::Location;
use farpool_columns::Chunk;
use parking_lot::Mutex;

/// Records which column chunks queries use and which are read from disk, in order.
#[derive(Debug)]
pub struct AccessTrace {
    len_limit: usize,
    recorded: Mutex<Recorded>,
}

/// What a trace has recorded.
#[derive(Clone, Debug, Default)]
pub struct Recorded {
    /// Oldest first.
    pub accesses: Vec<Access>,
    /// Number of accesses that came when the trace was full.
    pub lost: u64,
}

/// One access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The number of the chunk, which is unique within its data directory.
    pub chunk: u64,
    /// What was done with its values.
    pub kind: AccessKind,
    /// Bytes of the values in memory.
    pub bytes: usize,
    /// Bytes that are read from disk for them: fewer where they are compressed.
    pub bytes_on_disk: usize,
}

/// What was done with the values of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessKind {
    /// A query began to work on them; once for each time that it begins with their row group.
    Used,
    /// They were read from disk, for a query or in the background.
    Read,
}

/// Where the values of a chunk lie on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceOnDisk {
    /// Name of the file in the data directory.
    pub file: String,
    /// The first byte.
    pub offset: u64,
    /// Bytes from there on.
    pub bytes: u64,
}

impl AccessTrace {
    /// A trace of at most `len_limit` accesses, of 32 bytes each.
    pub fn new(len_limit: usize) -> AccessTrace {
        AccessTrace { len_limit, recorded: Mutex::default() }
    }

    /// Takes what was recorded so far.
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

/// Where the values of a chunk lie on disk; `None` where they are not in a segment.
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
