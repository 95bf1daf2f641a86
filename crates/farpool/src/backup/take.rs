//! Takes a backup of a node.

use super::list::{Entry, List};
use super::vault::{Found, Vault};
use super::{Count, LIST, blocking, count, damaged, hex};
use farpool_model::cast::u64_from;
use farpool_model::{BackupFile, Error, ErrorKind, Result, limits};
use farpool_transfer::{RemoteBackup, RemotePool};
use futures::{StreamExt, TryStreamExt, stream};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io::Read;
use std::sync::Arc;
use tokio::runtime::Handle;

/// Maximum number of concurrent requests to the node.
const READS_AHEAD: usize = 4;

/// Number of bytes at the end of a file by which it is recognized as a file of an earlier backup. The end of a segment
/// contains the checksums of its directory, which contains those of all its data.
const END_BYTES: u64 = 4 << 10;

/// The size of a backup, and how much of it was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Number of files in the backup.
    pub files: u64,
    /// Bytes of the files.
    pub bytes: u64,
    /// Number of files that were not in the target yet.
    pub files_sent: u64,
    /// Bytes of the files that were sent.
    pub bytes_sent: u64,
}

/// Backs up the data directory of the node of `pool` to `target`, a directory or a URL of an object store. The number
/// of processed bytes is added to `done`.
///
/// # Errors
/// `Denied` without the admin role; `Invalid` if the node has no data directory, or the target has a backup of another
/// one; errors of the disk, the network and the store. After an error the previous backup is still valid.
pub async fn take(pool: &RemotePool, target: &str, done: Count) -> Result<Taken> {
    let vault = Arc::new(Vault::at(target)?);
    let prepared = vault.clone();
    let earlier = blocking(move || {
        prepared.prepare()?;
        match List::read(&prepared) {
            // If the list of the previous backup is corrupted, its files are not known to be complete, so that none is
            // reused.
            Err(error) if error.kind == ErrorKind::Corrupt => Ok((None, prepared.list()?)),
            list => Ok((list?, prepared.list()?)),
        }
    });
    let (earlier, there) = earlier.await?;
    let backup = Arc::new(pool.begin_backup().await?);
    let node = format!("{:016x}", backup.files().node);
    if let Some(other) = earlier.as_ref().filter(|list| list.node != node) {
        let message = format!(
            "{target} has a backup of another data directory ({}, and this one is {node})",
            other.node
        );
        return Err(Error::invalid(message)
            .advise("name another target; a directory that was restored is another one"));
    }
    let earlier = earlier.map_or_else(Vec::new, |list| list.files);
    let mut taking = Taking { vault, backup, node, earlier, there, done, taken: Taken::default() };
    let runtime = Handle::current();
    blocking(move || {
        taking.all(&runtime)?;
        Ok(taking.taken)
    })
    .await
}

/// A backup that is being taken.
struct Taking {
    vault: Arc<Vault>,
    backup: Arc<RemoteBackup>,
    node: String,
    /// The files of the previous backup, and all files in the target.
    earlier: Vec<Entry>,
    there: BTreeMap<String, Found>,
    done: Count,
    taken: Taken,
}

impl Taking {
    fn all(&mut self, runtime: &Handle) -> Result<()> {
        let mut entries = Vec::new();
        for file in self.backup.files().files.clone() {
            let end = runtime.block_on(self.read_end(&file))?;
            let entry = match self.known(&file, &end) {
                Some(entry) => {
                    count(&self.done, farpool_model::cast::usize_saturating(file.bytes));
                    entry
                }
                None => {
                    self.taken.files_sent += 1;
                    self.taken.bytes_sent += file.bytes;
                    self.send(runtime, &file, end)?
                }
            };
            self.taken.files += 1;
            self.taken.bytes += file.bytes;
            entries.push(entry);
        }
        self.check_there(&entries)?;
        List::new(&self.node, entries.clone()).write(&self.vault)?;
        self.remove_others(&entries);
        Ok(())
    }

