//! Executes requests of the native protocol about backups (a consistent set of the node's data files that a client
//! downloads). A connection has at most one backup, whose files are not removed before the connection ends.

use super::connection::Connection;
use crate::Caller;
use bytes::Bytes;
use farpool_model::{BackupFiles, Result};
use farpool_wire::Response;
use std::sync::Arc;

/// Begins a backup, which replaces the connection's previous one. The answer is sent when the backup is ready.
pub(super) fn begin(caller: &Caller, connection: &Arc<Connection>, stream: u32) -> Result<()> {
    let to = connection.clone();
    caller.begin_backup(move |begun| match begun {
        Ok(backup) => {
            let files = BackupFiles { node: backup.node(), files: backup.files() };
            let before = to.backup.lock().replace(Arc::new(backup));
            drop(before);
            to.answer(stream, &Response::BackupFiles(files));
        }
        Err(error) => to.fail(stream, error),
    })
}

/// Reads a part of a file of the connection's backup, given by name, offset and length.
pub(super) fn read(
    caller: &Caller,
    connection: &Arc<Connection>,
    stream: u32,
    part: (String, u64, usize),
) -> Result<()> {
    let (backup, to) = (connection.backup.lock().clone(), connection.clone());
    caller.read_backup(backup, part, move |read| match read {
        Ok(bytes) => to.answer(stream, &Response::BackupBytes(Bytes::from(bytes))),
        Err(error) => to.fail(stream, error),
    })
}
