//! Compression of blocks of bytes by any of the codecs.

use crate::Codec;
use lz4_flex::block::{CompressTable, compress_into_with_table, get_maximum_output_size};
use std::fmt;

/// Compression levels of the codecs. Reason: higher levels save few bytes and take at least twice as long
/// (`docs/decisions/2026-11-25-compression-on-disk.md`).
const ZSTD_LEVEL: i32 = 1;
const DEFLATE_LEVEL: i32 = 1;

/// Compresses blocks. The context of each codec is reused for later blocks.
#[derive(Default)]
pub struct Compressor {
    lz4: Option<CompressTable>,
    zstd: Option<zstd::bulk::Compressor<'static>>,
    deflate: Option<libdeflater::Compressor>,
}

impl fmt::Debug for Compressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compressor").finish_non_exhaustive()
    }
}

impl Compressor {
    /// Creates a compressor. The context of a codec is allocated at its first block.
    pub fn new() -> Compressor {
        Compressor::default()
    }

    /// Compresses `data` into `out`, whose contents are replaced. Returns true if the result has at most `most` bytes;
    /// otherwise returns false, and `out` has unspecified contents.
    ///
    /// Example: with `most = data.len() - 1`, false means that compression saves nothing, and the caller stores `data`
    /// uncompressed.
    pub fn compress(&mut self, codec: Codec, data: &[u8], most: usize, out: &mut Vec<u8>) -> bool {
        let room = match codec {
            // `lz4_flex` demands output space for its worst case, even if the result is short.
            Codec::Lz4 => get_maximum_output_size(data.len()),
            Codec::Zstd | Codec::Deflate => most,
        };
        // `out` only grows between blocks, so that most blocks do not pay for filling it with zeros.
        if out.len() < room {
            out.resize(room, 0);
        }
        match self.compress_into(codec, data, &mut out[..room]) {
            Some(bytes) if bytes <= most => {
                out.truncate(bytes);
                true
            }
            _ => false,
        }
    }

    /// Compresses `data` into `out` and returns the number of bytes; `None` if the result does not fit or the library
    /// cannot allocate memory.
    fn compress_into(&mut self, codec: Codec, data: &[u8], out: &mut [u8]) -> Option<usize> {
        match codec {
            Codec::Lz4 => {
                let table = self.lz4.get_or_insert_with(CompressTable::large);
                compress_into_with_table(data, out, table).ok()
            }
            Codec::Zstd => {
                let context = match &mut self.zstd {
                    Some(context) => context,
                    None => self.zstd.insert(zstd::bulk::Compressor::new(ZSTD_LEVEL).ok()?),
                };
                context.compress_to_buffer(data, out).ok()
            }
            Codec::Deflate => {
                let level = libdeflater::CompressionLvl::new(DEFLATE_LEVEL).ok()?;
                let context = self.deflate.get_or_insert_with(|| libdeflater::Compressor::new(level));
                context.deflate_compress(data, out).ok()
            }
        }
    }
}
