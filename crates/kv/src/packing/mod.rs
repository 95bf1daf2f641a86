//! Compression of values, one by one.
//!
//! A value is compressed when that saves it a class of slots, and is kept as it is otherwise. Small values have little in
//! them that repeats; so a space may have a dictionary, which is a sample of its first values: LZ4 finds in it what values
//! have in common, and FSST makes a table of frequent symbols of it (`training.rs`).
//!
//! What is compressed stays in memory. The log, snapshots and whoever asks have plain values, so that nothing on disk depends
//! on a codec or on what it was trained with.

mod deflate;
mod known;
mod symbols;
mod training;

#[cfg(test)]
mod tests;

pub(crate) use known::{Packed, Packers, Unpackers, plain_bytes, room_of_entry};

use farpool_model::limits::{KV_DICTIONARY_BYTES_MAX, KV_PACKED_BYTES_MAX};
use farpool_model::{Error, Result};
use std::fmt;
use symbols::Symbols;

/// A compressed value takes at least so large a part of its plain bytes: what is read of some memory is then bounded.
pub(crate) const PLAIN_PER_BYTE: usize = 8;

/// Bytes of the dictionary of LZ4: a compressor goes through all of them for each value.
const LZ4_DICTIONARY_BYTES: usize = 4 << 10;

/// A dictionary of fewer bytes is none.
const DICTIONARY_BYTES_LEAST: usize = 64;

/// How values are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// LZ4, with a dictionary.
    Lz4,
    /// DEFLATE: the smallest of long values, and the slowest.
    Deflate,
    /// FSST: the fastest of short values.
    Fsst,
}

impl Compression {
    const ALL: [Compression; 3] = [Compression::Lz4, Compression::Deflate, Compression::Fsst];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Compression::Lz4 => "lz4",
            Compression::Deflate => "deflate",
            Compression::Fsst => "fsst",
        }
    }

    /// The one with this name, in any case.
    pub fn named(name: &[u8]) -> Option<Compression> {
        Compression::ALL.into_iter().find(|one| name.eq_ignore_ascii_case(one.name().as_bytes()))
    }

    /// Its number, from 1 on.
    pub(crate) fn number(self) -> u8 {
        self as u8 + 1
    }

    pub(crate) fn numbered(number: u8) -> Option<Compression> {
        Compression::ALL.into_iter().find(|one| one.number() == number)
    }

    /// Bytes of its dictionary at most; 0 if it has none.
    pub(crate) fn dictionary_bytes(self) -> usize {
        match self {
            Compression::Lz4 => LZ4_DICTIONARY_BYTES,
            Compression::Deflate => 0,
            Compression::Fsst => KV_DICTIONARY_BYTES_MAX,
        }
    }
}

/// Compresses the values of a space.
pub struct Packer {
    compression: Compression,
    dictionary: Box<[u8]>,
    symbols: Option<Symbols>,
}

impl Packer {
    /// Makes a packer with a sample of values, as much of it as the codec takes; of an empty one where nothing is known.
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

    /// The codec.
    pub fn compression(&self) -> Compression {
        self.compression
    }

    /// The sample of values.
    pub fn dictionary(&self) -> &[u8] {
        &self.dictionary
    }

    /// Whether it would do better with a sample of values.
    pub(crate) fn wants_dictionary(&self) -> bool {
        self.dictionary.is_empty() && self.compression.dictionary_bytes() > 0
    }

    /// Whether it does the same as another one.
    pub(crate) fn is_like(&self, other: &Packer) -> bool {
        self.compression == other.compression && self.dictionary == other.dictionary
    }

    /// Bytes that it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.dictionary.len() + self.symbols.as_ref().map_or(0, |_| Symbols::BYTES)
    }

    /// Most bytes that one with a dictionary takes.
    pub(crate) fn bytes_with(compression: Compression) -> usize {
        let symbols = if compression == Compression::Fsst { Symbols::BYTES } else { 0 };
        compression.dictionary_bytes() + symbols
    }

    /// Whether a value is unpacked in about the time of copying it.
    pub(crate) fn is_quick(&self) -> bool {
        self.compression != Compression::Deflate
    }

    /// Bytes that are copied in the time in which a value of so many is unpacked, about.
    pub(crate) fn cost(&self, bytes: usize) -> usize {
        match self.compression {
            Compression::Lz4 | Compression::Fsst => 4 * bytes + 256,
            // It makes tables for each value first.
            Compression::Deflate => 8 * bytes + (32 << 10),
        }
    }

    /// Compresses a value, and appends it to `out` if that takes `most` bytes at most; `out` is left as it was otherwise.
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

    /// Reads what [`Packer::pack`] has made of as many bytes as `out` has.
    ///
    /// # Errors
    /// `Corrupt` where these bytes are nothing of that kind; anything is in `out` then.
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
