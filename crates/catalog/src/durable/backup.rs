//! Backups: the files of a checkpoint, which are kept while a client copies them, and restoring a data directory from
//! them.
//!
//! Files are opaque bytes; only the manifest is decoded, to find the names of its segments. A backup has no log,
//! because a checkpoint includes all records. A restored directory gets a new id, so that two nodes are never taken for
//! one. The backup of an encrypted directory is encrypted, and includes its wrapped keys.
//!
//! Invariant: the manifest of a backup is that of the newest checkpoint when the backup began, and every segment named
//! in it exists until the backup is dropped. Example: a table is dropped and a checkpoint made while a client still
//! reads the table's segment; the backup has a reference to the segment, which keeps its file.

use super::checkpoint::{FORMAT, FORMATS, manifest_name, manifest_number};
use super::compact::SparseSegments;
use super::locations::SegmentFile;
use super::replay::ReplayedState;
use super::{Durable, proto};
use crate::Catalog;
use farpool_disk::{Directory, KEYS_NAME, Log, read_sealed_formats, segment_name, write_sealed};
use farpool_model::cast::{u64_from, usize_saturating};
use farpool_model::{BackupFile, Error, Result, limits};
use prost::Message;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The files of a checkpoint. None of them is removed before this is dropped.
#[derive(Debug)]
pub struct Backup {
    directory: Arc<dyn Directory>,
    node: u64,
    files: Vec<BackupFile>,
    /// Contents of two small files that are kept in memory: the manifest, whose file the next checkpoint removes, and
    /// the file of wrapped keys.
    contents: BTreeMap<String, Vec<u8>>,
    pinned: Vec<Arc<SegmentFile>>,
}

impl Catalog {
    /// Makes a checkpoint and returns its files. Blocks on the disk.
    ///
    /// # Errors
    /// `Invalid` if there is no data directory; errors of the disk.
    pub fn backup(self: &Arc<Self>) -> Result<Backup> {
        let Some(durable) = self.durable.get() else {
            return Err(Error::invalid(
                "the pool has no data directory, so that there is nothing to back up",
            )
            .advise("start the node with --data-dir"));
        };
        self.checkpoint_and(&SparseSegments::default(), |manifest| Backup::of(durable, manifest))
    }
}

impl Backup {
    /// Returns the files of the newest checkpoint, whose tables must still be in memory.
    fn of(durable: &Durable, manifest: u64) -> Result<Backup> {
        let directory = durable.directory.clone();
        let name = manifest_name(manifest);
        let replay = ReplayedState::begin(&read_sealed_formats(&*directory, &name, FORMATS)?.1)?;
        let failed = |name: &str, error: std::io::Error| {
            Error::unavailable(format!("cannot read {name} in {}: {error}", directory.describe()))
        };
        let bytes_of = |name: &str| directory.open(name).and_then(|file| file.bytes());
        let whole = |name: &str| {
            let mut content = vec![0; usize_saturating(bytes_of(name)?)];
            directory.open(name)?.read_at(&mut content, 0)?;
            Ok(content)
        };
        let mut contents = BTreeMap::new();
        if directory.keys().is_some() {
            contents
                .insert(KEYS_NAME.to_string(), whole(KEYS_NAME).map_err(|error| failed(KEYS_NAME, error))?);
        }
        contents.insert(name.clone(), whole(&name).map_err(|error| failed(&name, error))?);
        let pinned: BTreeMap<u64, Arc<SegmentFile>> = durable.segments.lock().clone();
        let (mut files, mut pins) = (Vec::new(), Vec::new());
        for (number, is_needed) in segments(&replay) {
            let Some(file) = pinned.get(&number) else {
                // A missing profile is not an error, because it can be recomputed.
                if !is_needed {
                    continue;
                }
                return Err(Error::internal(format!("{} is of no table in memory", segment_name(number))));
            };
            let name = segment_name(number);
            let bytes = bytes_of(&name).map_err(|error| failed(&name, error))?;
            files.push(BackupFile { name, bytes });
            pins.push(file.clone());
        }
        // The manifest is last, so that a copy without it is recognized as incomplete.
        let small = contents
            .iter()
            .map(|(name, content)| BackupFile { name: name.clone(), bytes: u64_from(content.len()) });
        files.extend(small);
        Ok(Backup { directory, node: durable.node, files, contents, pinned: pins })
    }

