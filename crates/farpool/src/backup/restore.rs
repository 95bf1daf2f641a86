//! Restores a data directory from a backup.

use super::list::{Entry, List};
use super::vault::Vault;
use super::{Count, blocking, count, damaged, hex};
use farpool_model::cast::u64_from;
use farpool_model::{Error, ErrorKind, Result};
use farpool_node::{
    KeysFound, LocalDirectory, MasterKey, Recovery, adopt_backup, adopt_keys, check_data, check_keys, unlock,
};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// The result of a restore.
#[derive(Debug, Default)]
pub struct Restored {
    /// Number of files.
    pub files: u64,
    /// Bytes of the files.
    pub bytes: u64,
    /// The contents of the directory. Corrupted parts were corrupted already when the backup was taken.
    pub found: Recovery,
    /// The key-value entries in the directory; `None` if it has none.
    pub keys: Option<KeysFound>,
}

/// Restores the backup in `source` to `directory`, which must be empty or not exist. The whole backup is read and
/// checked, with the master key if it is encrypted, before the directory gets its name. The number of processed bytes
/// is added to `done`.
///
/// # Errors
/// `Denied` if a key is missing or wrong; `NotFound` if there is no backup; `Corrupt`, with the file's name, if a file
/// is corrupted or missing; `Exists` for a directory that is not empty; errors of the disk, the network and the store.
pub async fn restore(
    source: &str,
    directory: &Path,
    master: Option<MasterKey>,
    done: Count,
) -> Result<Restored> {
    let (source, directory) = (source.to_string(), directory.to_path_buf());
    blocking(move || {
        check_free(&directory)?;
        let vault = Vault::at(&source)?;
        let list = List::expect(&vault)?;
        let partial = Partial::beside(&directory)?;
        for entry in &list.files {
            fetch(&vault, entry, &partial.0.join(&entry.name), &done)?;
        }
        let (found, keys) = adopt(&partial.0, &list, master.as_ref())?;
        check_free(&directory)?;
        std::fs::rename(&partial.0, &directory).map_err(|error| failed("rename", &partial.0, &error))?;
        let parent = parent(&directory);
        File::open(&parent)
            .and_then(|parent| parent.sync_all())
            .map_err(|error| failed("sync", &parent, &error))?;
        let bytes = list.files.iter().map(|entry| entry.bytes).sum();
        Ok(Restored { files: u64_from(list.files.len()), bytes, found, keys })
    })
    .await
}

/// A directory that is being restored. Dropping this removes it, unless it was renamed.
struct Partial(PathBuf);

impl Partial {
    fn beside(directory: &Path) -> Result<Partial> {
        let name = directory.file_name().unwrap_or_default().to_string_lossy();
        let made = tempfile::Builder::new()
            .prefix(&format!(".{name}."))
            .suffix(".part")
            .tempdir_in(parent(directory));
        Ok(Partial(made.map_err(|error| failed("create", directory, &error))?.keep()))
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // The directory has been renamed by now, or is of no use.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
        _ => PathBuf::from("."),
    }
}

fn check_free(directory: &Path) -> Result<()> {
    match std::fs::read_dir(directory).map(|mut entries| entries.next().is_none()) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Error::new(ErrorKind::Exists, format!("{} is not empty", directory.display()))
            .advise("name a directory that does not exist yet")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed("read", directory, &error)),
    }
}

/// Copies a file of the backup, and checks its length and digest.
fn fetch(vault: &Vault, entry: &Entry, to: &Path, done: &Count) -> Result<()> {
    let damaged = |what: &str| damaged(vault.place(), &entry.stored, what);
    let mut from = vault.open(&entry.stored).map_err(|error| match error.kind {
        ErrorKind::NotFound => damaged("is missing"),
        _ => error,
    })?;
    let mut file = File::create_new(to).map_err(|error| failed("create", to, &error))?;
    let (mut digest, mut buffer, mut bytes) = (Sha256::new(), vec![0; 1 << 20], 0);
    loop {
        let read = from.read(&mut buffer).map_err(|error| vault.unreadable(&entry.stored, &error))?;
        if read == 0 {
            break;
        }
        bytes += u64_from(read);
        if bytes > entry.bytes {
            return Err(damaged("is longer than it was"));
        }
        digest.update(&buffer[..read]);
        file.write_all(&buffer[..read]).map_err(|error| failed("write", to, &error))?;
        count(done, read);
    }
    if bytes != entry.bytes {
        return Err(damaged(&format!("is cut off: it has {bytes} of {} bytes", entry.bytes)));
    }
    if hex(digest.finalize()) != entry.sha256 {
        return Err(damaged("is damaged: its SHA-256 is not that of the list"));
    }
    file.sync_all().map_err(|error| failed("sync", to, &error))
}

/// Gives the restored directory a new id, and reads and checks all its contents.
fn adopt(path: &Path, list: &List, master: Option<&MasterKey>) -> Result<(Recovery, Option<KeysFound>)> {
    let manifest = list.files.last().ok_or_else(|| Error::corrupt("the backup has no files"))?;
    let mut number = [0; 8];
    getrandom::fill(&mut number).map_err(|error| Error::internal(format!("no random bytes: {error}")))?;
    let directory = unlock(LocalDirectory::open_existing(path)?, master, None)?;
    // The number 0 is not valid for a log.
    let number = u64::from_le_bytes(number).max(1);
    adopt_backup(&directory, &manifest.name, number)?;
    // The log of keys must have another number than the log of tables.
    adopt_keys(&directory, !number)?;
    Ok((check_data(&*directory)?, check_keys(directory)?))
}

fn failed(doing: &str, path: &Path, error: &io::Error) -> Error {
    let kind = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::OverLimit,
        _ => ErrorKind::Invalid,
    };
    Error::new(kind, format!("cannot {doing} {}: {error}", path.display()))
}
