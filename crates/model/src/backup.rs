//! Description of a pool's backup.

use serde::{Deserialize, Serialize};

/// A file of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupFile {
    /// File name within the data directory. Segment files are immutable: the same name in the same data directory
    /// (identified by its id, [`BackupFiles::node`]) always means the same content, so that a segment that is already
    /// in the backup need not be sent again.
    pub name: String,
    /// Length of the file in bytes.
    pub bytes: u64,
}

/// The files of one backup. The node does not delete them while the client copies them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackupFiles {
    /// Id of the data directory. A directory that is restored from a backup gets a new one.
    pub node: u64,
    /// Files to copy. The manifest is the last one, because it refers to the others.
    pub files: Vec<BackupFile>,
}
