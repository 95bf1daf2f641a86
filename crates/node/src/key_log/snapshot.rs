//! Snapshots of all keys, taken while these change.
//!
//! A snapshot is a log of its own (`kv-snapshot-<number>-log-…`) with the records of a walk over all keys, of about as many
//! bytes as the keys have; it is written as the walk goes, a few megabytes at a time. It counts once the file `kv-snapshot`
//! names it, which is written last and says from which record of the log on changes are applied behind it: those from the
//! moment on when the walk began. The log is durable as far as the walk has seen before that, so that the keys that are read
//! again are those of one moment.

use super::{KeyLog, head_of, recovery};
use crate::keyspaces::Keyspaces;
use farpool_disk::{Directory, Log, Urgency, prefixed, write_sealed};
use farpool_kv::{Journal, Walk};
use farpool_model::cast::u64_from;
use farpool_model::{Clock, Error, Result, limits};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The file that names the snapshot that counts.
pub(super) const NAME: &str = "snapshot";

pub(super) const FORMAT: u32 = 1;

/// How often it is looked whether there is something to do.
const TICK: Duration = Duration::from_secs(1);

/// Ticks before a snapshot is tried again that could not be written.
const TICKS_BETWEEN_TRIES: u32 = 60;

/// Bytes of a snapshot that are written at a time.
const PIECE_BYTES: u64 = 4 << 20;

/// Bytes of the smallest file of a snapshot.
const FILE_BYTES_MIN: u64 = 4 << 20;

/// What is known of snapshots.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Snapshots {
    /// The one that counts; its number is 0 where there is none.
    pub latest: Snapshot,
    /// Bytes of the log behind it when the log was opened, less those that were written by then.
    pub(super) log_bytes_before: u64,
    pub(super) written_before: u64,
    pub is_under_way: bool,
    pub has_failed: bool,
    pub(super) is_wanted: bool,
    /// Whether it failed when the file was written that names the one that counts: after a crash that may be either.
    pub(super) is_unsure: bool,
}

/// A snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Snapshot {
    pub number: u64,
    /// The record of the log that follows it.
    pub next_record: u64,
    pub records: u64,
    pub bytes: u64,
    /// When it was complete, in seconds since 1970.
    pub unix_s: u64,
}

impl Snapshot {
    pub(super) fn encode(&self) -> Vec<u8> {
        let Snapshot { number, next_record, records, bytes, unix_s } = *self;
        [number, next_record, records, bytes, unix_s].iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    pub fn decode(bytes: &[u8]) -> Option<Snapshot> {
        let (numbers, []) = bytes.as_chunks::<8>() else { return None };
        let &[number, next_record, records, bytes, unix_s] = numbers else { return None };
        let read = u64::from_le_bytes;
        let (number, next_record, records) = (read(number), read(next_record), read(records));
        (number > 0).then_some(Snapshot {
            number,
            next_record,
            records,
            bytes: read(bytes),
            unix_s: read(unix_s),
        })
    }

    /// What the names of its files begin with.
    pub(super) fn prefix(&self) -> String {
        prefix(self.number)
    }

    /// The directory of its files.
    pub fn directory(number: u64, directory: &Arc<dyn Directory>) -> Arc<dyn Directory> {
        prefixed(directory.clone(), &prefix(number))
    }
}

/// Writes what a walk records of one tenant's keys.
struct Writer<'a> {
    log: &'a Log,
    head: Vec<u8>,
    bytes: &'a AtomicU64,
}

impl Journal for Writer<'_> {
    fn check(&self, _: usize) -> Result<()> {
        Ok(())
    }

    fn begin(&self, record: &mut Vec<u8>) {
        record.extend_from_slice(&self.head);
    }

    fn append(&self, record: &[u8]) -> Result<u64> {
        let number = self.log.append(record, Urgency::FreesSpace)?;
        let bytes = u64_from(record.len());
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        if before / PIECE_BYTES < (before + bytes) / PIECE_BYTES {
            self.log.commit(number)?;
        }
        Ok(number)
    }
}

impl KeyLog {
    /// What is known of snapshots, for `INFO`.
    pub fn snapshots(&self) -> Snapshots {
        *self.snapshots.lock()
    }

    /// Bytes of the log behind the latest snapshot.
    pub fn bytes(&self) -> u64 {
        let snapshots = self.snapshots();
        snapshots.log_bytes_before + self.log.bytes_written() - snapshots.written_before
    }

    /// Whether changes can be written.
    pub fn is_writing(&self) -> bool {
        !self.refuses.load(Ordering::Relaxed)
    }

    /// Has a snapshot taken soon.
    pub fn want_snapshot(&self) {
        self.snapshots.lock().is_wanted = true;
        self.keeper.wake();
    }

    /// Takes snapshots when they are due, and records the time.
    pub(super) fn keep(&self, keyspaces: &Keyspaces, clock: &dyn Clock) {
        let mut ticks_to_wait = 0_u32;
        while self.keeper.wait(TICK).0 {
            for keys in keyspaces.all() {
                if let Err(error) = keys.record_time() {
                    tracing::debug!(%error, "the time is not recorded");
                }
            }
            ticks_to_wait = ticks_to_wait.saturating_sub(1);
            let is_wanted = std::mem::take(&mut self.snapshots.lock().is_wanted);
            if is_wanted || ticks_to_wait == 0 && self.is_due() {
                let _taking = self.taking.lock();
                let taken = self.take_snapshot(keyspaces, clock.unix_s());
                ticks_to_wait = if taken.is_err() { TICKS_BETWEEN_TRIES } else { 0 };
            }
        }
    }

    pub(super) fn is_due(&self) -> bool {
        self.bytes() > self.sizes.snapshot_bytes.max(self.snapshots().latest.bytes)
    }

