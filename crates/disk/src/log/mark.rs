//! The mark of a log: the number of records known to be durable, in a small file beside the log.
//!
//! A write that was torn by a loss of power and a truncated file look alike at the end of a log: bytes are missing or
//! zero. The mark distinguishes them, in this scenario:
//! 1. 300 records are written, synced and acknowledged; a second later the mark states 300.
//! 2. The log file is lost, emptied or truncated in the middle, and extended to its former length with zeros.
//! 3. Without the mark, the log would open as one of 150 records whose last write was torn. With it, opening fails.
//!
//! The mark is written about once a second by a background thread ([`Log::keep_marked`]), and at a clean stop. The loss
//! of records that were acknowledged in the last second before the damage may therefore go undetected.
//!
//! Invariant: a mark never states more records than were durable when it was written. Best effort: a log with a missing
//! or damaged mark is recovered without that check.

use super::Log;
use crate::files::Directory;
use crate::sealed::{read_sealed, write_sealed};
use farpool_model::Result;
use parking_lot::MutexGuard;
use std::time::Duration;

/// Name of the file of the mark.
pub(super) const NAME: &str = "durable";

const FORMAT: u32 = 1;

/// Minimum interval between two writes of the mark, each of which costs two syncs. The loss of records that were
/// acknowledged since the last mark is not detected.
const INTERVAL: Duration = Duration::from_secs(1);

/// Contents of the mark file: how many records of which log were durable when it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DurabilityMark {
    /// Id of the log, so that the mark of another log is recognized.
    pub log: u64,
    /// Number of durable records.
    pub records: u64,
}

impl DurabilityMark {
    /// Reads the mark of a directory; `None` if it is missing or corrupted.
    pub fn read(directory: &dyn Directory) -> Option<DurabilityMark> {
        let contents = read_sealed(directory, NAME, FORMAT).ok()?;
        let (log, records) = contents.split_first_chunk()?;
        let log = u64::from_le_bytes(*log);
        Some(DurabilityMark { log, records: u64::from_le_bytes(records.try_into().ok()?) })
    }

    fn write(self, directory: &dyn Directory) -> Result<()> {
        let contents = [self.log.to_le_bytes(), self.records.to_le_bytes()].concat();
        write_sealed(directory, NAME, FORMAT, &contents)
    }
}

impl Log {
    /// Writes the number of durable records, unless the mark on disk has it already. From then on, [`Log::open`] fails
    /// if one of these records is missing.
    ///
    /// # Errors
    /// Errors of the file system; the log continues.
    pub fn mark(&self) -> Result<()> {
        let mut marked = self.marked.lock();
        // Read while the lock is held, so that a thread with an older number cannot overwrite a newer mark.
        let records = self.state.lock().durable;
        assert!(marked.is_none_or(|marked| marked <= records), "durable records stay durable");
        if *marked == Some(records) {
            return Ok(());
        }
        // After a failed write, the old or the new mark may be on disk.
        *marked = None;
        DurabilityMark { log: self.number, records }.write(&*self.directory)?;
        *marked = Some(records);
        Ok(())
    }

    /// Returns the number of records in the mark on disk; `None` if it is not known. Blocks while the mark is being
    /// written.
    pub fn records_marked(&self) -> Option<u64> {
        *self.marked.lock()
    }

    /// Writes the mark about once a second if records have become durable since, until the log is stopped or closed, or
    /// a write of the log fails. Has [`Log::write_next`] write records that nobody waits for. Meant for a background thread; records never wait for it.
    pub fn keep_marked(&self) {
        let mut state = self.state.lock();
        while state.is_open() {
            self.ended.wait_for(&mut state, INTERVAL);
            if state.is_open() {
                // Makes the writer write records that nobody waits for, so that they become durable within a second,
                // too.
                state.is_awaited |= state.waiting_records > 0;
                self.arrived.notify_one();
                // A failed attempt leaves the previous mark, which is still correct, and is repeated a second later.
                MutexGuard::unlocked(&mut state, || drop(self.mark()));
            }
        }
    }
}
