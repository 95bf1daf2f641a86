//! Compression of blocks of bytes whose length is known: DEFLATE (RFC 1951), LZ4 (its block format) and Zstandard (RFC
//! 8878) behind one interface.
//!
//! Contexts are made when a codec is first used, and used again for every block.
//!
//! Invariant: decompression writes the destination and nothing else, takes time by the length of what it reads and of the
//! destination, and gives an error for everything that is not exactly as long as that.

#![forbid(unsafe_code)]

mod codec;
mod compress;
mod decompress;
#[cfg(test)]
mod tests;

pub use codec::Codec;
pub use compress::Compressor;
pub use decompress::Decompressor;
