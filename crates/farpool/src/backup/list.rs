//! The list of the files of a backup: JSON that contains its own digest.

use super::vault::Vault;
use super::{LIST, damaged, hex, no_backup};
use farpool_model::{Error, ErrorKind, Result, limits};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::io::Read;

/// The version of the list's format.
const FORMAT: u32 = 1;

/// The list of the files of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct List {
    format: u32,
    /// The id of the data directory, as text because JSON numbers do not hold 64 bits.
    pub node: String,
    /// The files; the manifest is last.
    pub files: Vec<Entry>,
}

/// A file of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    /// The name of the file in the data directory.
    pub name: String,
    /// The name of the file in the backup.
    pub stored: String,
    pub bytes: u64,
    pub sha256: String,
    /// Digest of the end of the file, by which an unchanged file of the node is recognized and not sent again.
    pub end_sha256: String,
    /// The object store's version of the content when it was written, such as an entity tag; empty for directories.
    pub stamp: String,
}

#[derive(Serialize, Deserialize)]
struct Sealed {
    backup: List,
    sha256: String,
}

impl List {
    pub fn new(node: &str, files: Vec<Entry>) -> List {
        List { format: FORMAT, node: node.to_string(), files }
    }

    /// Reads the list of the backup in a vault (the storage of a backup); `None` if the vault has none.
    pub fn read(vault: &Vault) -> Result<Option<List>> {
        let mut file = match vault.open(LIST) {
            Ok(file) => file.take(limits::BACKUP_LIST_BYTES_MAX),
            Err(error) if error.kind == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(|error| vault.unreadable(LIST, &error))?;
        let damaged = |what: &str| damaged(vault.place(), LIST, what);
        let sealed: Sealed = serde_json::from_slice(&bytes)
            .map_err(|error| damaged(&format!("is no list of a backup: {error}")))?;
        if sealed.backup.format != FORMAT {
            return Err(Error::invalid(format!(
                "the backup in {} has format {}, and this program reads {FORMAT}",
                vault.place(),
                sealed.backup.format
            ))
            .advise("use the version of farpool that took it"));
        }
        if sealed.backup.digest()? != sealed.sha256 {
            return Err(damaged("is damaged"));
        }
        if let Some(entry) =
            sealed.backup.files.iter().find(|entry| !is_plain(&entry.name) || !is_plain(&entry.stored))
        {
            return Err(damaged(&format!("names a file {:?}", farpool_model::brief(&entry.name))));
        }
        Ok(Some(sealed.backup))
    }

    /// Reads the list of the backup in a vault (the storage of a backup).
    ///
    /// # Errors
    /// `NotFound` if the vault has no list.
    pub fn expect(vault: &Vault) -> Result<List> {
        List::read(vault)?.ok_or_else(|| no_backup(vault.place()))
    }

    /// Writes the list.
    pub fn write(self, vault: &Vault) -> Result<()> {
        let sha256 = self.digest()?;
        let text = serde_json::to_string_pretty(&Sealed { backup: self, sha256 });
        let text = text.map_err(|error| Error::internal(error.to_string()))?;
        let mut writer = vault.create(LIST)?;
        writer.write(text.as_bytes())?;
        writer.finish().map(|_| ())
    }

    fn digest(&self) -> Result<String> {
        let text = serde_json::to_string(self).map_err(|error| Error::internal(error.to_string()))?;
        Ok(hex(Sha256::digest(text.as_bytes())))
    }
}

/// Returns whether a name is that of a file in a directory, and not a path that leads out of it.
fn is_plain(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    !name.is_empty() && name.len() <= limits::NAME_BYTES_MAX && name.bytes().all(is_plain)
}
