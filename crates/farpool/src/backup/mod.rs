//! Backups of a node's data directory, in a directory or an object store, and data directories restored from them.
//!
//! A backup consists of the unchanged files of a checkpoint and a *list* of them (`backup.json`), which is written
//! last. Without the list there is no backup, and while a new backup is taken the previous one stays intact. Segments
//! never change, so that segments that are already in the backup are not sent again: they are identified by the id of
//! the data directory and their own id, and their end, which contains the checksums of all their data, is compared.
//!
//! Invariants: all files in a list were complete, with their SHA-256, when it was written; files that are not in a list
//! are removed only after the list has been written.

mod list;
mod restore;
mod take;
mod vault;

pub use restore::{Restored, restore};
pub use take::{Taken, take};

use farpool_files::is_url;
use farpool_model::{Error, Result};
use std::fmt::Write;

/// The name of the file with the list of a backup's files.
const LIST: &str = "backup.json";

/// Formats a digest as text.
fn hex(bytes: impl AsRef<[u8]>) -> String {
    bytes.as_ref().iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Formats the path of a file of a backup for messages.
fn shown(place: &str, name: &str) -> String {
    match is_url(place) || place.ends_with('/') {
        true => format!("{}/{name}", place.trim_end_matches('/')),
        false => format!("{place}/{name}"),
    }
}

/// Returns the error for a file of a backup that differs from its entry in the list.
fn damaged(place: &str, name: &str, what: &str) -> Error {
    Error::corrupt(format!("{} {what}", shown(place, name)))
        .advise("the backup is damaged: take another one, or restore from another place")
}

/// Returns the error for a directory or prefix that has no backup.
fn no_backup(place: &str) -> Error {
    Error::not_found(format!("there is no backup in {place}: it has no {LIST}"))
        .advise("name the place that was given to 'farpool backup'; a backup that was cut off is none")
}

/// A counter of bytes that were processed, for progress bars.
pub type Count = std::sync::Arc<std::sync::atomic::AtomicU64>;

/// Adds to a counter.
fn count(counter: &Count, bytes: usize) {
    counter.fetch_add(farpool_model::cast::u64_from(bytes), std::sync::atomic::Ordering::Relaxed);
}

/// Runs work that blocks on disks and networks, on a blocking thread.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let joined = tokio::task::spawn_blocking(work).await;
    joined.map_err(|error| Error::internal(format!("a backup stopped: {error}")))?
}
