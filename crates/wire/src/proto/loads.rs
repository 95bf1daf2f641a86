//! Bodies of messages, as protocol buffers, about loads and changes of rows, and their outcomes.

use bytes::Bytes;
use prost::{Enumeration, Message};

/// Behavior of a load if the table exists; see the model's `LoadMode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum LoadMode {
    Unspecified = 0,
    Create = 1,
    Append = 2,
    Replace = 3,
}

/// Encryption tier of a table's values in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum Tier {
    None = 0,
    Fast = 1,
    Standard = 2,
    Strict = 3,
}

/// The options of a load, a part of [`LoadBegin`].
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct LoadOptions {
    #[prost(enumeration = "LoadMode", tag = "1")]
    pub mode: i32,
    #[prost(enumeration = "Tier", tag = "2")]
    pub encryption: i32,
    #[prost(enumeration = "Residency", tag = "3")]
    pub residency: i32,
}

/// Form in which loaded rows are kept in memory; see the model's `Residency`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum Residency {
    Cached = 0,
    Pinned = 1,
    Passing = 2,
}

/// Body of the message `LoadBegin`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct LoadBegin {
    #[prost(string, tag = "1")]
    pub table: String,
    #[prost(enumeration = "LoadMode", tag = "2")]
    pub mode: i32,
    #[prost(bytes = "vec", tag = "3")]
    pub schema: Vec<u8>,
    #[prost(uint64, optional, tag = "4")]
    pub rows_hint: Option<u64>,
    #[prost(uint64, optional, tag = "5")]
    pub version: Option<u64>,
    #[prost(bytes = "bytes", optional, tag = "6")]
    pub id: Option<Bytes>,
    #[prost(message, optional, tag = "7")]
    pub options: Option<LoadOptions>,
}

/// Body of the message `ChangeRows`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ChangeRows {
    #[prost(uint32, tag = "1")]
    pub handle: u32,
    #[prost(uint64, tag = "2")]
    pub rows: u64,
    #[prost(bytes = "bytes", tag = "3")]
    pub id: Bytes,
}

/// Body of the message `LoadOutcome`, which asks for the outcome of a load.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct LoadOutcome {
    #[prost(bytes = "bytes", tag = "1")]
    pub id: Bytes,
}

/// Body of the message `LoadEnded`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct LoadEnded {
    #[prost(uint64, optional, tag = "1")]
    pub version: Option<u64>,
    #[prost(uint64, tag = "2")]
    pub rows: u64,
    #[prost(uint64, tag = "3")]
    pub bytes_plain: u64,
    #[prost(uint64, tag = "4")]
    pub bytes_encoded: u64,
    #[prost(bytes = "bytes", optional, tag = "5")]
    pub error: Option<Bytes>,
    #[prost(uint64, tag = "6")]
    pub forgotten: u64,
}
