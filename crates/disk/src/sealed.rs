//! Small files that are there as a whole or not at all: a checksum over everything, and a rename that makes them visible.
//!
//! Layout, all numbers little-endian: `fpsealed`; the format `u32`; the checksum `u32` of what follows; the length `u64`;
//! the contents.

use crate::files::{Directory, failed};
use farpool_model::cast::{u64_from, usize_saturating};
use farpool_model::{Error, Result};
use std::io;

const MAGIC: &[u8; 8] = b"fpsealed";
const HEADER_BYTES: usize = 24;

/// Suffix of the name that a file has until it is complete.
const UNFINISHED: &str = ".new";

/// Makes `contents` the file `name`, durably, in the place of one that has the name. `format` tells versions of the
/// contents apart.
///
/// # Errors
/// Those of the file system; the file may or may not be there then.
pub fn write_sealed(directory: &dyn Directory, name: &str, format: u32, contents: &[u8]) -> Result<()> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES + contents.len());
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&format.to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&u64_from(contents.len()).to_le_bytes());
    bytes.extend_from_slice(contents);
    let checksum = crc32fast::hash(&bytes[16..]);
    bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
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

/// Returns the contents of a file that [`write_sealed`] made.
///
/// # Errors
/// `Corrupt`, with the file's name, where it is damaged; `Invalid` where it has another format; those of the file system.
pub fn read_sealed(directory: &dyn Directory, name: &str, format: u32) -> Result<Vec<u8>> {
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
    let is_whole = bytes.starts_with(MAGIC)
        && length.is_some_and(|length| length == u64_from(bytes.len() - HEADER_BYTES))
        && u32_at(12) == Some(crc32fast::hash(&bytes[16..]));
    if !is_whole {
        let message = format!("{name} in {} is damaged", directory.describe());
        return Err(Error::corrupt(message).advise("restore the directory from a backup"));
    }
    match u32_at(8) {
        Some(found) if found == format => Ok(bytes.split_off(HEADER_BYTES)),
        found => Err(other_format(directory, name, found.unwrap_or_default())),
    }
}

/// The error of a file whose format another version of farpool has.
pub(crate) fn other_format(directory: &dyn Directory, name: &str, format: u32) -> Error {
    let message = format!(
        "{name} in {} has format {format}, which this version of farpool does not know",
        directory.describe()
    );
    Error::invalid(message).advise("open it with the version of farpool that wrote it")
}
