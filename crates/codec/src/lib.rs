//! Compression of blocks of bytes: DEFLATE (RFC 1951), LZ4 (block format) and Zstandard (RFC 8878) behind one
//! interface. The caller stores the uncompressed length of each block.
//!
//! Contexts are allocated when a codec is first used and reused for later blocks.
//!
//! Invariant: decompression writes to the destination only, takes time linear in the lengths of its input and of the
//! destination, and fails unless the output fills the destination exactly. Example: a block that was compressed from
//! 100 bytes is an error with a destination of 99 bytes and with one of 101 bytes. A corrupted length can therefore
//! neither overflow the destination nor leave old bytes at its end.

#![forbid(unsafe_code)]

mod codec;
mod compress;
mod decompress;
#[cfg(test)]
mod tests;

pub use codec::Codec;
pub use compress::Compressor;
pub use decompress::Decompressor;
