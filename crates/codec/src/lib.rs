//! Compression of blocks of bytes whose length is known: DEFLATE (RFC 1951), LZ4 (its block format) and Zstandard (RFC
//! 8878) behind one interface.
//!
//! Contexts are allocated when a codec is first used and reused for every later block.
//!
//! Invariant: decompression writes to the destination only, takes time linear in the lengths of its input and of the
//! destination, and fails unless the output fills the destination exactly. Example: a block that was compressed from
//! 100 bytes is an error with a destination of 99 bytes and with one of 101 bytes. A corrupt length can thus neither
//! overflow the destination nor leave old bytes at its end.

#![forbid(unsafe_code)]

mod codec;
mod compress;
mod decompress;
#[cfg(test)]
mod tests;

pub use codec::Codec;
pub use compress::Compressor;
pub use decompress::Decompressor;
