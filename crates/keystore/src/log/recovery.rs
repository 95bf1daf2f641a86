//! Recovery at a start: reads the valid snapshot of keys and replays the log after it.
//!
//! Invariant: the keys' clock continues from the latest recorded time. Example: `k` with `EX 10` has expired for a
//! client before a crash, and the machine's clock is set back during the restart; `k` must not exist again.

use super::applier::Applier;
use super::progress::{DurabilityObserver, DurableProgress};
use super::snapshot::{self, FORMAT, NAME, Snapshot, Snapshots};
use super::{Fsync, KeyLog, LogThresholds, PREFIX, start, tenant_of};
use crate::keyspaces::Keyspaces;
use farpool_disk::{Directory, Log, LogOver, TornEnd, prefixed, read_sealed};
use farpool_kv::{Replay, WhenFull};
use farpool_model::cast::u64_from;
use farpool_model::{Clock, Error, ErrorKind, Result};
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use tokio::sync::watch;

/// Maximum number of snapshot records (about 256 KiB each) that wait for the threads that apply them, which limits
/// memory.
const WAITING: usize = 16;

/// A summary of the keys found in a data directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeysFound {
    /// Number of keys; 0 if they were only checked.
    pub keys: u64,
    /// Bytes of the snapshot.
    pub snapshot_bytes: u64,
    /// Number of log records after the snapshot.
    pub changes: u64,
    /// The torn (partly written) end of the log that was dropped, if there was one.
    pub dropped: Option<TornEnd>,
}

/// Checks the files of keys in a data directory without changing them. No node may have the directory open. Returns a
/// summary; `None` if there are no keys.
///
/// # Errors
/// `Corrupt` when a file is corrupt or missing; errors of the file system.
pub fn check_keys(directory: Arc<dyn Directory>) -> Result<Option<KeysFound>> {
    let directory = prefixed(directory, PREFIX);
    let names = names(&directory)?;
    if names.is_empty() {
        return Ok(None);
    }
    let latest = latest(&directory, &names)?;
    if latest.number > 0 {
        read_snapshot(&directory, &latest, &mut |record| tenant_of(record).map(drop))?;
    }
    let recovered = Log::read(&*directory, latest.next_record, &mut |_, record| tenant_of(record).map(drop))?;
    let (snapshot_bytes, changes) = (latest.bytes, recovered.records);
    Ok(Some(KeysFound { keys: 0, snapshot_bytes, changes, dropped: recovered.dropped }))
}

/// Returns whether a data directory contains keys.
///
/// # Errors
/// Errors of the file system.
pub fn has_keys(directory: &Arc<dyn Directory>) -> Result<bool> {
    names(&prefixed(directory.clone(), PREFIX)).map(|names| !names.is_empty())
}

/// Arguments for opening a log of keys.
#[derive(Debug)]
pub struct KeyLogOptions {
    /// The data directory, in which the files of keys have a prefix of their own.
    pub directory: Arc<dyn Directory>,
    /// When a changed key must be on disk.
    pub fsync: Fsync,
    /// Sizes of files, and of the log at which a snapshot is due.
    pub thresholds: LogThresholds,
    /// Id of the log, if it is created.
    pub new_log: u64,
    /// Number of threads that apply a snapshot; with 0, the calling thread does it.
    pub threads: usize,
    /// Function that makes the log of changes from the log in the directory: the log itself or, with replicas, a log
    /// that replicates it.
    pub log_over: LogOver,
}

impl KeyLog {
    /// Reads all keys of a data directory into `keyspaces`, logs their changes from now on, and starts the log's
    /// threads.
    ///
    /// # Errors
    /// `Corrupt` when a file is corrupt or missing; `OverLimit` when memory is too small; errors of the file system.
    pub fn open(
        opening: KeyLogOptions,
        keyspaces: &Arc<Keyspaces>,
        clock: Arc<dyn Clock>,
    ) -> Result<(Arc<KeyLog>, KeysFound)> {
        let (log, found) = KeyLog::recover(opening, keyspaces)?;
        start(&log, keyspaces, clock)?;
        Ok((log, found))
    }

