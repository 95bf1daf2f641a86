//! The log record that rows read by SQL from a key space (namespace of keys) depend on. With `--fsync always`, no row
//! is sent before this record is durable.

use farpool_keystore::{KeyLog, Keyspaces};
use farpool_kv::Keyspace;
use farpool_model::limits::RETRY_AFTER_MS;
use farpool_model::{Error, Result};
use std::sync::Arc;
use std::task::{Context, Poll};

/// The last log record that rows depend on, if it was not committed when they were read.
#[derive(Clone, Debug)]
pub(super) struct AwaitedRecord {
    log: Arc<KeyLog>,
    number: u64,
}

impl AwaitedRecord {
    /// Returns the last record that anything read from `keyspace` so far depends on; `None` if rows need not wait for
    /// it.
    pub fn of(keyspaces: &Keyspaces, keyspace: &Keyspace) -> Option<Self> {
        let log = keyspaces.log().filter(|log| log.waits())?;
        let number = keyspace.last_record()?;
        (log.committed() <= number).then(|| AwaitedRecord { log: Arc::clone(log), number })
    }

    /// Checks that the record is committed.
    ///
    /// # Errors
    /// `Busy` if the record is not committed yet; otherwise the reason why it cannot be committed any more.
    pub fn check(&self) -> Result<()> {
        match self.log.is_committed(self.number)? {
            true => Ok(()),
            false => Err(Error::busy("the keys that were read are not durable yet", *RETRY_AFTER_MS.start())),
        }
    }

    /// Returns `Ready` if [`AwaitedRecord::check`] would not return `Busy`; otherwise `Pending`, and wakes the task
    /// later.
    pub fn poll(&self, context: &mut Context<'_>) -> Poll<()> {
        self.log.poll_committed(self.number, context)
    }
}
