//! Compresses the buffers of an Arrow batch one by one, as the Arrow columnar format defines it ("Buffer compression"):
//! each is preceded by its uncompressed length in 8 bytes, or by -1 if it is stored uncompressed because that is
//! smaller.
//!
//! Invariant: before anything is decompressed, its uncompressed size is known, and is at most
//! [`limits::MESSAGE_BYTES_MAX`] (so that a small message cannot expand to a large one). A buffer that turns out longer
//! or shorter than stated is rejected.

use super::write::Layout;
use super::{ALIGNMENT, encapsulate};
use arrow_buffer::Buffer;
use arrow_ipc::CompressionType;
use bytes::Bytes;
use farpool_model::{Compression, Error, Result, limits};
use std::io::{Read, Write};

const PREFIX_BYTES: usize = 8;

/// The value in place of a length that marks a buffer as stored uncompressed.
const AS_IT_IS: i64 = -1;

/// Level of Zstandard. Reason: of its levels, the lowest saves the most bytes per time on Arrow's buffers.
const ZSTD_LEVEL: i32 = 1;

/// Returns the Arrow codec of the compression.
pub(super) fn codec(compression: Compression) -> CompressionType {
    match compression {
        Compression::Lz4 => CompressionType::LZ4_FRAME,
        Compression::Zstd => CompressionType::ZSTD,
    }
}

/// Compresses a buffer, or stores it uncompressed, with the mark, if that is smaller. An empty buffer stays empty.
///
/// # Errors
/// Fails only on a bug in the compressor.
pub(super) fn compress(buffer: &[u8], compression: Compression) -> Result<Buffer> {
    if buffer.is_empty() {
        return Ok(Buffer::default());
    }
    let failed = |error: std::io::Error| Error::internal(format!("cannot compress a buffer: {error}"));
    let mut out = Vec::with_capacity(buffer.len() / 2);
    out.extend_from_slice(&(buffer.len() as i64).to_le_bytes());
    match compression {
        Compression::Lz4 => {
            let mut encoder = lz4_flex::frame::FrameEncoder::new(&mut out);
            encoder.write_all(buffer).and_then(|()| Ok(encoder.finish()?)).map_err(failed)?;
        }
        Compression::Zstd => zstd::stream::copy_encode(buffer, &mut out, ZSTD_LEVEL).map_err(failed)?,
    }
    if out.len() > PREFIX_BYTES + buffer.len() {
        out.clear();
        out.extend_from_slice(&AS_IT_IS.to_le_bytes());
        out.extend_from_slice(buffer);
    }
    Ok(Buffer::from_vec(out))
}

/// The compressed buffers of a batch: their positions in the message and their sizes are known, but nothing is
/// decompressed.
pub(super) struct Compressed<'a> {
    compression: Compression,
    buffers: Vec<BufferPosition<'a>>,
    /// Total bytes of all buffers after decompression, including padding.
    pub(super) bytes_inflated: usize,
}

/// Position of a compressed buffer, and the length that it states.
struct BufferPosition<'a> {
    bytes: &'a [u8],
    length: usize,
    is_compressed: bool,
}

impl<'a> Compressed<'a> {
    /// Finds the buffers of a batch whose body is `data`, and adds up their stated sizes.
    ///
    /// # Errors
    /// `Corrupt` if a buffer is outside the body or has no length; `OverLimit` if the stated sizes together exceed
    /// those of a message.
    pub(super) fn of(header: &arrow_ipc::RecordBatch<'_>, data: &'a [u8]) -> Result<Self> {
        let codec = header.compression().map(|compression| compression.codec());
        let compression = match codec {
            Some(CompressionType::LZ4_FRAME) => Compression::Lz4,
            Some(CompressionType::ZSTD) => Compression::Zstd,
            other => return Err(damaged(format!("its buffers are compressed by {other:?}"))),
        };
        let mut compressed = Compressed { compression, buffers: Vec::new(), bytes_inflated: 0 };
        for place in header.buffers().into_iter().flatten() {
            let range = usize::try_from(place.offset()).ok().zip(usize::try_from(place.length()).ok());
            let bytes = range.and_then(|(start, length)| data.get(start..)?.get(..length));
            let bytes = bytes.ok_or_else(|| damaged("a buffer lies outside its body".to_string()))?;
            compressed.add(BufferPosition::of(bytes)?)?;
        }
        Ok(compressed)
    }