    /// Does the same as [`KeyLog::open`], without starting the log's threads.
    pub(super) fn recover(
        opening: KeyLogOptions,
        keyspaces: &Arc<Keyspaces>,
    ) -> Result<(Arc<KeyLog>, KeysFound)> {
        let KeyLogOptions { directory, fsync, thresholds, new_log, threads, log_over } = opening;
        let directory = prefixed(directory, PREFIX);
        let latest = latest(&directory, &names(&directory)?)?;
        let within = |error: Error| in_memory(&*directory, error);
        if latest.number > 0 {
            apply_snapshot(&directory, &latest, keyspaces, (threads, WhenFull::Evict)).map_err(within)?;
        }
        // Other snapshots are removed only after a sync, which guarantees that this snapshot is still the valid one
        // after the next crash.
        if directory.sync().is_ok() {
            snapshot::remove_others(&directory, &[latest.number]);
        }
        let (mut applier, mut log_bytes_before) = (Applier::new(keyspaces, WhenFull::Evict), 0);
        let mut apply = |number, record: &[u8]| {
            log_bytes_before += u64_from(record.len());
            applier.apply(record).map_err(|error| Error {
                message: format!("record {number} of the log of keys: {}", error.message),
                ..error
            })
        };
        let new_log = (latest.number == 0).then_some(new_log.max(1));
        let opened = Log::open_sized(
            directory.clone(),
            thresholds.file_bytes,
            new_log,
            latest.next_record,
            &mut apply,
        );
        let (log, recovered) = opened.map_err(within)?;
        // Notes how many records are durable, so that at the next start a missing or empty log is an error and does not
        // look like a directory without keys.
        if let Err(error) = log.mark() {
            tracing::debug!(%error, "how many changes of keys are durable is not written down");
        }
        let durable = log.next_record();
        let progress = watch::Sender::new(DurableProgress { durable, has_failed: false });
        let told = Arc::new(OnceLock::new());
        log.observe(Box::new(DurabilityObserver { progress: progress.clone(), log: told.clone() }));
        // All records that the snapshot's walk has seen were durable when the snapshot became valid.
        let complete_at = if latest.number > 0 { durable } else { 0 };
        let snapshots = Snapshots { latest, log_bytes_before, complete_at, ..Snapshots::default() };
        let log = Arc::new(KeyLog {
            directory,
            log: log_over.over(log),
            fsync,
            thresholds,
            progress,
            programs: Mutex::default(),
            refusal: Mutex::default(),
            refuses: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            writer: super::WakeSignal::default(),
            keeper: super::WakeSignal::default(),
            snapshots: Mutex::new(snapshots),
            taking: Mutex::default(),
            pinned: Mutex::default(),
            threads: Mutex::default(),
        });
        drop(told.set(Arc::downgrade(&log)));
        // A key that has expired for a client must not exist again.
        let seen = keyspaces.all().iter().map(|keys| keys.latest()).max();
        keyspaces.time().go_on_from(seen.unwrap_or(0));
        // Preallocates space; if the disk has none, changes are refused from the start.
        log.write();
        keyspaces.record_in(&log);
        let counts = keyspaces.all().into_iter().flat_map(|keys| keys.counts());
        let keys = counts.map(|(_, count)| u64_from(count.keys)).sum();
        let (snapshot_bytes, changes, dropped) = (latest.bytes, recovered.records, recovered.dropped);
        Ok((log, KeysFound { keys, snapshot_bytes, changes, dropped }))
    }
}

pub(super) fn names(directory: &Arc<dyn Directory>) -> Result<Vec<String>> {
    directory.names().map_err(|error| {
        Error::unavailable(format!("cannot list the files of {}: {error}", directory.describe()))
    })
}

/// Reads which snapshot is valid from the file that names it.
pub(super) fn latest(directory: &Arc<dyn Directory>, names: &[String]) -> Result<Snapshot> {
    if !names.iter().any(|name| name == NAME) {
        return Ok(Snapshot::default());
    }
    let contents = read_sealed(&**directory, NAME, FORMAT)?;
    Snapshot::decode(&contents).ok_or_else(|| damaged(&**directory))
}

/// Returns the error for a corrupt file that should name the valid snapshot.
pub(super) fn damaged(directory: &dyn Directory) -> Error {
    Error::corrupt(format!("{} in {} is damaged", directory.full_name(NAME), directory.describe()))
        .advise("restore the directory from a backup")
}

/// Adds to an out-of-memory error that the keys do not fit into memory.
fn in_memory(directory: &dyn Directory, error: Error) -> Error {
    if error.kind != ErrorKind::OverLimit {
        return error;
    }
    let message = format!("the keys of {} do not fit into memory: {}", directory.describe(), error.message);
    Error::over_limit(message).advise("give the node more memory: --memory 8GiB")
}

