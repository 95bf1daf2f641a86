//! The storage of a backup: a directory, or a prefix of an object store.

use super::shown;
use crate::cloud;
use farpool_files::is_url;
use farpool_model::cast::u64_from;
use farpool_model::{Error, ErrorKind, Result};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// Storage for the files of a backup.
pub(super) struct Vault {
    place: String,
    of: Of,
}

enum Of {
    Folder(PathBuf),
    Store(cloud::Vault),
}

/// A file in a vault: its size, and the object store's version of its content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    pub bytes: u64,
    pub stamp: String,
}

/// A file that is being written. It becomes visible when it is finished.
pub(super) enum Writing {
    Folder { file: NamedTempFile, path: PathBuf, folder: PathBuf },
    Store(cloud::VaultWriter),
}

impl Vault {
    /// Creates a vault for a path or URL, without accessing it.
    pub fn at(place: &str) -> Result<Vault> {
        let of = match is_url(place) {
            true => Of::Store(cloud::Vault::at(place)?),
            false => Of::Folder(PathBuf::from(place)),
        };
        Ok(Vault { place: place.to_string(), of })
    }

    pub fn place(&self) -> &str {
        &self.place
    }

    /// Prepares the vault for writing; a directory is created if its parent exists.
    pub fn prepare(&self) -> Result<()> {
        match &self.of {
            Of::Folder(path) => match std::fs::create_dir(path) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    Err(self.failed("create", "", &error))
                }
                _ => Ok(()),
            },
            Of::Store(store) => store.check_written(),
        }
    }

    /// Returns the files by their names.
    pub fn list(&self) -> Result<BTreeMap<String, Found>> {
        let path = match &self.of {
            Of::Store(store) => {
                let found = store.list()?.into_iter();
                return Ok(found.map(|(name, bytes, stamp)| (name, Found { bytes, stamp })).collect());
            }
            Of::Folder(path) => path,
        };
        let mut found = BTreeMap::new();
        for entry in std::fs::read_dir(path).map_err(|error| self.failed("list", "", &error))? {
            let entry = entry.map_err(|error| self.failed("list", "", &error))?;
            let metadata = entry.metadata().map_err(|error| self.failed("list", "", &error))?;
            if let (true, Ok(name)) = (metadata.is_file(), entry.file_name().into_string()) {
                found.insert(name, Found { bytes: metadata.len(), stamp: String::new() });
            }
        }
        Ok(found)
    }

    /// Returns whether files can be read without a network transfer, so that their contents can be checked cheaply.
    pub fn is_near(&self) -> bool {
        matches!(self.of, Of::Folder(_))
    }

    /// Opens a file.
    pub fn open(&self, name: &str) -> Result<Box<dyn Read + Send>> {
        match &self.of {
            Of::Folder(path) => {
                let file = File::open(path.join(name)).map_err(|error| self.unreadable(name, &error))?;
                Ok(Box::new(file))
            }
            Of::Store(store) => store.open(name),
        }
    }

    /// Starts to write a file.
    pub fn create(&self, name: &str) -> Result<Writing> {
        match &self.of {
            Of::Folder(folder) => {
                let file =
                    tempfile::Builder::new().prefix(&format!(".{name}.")).suffix(".part").tempfile_in(folder);
                let file = file.map_err(|error| self.failed("create", name, &error))?;
                Ok(Writing::Folder { file, path: folder.join(name), folder: folder.clone() })
            }
            Of::Store(store) => store.create(name).map(Writing::Store),
        }
    }

    /// Removes a file.
    pub fn remove(&self, name: &str) -> Result<()> {
        match &self.of {
            Of::Folder(path) => {
                std::fs::remove_file(path.join(name)).map_err(|error| self.failed("remove", name, &error))
            }
            Of::Store(store) => store.remove(name),
        }
    }

    /// Returns the error for a file that could not be read.
    pub fn unreadable(&self, name: &str, error: &io::Error) -> Error {
        self.failed("read", name, error)
    }

    fn failed(&self, doing: &str, name: &str, error: &io::Error) -> Error {
        let what = if name.is_empty() { self.place.clone() } else { shown(&self.place, name) };
        let kind = match error.kind() {
            io::ErrorKind::NotFound => ErrorKind::NotFound,
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::OverLimit,
            _ => ErrorKind::Invalid,
        };
        Error::new(kind, format!("cannot {doing} {what}: {error}"))
    }
}

impl Writing {
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        match self {
            Writing::Folder { file, path, .. } => {
                let path: &Path = path;
                file.write_all(bytes).map_err(|error| of_path(path, &error))
            }
            Writing::Store(store) => store.write(bytes),
        }
    }

    /// Makes the written file visible and durable; returns its size and the object store's version of its content.
    pub fn finish(self) -> Result<Found> {
        match self {
            Writing::Folder { file, path, folder } => {
                let kept = || {
                    file.as_file().sync_all()?;
                    let file = file.persist(&path).map_err(|error| error.error)?;
                    File::open(&folder)?.sync_all()?;
                    Ok(file.metadata()?.len())
                };
                let bytes: io::Result<u64> = kept();
                Ok(Found { bytes: bytes.map_err(|error| of_path(&path, &error))?, stamp: String::new() })
            }
            Writing::Store(store) => {
                store.finish().map(|(bytes, stamp)| Found { bytes: u64_from(bytes), stamp })
            }
        }
    }
}

fn of_path(path: &Path, error: &io::Error) -> Error {
    let kind = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::OverLimit,
        _ => ErrorKind::Invalid,
    };
    Error::new(kind, format!("cannot write {}: {error}", path.display()))
}
