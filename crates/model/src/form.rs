//! The form in which the rows of a result leave a node.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The form of results that a client asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ResultForm {
    /// Packed where that delivers the rows sooner, as far as the node knows its link to the client; plain
    /// elsewhere.
    #[default]
    Auto,
    /// Plain Arrow record batches.
    Plain,
    /// Packed, whatever the cost.
    Packed,
    /// Plain Arrow record batches whose buffers are compressed, which any Arrow reader accepts.
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

    /// Returns the form's name, for people.
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

/// The form in which a node sent the rows of a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Encoding {
    /// No rows crossed a network.
    #[default]
    None,
    /// All rows were sent as plain Arrow record batches.
    Plain,
    /// All rows were sent packed, or as the encoded chunks that the pool holds.
    Packed,
    /// Several forms were used.
    Mixed,
    /// All rows were sent as Arrow record batches whose buffers are compressed.
    Compressed,
}

impl Encoding {
    /// Every encoding, in the order of its number on the wire.
    pub const ALL: [Encoding; 5] =
        [Encoding::None, Encoding::Plain, Encoding::Packed, Encoding::Mixed, Encoding::Compressed];

    /// Returns the encoding of two results together.
    #[must_use]
    pub fn and(self, other: Encoding) -> Encoding {
        match (self, other) {
            (Encoding::None, one) | (one, Encoding::None) => one,
            (one, same) if one == same => one,
            _ => Encoding::Mixed,
        }
    }
}
