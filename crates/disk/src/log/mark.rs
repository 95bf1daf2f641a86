//! The mark of a log: how many of its records are known to be durable, in a small file beside it.
//!
//! What a loss of power has torn and what somebody has cut off look alike at the end of a log: bytes that are missing, or zeros.
//! The mark tells them apart:
//! 1. 300 records are written, synced and acknowledged, and the mark says so a second later.
//! 2. The file of the log is lost, emptied or cut in the middle, and made as long as it was with zeros.
//! 3. Without the mark, the log would be taken for one of 150 records whose last write was torn.
//!
//! Invariant: a mark never says more than what was durable when it was written. It is best effort: a log without one, or with a
//! damaged one, is read as it is.

use super::Log;
use crate::files::Directory;
use crate::sealed::{read_sealed, write_sealed};
use farpool_model::Result;
use std::sync::atomic::Ordering;

/// The name of its file.
pub(super) const NAME: &str = "durable";

const FORMAT: u32 = 1;

/// What was durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// Which log it is of.
    pub log: u64,
    /// Number of records.
    pub records: u64,
}

impl Mark {
    /// Reads the mark of a directory, if it has a whole one.
    pub fn read(directory: &dyn Directory) -> Option<Mark> {
        let contents = read_sealed(directory, NAME, FORMAT).ok()?;
        let (log, records) = contents.split_first_chunk()?;
        let log = u64::from_le_bytes(*log);
        Some(Mark { log, records: u64::from_le_bytes(records.try_into().ok()?) })
    }

    fn write(self, directory: &dyn Directory) -> Result<()> {
        let contents = [self.log.to_le_bytes(), self.records.to_le_bytes()].concat();
        write_sealed(directory, NAME, FORMAT, &contents)
    }
}

impl Log {
    /// Writes down how many records are durable, unless that is written down already: from now on, it is an error at
    /// [`Log::open`] if some of these are missing. By one thread at a time.
    ///
    /// # Errors
    /// Those of the file system; the log goes on.
    pub fn mark(&self) -> Result<()> {
        let records = self.state.lock().durable;
        if self.marked.swap(records, Ordering::Relaxed) == records {
            return Ok(());
        }
        let written = Mark { log: self.number, records }.write(&*self.directory);
        written.inspect_err(|_| self.marked.store(u64::MAX, Ordering::Relaxed))
    }
}
