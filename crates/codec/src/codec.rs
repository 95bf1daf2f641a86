//! The codecs, by name and by the number that stands for each on disk.

use std::fmt;

/// How a block is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Codec {
    /// The fastest to read, and the one that saves least.
    Lz4,
    /// Saves most, and is read faster than DEFLATE.
    Zstd,
    /// What every system can read.
    Deflate,
}

impl Codec {
    /// All codecs, the fastest to read first.
    pub const ALL: [Codec; 3] = [Codec::Lz4, Codec::Zstd, Codec::Deflate];

    /// The name that users write.
    pub const fn name(self) -> &'static str {
        match self {
            Codec::Lz4 => "lz4",
            Codec::Zstd => "zstd",
            Codec::Deflate => "deflate",
        }
    }

    /// The codec of a name.
    pub fn named(name: &str) -> Option<Codec> {
        Codec::ALL.into_iter().find(|codec| codec.name() == name)
    }

    /// The number that stands for the codec in files. Never 0.
    pub const fn code(self) -> u8 {
        match self {
            Codec::Lz4 => 1,
            Codec::Zstd => 2,
            Codec::Deflate => 3,
        }
    }

    /// The codec that a number stands for.
    pub fn of_code(code: u8) -> Option<Codec> {
        Codec::ALL.into_iter().find(|codec| codec.code() == code)
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
