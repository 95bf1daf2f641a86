//! Bodies of messages, as protocol buffers, about programs: plans, answers, receipts (execution statistics), and column
//! chunks that clients cache.

use bytes::Bytes;
use prost::{Enumeration, Message};

/// The fields of a [`PlanRequest`] that name a prepared program; decoded alone to find the program.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct PlanHandle {
    #[prost(uint32, optional, tag = "3")]
    pub handle: Option<u32>,
}

/// The fields of an [`OutlinesRequest`] and of a [`Fetch`] that name a prepared program; decoded alone to find the
/// program.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct ChunksHandle {
    #[prost(uint32, tag = "1")]
    pub handle: u32,
}

/// The form in which a client wants the rows of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum ResultForm {
    Plain = 0,
    Packed = 1,
    Auto = 2,
    Lz4 = 3,
    Zstd = 4,
}

/// Body of the messages `Prepare` and `Execute`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct PlanRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub plan: Vec<u8>,
    #[prost(enumeration = "ResultForm", tag = "2")]
    pub results: i32,
    #[prost(uint32, optional, tag = "3")]
    pub handle: Option<u32>,
    #[prost(fixed64, optional, tag = "4")]
    pub schema_fingerprint: Option<u64>,
}

/// Body of the message `Outlines`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct OutlinesRequest {
    #[prost(uint32, tag = "1")]
    pub handle: u32,
    #[prost(uint32, repeated, tag = "2")]
    pub columns: Vec<u32>,
    #[prost(uint32, tag = "3")]
    pub first: u32,
    #[prost(uint64, tag = "4")]
    pub known: u64,
}

/// Body of the message `OutlineList`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct OutlineList {
    #[prost(uint32, tag = "1")]
    pub row_groups: u32,
    #[prost(uint32, repeated, tag = "2")]
    pub rows: Vec<u32>,
    #[prost(bytes = "bytes", repeated, tag = "3")]
    pub chunks: Vec<Bytes>,
    #[prost(uint64, tag = "4")]
    pub table: u64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct ChunkOutline {
    #[prost(uint64, tag = "1")]
    pub number: u64,
    #[prost(bytes = "bytes", tag = "2")]
    pub head: Bytes,
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub data: Option<Bytes>,
}

/// Body of the message `Fetch`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Fetch {
    #[prost(uint32, tag = "1")]
    pub handle: u32,
    #[prost(uint32, repeated, tag = "2")]
    pub columns: Vec<u32>,
    #[prost(uint32, repeated, tag = "3")]
    pub row_groups: Vec<u32>,
}

/// The extent to which the node executes an operator of a program: exactly, in part, or not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum Answer {
    Unspecified = 0,
    Exact = 1,
    Superset = 2,
    Refused = 3,
}

/// The node's answer for one operator.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct OperatorAnswer {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub detail: String,
    #[prost(enumeration = "Answer", tag = "3")]
    pub answer: i32,
    #[prost(string, optional, tag = "4")]
    pub reason: Option<String>,
}

/// Body of the message `Prepared`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Prepared {
    #[prost(uint64, tag = "1")]
    pub version: u64,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub answers: Vec<Bytes>,
    #[prost(bytes = "vec", tag = "3")]
    pub effective: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    pub schema: Vec<u8>,
    #[prost(bytes = "vec", tag = "5")]
    pub table_schema: Vec<u8>,
}

/// Body of the message `Receipt`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Receipt {
    #[prost(uint64, tag = "1")]
    pub rows_scanned: u64,
    #[prost(uint64, tag = "2")]
    pub rows_skipped: u64,
    #[prost(uint64, tag = "3")]
    pub rows_returned: u64,
    #[prost(uint64, tag = "4")]
    pub bytes_scanned: u64,
    #[prost(uint64, tag = "5")]
    pub bytes_skipped: u64,
    #[prost(uint64, tag = "6")]
    pub bytes_on_wire: u64,
    #[prost(uint64, tag = "7")]
    pub cpu_ns: u64,
    #[prost(uint64, tag = "8")]
    pub elapsed_ns: u64,
    #[prost(bytes = "bytes", repeated, tag = "9")]
    pub operators: Vec<Bytes>,
    #[prost(uint64, tag = "10")]
    pub rows_bypassed: u64,
    #[prost(uint64, tag = "11")]
    pub bytes_plain: u64,
    #[prost(uint32, tag = "12")]
    pub encoding: u32,
    #[prost(uint64, tag = "13")]
    pub waited_ns: u64,
    #[prost(uint64, tag = "14")]
    pub bytes_from_disk: u64,
    #[prost(uint64, tag = "15")]
    pub bytes_from_cache: u64,
    #[prost(uint64, tag = "16")]
    pub bytes_shared: u64,
    #[prost(uint64, tag = "17")]
    pub rows_known: u64,
    #[prost(uint64, tag = "18")]
    pub bytes_again: u64,
}
