//! Backups for callers: the disk is waited for where no worker waits.

use crate::Caller;
use crate::rights::Verb;
use farpool_model::{Error, Result};
use farpool_store::Backup;
use std::sync::Arc;

impl Caller {
    /// Makes a checkpoint and calls `then` with its files, which stay as long as the backup.
    ///
    /// # Errors
    /// `Denied`; what fails later goes to `then`: `Invalid` where there is no data directory, and errors of the disk.
    pub fn begin_backup(&self, then: impl FnOnce(Result<Backup>) + Send + 'static) -> Result<()> {
        self.check(Verb::Backup)?;
        let catalog = self.node().catalog().clone();
        self.write(move || then(catalog.backup()));
        Ok(())
    }

    /// Reads a part of a file of a backup and calls `then` with it.
    ///
    /// # Errors
    /// `Denied`; what fails later goes to `then`, as of [`Backup::read`].
    pub fn read_backup(
        &self,
        backup: Option<Arc<Backup>>,
        (file, offset, bytes): (String, u64, usize),
        then: impl FnOnce(Result<Vec<u8>>) + Send + 'static,
    ) -> Result<()> {
        self.check(Verb::Backup)?;
        let backup = backup.ok_or_else(|| {
            Error::stale("the connection has no backup under way").advise("begin the backup again")
        })?;
        self.write(move || then(backup.read(&file, offset, bytes)));
        Ok(())
    }
}
