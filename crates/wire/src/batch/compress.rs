//! Buffers that are compressed one by one (the Arrow columnar format, "Buffer compression"): before each stands
//! its length without compression, in 8 bytes, or -1 when it is there as it is because that takes less.

use super::write::Body;
use super::{ALIGNMENT, ZEROS, encapsulate};
use arrow_buffer::Buffer;
use arrow_ipc::CompressionType;
use bytes::Bytes;
use farpool_model::{Compression, Error, Result, limits};
use std::io::{Read, Write};

const PREFIX_BYTES: usize = 8;

/// The length of what is not compressed.
const AS_IT_IS: i64 = -1;

/// The level that zstd takes for its best trade of time for bytes on Arrow's buffers: its lowest.
const ZSTD_LEVEL: i32 = 1;

/// Arrow's name for it.
pub(super) fn codec(compression: Compression) -> CompressionType {
    match compression {
        Compression::Lz4 => CompressionType::LZ4_FRAME,
        Compression::Zstd => CompressionType::ZSTD,
    }
}

/// The buffer as it goes over the wire; an empty one stays so.
///
/// # Errors
/// None but defects.
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

/// The message with the same batch, none of its buffers compressed. Whether they fit the batch is for whoever
/// reads that.
///
/// # Errors
/// `Corrupt` when a buffer is damaged, or all of them have more than a message may.
pub(super) fn inflate(header: &arrow_ipc::RecordBatch<'_>, data: &[u8]) -> Result<Bytes> {
    let codec = header.compression().map(|compression| compression.codec());
    let compression = match codec {
        Some(CompressionType::LZ4_FRAME) => Compression::Lz4,
        Some(CompressionType::ZSTD) => Compression::Zstd,
        other => return Err(damaged(format!("its buffers are compressed by {other:?}"))),
    };
    let mut body = Body::default();
    body.nodes.extend(header.nodes().into_iter().flatten());
    body.variadic_counts.extend(header.variadicBufferCounts().into_iter().flatten());
    for place in header.buffers().into_iter().flatten() {
        let range = usize::try_from(place.offset()).ok().zip(usize::try_from(place.length()).ok());
        let compressed = range.and_then(|(start, length)| data.get(start..)?.get(..length));
        let compressed = compressed.ok_or_else(|| damaged("a buffer lies outside its body".to_string()))?;
        body.add_buffer(inflate_buffer(compressed, compression, limits::MESSAGE_BYTES_MAX - body.bytes)?);
        if body.bytes > limits::MESSAGE_BYTES_MAX {
            return Err(too_large());
        }
    }
    let mut message = encapsulate(&body.metadata(header.length(), None)).to_vec();
    message.reserve(body.bytes);
    for buffer in &body.buffers {
        message.extend_from_slice(buffer);
        message.extend_from_slice(&ZEROS[..buffer.len().next_multiple_of(ALIGNMENT) - buffer.len()]);
    }
    Ok(message.into())
}

fn inflate_buffer(bytes: &[u8], compression: Compression, bytes_max: usize) -> Result<Buffer> {
    if bytes.is_empty() {
        return Ok(Buffer::default());
    }
    let Some((prefix, bytes)) = bytes.split_first_chunk::<PREFIX_BYTES>() else {
        return Err(damaged("a compressed buffer is shorter than its prefix".to_string()));
    };
    let length = match i64::from_le_bytes(*prefix) {
        AS_IT_IS => return Ok(Buffer::from(bytes)),
        length => usize::try_from(length).map_err(|_| damaged(format!("a buffer of {length} bytes")))?,
    };
    if length > bytes_max {
        return Err(too_large());
    }
    let failed = |error: std::io::Error| damaged(format!("a compressed buffer: {error}"));
    let mut out = Vec::with_capacity(length);
    // One byte more, to notice what is longer than it says.
    let read = match compression {
        Compression::Lz4 => {
            lz4_flex::frame::FrameDecoder::new(bytes).take(length as u64 + 1).read_to_end(&mut out)
        }
        Compression::Zstd => {
            let decoder = zstd::stream::Decoder::with_buffer(bytes).map_err(failed)?;
            decoder.take(length as u64 + 1).read_to_end(&mut out)
        }
    };
    read.map_err(failed)?;
    if out.len() != length {
        return Err(damaged(format!("a buffer that says it has {length} bytes has others")));
    }
    Ok(Buffer::from_vec(out))
}

fn damaged(what: String) -> Error {
    Error::corrupt(format!("a damaged batch: {what}"))
}

fn too_large() -> Error {
    damaged(format!("without compression it has more than {} bytes", limits::MESSAGE_BYTES_MAX))
}
