//! The log of keys: what makes keys and values durable.
//!
//! One log for all tenants, beside that of tables, in files of its own (`kv-log-…`). A record is what a command has done,
//! behind the name of its tenant. One thread writes what waits: every half second, when a client waits for it
//! ([`Fsync::Always`]), or when much has come together; where the disk cannot keep up, clients are held back before their
//! commands begin. Another thread takes snapshots (`snapshot.rs`), behind which the log need not be kept, and records the
//! time; a third notes how many records are durable. A start reads the latest snapshot and the records behind it (`recovery.rs`). A backup has a snapshot of its own
//! (`backup.rs`).
//!
//! Invariant: once a record could not be written, or not even be appended, no command changes keys any more, and none that
//! came behind it was acknowledged where that waits for the disk.

mod backup;
mod recovery;
mod snapshot;
mod stepped;
#[cfg(test)]
mod tests;

pub(crate) use backup::KeyBackup;
pub use backup::adopt_keys;
pub use recovery::{KeysFound, check_keys};
pub(crate) use recovery::{Opening, has_keys};
pub use stepped::{SteppedHost, SteppedKeys};

use crate::keyspaces::Keyspaces;
use farpool_disk::{Directory, Log, Observer, Urgency};
use farpool_kv::Journal;
use farpool_model::cast::{u64_from, usize_saturating};
use farpool_model::{Error, ErrorKind, Result, TenantName, limits};
use parking_lot::{Condvar, Mutex};
use snapshot::Snapshots;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;
use tokio::sync::watch;

/// What the names of its files begin with in the data directory.
const PREFIX: &str = "kv-";

/// Bytes that wait before the thread is woken to write them: enough that a sync is worth it.
const WAKE_BYTES: usize = 2 << 20;

/// Bytes that wait before clients are held back: those of a fast network in the time of a slow sync.
const HELD_BYTES: usize = 16 << 20;

/// Bytes for which there is room ahead in the current file, so that commands seldom wait for another file.
const AHEAD_BYTES: usize = 4 << 20;

/// When keys that have changed must be on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fsync {
    /// Before the change is acknowledged.
    Always,
    /// A second later at most.
    #[default]
    EverySecond,
    /// Within some seconds. Each write is synced in this mode, too: the log could not be read again otherwise.
    No,
}

impl Fsync {
    /// The name that Redis has for it.
    pub fn name(self) -> &'static str {
        match self {
            Fsync::Always => "always",
            Fsync::EverySecond => "everysec",
            Fsync::No => "no",
        }
    }

    /// How long a change waits at most until it is written.
    fn interval(self) -> Duration {
        match self {
            Fsync::Always | Fsync::EverySecond => Duration::from_millis(500),
            Fsync::No => Duration::from_secs(10),
        }
    }
}

/// How large files are and when a snapshot is taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Of a file of the log.
    pub file_bytes: u64,
    /// Bytes of the log behind a snapshot after which the next one is taken, or as many as that has, if these are more.
    pub snapshot_bytes: u64,
}

impl Default for Sizes {
    fn default() -> Self {
        Sizes { file_bytes: u64_from(limits::LOG_FILE_BYTES), snapshot_bytes: 64 << 20 }
    }
}

/// How far the log is.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    /// Number of records that are durable.
    durable: u64,
    has_failed: bool,
}

/// See the file's comment.
pub(crate) struct KeyLog {
    directory: Arc<dyn Directory>,
    log: Log,
    fsync: Fsync,
    sizes: Sizes,
    progress: watch::Sender<Progress>,
    /// Why no command may change keys, and whether that is so.
    refusal: Mutex<Option<Refusal>>,
    refuses: AtomicBool,
    /// Bytes that came since the thread began to write last.
    waiting: AtomicUsize,
    writer: Alarm,
    keeper: Alarm,
    snapshots: Mutex<Snapshots>,
    /// Taken by whoever takes a snapshot.
    taking: Mutex<()>,
    /// Numbers of the snapshots that backups have.
    pinned: Mutex<Vec<u64>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Clone, Debug)]
struct Refusal {
    error: Error,
    /// It ends when there is space on the disk again.
    is_temporary: bool,
}