    fn add(&mut self, place: BufferPosition<'a>) -> Result<()> {
        let bytes = place.length.checked_next_multiple_of(ALIGNMENT);
        let bytes = bytes.and_then(|bytes| bytes.checked_add(self.bytes_inflated));
        let bytes = bytes.filter(|bytes| *bytes <= limits::MESSAGE_BYTES_MAX).ok_or_else(|| {
            let most = limits::MESSAGE_BYTES_MAX;
            Error::over_limit(format!("a batch may have {most} bytes without compression, this one has more"))
                .advise("send fewer rows in a batch")
        })?;
        self.bytes_inflated = bytes;
        self.buffers.push(place);
        Ok(())
    }

    /// Returns a message with the same batch, decompressed. Does not check that the buffers fit the batch: reading that
    /// message does.
    ///
    /// # Errors
    /// `Corrupt` if a buffer cannot be decompressed, or is not as long as stated.
    pub(super) fn inflate(&self, header: &arrow_ipc::RecordBatch<'_>) -> Result<Bytes> {
        let mut layout = Layout::default();
        layout.nodes.extend(header.nodes().into_iter().flatten());
        layout.variadic_counts.extend(header.variadicBufferCounts().into_iter().flatten());
        self.buffers.iter().for_each(|place| layout.add(place.length));
        let metadata = encapsulate(&layout.metadata(header.length(), None));
        let mut message = vec![0; metadata.len() + self.bytes_inflated];
        message[..metadata.len()].copy_from_slice(&metadata);
        let mut rest = &mut message[metadata.len()..];
        for place in &self.buffers {
            let (out, behind) = rest.split_at_mut(place.length.next_multiple_of(ALIGNMENT));
            place.inflate(self.compression, &mut out[..place.length])?;
            rest = behind;
        }
        Ok(message.into())
    }
}

impl<'a> BufferPosition<'a> {
    fn of(bytes: &'a [u8]) -> Result<Self> {
        if bytes.is_empty() {
            return Ok(BufferPosition { bytes, length: 0, is_compressed: false });
        }
        let Some((prefix, bytes)) = bytes.split_first_chunk::<PREFIX_BYTES>() else {
            return Err(damaged("a compressed buffer is shorter than its prefix".to_string()));
        };
        match i64::from_le_bytes(*prefix) {
            AS_IT_IS => Ok(BufferPosition { bytes, length: bytes.len(), is_compressed: false }),
            length => {
                let length =
                    usize::try_from(length).map_err(|_| damaged(format!("a buffer of {length} bytes")))?;
                Ok(BufferPosition { bytes, length, is_compressed: true })
            }
        }
    }

    /// Decompresses the buffer into `out`, which has the stated length.
    fn inflate(&self, compression: Compression, out: &mut [u8]) -> Result<()> {
        let wrong_length = || damaged(format!("a buffer that says it has {} bytes has others", self.length));
        if !self.is_compressed {
            out.copy_from_slice(self.bytes);
            return Ok(());
        }
        match compression {
            Compression::Lz4 => {
                let mut decoder = lz4_flex::frame::FrameDecoder::new(self.bytes);
                decoder.read_exact(out).map_err(|error| match error.kind() {
                    std::io::ErrorKind::UnexpectedEof => wrong_length(),
                    _ => damaged(format!("a compressed buffer: {error}")),
                })?;
                // Reading one more byte must fail, or the buffer is longer than stated.
                if decoder.read(&mut [0]).map_or(true, |more| more > 0) {
                    return Err(wrong_length());
                }
            }
            // Decompresses with one call, into memory of the stated length, because the window of a stream decoder
            // could take 128 MiB more.
            Compression::Zstd => {
                let written = zstd::bulk::decompress_to_buffer(self.bytes, out)
                    .map_err(|error| damaged(format!("a compressed buffer: {error}")))?;
                if written != self.length {
                    return Err(wrong_length());
                }
            }
        }
        Ok(())
    }
}

fn damaged(what: String) -> Error {
    Error::corrupt(format!("a damaged batch: {what}"))
}
