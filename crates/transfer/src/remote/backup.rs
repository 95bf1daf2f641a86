//! Backups: the files of a checkpoint, read from the node that keeps them for this connection.

use super::connection::Connection;
use super::{RemotePool, ask, query};
use bytes::Bytes;
use farpool_model::cast::{u64_from, usize_saturating};
use farpool_model::{BackupFiles, Error, Result, limits};
use farpool_wire::{Request, Response};
use std::sync::Arc;

/// The files of a backup, which the node keeps as long as the pool it came from and its connection are there.
pub struct RemoteBackup {
    connection: Arc<Connection>,
    files: BackupFiles,
}

impl RemotePool {
    /// Makes the node write a checkpoint, and keeps its files.
    ///
    /// # Errors
    /// `Denied` without the right of an admin; `Invalid` when the node has no data directory.
    pub async fn begin_backup(&self) -> Result<RemoteBackup> {
        let connection = self.connection().await?;
        match ask(&connection, &Request::Backup, "it made a checkpoint").await? {
            Response::BackupFiles(files) => Ok(RemoteBackup { connection, files }),
            other => Err(query::unexpected(other.kind())),
        }
    }
}

impl RemoteBackup {
    /// Returns the files, the manifest last.
    pub fn files(&self) -> &BackupFiles {
        &self.files
    }

    /// Reads a part of a file of `bytes` bytes in all, as many from `offset` on as come at once.
    ///
    /// # Errors
    /// `Unavailable` or `Stale` when the connection has ended, so that the backup must begin again; errors of the node.
    pub async fn read(&self, file: &str, bytes: u64, offset: u64) -> Result<Bytes> {
        let wanted = usize_saturating(bytes.saturating_sub(offset)).min(limits::BACKUP_READ_BYTES_MAX);
        let wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
        let request = Request::BackupRead { file: file.to_string(), offset, bytes: wanted };
        match ask(&self.connection, &request, "it read a file of a backup").await? {
            Response::BackupBytes(data) if u64_from(data.len()) == u64::from(wanted) => Ok(data),
            Response::BackupBytes(data) => {
                Err(Error::corrupt(format!("{} of {wanted} bytes of {file} came", data.len())))
            }
            other => Err(query::unexpected(other.kind())),
        }
    }
}
