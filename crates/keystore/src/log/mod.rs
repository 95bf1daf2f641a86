//! The log of changes of keys (a write-ahead log), which makes keys and values durable.
//!
//! All tenants share one log, whose files (`kv-log-…`) are separate from those of the log of tables. A record has the
//! name of a tenant and the effects of one command. Commands append records in memory; one thread writes and syncs them
//! to disk: at an interval, when a client waits for a record ([`Fsync::Always`]), or when many bytes are waiting. If
//! the disk cannot keep up, clients wait before their next command begins (backpressure).
//!
//! A second thread takes snapshots (`snapshot.rs`), after which the log before them is not needed any more, and records
//! the time; a third notes how many records are durable. Recovery reads the latest snapshot and the records after it
//! (`recovery.rs`). Backups take a snapshot of their own (`backup.rs`).
//!
//! Invariant: after a record could not be appended or written, no command changes keys any more, and with
//! [`Fsync::Always`] no reply that depends on a later record is sent. Otherwise the log could have a gap:
//!
//! 1. `SET a 1` changes `a` in memory; its record cannot be written.
//! 2. `INCR a` would record `a = 2` and reply; recovery after a crash would then find a value that depends on a lost
//!    change.
//! 3. Instead, `INCR a` fails with `MISCONF` before it changes anything, until the node is restarted (or until there is
//!    space, if the disk was found full before a record was lost).

mod applier;
mod backup;
mod progress;
mod rebuild;
#[cfg(test)]
mod rebuild_tests;
mod recovery;
mod snapshot;
mod stepped;
#[cfg(test)]
mod tests;

pub use applier::Applier;
pub use backup::{KeyBackup, adopt_keys};
pub use progress::{Follower, ProgressRelay};
pub use recovery::{KeyLogOptions, KeysFound, check_keys, has_keys};
pub use snapshot::{Snapshot, Snapshots};
pub use stepped::SteppedKeys;

use crate::keyspaces::Keyspaces;
use farpool_disk::{ChangeLog, Directory, ReservePolicy};
use farpool_kv::Journal;
use farpool_model::cast::{u64_from, usize_saturating};
use farpool_model::{Error, ErrorKind, Result, TenantName, limits};
use parking_lot::{Condvar, Mutex};
use progress::DurableProgress;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Waker;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;
use tokio::sync::watch;

/// Prefix of the log's file names in the data directory.
const PREFIX: &str = "kv-";

/// Number of unwritten bytes of records from which on the writer thread is woken. Reason for 2 MiB: writing them takes
/// about as long as the sync that follows.
const WAKE_BYTES: usize = 2 << 20;

/// Number of unwritten bytes of records from which on clients must wait (backpressure). Reason for 16 MiB: a fast
/// network delivers about as much during a slow sync.
const HELD_BYTES: usize = 16 << 20;

/// Bytes that are preallocated in the current file beyond its records, so that commands seldom wait for a new file.
const AHEAD_BYTES: usize = 4 << 20;

/// The durability mode (`--fsync`): when a changed key must be on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fsync {
    /// A changed key is on disk before the reply to the command is sent.
    Always,
    /// A changed key is on disk within a second.
    #[default]
    EverySecond,
    /// A changed key is on disk within about ten seconds. Unlike in Redis, each write is synced in this mode, too,
    /// because recovery relies on it.
    No,
}

impl Fsync {
    /// Returns the name of the mode in Redis' setting `appendfsync`.
    pub fn name(self) -> &'static str {
        match self {
            Fsync::Always => "always",
            Fsync::EverySecond => "everysec",
            Fsync::No => "no",
        }
    }

    /// Returns the maximum time that a record waits before it is written.
    fn interval(self) -> Duration {
        match self {
            Fsync::Always | Fsync::EverySecond => Duration::from_millis(500),
            Fsync::No => Duration::from_secs(10),
        }
    }
}

/// The size of files, and the size of the log from which on a snapshot is taken; tests use small sizes.
#[derive(Clone, Copy, Debug)]
pub struct LogThresholds {
    /// Number of bytes of each file of the log, which are reserved when the file is created.
    pub file_bytes: u64,
    /// Minimum bytes of the log after the latest snapshot at which the next snapshot is taken. If the latest snapshot
    /// is larger than this, its size counts instead.
    pub snapshot_bytes: u64,
}

impl Default for LogThresholds {
    fn default() -> Self {
        LogThresholds { file_bytes: u64_from(limits::LOG_FILE_BYTES), snapshot_bytes: 64 << 20 }
    }
}

