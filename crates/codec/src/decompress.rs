//! Decompression of blocks of bytes that were compressed by any of the codecs.

use crate::Codec;
use farpool_model::{Error, Result};
use std::fmt;

/// Decompresses blocks. The context of each codec is reused for later blocks.
#[derive(Default)]
pub struct Decompressor {
    zstd: Option<zstd::bulk::Decompressor<'static>>,
    deflate: Option<libdeflater::Decompressor>,
}

impl fmt::Debug for Decompressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decompressor").finish_non_exhaustive()
    }
}

impl Decompressor {
    /// Creates a decompressor. The context of a codec is allocated at its first block.
    pub fn new() -> Decompressor {
        Decompressor::default()
    }

    /// Decompresses `data` into `plain`, which must have exactly the length of the uncompressed data.
    ///
    /// # Errors
    /// `Corrupt` if `data` does not decompress to exactly `plain.len()` bytes; `plain` then has unspecified contents.
    /// Success does not prove that the bytes are those that were compressed: only a checksum or an authentication tag
    /// does.
    pub fn decompress(&mut self, codec: Codec, data: &[u8], plain: &mut [u8]) -> Result<()> {
        let bytes = match codec {
            Codec::Lz4 => lz4_flex::block::decompress_into(data, plain).ok(),
            Codec::Zstd => {
                let context = match &mut self.zstd {
                    Some(context) => context,
                    None => {
                        let made = zstd::bulk::Decompressor::new();
                        self.zstd.insert(made.map_err(|_| Error::over_limit("no memory for Zstandard"))?)
                    }
                };
                context.decompress_to_buffer(data, plain).ok()
            }
            Codec::Deflate => self.deflate.get_or_insert_default().deflate_decompress(data, plain).ok(),
        };
        match bytes {
            Some(bytes) if bytes == plain.len() => Ok(()),
            _ => Err(Error::corrupt(format!(
                "{} bytes of {codec} are not a block of {}",
                data.len(),
                plain.len()
            ))),
        }
    }
}