    /// Returns the id of the data directory.
    pub fn node(&self) -> u64 {
        self.node
    }

    /// Returns the files, the manifest last.
    pub fn files(&self) -> &[BackupFile] {
        &self.files
    }

    /// Reads `bytes` bytes of a file from `offset` on; returns fewer only at the end of the file.
    ///
    /// # Errors
    /// `NotFound` if the file is not one of [`Backup::files`]; errors of the disk.
    pub fn read(&self, name: &str, offset: u64, bytes: usize) -> Result<Vec<u8>> {
        let file = self.files.iter().find(|file| file.name == name);
        let file = file.ok_or_else(|| Error::not_found("the backup has no such file"))?;
        let left = file.bytes.saturating_sub(offset);
        let mut data = vec![0; bytes.min(limits::BACKUP_READ_BYTES_MAX).min(usize_saturating(left))];
        if let Some(content) = self.contents.get(name) {
            let start = usize_saturating(offset).min(content.len());
            let end = start + data.len();
            data.copy_from_slice(content.get(start..end).unwrap_or_default());
            return Ok(data);
        }
        let read = self.directory.open(name).and_then(|file| file.read_at(&mut data, offset));
        read.map_err(|error| {
            let place = self.directory.describe();
            Error::unavailable(format!("cannot read {name} in {place} at byte {offset}: {error}"))
                .advise("look at the disk and the system's log")
        })?;
        Ok(data)
    }
}

impl Drop for Backup {
    fn drop(&mut self) {
        let collector = self.pinned.first().map(|file| file.collector.clone());
        self.pinned.clear();
        if let Some(collector) = collector {
            collector.want();
        }
    }
}

/// Returns the segments that tables and profiles refer to. The value is true if a table needs the segment, and false if
/// only profiles do.
fn segments(replay: &ReplayedState) -> BTreeMap<u64, bool> {
    let tables = || replay.names.tables.values().flat_map(BTreeMap::values);
    let groups = tables().flat_map(|table| &table.groups);
    let chunks = groups.flat_map(|group| group.chunks.iter().flatten());
    let places = chunks.filter_map(|number| replay.places.get(number)).copied();
    let profiles = tables().filter_map(|table| table.profile).map(|profile| (profile.segment, false));
    profiles.chain(places.map(|number| (number, true))).collect()
}

/// Turns a directory with the files of a backup, whose manifest is named `manifest`, into a data directory with the id
/// `node`.
///
/// # Errors
/// `Corrupt` if the manifest is corrupted or has another name; errors of the disk.
pub fn adopt_backup(directory: &Arc<dyn Directory>, manifest: &str, node: u64) -> Result<()> {
    let number = manifest_number(manifest)
        .ok_or_else(|| Error::corrupt(format!("{manifest:?} is not the name of a manifest")))?;
    let (_, contents) = read_sealed_formats(&**directory, manifest, FORMATS)?;
    ReplayedState::begin(&contents)?;
    let mut adopted = proto::Manifest::decode(&contents[..])
        .map_err(|error| Error::corrupt(format!("{manifest} cannot be decoded: {error}")))?;
    // A new log begins with records numbered from 0.
    (adopted.node, adopted.next_record) = (node, 0);
    adopted.others.clear();
    Log::open(directory.clone(), Some(node), 0, &mut |_, _| Ok(()))?;
    write_sealed(&**directory, &manifest_name(number + 1), FORMAT, &adopted.encode_to_vec())?;
    directory.remove(manifest).and_then(|()| directory.sync()).map_err(|error| {
        Error::unavailable(format!("cannot remove {manifest} in {}: {error}", directory.describe()))
    })
}
