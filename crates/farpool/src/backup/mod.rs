//! Backups of a node's data directory, in a directory or an object store, and data directories that are made of them.
//!
//! A backup is the files of a checkpoint, as they are, and a *list* of them (`backup.json`), which is written last: without it
//! there is no backup, and while a new one is taken the one before stays whole. Segments never change, so that those that
//! are there already are not sent again: they are known by the number of the data directory and their own, and their
//! end, where the checksums of everything in them are, is compared.
//!
//! Invariants: a list names files that were there whole, with their SHA-256, when it was written; what a list does not name
//! is removed only after it is there.

mod list;
mod restore;
mod take;
mod vault;

pub use restore::{Restored, restore};
pub use take::{Taken, take};

use farpool_files::is_url;
use farpool_model::{Error, Result};
use std::fmt::Write;

/// The name of the list.
const LIST: &str = "backup.json";

/// A digest as text.
fn hex(bytes: impl AsRef<[u8]>) -> String {
    bytes.as_ref().iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// What a person calls the place of a file of a backup.
fn shown(place: &str, name: &str) -> String {
    match is_url(place) || place.ends_with('/') {
        true => format!("{}/{name}", place.trim_end_matches('/')),
        false => format!("{place}/{name}"),
    }
}

/// The error for a file of a backup that is not what the list says.
fn damaged(place: &str, name: &str, what: &str) -> Error {
    Error::corrupt(format!("{} {what}", shown(place, name)))
        .advise("the backup is damaged: take another one, or restore from another place")
}

/// Where there is no backup.
fn no_backup(place: &str) -> Error {
    Error::not_found(format!("there is no backup in {place}: it has no {LIST}"))
        .advise("name the place that was given to 'farpool backup'; a backup that was cut off is none")
}

/// Counts what was done, for progress bars.
pub type Count = std::sync::Arc<std::sync::atomic::AtomicU64>;

/// Adds to a counter.
fn count(counter: &Count, bytes: usize) {
    counter.fetch_add(farpool_model::cast::u64_from(bytes), std::sync::atomic::Ordering::Relaxed);
}

/// Runs what waits for disks and networks on a thread for that.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let joined = tokio::task::spawn_blocking(work).await;
    joined.map_err(|error| Error::internal(format!("a backup stopped: {error}")))?
}
