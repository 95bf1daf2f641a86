//! Snapshots of all keys, taken while the keys change (fuzzy snapshots).
//!
//! A snapshot is a log of its own (`kv-snapshot-<number>-log-…`) with the records of a walk, an iteration over all
//! keys. It is about as large as the keys and is written a few megabytes at a time. A snapshot becomes valid when the
//! file `kv-snapshot` names it. This file is written last, and also says at which record of the log replay begins: the
//! first record appended after the walk began. Before the file is written, the log is made durable up to the end of the
//! walk. Example:
//!
//! 1. The walk begins at record 100 and copies `b = 0`.
//! 2. Record 105, an `EXEC`, sets `a = 1` and `b = 1`. The walk then copies `a = 1`.
//! 3. Recovery reads `a = 1` and `b = 0` from the snapshot and replays from record 100 on, which sets `b = 1`. If
//!    record 105 were not durable before the snapshot became valid, half of the transaction could remain after a crash.

use super::{KeyLog, head_of, recovery};
use crate::keyspaces::Keyspaces;
use farpool_disk::{Directory, Log, ReservePolicy, prefixed, write_sealed};
use farpool_kv::{Journal, Walk};
use farpool_model::cast::u64_from;
use farpool_model::{Clock, Error, Result, limits};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Name of the file that names the valid snapshot.
pub(super) const NAME: &str = "snapshot";

pub(super) const FORMAT: u32 = 1;

/// Interval at which the thread checks whether a snapshot must be taken.
const TICK: Duration = Duration::from_secs(1);

/// Number of ticks until a failed snapshot is tried again.
const TICKS_BETWEEN_TRIES: u32 = 60;

/// Bytes of a snapshot that are written to disk at a time.
const PIECE_BYTES: u64 = 4 << 20;

/// Minimum size in bytes of a file of a snapshot.
const FILE_BYTES_MIN: u64 = 4 << 20;

/// The state of the log's snapshots.
#[derive(Clone, Copy, Debug, Default)]
pub struct Snapshots {
    /// The valid snapshot; with number 0 if there is none.
    pub latest: Snapshot,
    /// Bytes of the log after `latest` when the log was opened; `written_before` is the log's `bytes_written` when
    /// `latest` began. The log after `latest` has `log_bytes_before` bytes plus those written since.
    pub(super) log_bytes_before: u64,
    pub(super) written_before: u64,
    /// Number of log records whose effects the snapshot `latest` may contain, because they were appended before its
    /// walk over the keys ended.
    pub(super) complete_at: u64,
    /// Whether a snapshot is being taken.
    pub is_under_way: bool,
    /// Whether the last attempt to take a snapshot failed.
    pub has_failed: bool,
    pub(super) is_wanted: bool,
    /// Whether writing the file that names the valid snapshot failed. It may then name the old or the new snapshot
    /// after a crash, so the files of both must stay.
    pub(super) is_unsure: bool,
}

/// The description of a snapshot, as the file that names the valid snapshot contains it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Number of the snapshot, counted from 1; 0 for none.
    pub number: u64,
    /// Sequence number of the first record of the log to replay after this snapshot.
    pub next_record: u64,
    /// Number of records of the snapshot itself.
    pub records: u64,
    /// Bytes of the snapshot's records.
    pub bytes: u64,
    /// Completion time, in seconds since 1970.
    pub unix_s: u64,
}

impl Snapshot {
    pub(super) fn encode(&self) -> Vec<u8> {
        let Snapshot { number, next_record, records, bytes, unix_s } = *self;
        [number, next_record, records, bytes, unix_s].iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Snapshot> {
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

    /// Returns the prefix of the file names of this snapshot.
    pub(super) fn prefix(&self) -> String {
        prefix(self.number)
    }

    /// Returns a view of `directory` with only the files of the snapshot with this number.
    pub(super) fn directory(number: u64, directory: &Arc<dyn Directory>) -> Arc<dyn Directory> {
        prefixed(directory.clone(), &prefix(number))
    }
}

/// The journal to which a walk over one tenant's keys writes: appends the records to the snapshot.
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
        let number = self.log.append(record, ReservePolicy::FreesSpace)?;
        let bytes = u64_from(record.len());
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        if before / PIECE_BYTES < (before + bytes) / PIECE_BYTES {
            self.log.commit(number)?;
        }
        Ok(number)
    }
}

impl KeyLog {
    /// Returns the state of the snapshots.
    pub fn snapshots(&self) -> Snapshots {
        *self.snapshots.lock()
    }