/// The write-ahead log of changes of keys, of all tenants, with its snapshots and threads.
pub struct KeyLog {
    directory: Arc<dyn Directory>,
    log: Box<dyn ChangeLog>,
    fsync: Fsync,
    thresholds: LogThresholds,
    progress: watch::Sender<DurableProgress>,
    /// Wakers of programs that read keys and wait for records to be committed.
    programs: Mutex<Vec<Waker>>,
    /// The error with which commands that change keys fail, if the log accepts no changes; `refuses` says so without
    /// the lock.
    refusal: Mutex<Option<Refusal>>,
    refuses: AtomicBool,
    /// Bytes appended since the writer thread began its last write.
    waiting: AtomicUsize,
    writer: WakeSignal,
    keeper: WakeSignal,
    snapshots: Mutex<Snapshots>,
    /// Lock that is held while a snapshot is taken, so that only one is taken at a time.
    taking: Mutex<()>,
    /// Numbers of the snapshots that backups use, whose files must not be removed.
    pinned: Mutex<Vec<u64>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Clone, Debug)]
struct Refusal {
    error: Error,
    /// Whether changes are accepted again when the disk has space.
    is_temporary: bool,
}

/// A signal with which one thread is woken or stopped.
#[derive(Debug, Default)]
struct WakeSignal {
    state: Mutex<WakeState>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, Default)]
struct WakeState {
    is_woken: bool,
    is_stopped: bool,
}

impl WakeSignal {
    fn wake(&self) {
        let mut state = self.state.lock();
        if !state.is_woken {
            state.is_woken = true;
            self.changed.notify_one();
        }
    }

    fn stop(&self) {
        self.state.lock().is_stopped = true;
        self.changed.notify_one();
    }

    /// Blocks until the thread is woken or stopped or the time `most` has passed. Returns whether the thread must
    /// continue (was not stopped), and whether it was woken.
    fn wait(&self, most: Duration) -> (bool, bool) {
        let mut state = self.state.lock();
        if !state.is_woken && !state.is_stopped {
            self.changed.wait_for(&mut state, most);
        }
        (!state.is_stopped, std::mem::take(&mut state.is_woken))
    }
}

impl KeyLog {
    /// Returns whether replies must wait until the records that they depend on are committed ([`Fsync::Always`]).
    pub fn waits(&self) -> bool {
        self.fsync == Fsync::Always
    }

    /// Blocks until the record with the sequence number `number` is committed.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn wait(&self, number: u64) -> Result<()> {
        self.log.commit(number)
    }

    /// Returns the durability mode.
    pub fn fsync(&self) -> Fsync {
        self.fsync
    }

    /// Returns whether so many bytes are not yet written that clients must wait (backpressure).
    fn is_behind(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) >= HELD_BYTES
    }

    /// Makes commands that change keys fail with `error` from now on. The first error is kept, but a permanent error
    /// replaces a temporary one.
    fn refuse(&self, error: &Error, is_temporary: bool) {
        let mut refusal = self.refusal.lock();
        if refusal.as_ref().is_none_or(|refusal| refusal.is_temporary && !is_temporary) {
            tracing::error!(%error, "keys cannot be changed: their log cannot be written");
            *refusal = Some(Refusal { error: error.clone(), is_temporary });
            self.refuses.store(true, Ordering::Release);
        }
        drop(refusal);
        if !is_temporary {
            self.progress.send_modify(|progress| progress.has_failed = true);
            self.wake_programs();
        }
    }

    fn allow_again(&self) {
        let mut refusal = self.refusal.lock();
        if refusal.as_ref().is_some_and(|refusal| refusal.is_temporary) {
            *refusal = None;
            self.refuses.store(false, Ordering::Release);
            tracing::info!("keys can be changed again: there is space for their log");
        }
    }

    fn check(&self, bytes: usize) -> Result<()> {
        if self.refuses.load(Ordering::Acquire)
            && let Some(refusal) = &*self.refusal.lock()
        {
            return Err(refusal.error.clone());
        }
        // If the writer thread is late, commands preallocate space themselves, because a command that found no space
        // after it has changed keys would stop all changes for good. Half of the preallocated space is reserved for
        // commands that have passed this check already.
        let bytes = bytes.min(limits::LOG_RECORD_BYTES_MAX);
        match self.log.room() < u64_from(self.ahead_bytes() / 2 + bytes) {
            true => self.make_room_or_refuse(bytes.max(AHEAD_BYTES)),
            false => Ok(()),
        }
    }

    /// Does the same as [`KeyLog::make_room`]; if that fails, makes commands that change keys fail, too: until there is
    /// space if the disk is full, otherwise for good.
    fn make_room_or_refuse(&self, bytes: usize) -> Result<()> {
        self.make_room(bytes).inspect_err(|error| self.refuse(error, error.kind == ErrorKind::OverLimit))
    }

    /// Preallocates space for `bytes` bytes, or for as many as a file of the log allows at once.
    fn make_room(&self, bytes: usize) -> Result<()> {
        self.log.make_room(bytes.min(self.bytes_at_once()), ReservePolicy::Normal)
    }

    fn bytes_at_once(&self) -> usize {
        usize_saturating(self.thresholds.file_bytes / 4)
    }

    fn ahead_bytes(&self) -> usize {
        AHEAD_BYTES.min(self.bytes_at_once())
    }

    fn append(&self, record: &[u8]) -> Result<u64> {
        // The command has changed keys already, so it may use the space that is otherwise reserved.
        let appended = self.log.append(record, ReservePolicy::FreesSpace);
        let before = self.waiting.fetch_add(record.len(), Ordering::Relaxed);
        if before < WAKE_BYTES && before + record.len() >= WAKE_BYTES {
            self.writer.wake();
        }
        appended.inspect_err(|error| self.refuse(error, false))
    }

    /// Writes and syncs all appended records and preallocates space for the next ones. Blocks on the disk.
    fn write(&self) {
        self.waiting.store(0, Ordering::Relaxed);
        if let Some(last) = self.log.next_record().checked_sub(1) {
            // The log's observer ([`DurabilityObserver`]) learns the outcome.
            drop(self.log.commit(last));
        }
        if self.make_room_or_refuse(AHEAD_BYTES).is_ok() {
            self.allow_again();
        }
    }

    fn write_on(&self) {
        while self.writer.wait(self.fsync.interval()).0 {
            self.write();
        }
        self.write();
    }

    /// Stops the threads of the log, takes a last snapshot if the log is long, and closes the log. Blocks on the disk.
    ///
    /// # Errors
    /// Errors of the disk. The directory remains consistent, and durable records remain durable.
    pub fn close(&self, keyspaces: &Keyspaces, unix_s: u64) -> Result<()> {
        self.keeper.stop();
        self.writer.stop();
        self.log.stop();
        for thread in self.threads.lock().drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the log of keys had panicked");
            }
        }
        for keys in keyspaces.all() {
            keys.record_time()?;
        }
        self.last_snapshot(keyspaces, unix_s);
        let closed = self.log.close();
        // Writes the number of durable records to the log's mark, so that the next start detects if any of these
        // records are missing.
        drop(self.log.mark());
        let error = Error::unavailable("the node is being stopped");
        self.refusal.lock().get_or_insert(Refusal { error, is_temporary: false });
        self.refuses.store(true, Ordering::Release);
        self.progress.send_modify(|progress| progress.has_failed = true);
        self.wake_programs();
        closed
    }
}

