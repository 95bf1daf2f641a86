//! Encodes and decodes messages of the native protocol about backups (the files of a checkpoint).

use crate::proto;
use crate::request::{body, read};
use bytes::Bytes;
use farpool_model::{BackupFile, BackupFiles, Error, Result, limits};

/// Encodes the body of a `BackupFiles` message.
pub(crate) fn write_files(files: &BackupFiles) -> Bytes {
    let file = |file: &BackupFile| body(&proto::BackupFile { name: file.name.clone(), bytes: file.bytes });
    body(&proto::BackupFiles { node: files.node, files: files.files.iter().map(file).collect() })
}

/// Decodes the body of a `BackupFiles` message.
///
/// # Errors
/// `Corrupt` if the bytes cannot be decoded, or a file name is not one that a data directory may contain.
pub(crate) fn read_files(bytes: &Bytes) -> Result<BackupFiles> {
    let proto::BackupFiles { node, files } = read(bytes)?;
    let file = |file: &Bytes| {
        let proto::BackupFile { name, bytes } = read(file)?;
        checked_name(name).map(|name| BackupFile { name, bytes })
    };
    Ok(BackupFiles { node, files: files.iter().map(file).collect::<Result<_>>()? })
}

/// Encodes the body of a `BackupRead` message.
pub(crate) fn write_read(file: &str, offset: u64, bytes: u32) -> Bytes {
    body(&proto::BackupRead { file: file.to_string(), offset, bytes })
}

/// Decodes the body of a `BackupRead` message; returns the name of a file, an offset and a number of bytes.
///
/// # Errors
/// `Corrupt` if the bytes cannot be decoded; `OverLimit` for more bytes than one message may have.
pub(crate) fn read_read(bytes: &Bytes) -> Result<(String, u64, u32)> {
    let proto::BackupRead { file, offset, bytes } = read(bytes)?;
    if bytes as usize > limits::BACKUP_READ_BYTES_MAX {
        let most = limits::BACKUP_READ_BYTES_MAX;
        return Err(Error::over_limit(format!(
            "{bytes} bytes of a file are asked for, and {most} are sent at once"
        )));
    }
    Ok((checked_name(file)?, offset, bytes))
}

/// Returns the name if it has only lower-case letters, digits and hyphens, as the files of a data directory have: a
/// node must not make the client write elsewhere.
fn checked_name(name: String) -> Result<String> {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    match !name.is_empty() && name.len() <= limits::NAME_BYTES_MAX && name.bytes().all(is_plain) {
        true => Ok(name),
        false => Err(Error::corrupt(format!(
            "{:?} is not the name of a file of a backup",
            farpool_model::brief(&name)
        ))),
    }
}
