//! The compression codecs, with the name that users write and the code that stands for each in files.

use std::fmt;

/// Compression algorithm of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Codec {
    /// LZ4 block format: fastest to decompress, largest output.
    Lz4,
    /// Zstandard: smallest output; decompresses faster than DEFLATE.
    Zstd,
    /// DEFLATE: the most widely supported format, and the slowest to decompress.
    Deflate,
}

impl Codec {
    /// All codecs, ordered from the fastest to decompress to the slowest.
    pub const ALL: [Codec; 3] = [Codec::Lz4, Codec::Zstd, Codec::Deflate];

    /// Returns the name that users write.
    pub const fn name(self) -> &'static str {
        match self {
            Codec::Lz4 => "lz4",
            Codec::Zstd => "zstd",
            Codec::Deflate => "deflate",
        }
    }

    /// Returns the codec with this name; `None` for an unknown name.
    pub fn named(name: &str) -> Option<Codec> {
        Codec::ALL.into_iter().find(|codec| codec.name() == name)
    }

    /// Returns the code of the codec in files. 0 is never used, so that it can mean "not compressed".
    pub const fn code(self) -> u8 {
        match self {
            Codec::Lz4 => 1,
            Codec::Zstd => 2,
            Codec::Deflate => 3,
        }
    }

    /// Returns the codec with this code; `None` for an unknown code.
    pub fn of_code(code: u8) -> Option<Codec> {
        Codec::ALL.into_iter().find(|codec| codec.code() == code)
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
