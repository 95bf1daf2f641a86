//! Rollback of the latest changes of keys in a running store: empties all keyspaces and rebuilds them from the latest
//! snapshot and the log up to a certain record, because the records after it are invalid. In a group of nodes, this
//! happens to records that a leader has appended and that were never committed.
//!
//! The invalid records stay in the log, from whose end nothing is ever removed. Instead, a snapshot of the rebuilt keys
//! is taken before any command is accepted again, so that the next start does not apply these records. Example:
//!
//! 1. Records 0 to 9 exist, and records 7 to 9 are invalid. The keys are rebuilt from records 0 to 6.
//! 2. If commands were accepted now, record 10 would be appended, and a start after a crash would apply records 7 to
//!    10.
//! 3. Instead, a snapshot of the rebuilt keys is taken, which says that replay begins at record 10.
//!
//! If the node fails before the snapshot is valid, the log is as before, and the records have to be rolled back again.

use super::KeyLog;
use super::applier::Applier;
use super::recovery::apply_snapshot;
use crate::keyspaces::Keyspaces;
use farpool_kv::{Rebuild, WhenFull};
use farpool_model::{Error, Result};
use std::ops::Range;
use std::sync::Arc;

impl KeyLog {
    /// Calls `f` with the sequence number and the bytes of each of `records`, in order, after making them durable. No
    /// snapshot that makes these records obsolete may be taken during the call, because it would remove their files.
    ///
    /// # Errors
    /// `Invalid` for records that do not exist; `Corrupt` if files are corrupt or missing; errors of `f` and of the
    /// disk.
    pub fn read(&self, records: Range<u64>, f: &mut dyn FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        let Some(last) = records.end.checked_sub(1).filter(|_| !records.is_empty()) else { return Ok(()) };
        self.log.commit(last)?;
        let mut next = records.start;
        let read = farpool_disk::Log::read(&*self.directory, records.start, &mut |number, record| {
            // Records after the requested ones are skipped, because they may be only partly written.
            if number < records.end {
                f(number, record)?;
                next = number + 1;
            }
            Ok(())
        });
        match read {
            _ if next == records.end => Ok(()),
            Err(error) => Err(error),
            Ok(_) => Err(Error::corrupt("the log of keys has fewer records than were written")),
        }
    }

    /// Rebuilds `keyspaces`, whose changes this log records, as they were after the first `end` records; the effects of
    /// all later records are lost for good. Commands are refused during the call. Evicts no keys. Blocks on the disk.
    ///
    /// # Errors
    /// `Invalid`, with nothing changed, if there are fewer records, or if the latest snapshot may contain effects of
    /// later records. After errors of the disk, or if memory is too small, the store refuses all commands until it is
    /// opened again.
    pub fn rebuild(&self, keyspaces: &Keyspaces, end: u64, unix_s: u64) -> Result<()> {
        let _taking = self.taking.lock();
        self.settle()?;
        self.check_end(end)?;
        let all = keyspaces.begin_rebuild();
        let rebuilds: Vec<Rebuild<'_>> = all.iter().map(|(_, keys)| keys.begin_rebuild()).collect();
        let replacements = all.iter().zip(&rebuilds);
        let replacements =
            replacements.map(|((tenant, _), rebuild)| (tenant.clone(), rebuild.replacement().clone()));
        let replacement = Arc::new(keyspaces.like(replacements.collect()));
        self.replay_into(&replacement, end, unix_s).inspect_err(|error| self.refuse(error, false))?;
        rebuilds.into_iter().for_each(Rebuild::finish);
        keyspaces.end_rebuild();
        tracing::info!(records = end, "the keys were rebuilt without the end of their log");
        Ok(())
    }

    fn check_end(&self, end: u64) -> Result<()> {
        let (whole, appended) = (self.snapshots().complete_at, self.appended());
        if end > appended {
            return Err(Error::invalid(format!(
                "keys cannot be rebuilt from {end} records: there are {appended}"
            )));
        }
        if end < whole {
            let message = format!("keys cannot be rebuilt from {end} records: their snapshot has {whole}");
            return Err(Error::invalid(message));
        }
        Ok(())
    }

    /// Applies the first `end` records to empty keyspaces, and takes a snapshot of the result.
    fn replay_into(&self, keyspaces: &Arc<Keyspaces>, end: u64, unix_s: u64) -> Result<()> {
        let (latest, tenants) = (self.snapshots().latest, keyspaces.all().len());
        if latest.number > 0 {
            apply_snapshot(&self.directory, &latest, keyspaces, (0, WhenFull::Fail))?;
        }
        let mut applier = Applier::new(keyspaces, WhenFull::Fail);
        self.read(latest.next_record..end, &mut |_, record| applier.apply(record))?;
        if keyspaces.all().len() != tenants {
            return Err(Error::internal("the log of keys has records of a tenant without keys"));
        }
        self.take_snapshot(keyspaces, unix_s)
    }
}