    /// Takes a snapshot at a clean stop, unless the log is so short that reading it takes hardly longer.
    pub(super) fn last_snapshot(&self, keyspaces: &Keyspaces, unix_s: u64) {
        let snapshots = self.snapshots();
        if self.bytes() > snapshots.latest.bytes / 8 && self.log.next_record() > snapshots.latest.next_record
        {
            let _taking = self.taking.lock();
            drop(self.take_snapshot(keyspaces, unix_s));
        }
    }

    /// Takes a snapshot, and removes what is not needed any more. Nobody else takes one meanwhile.
    ///
    /// # Errors
    /// Those of the disk; the snapshot of before counts then.
    pub(super) fn take_snapshot(&self, keyspaces: &Keyspaces, unix_s: u64) -> Result<()> {
        self.take_snapshot_between(keyspaces, unix_s, &mut || {})
    }

    /// As [`KeyLog::take_snapshot`]; `between` is called between the steps of the walk over all keys.
    pub(super) fn take_snapshot_between(
        &self,
        keyspaces: &Keyspaces,
        unix_s: u64,
        between: &mut dyn FnMut(),
    ) -> Result<()> {
        self.settle()?;
        self.snapshots.lock().is_under_way = true;
        let number = self.snapshots().latest.number + 1;
        let taken = self.write_snapshot(number, keyspaces, unix_s, between);
        let mut snapshots = self.snapshots.lock();
        (snapshots.is_under_way, snapshots.has_failed) = (false, taken.is_err());
        let outcome = taken.map(|(snapshot, written_before)| {
            snapshots.latest = snapshot;
            (snapshots.log_bytes_before, snapshots.written_before) = (0, written_before);
            snapshot
        });
        drop(snapshots);
        if !self.snapshots.lock().is_unsure {
            self.remove_other_snapshots();
        }
        match outcome {
            Ok(snapshot) => {
                if let Err(error) = self.log.forget_before(snapshot.next_record) {
                    tracing::warn!(%error, "a file of the log of keys is not needed any more, and stays");
                }
                Ok(())
            }
            Err(error) => {
                tracing::error!(%error, "no snapshot of the keys could be taken; their log grows on");
                Err(error)
            }
        }
    }

    fn remove_other_snapshots(&self) {
        let mut kept = vec![self.snapshots().latest.number];
        kept.extend_from_slice(&self.pinned.lock());
        remove_others(&self.directory, &kept);
    }

    /// Finds out which snapshot counts, where that is not certain; no file of either is removed before.
    ///
    /// # Errors
    /// Those of the disk: then it is as uncertain as before.
    fn settle(&self) -> Result<()> {
        if !self.snapshots.lock().is_unsure {
            return Ok(());
        }
        let place = self.directory.describe();
        self.directory.sync().map_err(|error| Error::unavailable(format!("cannot sync {place}: {error}")))?;
        let named = recovery::latest(&self.directory, &recovery::names(&self.directory)?)?;
        let mut snapshots = self.snapshots.lock();
        (snapshots.latest, snapshots.is_unsure) = (named, false);
        drop(snapshots);
        self.remove_other_snapshots();
        Ok(())
    }

    /// Returns the snapshot, and the bytes of the log that had been written when it began.
    fn write_snapshot(
        &self,
        number: u64,
        keyspaces: &Keyspaces,
        unix_s: u64,
        between: &mut dyn FnMut(),
    ) -> Result<(Snapshot, u64)> {
        // Files with nothing but older records can then go.
        self.log.turn_over()?;
        let (next_record, written_before) = (self.log.next_record(), self.log.bytes_written());
        let directory = Snapshot::directory(number, &self.directory);
        let all = keyspaces.by_tenant();
        let bytes: usize = all.iter().flat_map(|(_, keys)| keys.counts()).map(|(_, count)| count.bytes).sum();
        let file_bytes = (u64_from(bytes) / 4).clamp(FILE_BYTES_MIN, u64_from(limits::LOG_FILE_BYTES));
        let (log, _) =
            Log::open_sized(directory, file_bytes, Some(number.max(1)), 0, &mut |_, _| unexpected())?;
        let bytes = AtomicU64::new(0);
        for (tenant, keys) in &all {
            let writer = Writer { log: &log, head: head_of(tenant), bytes: &bytes };
            let mut walk = Walk::default();
            while keys.walk(&mut walk, &writer)? {
                between();
            }
        }
        let records = log.next_record();
        log.close()?;
        if let Some(last) = self.log.next_record().checked_sub(1) {
            self.log.commit(last)?;
        }
        let bytes = bytes.load(Ordering::Relaxed);
        let snapshot = Snapshot { number, next_record, records, bytes, unix_s };
        self.snapshots.lock().is_unsure = true;
        write_sealed(&*self.directory, NAME, FORMAT, &snapshot.encode())?;
        self.snapshots.lock().is_unsure = false;
        Ok((snapshot, written_before))
    }
}

fn unexpected() -> Result<()> {
    Err(Error::corrupt("a new snapshot of keys has records"))
}

fn prefix(number: u64) -> String {
    format!("snapshot-{number:012}-")
}

/// Removes the files of all snapshots but those with these numbers. One that stays is removed the next time.
pub(super) fn remove_others(directory: &Arc<dyn Directory>, kept: &[u64]) {
    let kept: Vec<String> = kept.iter().map(|number| prefix(*number)).collect();
    let is_kept = |name: &str| kept.iter().any(|kept| name.starts_with(kept));
    let names = directory.names().unwrap_or_default();
    for name in names.iter().filter(|name| name.starts_with("snapshot-") && !is_kept(name)) {
        drop(directory.remove(name));
    }
    drop(directory.sync());
}
