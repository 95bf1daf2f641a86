//! A log of keys without threads, for simulations. Its owner decides when waiting records are written, when the time is
//! recorded and when a snapshot is taken, so that the same decisions give the same files.

use super::{Fsync, KeyLog, KeyLogOptions, KeysFound, LogThresholds};
use crate::Node;
use crate::caller::Caller;
use crate::spaces::LastCondition;
use farpool_disk::Directory;
use farpool_kv::{Host, Keyspace, ReadEntry, Refusal, Space};
use farpool_model::{Expr, Result, TenantName};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// The keys of a node without a data directory for tables, made durable by a log without threads.
pub struct SteppedKeys {
    node: Arc<Node>,
    log: Arc<KeyLog>,
    found: KeysFound,
}

impl SteppedKeys {
    /// Reads the keys of `directory` into `node`, which must not have a log of keys yet, and records their changes from
    /// now on in files of `file_bytes` bytes.
    ///
    /// # Errors
    /// `Corrupt` when something is damaged or missing; `OverLimit` when memory is too small; errors of the directory.
    pub fn open(
        node: &Arc<Node>,
        directory: Arc<dyn Directory>,
        fsync: Fsync,
        file_bytes: u64,
    ) -> Result<SteppedKeys> {
        // Snapshots are taken only when the owner asks for one.
        let thresholds = LogThresholds { file_bytes, snapshot_bytes: u64::MAX };
        let opening = KeyLogOptions { directory, fsync, thresholds, new_log: 1, threads: 0 };
        let (log, found) = KeyLog::recover(opening, node.keyspaces())?;
        Ok(SteppedKeys { node: node.clone(), log, found })
    }

    /// Returns a summary of what was read from the directory.
    pub fn found(&self) -> &KeysFound {
        &self.found
    }

    /// Returns the keyspace of a tenant.
    pub fn keys(&self, tenant: &TenantName) -> Arc<Keyspace> {
        self.node.keyspaces().of(tenant)
    }

    /// Returns the time of keys, in milliseconds since the epoch.
    pub fn now_ms(&self) -> u64 {
        self.node.keyspaces().time().now_ms()
    }

    /// Returns the number of the next record, which is the number of records appended since the log was created.
    pub fn next_record(&self) -> u64 {
        self.log.log.next_record()
    }

    /// Returns the number of durable records.
    pub fn durable(&self) -> u64 {
        self.log.progress.borrow().durable
    }

    /// Returns whether commands may change keys.
    pub fn is_writing(&self) -> bool {
        self.log.is_writing()
    }

    /// Returns whether the reply to the command that wrote `record` may be sent; `None` while it must wait.
    pub fn acknowledged(&self, record: u64) -> Option<Result<()>> {
        let mut follower = self.log.follow();
        match pin!(follower.durable(record)).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(done) => Some(done),
            Poll::Pending => None,
        }
    }

    /// Writes and syncs all waiting records, as the writer thread does when it is woken.
    pub fn write(&self) {
        self.log.write();
    }

    /// Records the latest time that a client's command came with; a node does this every second.
    ///
    /// # Errors
    /// Errors of the log.
    pub fn record_time(&self) -> Result<()> {
        // A mark that cannot be written is the same as no mark.
        drop(self.log.log.mark());
        self.node.keyspaces().all().iter().try_for_each(|keys| keys.record_time().map(drop))
    }

    /// Takes a snapshot; `between` is called between its steps and may execute commands.
    ///
    /// # Errors
    /// Errors of the directory; the previous snapshot then remains valid.
    pub fn take_snapshot(&self, unix_s: u64, between: &mut dyn FnMut()) -> Result<()> {
        self.log.take_snapshot_between(self.node.keyspaces(), unix_s, between)
    }

    /// Returns the bytes of the log after the latest snapshot.
    pub fn log_bytes(&self) -> u64 {
        self.log.bytes()
    }

    /// Returns the bytes of the latest snapshot.
    pub fn snapshot_bytes(&self) -> u64 {
        self.log.snapshots().latest.bytes
    }

    /// Closes the log as a clean stop of a node does, with a last snapshot if the log is long.
    ///
    /// # Errors
    /// Errors of the directory.
    pub fn close(&self, unix_s: u64) -> Result<()> {
        self.log.close(self.node.keyspaces(), unix_s)
    }
}

/// The host of a session in simulations: evaluates conditions on columns and has no commands.
pub struct SteppedHost {
    caller: Caller,
    keys: Arc<Keyspace>,
    judge: LastCondition,
}

impl SteppedHost {
    /// Creates the host of a client that acts as `caller` on the keyspace `keys`.
    pub fn new(caller: Caller, keys: Arc<Keyspace>) -> Self {
        SteppedHost { caller, keys, judge: LastCondition::default() }
    }
}

impl Host for SteppedHost {
    fn may_write(&self) -> bool {
        true
    }

    fn judge(
        &mut self,
        condition: &Expr,
        space: Option<&Arc<Space>>,
        entries: &[ReadEntry<'_>],
        now: u64,
    ) -> std::result::Result<Vec<bool>, Refusal> {
        self.judge.judge((&self.caller, &self.keys), (condition, space), entries, now)
    }
}
