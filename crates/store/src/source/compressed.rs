//! The bytes of a file, decompressed as they are read.
//!
//! Invariant: what is held is one window of the decompressor (128 MiB at most, zstd's own limit; 32 KiB of gzip) and a
//! buffer, however much comes of a file.

use super::ahead::Ahead;
use super::files;
use super::progress::{Counting, Progress};
use farpool_model::{FileCompression, Result};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;

/// Bytes that are read at a time.
const BUFFER_BYTES: usize = 256 << 10;

/// A reader of bytes.
pub(super) type Bytes = Box<dyn BufRead + Send>;

/// The bytes of `file`, which is at its beginning.
pub(super) fn read(
    path: &Path,
    file: File,
    compression: FileCompression,
    progress: Arc<Progress>,
) -> Result<Bytes> {
    let counting = Counting { inner: Ahead::new(file), progress };
    decompressed(counting, compression).map_err(|error| files::unreadable(path, &error))
}

/// What comes of `from`.
pub(super) fn decompressed(
    from: impl Read + Send + 'static,
    compression: FileCompression,
) -> std::io::Result<Bytes> {
    let from = BufReader::with_capacity(BUFFER_BYTES, from);
    Ok(match compression {
        FileCompression::None => Box::new(from),
        FileCompression::Gzip => {
            Box::new(BufReader::with_capacity(BUFFER_BYTES, flate2::bufread::MultiGzDecoder::new(from)))
        }
        FileCompression::Zstd => {
            Box::new(BufReader::with_capacity(BUFFER_BYTES, zstd::stream::read::Decoder::with_buffer(from)?))
        }
    })
}

/// What the first bytes of a file are compressed by.
pub(super) fn of_head(head: &[u8]) -> FileCompression {
    match head {
        [0x1f, 0x8b, ..] => FileCompression::Gzip,
        [0x28, 0xb5, 0x2f, 0xfd, ..] => FileCompression::Zstd,
        _ => FileCompression::None,
    }
}

/// The first bytes of what `head` is the beginning of, as far as they can be told, up to `most`.
pub(super) fn head(head: &[u8], compression: FileCompression, most: usize) -> std::io::Result<Vec<u8>> {
    let mut from = decompressed(std::io::Cursor::new(head.to_vec()), compression)?;
    let mut bytes = vec![0; most];
    let mut count = 0;
    while count < most {
        match from.read(&mut bytes[count..]) {
            Ok(0) => break,
            Ok(read) => count += read,
            // The head is cut off somewhere; if nothing comes of it, it is damaged.
            Err(_) if count > 0 => break,
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(count);
    Ok(bytes)
}
