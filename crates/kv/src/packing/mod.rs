//! Compression of values, one by one.
//!
//! A value is stored compressed (packed) if its entry then fits a smaller size class, and plain otherwise. Small values
//! contain little repetition, so a space may have a dictionary, a sample of its first values: LZ4 refers to what values
//! have in common with it, and FSST derives a table of frequent symbols from it (`training.rs`).
//!
//! Values are compressed in memory only. The log, snapshots and clients get plain values, so that no file depends on a
//! codec or a dictionary.

mod deflate;
mod packers;
mod symbols;
mod training;

#[cfg(test)]
mod tests;

pub(crate) use packers::{PackedValue, Packers, Unpackers, plain_bytes, room_of_entry};

use farpool_model::limits::{KV_DICTIONARY_BYTES_MAX, KV_PACKED_BYTES_MAX};
use farpool_model::{Error, Result};
use std::fmt;
use symbols::Symbols;

/// Maximum ratio of plain to compressed bytes: a value is allocated at least 1/8 of its plain size. Reason for a limit:
/// the plain size of the values in a part of memory can then be estimated from its bytes.
pub(crate) const PLAIN_PER_BYTE: usize = 8;

/// Maximum bytes of a dictionary for LZ4. Reason for a limit: the compressor indexes the whole dictionary for each
/// value.
const LZ4_DICTIONARY_BYTES: usize = 4 << 10;

/// Minimum bytes of a dictionary, below which it would be useless.
const DICTIONARY_BYTES_LEAST: usize = 64;

/// A codec (compression algorithm) for the values of a space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// LZ4, with a dictionary of sample values.
    Lz4,
    /// DEFLATE: gives the fewest bytes for long values, and takes the most time.
    Deflate,
    /// FSST: takes the least time for short values.
    Fsst,
}

impl Compression {
    const ALL: [Compression; 3] = [Compression::Lz4, Compression::Deflate, Compression::Fsst];

    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Compression::Lz4 => "lz4",
            Compression::Deflate => "deflate",
            Compression::Fsst => "fsst",
        }
    }

    /// Returns the codec with this name; `None` if there is none. Case is ignored.
    pub fn named(name: &[u8]) -> Option<Compression> {
        Compression::ALL.into_iter().find(|one| name.eq_ignore_ascii_case(one.name().as_bytes()))
    }

    /// Returns the number of the codec in encoded definitions of spaces; numbers begin with 1.
    pub(crate) fn number(self) -> u8 {
        self as u8 + 1
    }

    pub(crate) fn numbered(number: u8) -> Option<Compression> {
        Compression::ALL.into_iter().find(|one| one.number() == number)
    }

    /// Returns the maximum bytes of a dictionary; 0 if the codec uses none.
    pub(crate) fn dictionary_bytes(self) -> usize {
        match self {
            Compression::Lz4 => LZ4_DICTIONARY_BYTES,
            Compression::Deflate => 0,
            Compression::Fsst => KV_DICTIONARY_BYTES_MAX,
        }
    }
}

/// A compressor and decompressor for the values of a space: a codec with a dictionary.
pub struct Packer {
    compression: Compression,
    dictionary: Box<[u8]>,
    symbols: Option<Symbols>,
}

impl Packer {
    /// Creates a packer with as much of `dictionary`, a sample of values, as the codec uses. An empty dictionary stands
    /// for none.
    pub fn new(compression: Compression, dictionary: &[u8]) -> Packer {
        let dictionary = &dictionary[..dictionary.len().min(compression.dictionary_bytes())];
        let dictionary = if dictionary.len() < DICTIONARY_BYTES_LEAST { &[] } else { dictionary };
        let has_symbols = compression == Compression::Fsst && !dictionary.is_empty();
        Packer {
            compression,
            dictionary: dictionary.into(),
            symbols: has_symbols.then(|| Symbols::of(dictionary)),
        }
    }

    /// Returns the codec.
    pub fn compression(&self) -> Compression {
        self.compression
    }

