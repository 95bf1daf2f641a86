//! Backups of keys: a snapshot and the records appended while it was taken, which together give the keys at one moment.
//!
//! These records, the *tail*, are copied to a log of their own next to the snapshot's files
//! (`kv-snapshot-<number>-tail-log-…`), so that a backup reads no file that is still being written. In a directory
//! restored from a backup, they are the beginning of the log.
//!
//! Invariant: no file of a snapshot is removed while a backup uses it. Otherwise a client that downloads the files one
//! by one would find some of them removed after the node has taken its next snapshot.

use super::snapshot::{FORMAT, NAME, Snapshot};
use super::{KeyLog, LogThresholds, PREFIX, recovery};
use crate::keyspaces::Keyspaces;
use farpool_disk::{Directory, Log, ReservePolicy, prefixed, read_sealed, sealed};
use farpool_model::cast::{u64_from, usize_saturating};
use farpool_model::{BackupFile, Error, Result, limits};
use std::sync::Arc;

/// Bytes of a file of copied records. Reason for 4 MiB: there are few such records.
const TAIL_FILE_BYTES: u64 = 4 << 20;

/// The files of a backup of keys, which are not removed until this is dropped.
#[derive(Debug)]
pub struct KeyBackup {
    log: Arc<KeyLog>,
    snapshot: Snapshot,
    files: Vec<BackupFile>,
    /// Contents of the file that names the valid snapshot, as the backup needs it. The file on disk will soon name a
    /// newer snapshot.
    named: Vec<u8>,
}

impl KeyLog {
    /// Takes a snapshot and keeps its files from being removed. Blocks on the disk.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn back_up(self: &Arc<Self>, keyspaces: &Keyspaces, unix_s: u64) -> Result<KeyBackup> {
        // Held so that no other snapshot is taken, which would remove the files of this one and the log after it.
        let _taking = self.taking.lock();
        self.take_snapshot(keyspaces, unix_s)?;
        let snapshot = self.snapshots().latest;
        self.copy_tail(&snapshot)?;
        // In the backup, the log after the snapshot starts at record 0.
        let adopted = Snapshot { next_record: 0, ..snapshot };
        let named = sealed(&*self.directory, NAME, FORMAT, &adopted.encode())?;
        let names = recovery::names(&self.directory)?;
        let of_snapshot = names.iter().filter(|name| name.starts_with(&snapshot.prefix()));
        let mut files = of_snapshot.map(|name| self.file(name)).collect::<Result<Vec<_>>>()?;
        files.push(BackupFile { name: format!("{PREFIX}{NAME}"), bytes: u64_from(named.len()) });
        self.pinned.lock().push(snapshot.number);
        Ok(KeyBackup { log: Arc::clone(self), snapshot, files, named })
    }

    /// Copies the records that were appended while the snapshot was taken to a log of their own.
    fn copy_tail(&self, snapshot: &Snapshot) -> Result<()> {
        let end = self.log.next_record();
        let directory = tail_directory(snapshot, &self.directory);
        let (tail, _) =
            Log::open_sized(directory, TAIL_FILE_BYTES, Some(snapshot.number), 0, &mut |_, _| Ok(()))?;
        self.read(snapshot.next_record..end, &mut |_, record| {
            tail.append(record, ReservePolicy::FreesSpace).map(drop)
        })?;
        tail.close()
    }

    fn file(&self, name: &str) -> Result<BackupFile> {
        let bytes = self.directory.open(name).and_then(|file| file.bytes());
        let bytes = bytes.map_err(|error| self.unreadable(name, &error))?;
        Ok(BackupFile { name: format!("{PREFIX}{name}"), bytes })
    }

    fn unreadable(&self, name: &str, error: &std::io::Error) -> Error {
        let (name, place) = (self.directory.full_name(name), self.directory.describe());
        Error::unavailable(format!("cannot read {name} in {place}: {error}"))
            .advise("look at the disk and the system's log")
    }
}

impl KeyBackup {
    /// Returns the names and sizes of the files. The file that names the valid snapshot comes last, so that a partly
    /// copied backup is not taken for a whole one.
    pub fn files(&self) -> &[BackupFile] {
        &self.files
    }

    /// Reads up to `bytes` bytes of a file from `offset` on; returns fewer only at the end of the file, and `None` if
    /// the backup has no such file.
    ///
    /// # Errors
    /// `Unavailable` when the file cannot be read.
    pub fn read(&self, name: &str, offset: u64, bytes: usize) -> Option<Result<Vec<u8>>> {
        let file = self.files.iter().find(|file| file.name == name)?;
        let left = usize_saturating(file.bytes.saturating_sub(offset));
        let mut data = vec![0; bytes.min(limits::BACKUP_READ_BYTES_MAX).min(left)];
        let name = name.strip_prefix(PREFIX)?;
        if name == NAME {
            let start = usize_saturating(offset).min(self.named.len());
            let end = (start + data.len()).min(self.named.len());
            return Some(Ok(self.named[start..end].to_vec()));
        }
        let read = self.log.directory.open(name).and_then(|file| file.read_at(&mut data, offset));
        Some(read.map(|()| data).map_err(|error| self.log.unreadable(name, &error)))
    }
}

impl Drop for KeyBackup {
    fn drop(&mut self) {
        let mut pinned = self.log.pinned.lock();
        if let Some(at) = pinned.iter().position(|number| *number == self.snapshot.number) {
            pinned.swap_remove(at);
        }
        // The files are removed when the next snapshot is taken.
    }
}

fn tail_directory(snapshot: &Snapshot, directory: &Arc<dyn Directory>) -> Arc<dyn Directory> {
    prefixed(directory.clone(), &format!("{}tail-", snapshot.prefix()))
}

/// Creates a log of keys with the id `new_log` in a directory with the restored files of a backup; does nothing if the
/// backup has no keys.
///
/// # Errors
/// `Corrupt` when a file is corrupt or missing; errors of the disk.
pub fn adopt_keys(directory: &Arc<dyn Directory>, new_log: u64) -> Result<()> {
    let directory = prefixed(directory.clone(), PREFIX);
    let names = recovery::names(&directory)?;
    if !names.iter().any(|name| name == NAME) {
        return Ok(());
    }
    let contents = read_sealed(&*directory, NAME, FORMAT)?;
    let snapshot = Snapshot::decode(&contents).ok_or_else(|| recovery::damaged(&*directory))?;
    let tail = tail_directory(&snapshot, &directory);
    let file_bytes = LogThresholds::default().file_bytes;
    let (log, _) =
        Log::open_sized(directory.clone(), file_bytes, Some(new_log.max(1)), 0, &mut |_, _| Ok(()))?;
    let read =
        Log::read(&*tail, 0, &mut |_, record| log.append(record, ReservePolicy::FreesSpace).map(drop))?;
    if read.dropped.is_some() {
        let (place, names) = (tail.describe(), tail.full_name("log-"));
        return Err(Error::corrupt(format!("the log of {place} ({names}*) is damaged")));
    }
    log.close()?;
    for name in tail.names().unwrap_or_default() {
        tail.remove(&name).map_err(|error| {
            let (name, place) = (tail.full_name(&name), tail.describe());
            Error::unavailable(format!("cannot remove {name} in {place}: {error}"))
        })?;
    }
    directory
        .sync()
        .map_err(|error| Error::unavailable(format!("cannot sync {}: {error}", directory.describe())))
}
