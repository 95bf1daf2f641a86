//! Sealed files: small files that are replaced atomically. A checksum covers the contents, and a rename makes them
//! visible.
//!
//! Layout, all numbers little-endian: `fpsealed`; the format `u32`; the checksum of the rest `u32`; the length `u64`;
//! the contents. In an encrypted directory the magic number is `fpcipher`, and the contents are a salt of 32 bytes, a
//! tag of 16 bytes and the ciphertext; the format and the file name are authenticated with it.
//!
//! Example: a crash while `manifest-2` is written leaves `manifest-2.new`, which readers ignore, or the complete file.
//! No crash leaves a file of the final name with only part of the contents.

use crate::encrypted::{changed, needs_key, not_encrypted};
use crate::files::{Directory, failed, place};
use crate::keys::{Purpose, SEAL_BYTES, Seal, associated};
use farpool_model::cast::{u64_from, usize_saturating};
use farpool_model::{Error, Result};
use std::io;
use std::ops::RangeInclusive;

const MAGIC: &[u8; 8] = b"fpsealed";
const ENCRYPTED_MAGIC: &[u8; 8] = b"fpcipher";
const HEADER_BYTES: usize = 24;

/// Suffix of the file name while the file is being written.
pub(crate) const UNFINISHED: &str = ".new";

/// Writes `contents` to the file `name` durably, replacing an existing file of that name. `format` is the version of
/// the contents.
///
/// # Errors
/// Errors of the file system; the old or the new file may then be there.
pub fn write_sealed(directory: &dyn Directory, name: &str, format: u32, contents: &[u8]) -> Result<()> {
    let bytes = sealed(directory, name, format, contents)?;
    let unfinished = format!("{name}{UNFINISHED}");
    let written = || {
        match directory.remove(&unfinished) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = directory.create(&unfinished)?;
        file.write_at(&bytes, 0)?;
        file.sync()?;
        directory.rename(&unfinished, name)?;
        directory.sync()
    };
    written().map_err(|error| failed(directory, "write", name, &error))
}

/// Returns the bytes that [`write_sealed`] would write to the file `name`. In an encrypted directory they are valid
/// only under this name, because the name is authenticated.
///
/// # Errors
/// Fails if the contents cannot be encrypted.
pub fn sealed(directory: &dyn Directory, name: &str, format: u32, contents: &[u8]) -> Result<Vec<u8>> {
    let keys = directory.keys();
    let seal_bytes = if keys.is_some() { SEAL_BYTES } else { 0 };
    let mut bytes = Vec::with_capacity(HEADER_BYTES + seal_bytes + contents.len());
    bytes.extend_from_slice(if keys.is_some() { ENCRYPTED_MAGIC } else { MAGIC });
    bytes.extend_from_slice(&format.to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&u64_from(seal_bytes + contents.len()).to_le_bytes());
    bytes.resize(HEADER_BYTES + seal_bytes, 0);
    bytes.extend_from_slice(contents);
    if let Some(keys) = keys {
        let (front, data) = bytes.split_at_mut(HEADER_BYTES + SEAL_BYTES);
        let seal = keys.seal(Purpose::SealedFile, &associated(&[u64::from(format)], name), data)?;
        front[HEADER_BYTES..].copy_from_slice(&seal.encode());
    }
    let checksum = crc32fast::hash(&bytes[16..]);
    bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
    Ok(bytes)
}

/// Returns the contents of a file written by [`write_sealed`] with this format.
///
/// # Errors
/// Errors of [`read_sealed_formats`].
pub fn read_sealed(directory: &dyn Directory, name: &str, format: u32) -> Result<Vec<u8>> {
    read_sealed_formats(directory, name, format..=format).map(|(_, contents)| contents)
}

/// Returns the format and the contents of a file written by [`write_sealed`]; the format must be one of `formats`.
///
/// # Errors
/// `Corrupt`, with the file's name, if the file is corrupted, or plain in an encrypted directory; `Denied` if it is
/// encrypted and the directory has no keys; `Invalid` if it has another format; errors of the file system.
pub fn read_sealed_formats(
    directory: &dyn Directory,
    name: &str,
    formats: RangeInclusive<u32>,
) -> Result<(u32, Vec<u8>)> {
    let read = || {
        let file = directory.open(name)?;
        let mut bytes = vec![0; usize_saturating(file.bytes()?)];
        file.read_at(&mut bytes, 0)?;
        Ok(bytes)
    };
    let mut bytes = read().map_err(|error| failed(directory, "read", name, &error))?;
    let u32_at = |at: usize| {
        bytes.get(at..at + 4).and_then(|number| Some(u32::from_le_bytes(number.try_into().ok()?)))
    };
    let length =
        bytes.get(16..HEADER_BYTES).and_then(|number| Some(u64::from_le_bytes(number.try_into().ok()?)));
    let is_encrypted = bytes.starts_with(ENCRYPTED_MAGIC);
    let is_whole = (is_encrypted || bytes.starts_with(MAGIC))
        && length.is_some_and(|length| length == u64_from(bytes.len() - HEADER_BYTES))
        && u32_at(12) == Some(crc32fast::hash(&bytes[16..]));
    if !is_whole {
        let message = format!("{} is damaged", place(directory, name));
        return Err(Error::corrupt(message).advise("restore the directory from a backup"));
    }
    let format = u32_at(8).unwrap_or_default();
    if !formats.contains(&format) {
        return Err(other_format(directory, name, format, *formats.end()));
    }
    let mut contents = bytes.split_off(HEADER_BYTES);
    match (is_encrypted, directory.keys()) {
        (false, None) => Ok((format, contents)),
        (true, None) => Err(needs_key(directory, name)),
        (false, Some(_)) => Err(not_encrypted(directory, name)),
        (true, Some(keys)) => {
            let damaged = || Error::corrupt("a seal that is cut off");
            let opened = Seal::split(&contents).ok_or_else(damaged).map(|(seal, _)| seal).and_then(|seal| {
                contents.drain(..SEAL_BYTES);
                let associated = associated(&[u64::from(format)], name);
                keys.open(Purpose::SealedFile, &associated, &seal, &mut contents)
            });
            opened.map_err(|error| changed(directory, name, error)).map(|()| (format, contents))
        }
    }
}

/// Returns whether [`write_sealed`] has encrypted the file; false if it cannot be read.
pub(crate) fn is_encrypted(directory: &dyn Directory, name: &str) -> bool {
    let mut magic = [0; 8];
    let read = directory.open(name).and_then(|file| file.read_at(&mut magic, 0));
    read.is_ok() && magic == *ENCRYPTED_MAGIC
}

/// Returns the error of a file with an unknown format; `newest` is the newest one that is known.
pub(crate) fn other_format(directory: &dyn Directory, name: &str, format: u32, newest: u32) -> Error {
    let message = format!(
        "{} has format {format}, which this version of farpool does not know: it knows formats up to {newest}",
        place(directory, name)
    );
    Error::invalid(message).advise("open it with the version of farpool that wrote it")
}
