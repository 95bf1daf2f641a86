//! The mark of a log: the number of records known to be durable, in a small file beside the log.
//!
//! A write that was torn by a loss of power and a file that was cut look alike at the end of a log: bytes are missing or zero.
//! The mark tells them apart. The scenario that it detects:
//! 1. 300 records are written, synced and acknowledged, and the mark says so a second later.
//! 2. The file of the log is lost, emptied or cut in the middle, and made as long as it was with zeros.
//! 3. Without the mark, the log would be taken for one of 150 records whose last write was torn.
//!
//! It is written about once a second, by a thread that nobody waits for ([`Log::keep_marked`]), and at a clean stop. So what was
//! acknowledged in the last second before the damage may seem to have been torn.
//!
//! Invariant: a mark never says more than what was durable when it was written. It is best effort: a log without one, or with a
//! damaged one, is read as it is.

use super::Log;
use crate::files::Directory;
use crate::sealed::{read_sealed, write_sealed};
use farpool_model::Result;
use parking_lot::MutexGuard;
use std::time::Duration;

/// The name of its file.
pub(super) const NAME: &str = "durable";

const FORMAT: u32 = 1;

/// How often a mark is written, at most: it costs two syncs, and what was acknowledged since the last one may seem torn.
const INTERVAL: Duration = Duration::from_secs(1);

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
    /// records is missing.
    ///
    /// # Errors
    /// Errors of the file system; the log goes on.
    pub fn mark(&self) -> Result<()> {
        let mut marked = self.marked.lock();
        // Read behind the lock, so that the mark of another thread is not replaced by an older one.
        let records = self.state.lock().durable;
        if *marked == Some(records) {
            return Ok(());
        }
        // After an error, either mark may be there.
        *marked = None;
        Mark { log: self.number, records }.write(&*self.directory)?;
        *marked = Some(records);
        Ok(())
    }

    /// Number of durable records that the mark is known to have; waits for one that is being written.
    pub fn records_marked(&self) -> Option<u64> {
        *self.marked.lock()
    }

    /// Writes the mark about once a second if records have become durable since, until the log is stopped or closed, or a
    /// write of it fails. For a thread of its own: no record waits for it.
    pub fn keep_marked(&self) {
        let mut state = self.state.lock();
        while state.is_open() {
            self.ended.wait_for(&mut state, INTERVAL);
            if state.is_open() {
                // Where it cannot be written, the one before is still right, and a second later it is tried again.
                MutexGuard::unlocked(&mut state, || drop(self.mark()));
            }
        }
    }
}