/// Reads the snapshot `snapshot` and calls `sink` with each of its records in order.
fn read_snapshot(
    directory: &Arc<dyn Directory>,
    snapshot: &Snapshot,
    sink: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let files = Snapshot::directory(snapshot.number, directory);
    let read = Log::read(&*files, 0, &mut |_, record| sink(record)).map_err(of_snapshot)?;
    if read.records != snapshot.records || read.dropped.is_some() {
        let (place, names, whole) = (files.describe(), files.full_name("log-"), snapshot.records);
        let message = format!(
            "the snapshot of keys in {place} is damaged: {} of its {whole} records are left in {names}*",
            read.records
        );
        return Err(of_snapshot(Error::corrupt(message)));
    }
    Ok(())
}

/// Adds advice to an error of reading a snapshot, because a snapshot, unlike a log, is of no use in parts.
fn of_snapshot(error: Error) -> Error {
    match error.kind {
        ErrorKind::Corrupt => error.advise("restore the directory from a backup"),
        _ => error,
    }
}

/// Applies the records of a snapshot with `threads` threads. Independent records ([`Replay::is_independent`]) are applied
/// in any order; any other one by the calling thread, after all records in front of it.
#[expect(clippy::disallowed_methods, reason = "a snapshot is applied by several threads")]
pub(super) fn apply_snapshot(
    directory: &Arc<dyn Directory>,
    snapshot: &Snapshot,
    keyspaces: &Arc<Keyspaces>,
    (threads, when_full): (usize, WhenFull),
) -> Result<()> {
    if threads == 0 {
        let mut applier = Applier::new(keyspaces, when_full);
        return read_snapshot(directory, snapshot, &mut |record| applier.apply(record));
    }
    let (sender, receiver) = sync_channel::<Vec<u8>>(WAITING);
    let (receiver, failure, handed_out) = (Mutex::new(receiver), OnceLock::new(), HandedOut::default());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let (receiver, failure, handed_out) = (&receiver, &failure, &handed_out);
            scope.spawn(move || apply_all((keyspaces, when_full), receiver, failure, handed_out));
        }
        let mut applier = Applier::new(keyspaces, when_full);
        let failed =
            || failure.get().cloned().unwrap_or_else(|| Error::internal("nobody applies a snapshot"));
        let mut apply = |record: &[u8]| {
            if Replay::is_independent(tenant_of(record)?.1) {
                handed_out.begin();
                return send(&sender, record).map_err(|()| failed());
            }
            handed_out.wait();
            applier.apply(record)
        };
        let read = read_snapshot(directory, snapshot, &mut apply);
        drop(sender);
        read
    })?;
    failure.into_inner().map_or(Ok(()), Err)
}

/// The records that were handed to other threads and are not applied yet.
#[derive(Default)]
struct HandedOut {
    count: Mutex<usize>,
    none: Condvar,
}

impl HandedOut {
    fn begin(&self) {
        *self.count.lock() += 1;
    }

    /// Blocks until all records are applied, or given up after an error.
    fn wait(&self) {
        let mut count = self.count.lock();
        while *count > 0 {
            self.none.wait(&mut count);
        }
    }
}

/// Notes on drop that a record is applied, also if the thread panics: the calling thread waits for it.
struct EndOnDrop<'a>(&'a HandedOut);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        let mut count = self.0.count.lock();
        *count -= 1;
        if *count == 0 {
            self.0.none.notify_all();
        }
    }
}

fn send(sender: &SyncSender<Vec<u8>>, record: &[u8]) -> std::result::Result<(), ()> {
    sender.send(record.to_vec()).map_err(|_| ())
}

/// Applies the records from a channel until the channel closes; returns the first error.
fn apply_all(
    (keyspaces, when_full): (&Arc<Keyspaces>, WhenFull),
    receiver: &Mutex<Receiver<Vec<u8>>>,
    failure: &OnceLock<Error>,
    handed_out: &HandedOut,
) {
    let mut applier = Applier::new(keyspaces, when_full);
    loop {
        let next = receiver.lock().recv();
        let Ok(record) = next else { return };
        let _applied = EndOnDrop(handed_out);
        if failure.get().is_some() {
            // The remaining records are received and ignored, so that the sender does not block forever.
            continue;
        }
        if let Err(error) = applier.apply(&record) {
            drop(failure.set(error));
        }
    }
}