    async fn read_end(&self, file: &BackupFile) -> Result<String> {
        let start = file.bytes.saturating_sub(END_BYTES);
        Ok(hex(Sha256::digest(&self.backup.read(&file.name, file.bytes, start).await?)))
    }

    /// Returns the entry of a file that is in the target already; `None` if it must be sent.
    fn known(&self, file: &BackupFile, end: &str) -> Option<Entry> {
        let is_it =
            |entry: &&Entry| entry.name == file.name && entry.bytes == file.bytes && entry.end_sha256 == end;
        let entry = self.earlier.iter().find(is_it)?;
        let found = self.there.get(&entry.stored)?;
        let is_whole = match self.vault.is_near() {
            true => digest_of(&self.vault, &entry.stored).ok()? == entry.sha256,
            false => found.stamp == entry.stamp,
        };
        (found.bytes == entry.bytes && is_whole).then(|| entry.clone())
    }

    /// Sends a file to the target of the backup. The end of the file has the digest `end_sha256`.
    fn send(&self, runtime: &Handle, file: &BackupFile, end_sha256: String) -> Result<Entry> {
        let stored = format!("{}-{}", self.node, file.name);
        let mut writer = self.vault.create(&stored)?;
        let mut digest = Sha256::new();
        let step = limits::BACKUP_READ_BYTES_MAX;
        let offsets = (0..file.bytes).step_by(step);
        let backup = &self.backup;
        let reads = stream::iter(offsets).map(|offset| backup.read(&file.name, file.bytes, offset));
        let mut reads = reads.buffered(READS_AHEAD);
        let mut bytes = 0;
        // This thread is not one of the runtime's, so that it may block.
        while let Some(data) = runtime.block_on(reads.try_next())? {
            digest.update(&data);
            writer.write(&data)?;
            bytes += u64_from(data.len());
            count(&self.done, data.len());
        }
        let Found { bytes: written, stamp } = writer.finish()?;
        if bytes != file.bytes || written != bytes {
            return Err(damaged(self.vault.place(), &stored, "was not written whole"));
        }
        Ok(Entry {
            name: file.name.clone(),
            stored,
            bytes,
            sha256: hex(digest.finalize()),
            end_sha256,
            stamp,
        })
    }

    /// Checks that all files of the backup are in the target. Called before the list is written, because the list
    /// promises it.
    fn check_there(&self, entries: &[Entry]) -> Result<()> {
        let there = self.vault.list()?;
        let is_missing =
            |entry: &&Entry| there.get(&entry.stored).is_none_or(|found| found.bytes != entry.bytes);
        match entries.iter().find(is_missing) {
            None => Ok(()),
            Some(entry) => Err(Error::new(
                ErrorKind::Busy,
                format!(
                    "{} has gone while the backup was taken",
                    super::shown(self.vault.place(), &entry.stored)
                ),
            )
            .advise("take one backup at a time to a target")),
        }
    }

    /// Removes files of earlier backups, complete or not. The next backup tries again to remove those that cannot be
    /// removed.
    fn remove_others(&self, entries: &[Entry]) {
        let is_ours =
            |name: &str| name.starts_with(&self.node) || (name.starts_with('.') && name.ends_with(".part"));
        for name in self.there.keys().filter(|name| *name != LIST && is_ours(name)) {
            if !entries.iter().any(|entry| &entry.stored == name) {
                let _ = self.vault.remove(name);
            }
        }
    }
}

/// Returns the SHA-256 of a file.
fn digest_of(vault: &Vault, name: &str) -> Result<String> {
    let (mut file, mut digest) = (vault.open(name)?, Sha256::new());
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer).map_err(|error| vault.unreadable(name, &error))? {
            0 => return Ok(hex(digest.finalize())),
            bytes => digest.update(&buffer[..bytes]),
        }
    }
}
