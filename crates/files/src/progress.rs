//! Progress of reading a file, added to a counter that several files share.
//!
//! Invariant: a file adds at most its own size, and exactly its size when it was read to its end, whatever bytes the
//! reader skipped or read twice.

use std::io::{Read, Result, Seek, SeekFrom};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The progress of one file.
pub(super) struct Progress {
    bytes: u64,
    reported: AtomicU64,
    total: Arc<AtomicU64>,
}

impl Progress {
    pub(super) fn new(bytes: u64, total: Arc<AtomicU64>) -> Self {
        Progress { bytes, reported: AtomicU64::new(0), total }
    }

    /// Returns the size of the file in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Records that `bytes` more bytes were read.
    pub(super) fn add(&self, bytes: u64) {
        self.reach(self.reported.load(Relaxed).saturating_add(bytes));
    }

    /// Records that the file was read up to about the offset `position`.
    pub(super) fn reach(&self, position: u64) {
        let position = position.min(self.bytes);
        let before = self.reported.fetch_max(position, Relaxed);
        self.total.fetch_add(position.saturating_sub(before), Relaxed);
    }

    /// Records that the file has been read to its end.
    pub(super) fn complete(&self) {
        self.reach(self.bytes);
    }
}

/// A reader that adds the bytes read to a progress.
pub(super) struct Counting<R> {
    pub(super) inner: R,
    pub(super) progress: Arc<Progress>,
}

impl<R: Read> Read for Counting<R> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let count = self.inner.read(buffer)?;
        self.progress.add(count as u64);
        Ok(count)
    }
}

impl<R: Seek> Seek for Counting<R> {
    fn seek(&mut self, position: SeekFrom) -> Result<u64> {
        self.inner.seek(position)
    }
}