/// Wakes a thread.
#[derive(Debug, Default)]
struct Alarm {
    state: Mutex<AlarmState>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, Default)]
struct AlarmState {
    is_woken: bool,
    is_stopped: bool,
}

impl Alarm {
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

    /// Waits until it is woken or so much time has passed; returns whether to go on, and whether it was woken.
    fn wait(&self, most: Duration) -> (bool, bool) {
        let mut state = self.state.lock();
        if !state.is_woken && !state.is_stopped {
            self.changed.wait_for(&mut state, most);
        }
        (!state.is_stopped, std::mem::take(&mut state.is_woken))
    }
}

impl KeyLog {
    /// Whether replies wait until changes are durable.
    pub fn waits(&self) -> bool {
        self.fsync == Fsync::Always
    }

    /// Blocks the thread until a record is durable.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn wait(&self, number: u64) -> Result<()> {
        self.log.commit(number)
    }

    pub fn fsync(&self) -> Fsync {
        self.fsync
    }

    /// Follows what becomes durable.
    pub fn follow(self: &Arc<Self>) -> Follower {
        Follower { log: self.clone(), progress: self.progress.subscribe() }
    }

    /// Follows what becomes durable, for the connections of one thread.
    pub fn echo(self: &Arc<Self>) -> Echo {
        let heard = self.progress.subscribe();
        let told = watch::Sender::new(*heard.borrow());
        Echo { log: self.clone(), heard, told: Arc::new(told) }
    }

    /// Whether so much waits for the disk that no more should come.
    fn is_behind(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) >= HELD_BYTES
    }

    /// Refuses commands from now on. What has been said first stays, unless it was temporary.
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
        // Where the thread that makes room is late, commands make it: one that finds none when it has changed keys ends
        // all changes. Half of what is made ahead is for those that are under way.
        let bytes = bytes.min(limits::LOG_RECORD_BYTES_MAX);
        match self.log.room() < u64_from(self.ahead_bytes() / 2 + bytes) {
            true => self.make_room_or_refuse(bytes.max(AHEAD_BYTES)),
            false => Ok(()),
        }
    }

    /// As [`KeyLog::make_room`]; where there is no space, commands are refused until there is.
    fn make_room_or_refuse(&self, bytes: usize) -> Result<()> {
        self.make_room(bytes).inspect_err(|error| self.refuse(error, error.kind == ErrorKind::OverLimit))
    }

    /// Makes room for so many bytes, or for as many as a file of the log has room for at once.
    fn make_room(&self, bytes: usize) -> Result<()> {
        self.log.make_room(bytes.min(self.bytes_at_once()), Urgency::Normal)
    }

    fn bytes_at_once(&self) -> usize {
        usize_saturating(self.sizes.file_bytes / 4)
    }

    fn ahead_bytes(&self) -> usize {
        AHEAD_BYTES.min(self.bytes_at_once())
    }

    fn append(&self, record: &[u8]) -> Result<u64> {
        // The command has changed keys by now: it may take what is left of the file.
        let appended = match self.log.try_append(record, Urgency::FreesSpace) {
            Ok(Some(number)) => Ok(number),
            Ok(None) => self.log.append(record, Urgency::FreesSpace),
            Err(error) => Err(error),
        };
        let before = self.waiting.fetch_add(record.len(), Ordering::Relaxed);
        if before < WAKE_BYTES && before + record.len() >= WAKE_BYTES {
            self.writer.wake();
        }
        appended.inspect_err(|error| self.refuse(error, false))
    }

    /// Writes all that waits, and finds room for what comes next.
    fn write(&self) {
        self.waiting.store(0, Ordering::Relaxed);
        if let Some(last) = self.log.next_record().checked_sub(1) {
            // What becomes of it the observer is told.
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

    /// Ends the threads, takes a last snapshot where the log is long, and closes the log.
    ///
    /// # Errors
    /// Those of the disk: the directory is whole, and what was durable stays so.
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
        // So that it is an error if what is there now is missing at the next start.
        drop(self.log.mark());
        let error = Error::unavailable("the node is being stopped");
        self.refusal.lock().get_or_insert(Refusal { error, is_temporary: false });
        self.refuses.store(true, Ordering::Release);
        self.progress.send_modify(|progress| progress.has_failed = true);
        closed
    }
}

