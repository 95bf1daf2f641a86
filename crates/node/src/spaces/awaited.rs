//! Records that rows of a space depend on: with `--fsync always`, no row leaves the node before they are durable.

use farpool_keystore::{KeyLog, Keyspaces};
use farpool_kv::Keyspace;
use farpool_model::limits::RETRY_AFTER_MS;
use farpool_model::{Error, Result};
use std::sync::Arc;
use std::task::{Context, Poll};

/// The last record that rows depend on, which was not committed when they were read.
#[derive(Clone, Debug)]
pub(super) struct AwaitedRecord {
    log: Arc<KeyLog>,
    number: u64,
}

impl AwaitedRecord {
    /// Returns the record that everything read from `keyspace` so far depends on; `None` if nothing has to wait.
    pub fn of(keyspaces: &Keyspaces, keyspace: &Keyspace) -> Option<Self> {
        let log = keyspaces.log().filter(|log| log.waits())?;
        let number = keyspace.last_record()?;
        (log.committed() <= number).then(|| AwaitedRecord { log: Arc::clone(log), number })
    }

    /// Checks that the record is committed.
    ///
    /// # Errors
    /// `Busy` while it is not; the reason why it cannot be.
    pub fn check(&self) -> Result<()> {
        match self.log.is_committed(self.number)? {
            true => Ok(()),
            false => Err(Error::busy("the keys that were read are not durable yet", *RETRY_AFTER_MS.start())),
        }
    }

    /// Resolves when [`AwaitedRecord::check`] is not `Busy` any more.
    pub fn poll(&self, context: &mut Context<'_>) -> Poll<()> {
        self.log.poll_committed(self.number, context)
    }
}
