//! Backups of a node's tables and keys. They are made and read on the threads for the disk, so that workers do not
//! block.

use crate::Caller;
use crate::rights::Verb;
use farpool_keystore::{KeyBackup, KeyLog};
use farpool_model::{BackupFile, Error, Result};
use std::sync::Arc;

/// The files of a backup: the tables as of one moment, and the keys as of another. None of these files is removed
/// before this is dropped.
#[derive(Debug)]
pub struct Backup {
    tables: farpool_catalog::Backup,
    keys: Option<KeyBackup>,
}

impl Backup {
    /// Returns the id of the data directory.
    pub fn node(&self) -> u64 {
        self.tables.node()
    }

    /// Returns the names and sizes of the files. The manifest of tables comes last, so that a partly copied backup is
    /// not taken for a whole one.
    pub fn files(&self) -> Vec<BackupFile> {
        let keys = self.keys.iter().flat_map(KeyBackup::files);
        keys.chain(self.tables.files()).cloned().collect()
    }

    /// Reads up to `bytes` bytes of a file from `offset` on; returns fewer only at the end of the file. Blocks on the
    /// disk.
    ///
    /// # Errors
    /// `NotFound` for a file that is not in [`Backup::files`]; errors of the disk.
    pub fn read(&self, name: &str, offset: u64, bytes: usize) -> Result<Vec<u8>> {
        let of_keys = self.keys.as_ref().and_then(|keys| keys.read(name, offset, bytes));
        of_keys.unwrap_or_else(|| self.tables.read(name, offset, bytes))
    }
}

impl Caller {
    /// Makes a checkpoint of the tables and a snapshot of the keys, and calls `then` with the backup that consists of
    /// their files. Does not block.
    ///
    /// # Errors
    /// `Denied` if the caller has no right to make backups. Later errors go to `then`: `Invalid` without a data
    /// directory, and errors of the disk.
    pub fn begin_backup(&self, then: impl FnOnce(Result<Backup>) + Send + 'static) -> Result<()> {
        self.check(Verb::Backup)?;
        let (node, catalog) = (self.node().clone(), self.node().catalog().clone());
        self.write(move || {
            then(catalog.backup().and_then(|tables| {
                let keys = node.keyspaces().log();
                let back_up = |log: &Arc<KeyLog>| log.back_up(node.keyspaces(), node.clock().unix_s());
                Ok(Backup { tables, keys: keys.map(back_up).transpose()? })
            }))
        });
        Ok(())
    }

    /// Reads a part of a file of a backup and calls `then` with it. Does not block.
    ///
    /// # Errors
    /// `Denied` if the caller has no right to make backups. Later errors, those of [`Backup::read`], go to `then`.
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