/// Starts the threads of the log.
///
/// # Errors
/// `Internal` when the system has no more threads.
#[expect(clippy::disallowed_methods, reason = "the node is where threads come from")]
pub(crate) fn start(
    log: &Arc<KeyLog>,
    keyspaces: &Arc<Keyspaces>,
    clock: Arc<dyn farpool_model::Clock>,
) -> Result<()> {
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

/// Is told by the log what has become durable. The log belongs to what is told, so that this must not keep it.
struct Told {
    progress: watch::Sender<Progress>,
    log: Arc<OnceLock<std::sync::Weak<KeyLog>>>,
}

impl fmt::Debug for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Told")
    }
}

impl Observer for Told {
    fn durable(&self, count: u64) {
        self.progress.send_modify(|progress| progress.durable = count);
    }

    fn failed(&self, error: &Error) {
        if let Some(log) = self.log.get().and_then(std::sync::Weak::upgrade) {
            log.refuse(error, false);
        }
    }
}

/// Tells the connections of one thread what has become durable. The log wakes that thread once for all of them, and the thread
/// its connections: to wake another thread takes a call of the system, and hundreds may wait for one sync.
#[derive(Clone)]
pub(crate) struct Echo {
    log: Arc<KeyLog>,
    heard: watch::Receiver<Progress>,
    told: Arc<watch::Sender<Progress>>,
}

impl Echo {
    /// Waits for the log, for one connection.
    pub fn follow(&self) -> Follower {
        Follower { log: self.log.clone(), progress: self.told.subscribe() }
    }

    /// Tells for as long as there is a log.
    pub async fn tell(mut self) {
        while self.heard.changed().await.is_ok() {
            let progress = *self.heard.borrow_and_update();
            self.told.send_replace(progress);
        }
    }
}

/// Waits for the log, for one connection.
pub(crate) struct Follower {
    log: Arc<KeyLog>,
    progress: watch::Receiver<Progress>,
}

impl Follower {
    /// Waits until no more waits for the disk than should.
    pub async fn keep_up(&mut self) {
        while self.log.is_behind() && !self.progress.borrow_and_update().has_failed {
            self.log.writer.wake();
            if self.progress.changed().await.is_err() {
                return;
            }
        }
    }

    /// Waits until the record of this number is durable, where changes wait for that.
    ///
    /// # Errors
    /// Why it is not.
    pub async fn durable(&mut self, number: u64) -> Result<()> {
        if !self.log.waits() {
            return Ok(());
        }
        self.log.writer.wake();
        let is_over = |progress: &Progress| progress.durable > number || progress.has_failed;
        let progress = self.progress.wait_for(is_over).await.map(|progress| *progress);
        if progress.is_ok_and(|progress| progress.durable > number) {
            return Ok(());
        }
        let refusal = self.log.refusal.lock().as_ref().map(|refusal| refusal.error.clone());
        Err(refusal.unwrap_or_else(|| Error::unavailable("the log of keys has ended")))
    }
}

/// The journal of a tenant's keys.
struct TenantJournal {
    log: Arc<KeyLog>,
    head: Vec<u8>,
}

impl KeyLog {
    pub fn journal(self: &Arc<Self>, tenant: &TenantName) -> Box<dyn Journal> {
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

/// What a record of a tenant's keys begins with: the name, behind its length.
fn head_of(tenant: &TenantName) -> Vec<u8> {
    let name = tenant.as_str().as_bytes();
    const { assert!(limits::NAME_BYTES_MAX <= u8::MAX as usize) };
    let mut head = vec![name.len() as u8];
    head.extend_from_slice(name);
    head
}

/// The tenant of a record, and the rest of it.
fn tenant_of(record: &[u8]) -> Result<(&[u8], &[u8])> {
    let split = record.split_first().and_then(|(bytes, rest)| rest.split_at_checked(usize::from(*bytes)));
    split.ok_or_else(|| Error::corrupt("a record of the log of keys names no tenant"))
}
