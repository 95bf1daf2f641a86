//! Encrypted directories: the file with the wrapped keys, and opening the directory with the master key.
//!
//! The file [`KEYS`] is created before all others, and its presence marks the directory as encrypted. Every other file
//! is marked, too: a plain file in an encrypted directory is an error, and so is an encrypted file in a plain one.
//! Example: an attacker replaces the encrypted manifest by a plain one; the next start fails instead of reading it.

use crate::files::{Directory, failed, place};
use crate::keys::Keys;
use crate::over::DirectoryOver;
use crate::sealed::{UNFINISHED, is_encrypted, read_sealed, write_sealed};
use farpool_cipher::{KeyKind, KeyRing, MasterKey, Tier};
use farpool_model::{Error, ErrorKind, Result};
use std::io;
use std::sync::Arc;

/// Name of the file with the wrapped keys of an encrypted directory.
pub const KEYS: &str = "keys";

/// Format number of the contents of the file with the wrapped keys.
const FORMAT: u32 = 1;

/// Returns `directory` with its keys if it is encrypted, and otherwise unchanged. An empty directory becomes an
/// encrypted one if `master` and the tier `new` are given.
///
/// # Errors
/// `Denied` if the directory is encrypted and the master key is missing or wrong; `Invalid` if it is not encrypted and
/// a master key is given, or if the tier does not authenticate data; `Corrupt` if the wrapped keys are corrupted or
/// missing; errors of the file system.
pub fn unlock(
    directory: Arc<dyn Directory>,
    master: Option<&MasterKey>,
    new: Option<Tier>,
) -> Result<Arc<dyn Directory>> {
    let ring = ring(&*directory)?;
    let ring = match (ring, master) {
        (None, None) => return Ok(directory),
        (Some(_), None) => return Err(needs_key(&*directory, "everything")),
        (Some(ring), Some(_)) => ring,
        (None, Some(master)) => begin(&*directory, master, new)?,
    };
    let Some(master) = master else { return Ok(directory) };
    let keys = Keys::of(&ring, master).map_err(|error| within(&*directory, error))?;
    Ok(Arc::new(EncryptedDirectory { inner: directory, keys }))
}

/// Changes the master key of a directory: encrypts the directory's keys under the new one, and nothing else again.
/// After a crash in between, one of the two master keys opens the directory, and the error for the other one says so.
///
/// # Errors
/// Errors of [`unlock`] with the old key.
pub fn rotate_master_key(directory: &dyn Directory, old: &MasterKey, new: &MasterKey) -> Result<()> {
    let ring = ring(directory)?.ok_or_else(|| not_encrypted_at_all(directory))?;
    let rotated = ring.rotated(old, new).map_err(|error| within(directory, error))?;
    write_sealed(directory, KEYS, FORMAT, &rotated.to_bytes())
}

fn ring(directory: &dyn Directory) -> Result<Option<KeyRing>> {
    match directory.open(KEYS) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(directory, "open", KEYS, &error)),
        Ok(_) => {}
    }
    let bytes = read_sealed(directory, KEYS, FORMAT)?;
    KeyRing::from_bytes(&bytes).map(Some).map_err(|error| within(directory, error))
}

/// Creates the keys of an empty directory, and stores them encrypted under the master key.
fn begin(directory: &dyn Directory, master: &MasterKey, new: Option<Tier>) -> Result<KeyRing> {
    let names = directory.names().map_err(|error| failed(directory, "list", "files", &error))?;
    let others: Vec<&String> = names.iter().filter(|name| !is_of_keys(name)).collect();
    if others.iter().any(|name| is_encrypted(directory, name)) {
        let message = format!("{} is encrypted, and its file {KEYS} is missing", directory.describe());
        return Err(Error::corrupt(message).advise("restore the directory from a backup"));
    }
    let Some(tier) = new.filter(|_| others.is_empty()) else { return Err(not_encrypted_at_all(directory)) };
    if !tier.authenticates() {
        let message = format!("a data directory cannot be {}: {}", tier.name(), tier.describe());
        return Err(Error::invalid(message).advise("choose standard or strict"));
    }
    let mut ring = KeyRing::new(master);
    ring.add(master, KeyKind::Directory, tier)?;
    write_sealed(directory, KEYS, FORMAT, &ring.to_bytes())?;
    Ok(ring)
}

fn is_of_keys(name: &str) -> bool {
    name.strip_suffix(UNFINISHED).unwrap_or(name) == KEYS
}

fn within(directory: &dyn Directory, error: Error) -> Error {
    Error { message: format!("{KEYS} in {}: {}", directory.describe(), error.message), ..error }
}

fn not_encrypted_at_all(directory: &dyn Directory) -> Error {
    Error::invalid(format!("{} is not encrypted, and a master key was given", directory.describe()))
        .advise("open it without the key; to encrypt its tables, copy them to a new directory that has one")
}

/// Returns the error of an encrypted file in a directory that was opened without a master key.
pub(crate) fn needs_key(directory: &dyn Directory, name: &str) -> Error {
    let message = format!("{} is encrypted, and no master key was given", place(directory, name));
    Error::new(ErrorKind::Denied, message)
        .advise("name its key: --master-key-file, --master-key-env or --master-key-command")
}

/// Returns the error of a plain file in an encrypted directory, which another program put there.
pub(crate) fn not_encrypted(directory: &dyn Directory, name: &str) -> Error {
    let message = format!("{} is not encrypted, and the directory is", place(directory, name));
    Error::corrupt(message).advise("restore the directory from a backup")
}

/// Returns the error for a file that was tampered with, whose checksum is right and whose authentication tag is wrong.
pub(crate) fn changed(directory: &dyn Directory, name: &str, error: Error) -> Error {
    changed_in(&place(directory, name), error)
}

/// Returns the error of [`changed`] for data at an offset in the file.
pub(crate) fn changed_at(directory: &dyn Directory, name: &str, offset: usize, error: Error) -> Error {
    changed_in(&format!("byte {offset} of {}", place(directory, name)), error)
}

fn changed_in(place: &str, error: Error) -> Error {
    if error.kind != ErrorKind::Corrupt {
        return error;
    }
    let message = format!("{place} was changed, or is of another directory");
    Error::corrupt(message).advise("restore the directory from a backup")
}

/// An encrypted directory with its unwrapped keys.
#[derive(Debug)]
struct EncryptedDirectory {
    inner: Arc<dyn Directory>,
    keys: Keys,
}

impl DirectoryOver for EncryptedDirectory {
    fn below(&self) -> &dyn Directory {
        &*self.inner
    }

    /// Hides the file of the wrapped keys, which no other module uses, from listings.
    fn name_here(&self, below: String) -> Option<String> {
        (!is_of_keys(&below)).then_some(below)
    }

    fn keys_here(&self) -> Option<&Keys> {
        Some(&self.keys)
    }
}

#[cfg(test)]
#[path = "encrypted_tests.rs"]
pub(crate) mod tests;
