//! Decompression of files while they are read.
//!
//! Invariant: memory is bounded by one window of the decompressor (at most 128 MiB, zstd's own limit; 32 KiB for gzip)
//! and a buffer, however large a file is after decompression.

use super::ahead::Ahead;
use super::files;
use super::input::Input;
use super::progress::{Counting, Progress};
use farpool_model::{FileCompression, Result};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;

/// Bytes per read.
const BUFFER_BYTES: usize = 256 << 10;

/// A reader of bytes, decompressed or decoded.
pub(super) type Bytes = Box<dyn BufRead + Send>;

/// Returns the decompressed bytes of `file`, which must be at its beginning.
pub(super) fn read(
    path: &Path,
    file: Input,
    compression: FileCompression,
    progress: Arc<Progress>,
) -> Result<Bytes> {
    let bytes = match file {
        Input::Local(file) => decompressed(Counting { inner: Ahead::new(file), progress }, compression),
        Input::Remote(reader) => decompressed(Counting { inner: reader, progress }, compression),
    };
    bytes.map_err(|error| files::unreadable(path, &error))
}

/// Returns the decompressed bytes of `from`.
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

/// Detects the compression of a file by its first bytes.
pub(super) fn of_head(head: &[u8]) -> FileCompression {
    match head {
        [0x1f, 0x8b, ..] => FileCompression::Gzip,
        [0x28, 0xb5, 0x2f, 0xfd, ..] => FileCompression::Zstd,
        _ => FileCompression::None,
    }
}

/// Decompresses `head`, the beginning of a file, as far as possible; returns at most `most` bytes.
pub(super) fn head(head: &[u8], compression: FileCompression, most: usize) -> std::io::Result<Vec<u8>> {
    let mut from = decompressed(std::io::Cursor::new(head.to_vec()), compression)?;
    let mut bytes = vec![0; most];
    let mut count = 0;
    while count < most {
        match from.read(&mut bytes[count..]) {
            Ok(0) => break,
            Ok(read) => count += read,
            // The head ends in the middle of a block; it is corrupted only if nothing could be decompressed.
            Err(_) if count > 0 => break,
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(count);
    Ok(bytes)
}