    /// Returns the bytes of the log after the latest snapshot.
    pub fn bytes(&self) -> u64 {
        let snapshots = self.snapshots();
        snapshots.log_bytes_before + self.log.bytes_written() - snapshots.written_before
    }

    /// Returns whether changes of keys are accepted.
    pub fn is_writing(&self) -> bool {
        !self.refuses.load(Ordering::Relaxed)
    }

    /// Requests a snapshot, which the log's thread takes in the background.
    pub fn want_snapshot(&self) {
        self.snapshots.lock().is_wanted = true;
        self.keeper.wake();
    }

    /// The loop of the thread for snapshots: takes a snapshot when the log is long enough or one was requested, and
    /// records the time every second. Returns when the log is closed.
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
        self.bytes() > self.thresholds.snapshot_bytes.max(self.snapshots().latest.bytes)
    }

    /// Takes a snapshot at a clean stop, unless the log is so short that replaying it takes little time.
    pub(super) fn last_snapshot(&self, keyspaces: &Keyspaces, unix_s: u64) {
        let snapshots = self.snapshots();
        if self.bytes() > snapshots.latest.bytes / 8 && self.log.next_record() > snapshots.latest.next_record
        {
            let _taking = self.taking.lock();
            drop(self.take_snapshot(keyspaces, unix_s));
        }
    }

    /// Takes a snapshot and removes obsolete files. The caller must hold the lock `taking`, because only one snapshot
    /// may be taken at a time.
    ///
    /// # Errors
    /// Errors of the disk; the previous snapshot then remains valid.
    pub(super) fn take_snapshot(&self, keyspaces: &Keyspaces, unix_s: u64) -> Result<()> {
        self.take_snapshot_between(keyspaces, unix_s, &mut || {})
    }

    /// Does the same as [`KeyLog::take_snapshot`]; `between` is called between the steps of the walk.
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
        let outcome = taken.map(|(snapshot, written_before, complete_at)| {
            (snapshots.latest, snapshots.complete_at) = (snapshot, complete_at);
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

    /// Makes certain which snapshot is valid, after writing the file that names it has failed. The files of both
    /// candidates stay until then.
    ///
    /// # Errors
    /// Errors of the disk; the valid snapshot is then as uncertain as before.
    pub(super) fn settle(&self) -> Result<()> {
        if !self.snapshots.lock().is_unsure {
            return Ok(());
        }
        let place = self.directory.describe();
        self.directory.sync().map_err(|error| Error::unavailable(format!("cannot sync {place}: {error}")))?;
        let named = recovery::latest(&self.directory, &recovery::names(&self.directory)?)?;
        let mut snapshots = self.snapshots.lock();
        (snapshots.latest, snapshots.is_unsure) = (named, false);
        snapshots.complete_at = self.appended();
        drop(snapshots);
        self.remove_other_snapshots();
        Ok(())
    }

    /// Writes the records of a snapshot. Returns the snapshot, the log's `bytes_written` at the beginning of the walk,
    /// and the number of records of the log at its end.
    fn write_snapshot(
        &self,
        number: u64,
        keyspaces: &Keyspaces,
        unix_s: u64,
        between: &mut dyn FnMut(),
    ) -> Result<(Snapshot, u64, u64)> {
        // Begins a new log file, so that the files with only older records can be removed.
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
        let complete_at = self.log.next_record();
        if let Some(last) = complete_at.checked_sub(1) {
            self.log.commit(last)?;
        }
        let bytes = bytes.load(Ordering::Relaxed);
        let snapshot = Snapshot { number, next_record, records, bytes, unix_s };
        self.snapshots.lock().is_unsure = true;
        write_sealed(&*self.directory, NAME, FORMAT, &snapshot.encode())?;
        self.snapshots.lock().is_unsure = false;
        Ok((snapshot, written_before, complete_at))
    }
}

fn unexpected() -> Result<()> {
    Err(Error::corrupt("a new snapshot of keys has records"))
}

fn prefix(number: u64) -> String {
    format!("snapshot-{number:012}-")
}

/// Removes the files of all snapshots except those with these numbers. Ignores errors, because a file that stays is
/// removed next time.
pub(super) fn remove_others(directory: &Arc<dyn Directory>, kept: &[u64]) {
    let kept: Vec<String> = kept.iter().map(|number| prefix(*number)).collect();
    let is_kept = |name: &str| kept.iter().any(|kept| name.starts_with(kept));
    let names = directory.names().unwrap_or_default();
    for name in names.iter().filter(|name| name.starts_with("snapshot-") && !is_kept(name)) {
        drop(directory.remove(name));
    }
    drop(directory.sync());
}
