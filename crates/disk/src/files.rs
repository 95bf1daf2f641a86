//! The file system as the data directory needs it: one flat directory, positioned reads and writes, and syncs.
//!
//! The traits promise no more than POSIX does after a loss of power. A write may be lost, or kept in part, until
//! [`File::sync`] of its file returns. A name may be lost until [`Directory::sync`] returns, even if the file itself
//! was synced.
//!
//! Example: a file is created, written and synced, and the power fails before the directory is synced. After the
//! restart the file may be missing.

use crate::compression::CodecSelector;
use crate::keys::Keys;
use farpool_model::{Error, ErrorKind};
use std::fmt;
use std::io;
use std::sync::Arc;

/// A directory of the file system, or a simulated one, that contains files and no subdirectories.
pub trait Directory: fmt::Debug + Send + Sync {
    /// Creates an empty file, open for reading and writing.
    ///
    /// # Errors
    /// `AlreadyExists` if there is a file of that name; otherwise errors of the file system.
    fn create(&self, name: &str) -> io::Result<Arc<dyn File>>;

    /// Opens an existing file for reading and writing.
    ///
    /// # Errors
    /// `NotFound` if there is no such file; otherwise errors of the file system.
    fn open(&self, name: &str) -> io::Result<Arc<dyn File>>;

    /// Renames a file, atomically replacing an existing file of the new name.
    ///
    /// # Errors
    /// `NotFound` if there is no such file; otherwise errors of the file system.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file. Open handles stay usable.
    ///
    /// # Errors
    /// `NotFound` if there is no such file; otherwise errors of the file system.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Returns the names of all files, sorted.
    ///
    /// # Errors
    /// Errors of the file system.
    fn names(&self) -> io::Result<Vec<String>>;

    /// Makes all creations, renames and removals before the call durable.
    ///
    /// # Errors
    /// Errors of the file system. Which of the names are durable is then unknown.
    fn sync(&self) -> io::Result<()>;

    /// Returns the directory's path or another description, for error messages.
    fn describe(&self) -> String;

    /// Returns the name that file `name` has in the directory that [`Directory::describe`] names, for error messages.
    /// The result differs from `name` in a view such as [`prefixed`](fn@crate::prefixed), which hides a prefix.
    fn full_name(&self, name: &str) -> String {
        name.to_string()
    }

    /// Returns the encryption keys of an encrypted directory; `None` for a plain one.
    fn keys(&self) -> Option<&Keys> {
        None
    }

    /// Returns the selector that chooses a codec for each part of a segment; `None` if parts are not compressed.
    fn codec_selector(&self) -> Option<&CodecSelector> {
        None
    }

    /// Measures the rate at which one thread reads the device, in bytes per second; `None` for a directory without a
    /// device. Takes some milliseconds.
    fn read_rate(&self) -> Option<f64> {
        None
    }
}

/// An open file. Reads and writes are positioned, so that threads can share one handle.
pub trait File: fmt::Debug + Send + Sync {
    /// Returns the length in bytes.
    ///
    /// # Errors
    /// Errors of the file system.
    fn bytes(&self) -> io::Result<u64>;

    /// Fills `buffer` with the bytes from `offset` on.
    ///
    /// # Errors
    /// `UnexpectedEof` if the file ends before `buffer` is full; otherwise errors of the file system.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

    /// Asks the operating system to read the file into its page cache in advance. Best effort: errors are ignored.
    fn will_be_read(&self) {}

    /// Writes all of `bytes` at `offset`, and extends the file if necessary. A failed call may have written some of the
    /// bytes.
    ///
    /// # Errors
    /// Errors of the file system.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Reserves disk space for the first `bytes` of the file and extends it to that length with zeros, so that later
    /// writes to that range do not fail for lack of space.
    ///
    /// # Errors
    /// `StorageFull`, or errors of the file system.
    fn reserve(&self, bytes: u64) -> io::Result<()>;

    /// Makes all writes before the call durable, and the length with them.
    ///
    /// # Errors
    /// Errors of the file system. The writes may then be lost although reads still return them, and a second call that
    /// succeeds does not prove that they are durable (A. Rebello et al., *Can Applications Recover from fsync
    /// Failures?*, USENIX ATC 2020).
    fn sync(&self) -> io::Result<()>;

    /// Tells the operating system that the file will not be read again soon, so that it may drop the file from its page
    /// cache. Best effort: errors are ignored.
    fn release(&self) {}
}

/// Describes a file of the directory, for error messages.
pub(crate) fn place(directory: &dyn Directory, name: &str) -> String {
    format!("{} in {}", directory.full_name(name), directory.describe())
}

/// Returns the error of a failed operation `doing` on a file of the directory.
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
