//! What the data directory needs of a file system: one flat directory, positioned reads and writes, and syncs.
//!
//! The traits promise no more than POSIX does after a loss of power: a write may be lost, or kept in part, until
//! [`File::sync`] of its file returns; a name may be lost until [`Directory::sync`] returns, even where the file itself was
//! synced.

use crate::compression::Packer;
use crate::keys::Keys;
use farpool_model::{Error, ErrorKind};
use std::fmt;
use std::io;
use std::sync::Arc;

/// One directory without subdirectories.
pub trait Directory: fmt::Debug + Send + Sync {
    /// Creates an empty file, open for reading and writing.
    ///
    /// # Errors
    /// `AlreadyExists` where there is one of that name; otherwise what the file system reports.
    fn create(&self, name: &str) -> io::Result<Arc<dyn File>>;

    /// Opens an existing file for reading and writing.
    ///
    /// # Errors
    /// `NotFound`, or what the file system reports.
    fn open(&self, name: &str) -> io::Result<Arc<dyn File>>;

    /// Gives a file another name, and replaces the file that has it.
    ///
    /// # Errors
    /// `NotFound`, or what the file system reports.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file. Handles that are open stay usable.
    ///
    /// # Errors
    /// `NotFound`, or what the file system reports.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// The names of all files, sorted.
    ///
    /// # Errors
    /// What the file system reports.
    fn names(&self) -> io::Result<Vec<String>>;

    /// Makes all creations, renames and removals before the call durable.
    ///
    /// # Errors
    /// What the file system reports. Which of the names are durable then is unknown.
    fn sync(&self) -> io::Result<()>;

    /// The directory's path or another name of it, for error messages.
    fn describe(&self) -> String;

    /// The name that the file `name` has in the directory that [`Directory::describe`] names, for error messages: another one
    /// where this is a part of that directory.
    fn full_name(&self, name: &str) -> String {
        name.to_string()
    }

    /// What the files of the directory are encrypted with; `None` where they are not.
    fn keys(&self) -> Option<&Keys> {
        None
    }

    /// How parts of segments are compressed; `None` where they are not.
    fn packer(&self) -> Option<&Packer> {
        None
    }

    /// Bytes a second that one thread reads from the device, found out anew; `None` where that means nothing.
    fn read_rate(&self) -> Option<f64> {
        None
    }
}

/// An open file. Reads and writes name their offset, so that threads share one handle.
pub trait File: fmt::Debug + Send + Sync {
    /// Length in bytes.
    ///
    /// # Errors
    /// What the file system reports.
    fn bytes(&self) -> io::Result<u64>;

    /// Fills `buffer` from `offset` on.
    ///
    /// # Errors
    /// `UnexpectedEof` where the file ends before; otherwise what the file system reports.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

    /// Has the system begin to read the file, which will be read soon. Best effort.
    fn will_be_read(&self) {}

    /// Writes all of `bytes` at `offset`. A failed call may have written a part.
    ///
    /// # Errors
    /// What the file system reports.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Reserves disk space for the first `bytes` of the file and makes it that long, with zeros behind its former end, so
    /// that later writes to that range do not fail for lack of space.
    ///
    /// # Errors
    /// `StorageFull`, or what the file system reports.
    fn reserve(&self, bytes: u64) -> io::Result<()>;

    /// Makes all writes before the call durable, and the length with them.
    ///
    /// # Errors
    /// What the file system reports. The writes may be lost then although reads still show them, and a second call that
    /// succeeds does not mean that they are durable (A. Rebello et al., *Can Applications Recover from fsync Failures?*,
    /// USENIX ATC 2020).
    fn sync(&self) -> io::Result<()>;

    /// Tells the system that what it has of the file in memory will not be read again soon.
    fn release(&self) {}
}

/// A file of the directory, as error messages name it.
pub(crate) fn place(directory: &dyn Directory, name: &str) -> String {
    format!("{} in {}", directory.full_name(name), directory.describe())
}

/// An error of the file system, with what was done to which file of the directory.
pub(crate) fn failed(directory: &dyn Directory, doing: &str, name: &str, error: &io::Error) -> Error {
    let kind = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::OverLimit,
        _ => ErrorKind::Unavailable,
    };
    let failed = Error::new(kind, format!("cannot {doing} {}: {error}", place(directory, name)));
    match kind {
        ErrorKind::OverLimit => failed.advise("free space on that disk, or drop tables"),
        _ => failed.advise("look at the disk and the system's log"),
    }
}
