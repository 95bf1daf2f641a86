//! Description of a pool's backup.

use serde::{Deserialize, Serialize};

/// A file of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupFile {
    /// Name in the data directory. Segments of one name have the same content, unless their directories have different
    /// numbers.
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
