//! What a pool tells about its backup.

use serde::{Deserialize, Serialize};

/// A file of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupFile {
    /// Its name in the data directory. A segment has another content only in a directory of another number.
    pub name: String,
    /// Bytes of its content.
    pub bytes: u64,
}

/// The files of a backup, which the node keeps for the client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackupFiles {
    /// The number of the data directory.
    pub node: u64,
    /// The files, the manifest last.
    pub files: Vec<BackupFile>,
}
