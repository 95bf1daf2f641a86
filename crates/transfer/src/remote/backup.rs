//! Backups of a node: the files of a checkpoint (a consistent set of the node's data files), which a client reads from
//! the node over its connection.

use super::connection::Connection;
use super::{RemotePool, ask, query};
use bytes::Bytes;
use farpool_model::cast::{u64_from, usize_saturating};
use farpool_model::{BackupFiles, Error, Result, limits};
use farpool_wire::{Request, Response};
use std::sync::Arc;

/// The files of a backup. The node keeps them as long as this value and the connection exist.
pub struct RemoteBackup {
    connection: Arc<Connection>,
    files: BackupFiles,
}

impl RemotePool {
    /// Makes the node write a checkpoint and keep its files for this client.
    ///
    /// # Errors
    /// `Denied` without the right of an admin; `Invalid` if the node has no data directory.
    pub async fn begin_backup(&self) -> Result<RemoteBackup> {
        let connection = self.connection().await?;
        match ask(&connection, &Request::Backup, "it made a checkpoint").await? {
            Response::BackupFiles(files) => Ok(RemoteBackup { connection, files }),
            other => Err(query::unexpected(other.kind())),
        }
    }
}

impl RemoteBackup {
    /// Returns the names and sizes of the files. The manifest (the list of the checkpoint's contents) is the last one.
    pub fn files(&self) -> &BackupFiles {
        &self.files
    }

    /// Returns a part of a file whose total size is `bytes`: from `offset` on, as many bytes as the node sends in one
    /// message.
    ///
    /// # Errors
    /// `Unavailable` or `Stale` if the connection has ended, so that the backup must begin again; errors of the node.
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
