//! The mark of a log: the number of records known to be durable, in a small file beside the log.
//!
//! A write that was torn by a loss of power and a file that was cut look alike at the end of a log: bytes are missing or zero.
//! The mark tells them apart. The scenario that it detects:
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

/// Contents of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// Number of the log, to recognize a mark of another one.
    pub log: u64,
    /// Number of durable records.
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
    /// Writes the number of durable records, unless it is written already. From then on, [`Log::open`] fails if one of these
    /// records is missing. Called by one thread at a time.
    ///
    /// # Errors
    /// Errors of the file system; the log goes on.
    pub fn mark(&self) -> Result<()> {
        let records = self.state.lock().durable;
        if self.marked.swap(records, Ordering::Relaxed) == records {
            return Ok(());
        }
        let written = Mark { log: self.number, records }.write(&*self.directory);
        written.inspect_err(|_| self.marked.store(u64::MAX, Ordering::Relaxed))
    }
}