/// Starts the threads of the log: for writing records, for snapshots, and for the mark of durable records.
///
/// # Errors
/// `Internal` when the system has no more threads.
#[expect(clippy::disallowed_methods, reason = "the log waits for the disk on threads of its own")]
fn start(log: &Arc<KeyLog>, keyspaces: &Arc<Keyspaces>, clock: Arc<dyn farpool_model::Clock>) -> Result<()> {
    let failed = |error| Error::internal(format!("cannot start a thread for the log of keys: {error}"));
    let (writing, keeping, keyspaces) = (log.clone(), log.clone(), keyspaces.clone());
    let writer = Builder::new().name("farpool-keys".into()).spawn(move || writing.write_on());
    log.threads.lock().push(writer.map_err(failed)?);
    let keep = move || keeping.keep(&keyspaces, &*clock);
    let keeper = Builder::new().name("farpool-keys-snap".into()).spawn(keep);
    log.threads.lock().push(keeper.map_err(failed)?);
    let marking = log.clone();
    let marker = Builder::new().name("farpool-keys-mark".into()).spawn(move || marking.log.keep_marked());
    log.threads.lock().push(marker.map_err(failed)?);
    Ok(())
}

impl fmt::Debug for KeyLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyLog").field("fsync", &self.fsync).finish_non_exhaustive()
    }
}

/// The journal of one tenant's keyspace: adds the tenant's name to each record and appends it to the log.
struct TenantJournal {
    log: Arc<KeyLog>,
    head: Vec<u8>,
}

impl KeyLog {
    pub(crate) fn journal(self: &Arc<Self>, tenant: &TenantName) -> Box<dyn Journal> {
        Box::new(TenantJournal { log: self.clone(), head: head_of(tenant) })
    }
}

impl Journal for TenantJournal {
    fn check(&self, bytes: usize) -> Result<()> {
        self.log.check(bytes)
    }

    fn begin(&self, record: &mut Vec<u8>) {
        record.extend_from_slice(&self.head);
    }

    fn append(&self, record: &[u8]) -> Result<u64> {
        self.log.append(record)
    }
}

/// Returns the header of a tenant's records: the length of the tenant's name (1 byte) and the name.
fn head_of(tenant: &TenantName) -> Vec<u8> {
    let name = tenant.as_str().as_bytes();
    const { assert!(limits::NAME_BYTES_MAX <= u8::MAX as usize) };
    let mut head = vec![name.len() as u8];
    head.extend_from_slice(name);
    head
}

/// Splits a log record into the name of its tenant and the record of the tenant's keyspace; fails with `Corrupt` if it
/// is too short.
fn tenant_of(record: &[u8]) -> Result<(&[u8], &[u8])> {
    let split = record.split_first().and_then(|(bytes, rest)| rest.split_at_checked(usize::from(*bytes)));
    split.ok_or_else(|| Error::corrupt("a record of the log of keys names no tenant"))
}
