//! The log of changes of keys without threads, for simulations. The simulation decides when appended records are
//! written, when the time is recorded and when a snapshot is taken, so that the same decisions give the same files.

use super::{Fsync, KeyLog, KeyLogOptions, KeysFound, LogThresholds};
use crate::keyspaces::Keyspaces;
use farpool_disk::{Directory, LogOver};
use farpool_kv::Keyspace;
use farpool_model::{Result, TenantName};
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// Keyspaces and a log without threads that makes them durable.
#[derive(Debug)]
pub struct SteppedKeys {
    keyspaces: Arc<Keyspaces>,
    log: Arc<KeyLog>,
    found: KeysFound,
}

impl SteppedKeys {
    /// Reads the keys of `directory` into `keyspaces`, which must have no log yet, and logs their changes from now on,
    /// in files of `file_bytes` bytes.
    ///
    /// # Errors
    /// `Corrupt` when a file is corrupt or missing; `OverLimit` when memory is too small; errors of the directory.
    pub fn open(
        keyspaces: &Arc<Keyspaces>,
        directory: Arc<dyn Directory>,
        fsync: Fsync,
        file_bytes: u64,
    ) -> Result<SteppedKeys> {
        // Snapshots are taken only when the owner asks for one.
        let thresholds = LogThresholds { file_bytes, snapshot_bytes: u64::MAX };
        let opening = KeyLogOptions {
            directory,
            fsync,
            thresholds,
            new_log: 1,
            threads: 0,
            log_over: LogOver::default(),
        };
        let (log, found) = KeyLog::recover(opening, keyspaces)?;
        Ok(SteppedKeys { keyspaces: keyspaces.clone(), log, found })
    }

    /// Returns a summary of what was read from the directory.
    pub fn found(&self) -> &KeysFound {
        &self.found
    }

    /// Returns the keyspace of a tenant.
    pub fn keys(&self, tenant: &TenantName) -> Arc<Keyspace> {
        self.keyspaces.of(tenant)
    }

    /// Returns the time of the keys' clock, in milliseconds since the epoch.
    pub fn now_ms(&self) -> u64 {
        self.keyspaces.time().now_ms()
    }

    /// Returns the sequence number of the next record, which is the number of records appended since the log was
    /// created.
    pub fn next_record(&self) -> u64 {
        self.log.appended()
    }

    /// Returns the number of durable records.
    pub fn durable(&self) -> u64 {
        self.log.durable()
    }

    /// Returns whether commands may change keys.
    pub fn is_writing(&self) -> bool {
        self.log.is_writing()
    }

    /// Returns `Some(Ok)` if the reply to the command that appended `record` may be sent, an error if the record cannot
    /// be committed any more, and `None` if the reply must wait.
    pub fn acknowledged(&self, record: u64) -> Option<Result<()>> {
        let mut follower = self.log.follow();
        match pin!(follower.committed(record)).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(done) => Some(done),
            Poll::Pending => None,
        }
    }

    /// Writes and syncs all appended records, as the writer thread of a node does when it is woken.
    pub fn write(&self) {
        self.log.write();
    }

    /// Appends records of the latest time of a client's command in each keyspace; a node does this every second.
    ///
    /// # Errors
    /// Errors of the log.
    pub fn record_time(&self) -> Result<()> {
        // The note of how many records are durable is optional, so an error is ignored.
        drop(self.log.log.mark());
        self.keyspaces.all().iter().try_for_each(|keys| keys.record_time().map(drop))
    }

    /// Takes a snapshot; calls `between` between its steps, which may execute commands.
    ///
    /// # Errors
    /// Errors of the directory; the previous snapshot then remains valid.
    pub fn take_snapshot(&self, unix_s: u64, between: &mut dyn FnMut()) -> Result<()> {
        self.log.take_snapshot_between(&self.keyspaces, unix_s, between)
    }

    /// Calls `f` with each of `records` in order; see [`KeyLog::read`].
    ///
    /// # Errors
    /// Errors of [`KeyLog::read`].
    pub fn read(&self, records: Range<u64>, f: &mut dyn FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        self.log.read(records, f)
    }

    /// Rebuilds the keys as they were after the first `end` records; see [`KeyLog::rebuild`].
    ///
    /// # Errors
    /// Errors of [`KeyLog::rebuild`].
    pub fn rebuild(&self, end: u64, unix_s: u64) -> Result<()> {
        self.log.rebuild(&self.keyspaces, end, unix_s)
    }

    /// Returns the bytes of the log after the latest snapshot.
    pub fn log_bytes(&self) -> u64 {
        self.log.bytes()
    }

    /// Returns the bytes of the latest snapshot.
    pub fn snapshot_bytes(&self) -> u64 {
        self.log.snapshots().latest.bytes
    }

    /// Closes the log as at a clean stop of a node, with a last snapshot if the log is long.
    ///
    /// # Errors
    /// Errors of the directory.
    pub fn close(&self, unix_s: u64) -> Result<()> {
        self.log.close(&self.keyspaces, unix_s)
    }
}
