//! Encodings in which a node sends the rows of a result.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The encoding of results that a client asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ResultForm {
    /// Packed if the rows then arrive sooner, as far as the node knows the bandwidth to the client; otherwise plain.
    #[default]
    Auto,
    /// Plain Arrow record batches.
    Plain,
    /// Packed (farpool's compact encoding of columns), whatever it costs.
    Packed,
    /// Arrow record batches whose buffers are compressed, which any Arrow reader accepts.
    Compressed(Compression),
}

/// Compression of the buffers of a record batch (Arrow columnar format, "Buffer compression").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compression {
    /// LZ4 frames: fastest to compress.
    Lz4,
    /// Zstandard: smallest output, slowest to compress.
    Zstd,
}

impl ResultForm {
    /// Every form.
    pub const ALL: [ResultForm; 5] = [
        ResultForm::Auto,
        ResultForm::Plain,
        ResultForm::Packed,
        ResultForm::Compressed(Compression::Lz4),
        ResultForm::Compressed(Compression::Zstd),
    ];

    /// Returns the name that users write.
    pub fn name(self) -> &'static str {
        match self {
            ResultForm::Auto => "auto",
            ResultForm::Plain => "plain",
            ResultForm::Packed => "packed",
            ResultForm::Compressed(Compression::Lz4) => "lz4",
            ResultForm::Compressed(Compression::Zstd) => "zstd",
        }
    }
}

impl fmt::Display for ResultForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for ResultForm {
    type Err = crate::Error;

    fn from_str(text: &str) -> crate::Result<Self> {
        ResultForm::ALL.into_iter().find(|form| form.name() == text).ok_or_else(|| {
            crate::Error::invalid(format!("{text:?} is no form of results"))
                .advise("say auto, plain, packed, lz4 or zstd")
        })
    }
}

/// The encoding in which a node sent the rows of a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Encoding {
    /// No rows were sent over a network.
    #[default]
    None,
    /// All rows were sent as plain Arrow record batches.
    Plain,
    /// All rows were sent packed, or as the encoded column chunks of the pool.
    Packed,
    /// Rows were sent in several encodings.
    Mixed,
    /// All rows were sent as Arrow record batches whose buffers are compressed.
    Compressed,
}

impl Encoding {
    /// Every encoding, in the order of their codes on the wire.
    pub const ALL: [Encoding; 5] =
        [Encoding::None, Encoding::Plain, Encoding::Packed, Encoding::Mixed, Encoding::Compressed];

    /// Returns the encoding of two results that are reported together.
    #[must_use]
    pub fn and(self, other: Encoding) -> Encoding {
        match (self, other) {
            (Encoding::None, one) | (one, Encoding::None) => one,
            (one, same) if one == same => one,
            _ => Encoding::Mixed,
        }
    }
}