    /// Returns the dictionary, a sample of values; empty if there is none.
    pub fn dictionary(&self) -> &[u8] {
        &self.dictionary
    }

    /// Returns whether the codec uses a dictionary and the packer has none.
    pub(crate) fn wants_dictionary(&self) -> bool {
        self.dictionary.is_empty() && self.compression.dictionary_bytes() > 0
    }

    /// Returns whether another packer has the same codec and dictionary, and so gives the same results.
    pub(crate) fn is_like(&self, other: &Packer) -> bool {
        self.compression == other.compression && self.dictionary == other.dictionary
    }

    /// Returns the bytes of memory that the packer takes.
    pub(crate) fn bytes(&self) -> usize {
        self.dictionary.len() + self.symbols.as_ref().map_or(0, |_| Symbols::BYTES)
    }

    /// Returns the maximum bytes of memory that a packer with a dictionary takes.
    pub(crate) fn bytes_with(compression: Compression) -> usize {
        let symbols = if compression == Compression::Fsst { Symbols::BYTES } else { 0 };
        compression.dictionary_bytes() + symbols
    }

    /// Returns whether decompressing a value takes about as long as copying it.
    pub(crate) fn is_quick(&self) -> bool {
        self.compression != Compression::Deflate
    }

    /// Returns the cost of decompressing a value of `bytes` plain bytes, as the number of bytes that could be copied in
    /// that time.
    pub(crate) fn cost(&self, bytes: usize) -> usize {
        match self.compression {
            Compression::Lz4 | Compression::Fsst => 4 * bytes + 256,
            // DEFLATE's decoder builds tables for each value, which takes as long as copying 32 KiB.
            Compression::Deflate => 8 * bytes + (32 << 10),
        }
    }

    /// Compresses a value and appends the result to `out`; returns false, with `out` unchanged, if the result would
    /// have more than `most` bytes.
    pub fn pack(&self, plain: &[u8], most: usize, out: &mut Vec<u8>) -> bool {
        if plain.len() > KV_PACKED_BYTES_MAX || plain.is_empty() {
            return false;
        }
        let before = out.len();
        let packed = match self.compression {
            Compression::Lz4 => {
                out.resize(before + lz4_flex::block::get_maximum_output_size(plain.len()), 0);
                let room = &mut out[before..];
                match &*self.dictionary {
                    [] => lz4_flex::block::compress_into(plain, room).ok(),
                    dictionary => lz4_flex::block::compress_into_with_dict(plain, room, dictionary).ok(),
                }
            }
            Compression::Deflate => {
                out.resize(before + most.min(plain.len()), 0);
                deflate::pack(plain, &mut out[before..])
            }
            Compression::Fsst => self.symbols.as_ref().map(|symbols| symbols.pack(plain, out)),
        };
        let packed = packed.filter(|bytes| *bytes <= most);
        out.truncate(before + packed.unwrap_or(0));
        packed.is_some()
    }

    /// Decompresses a result of [`Packer::pack`] into `out`, whose length must be that of the plain value.
    ///
    /// # Errors
    /// `Corrupt` when the bytes are corrupt; the contents of `out` are then unspecified.
    pub fn unpack(&self, packed: &[u8], out: &mut [u8]) -> Result<()> {
        let bytes = match self.compression {
            Compression::Lz4 if self.dictionary.is_empty() => {
                lz4_flex::block::decompress_into(packed, out).ok()
            }
            Compression::Lz4 => {
                lz4_flex::block::decompress_into_with_dict(packed, out, &self.dictionary).ok()
            }
            Compression::Deflate => deflate::unpack(packed, out),
            Compression::Fsst => self.symbols.as_ref().and_then(|symbols| symbols.unpack(packed, out)),
        };
        if bytes == Some(out.len()) { Ok(()) } else { Err(damaged()) }
    }
}

fn damaged() -> Error {
    Error::corrupt("the compressed bytes of a value are damaged")
}

impl fmt::Debug for Packer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Packer");
        shown.field("compression", &self.compression).field("dictionary", &self.dictionary.len()).finish()
    }
}
