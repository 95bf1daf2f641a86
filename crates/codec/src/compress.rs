//! Compressing.

use crate::Codec;
use lz4_flex::block::{CompressTable, compress_into_with_table, get_maximum_output_size};
use std::fmt;

/// How hard each library tries: the levels from which more effort saves little and takes as long again
/// (`docs/decisions/2026-11-25-compression-on-disk.md`).
const ZSTD_LEVEL: i32 = 1;
const DEFLATE_LEVEL: i32 = 1;

/// What compresses blocks, one after the other.
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
    /// Makes a compressor; the contexts of a codec are made with the first block.
    pub fn new() -> Compressor {
        Compressor::default()
    }

    /// Compresses `data` into `out` in the place of what is there, if that takes `most` bytes at most. `out` is left with
    /// anything in it otherwise.
    pub fn compress(&mut self, codec: Codec, data: &[u8], most: usize, out: &mut Vec<u8>) -> bool {
        let room = match codec {
            // The library takes no less, whatever comes of it.
            Codec::Lz4 => get_maximum_output_size(data.len()),
            Codec::Zstd | Codec::Deflate => most,
        };
        // Bytes that are there stay, so that no block costs writing zeros first.
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

    /// `None` where it does not fit, or the library has no memory.
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
