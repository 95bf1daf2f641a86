//! The bodies of messages as protocol buffers. `docs/wire.md` has the same as `.proto` text.
//!
//! Invariant: a field keeps its number and meaning for ever; new fields are optional; a reader skips fields
//! that it does not know. Written by hand with derive macros rather than generated, so that building needs no
//! `protoc`.
//!
//! Repeated messages are declared as bytes and decoded one by one: otherwise a peer could send empty ones,
//! which take fifty times as much memory as on the wire.

#![expect(
    missing_docs,
    reason = "the fields are described where they come from, in farpool_model and docs/wire.md"
)]

use bytes::Bytes;
use prost::{Enumeration, Message, Oneof};

/// An empty body: `Cancel`, `Queries`, `LoadEnd`, `Status`, and answers that something is done.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Empty {}

/// `Hello`
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Hello {
    #[prost(uint32, tag = "1")]
    pub version_min: u32,
    #[prost(uint32, tag = "2")]
    pub version_max: u32,
    #[prost(string, optional, tag = "3")]
    pub token: Option<String>,
    #[prost(string, tag = "4")]
    pub client: String,
    #[prost(uint64, optional, tag = "5")]
    pub timeout_ms: Option<u64>,
}

/// `Welcome`
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Welcome {
    #[prost(uint32, tag = "1")]
    pub version: u32,
    #[prost(string, tag = "2")]
    pub server: String,
    #[prost(string, tag = "3")]
    pub tenant: String,
    #[prost(fixed64, tag = "4")]
    pub instance: u64,
    #[prost(uint64, tag = "5")]
    pub newest: u64,
    #[prost(uint32, repeated, tag = "6")]
    pub suites: Vec<u32>,
    #[prost(bytes = "bytes", tag = "7")]
    pub node_key: Bytes,
}

/// `Sealed`
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Sealed {
    #[prost(uint32, tag = "1")]
    pub suite: u32,
    #[prost(bytes = "bytes", tag = "2")]
    pub key: Bytes,
    #[prost(uint32, tag = "3")]
    pub proof: u32,
    #[prost(bytes = "bytes", tag = "4")]
    pub proof_id: Bytes,
    #[prost(uint32, tag = "5")]
    pub kind: u32,
    #[prost(bytes = "bytes", tag = "6")]
    pub request: Bytes,
}

/// The fields of a [`PlanRequest`] that name a prepared program.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct PlanHandle {
    #[prost(uint32, optional, tag = "3")]
    pub handle: Option<u32>,
}

/// The fields of an [`OutlinesRequest`] and of a [`Fetch`] that name a prepared program.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct ChunksHandle {
    #[prost(uint32, tag = "1")]
    pub handle: u32,
}

/// The form in which a client wants rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum ResultForm {
    Plain = 0,
    Packed = 1,
    Auto = 2,
    Lz4 = 3,
    Zstd = 4,
}

/// `Prepare` and `Execute`
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

/// `Outlines`
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

/// `OutlineList`
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

/// `Fetch`
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Fetch {
    #[prost(uint32, tag = "1")]
    pub handle: u32,
    #[prost(uint32, repeated, tag = "2")]
    pub columns: Vec<u32>,
    #[prost(uint32, repeated, tag = "3")]
    pub row_groups: Vec<u32>,
}

/// `Credit`
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Credit {
    #[prost(uint64, tag = "1")]
    pub bytes: u64,
}

/// `Table`, `Drop` and `DropView`
#[derive(Clone, PartialEq, Eq, Message)]
pub struct TableRequest {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(uint64, optional, tag = "2")]
    pub known: Option<u64>,
    #[prost(string, optional, tag = "3")]
    pub tenant: Option<String>,
    #[prost(bool, tag = "4")]
    pub or_view: bool,
}

/// `CreateView`
#[derive(Clone, PartialEq, Eq, Message)]
pub struct CreateView {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub text: String,
    #[prost(bool, tag = "3")]
    pub replace: bool,
}

/// `ViewInfo`
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ViewInfo {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub text: String,
}

/// `AlterTable`
#[derive(Clone, PartialEq, Eq, Message)]
pub struct AlterTable {
    #[prost(string, tag = "1")]
    pub table: String,
    /// [`TableChange`]s.
    #[prost(bytes = "vec", repeated, tag = "2")]
    pub changes: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct TableChange {
    #[prost(oneof = "ChangeKind", tags = "1, 2, 3, 4")]
    pub kind: Option<ChangeKind>,
}

#[derive(Clone, PartialEq, Eq, Oneof)]
pub enum ChangeKind {
    #[prost(string, tag = "1")]
    Rename(String),
    #[prost(message, tag = "2")]
    RenameColumn(RenameColumn),
    #[prost(bytes = "vec", tag = "3")]
    AddColumn(Vec<u8>),
    #[prost(string, tag = "4")]
    DropColumn(String),
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct RenameColumn {
    #[prost(string, tag = "1")]
    pub from: String,
    #[prost(string, tag = "2")]
    pub to: String,
}

/// `Tables`
#[derive(Clone, PartialEq, Eq, Message)]
pub struct TablesRequest {
    #[prost(string, optional, tag = "1")]
    pub tenant: Option<String>,
    #[prost(bool, tag = "2")]
    pub with_schemas: bool,
}

/// `CreateSchema` and `DropSchema`
#[derive(Clone, PartialEq, Eq, Message)]
pub struct SchemaRequest {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(bool, tag = "2")]
    pub cascade: bool,
}

/// `Statistics`
#[derive(Clone, PartialEq, Eq, Message)]
pub struct StatisticsRequest {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(uint32, repeated, tag = "2")]
    pub columns: Vec<u32>,
}

/// Behaviour of a load if the table exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum LoadMode {
    Unspecified = 0,
    Create = 1,
    Append = 2,
    Replace = 3,
}

/// Tier of the encryption of a table's values in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum Tier {
    None = 0,
    Fast = 1,
    Standard = 2,
    Strict = 3,
}

/// `LoadOptions`
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct LoadOptions {
    #[prost(enumeration = "LoadMode", tag = "1")]
    pub mode: i32,
    #[prost(enumeration = "Tier", tag = "2")]
    pub encryption: i32,
    #[prost(enumeration = "Residency", tag = "3")]
    pub residency: i32,
}

/// Residency of loaded rows in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum Residency {
    Cached = 0,
    Pinned = 1,
    Passing = 2,
}

/// `LoadBegin`
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

/// `ChangeRows`
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ChangeRows {
    #[prost(uint32, tag = "1")]
    pub handle: u32,
    #[prost(uint64, tag = "2")]
    pub rows: u64,
    #[prost(bytes = "bytes", tag = "3")]
    pub id: Bytes,
}

/// `LoadOutcome`
#[derive(Clone, PartialEq, Eq, Message)]
pub struct LoadOutcome {
    #[prost(bytes = "bytes", tag = "1")]
    pub id: Bytes,
}

/// `LoadEnded`
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

/// Answer of the node for an operator: how far it is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum Answer {
    Unspecified = 0,
    Exact = 1,
    Superset = 2,
    Refused = 3,
}

/// The answer for one operator.
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

/// `Prepared`
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

/// `Receipt`
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

/// A value of a column's type.
#[derive(Clone, PartialEq, Message)]
pub struct Value {
    #[prost(oneof = "ValueKind", tags = "1, 2, 3, 4, 5, 6")]
    pub kind: Option<ValueKind>,
}

/// The forms of a value.
#[derive(Clone, PartialEq, Oneof)]
pub enum ValueKind {
    #[prost(bool, tag = "1")]
    Boolean(bool),
    /// An integer-like value that fits 64 bits.
    #[prost(sint64, tag = "2")]
    Integer(i64),
    /// Any other integer-like value: 16 bytes, two's complement, little-endian.
    #[prost(bytes = "vec", tag = "3")]
    WideInteger(Vec<u8>),
    #[prost(double, tag = "4")]
    Float(f64),
    #[prost(string, tag = "5")]
    Text(String),
    #[prost(bytes = "vec", tag = "6")]
    Binary(Vec<u8>),
}

/// Statistics of a column.
#[derive(Clone, PartialEq, Message)]
pub struct ColumnStatistics {
    #[prost(uint64, tag = "1")]
    pub null_count: u64,
    #[prost(message, optional, tag = "2")]
    pub min: Option<Value>,
    #[prost(message, optional, tag = "3")]
    pub max: Option<Value>,
    #[prost(uint64, optional, tag = "4")]
    pub distinct_count: Option<u64>,
    #[prost(uint64, tag = "5")]
    pub bytes_encoded: u64,
    #[prost(uint64, optional, tag = "6")]
    pub distinct_estimate: Option<u64>,
    /// A [`Spread`].
    #[prost(bytes = "bytes", optional, tag = "7")]
    pub spread: Option<Bytes>,
}

/// Spread of a column: the statistics of its values that estimates need.
#[derive(Clone, PartialEq, Message)]
pub struct Spread {
    #[prost(message, repeated, tag = "1")]
    pub frequent: Vec<Frequent>,
    #[prost(double, tag = "2")]
    pub low: f64,
    #[prost(double, tag = "3")]
    pub width: f64,
    #[prost(uint64, repeated, tag = "4")]
    pub bins: Vec<u64>,
    #[prost(double, repeated, tag = "5")]
    pub quantiles: Vec<f64>,
    #[prost(double, tag = "6")]
    pub quantile_error: f64,
}

/// A frequent value of a column.
#[derive(Clone, PartialEq, Message)]
pub struct Frequent {
    #[prost(message, optional, tag = "1")]
    pub value: Option<Value>,
    #[prost(uint64, tag = "2")]
    pub rows: u64,
}

/// `TableInfo` and `Loaded`
#[derive(Clone, PartialEq, Message)]
pub struct TableInfo {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(uint64, tag = "2")]
    pub version: u64,
    #[prost(bytes = "vec", tag = "3")]
    pub schema: Vec<u8>,
    #[prost(uint64, tag = "4")]
    pub rows: u64,
    #[prost(uint64, tag = "5")]
    pub bytes_plain: u64,
    #[prost(uint64, tag = "6")]
    pub bytes_encoded: u64,
    #[prost(bytes = "bytes", repeated, tag = "7")]
    pub columns: Vec<Bytes>,
    #[prost(uint64, optional, tag = "8")]
    pub rows_profiled: Option<u64>,
    #[prost(enumeration = "Tier", tag = "9")]
    pub encryption: i32,
    #[prost(uint64, optional, tag = "10")]
    pub bytes_resident: Option<u64>,
    #[prost(bool, tag = "11")]
    pub is_pinned: bool,
}

/// `TableList`
#[derive(Clone, PartialEq, Message)]
pub struct TableList {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub tables: Vec<Bytes>,
    #[prost(string, repeated, tag = "2")]
    pub views: Vec<String>,
    #[prost(string, repeated, tag = "3")]
    pub schemas: Vec<String>,
}

/// The encoded states of one column.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ColumnStates {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub sketch: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub histogram: Option<Bytes>,
}

/// The encoded moments of several columns.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct MomentsState {
    #[prost(uint32, repeated, tag = "1")]
    pub columns: Vec<u32>,
    #[prost(bytes = "bytes", tag = "2")]
    pub state: Bytes,
}

/// `TableStatistics`
#[derive(Clone, PartialEq, Eq, Message)]
pub struct TableStatistics {
    #[prost(bytes = "bytes", tag = "1")]
    pub table: Bytes,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub columns: Vec<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub moments: Option<Bytes>,
}

/// The resources that a tenant holds and has used.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct TenantStatus {
    #[prost(string, tag = "1")]
    pub tenant: String,
    #[prost(uint64, tag = "2")]
    pub memory_bytes_used: u64,
    #[prost(uint64, tag = "3")]
    pub tables: u64,
    #[prost(uint64, tag = "4")]
    pub programs: u64,
    #[prost(uint64, tag = "5")]
    pub bytes_scanned: u64,
    #[prost(uint64, tag = "6")]
    pub cpu_ns: u64,
    #[prost(uint64, tag = "7")]
    pub work_bytes_used: u64,
    #[prost(uint32, tag = "8")]
    pub weight: u32,
    #[prost(uint64, optional, tag = "9")]
    pub memory_bytes_limit: Option<u64>,
    #[prost(uint64, optional, tag = "10")]
    pub work_bytes_limit: Option<u64>,
    #[prost(uint64, optional, tag = "11")]
    pub programs_limit: Option<u64>,
    #[prost(uint64, optional, tag = "12")]
    pub programs_waiting_limit: Option<u64>,
    #[prost(uint64, optional, tag = "13")]
    pub result_bytes_limit: Option<u64>,
    #[prost(uint64, optional, tag = "14")]
    pub connections_limit: Option<u64>,
}

/// `BackupFiles`
#[derive(Clone, PartialEq, Eq, Message)]
pub struct BackupFiles {
    #[prost(fixed64, tag = "1")]
    pub node: u64,
    /// [`BackupFile`]s.
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub files: Vec<Bytes>,
}

/// A file in `BackupFiles`
#[derive(Clone, PartialEq, Eq, Message)]
pub struct BackupFile {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(uint64, tag = "2")]
    pub bytes: u64,
}

/// `BackupRead`
#[derive(Clone, PartialEq, Eq, Message)]
pub struct BackupRead {
    #[prost(string, tag = "1")]
    pub file: String,
    #[prost(uint64, tag = "2")]
    pub offset: u64,
    #[prost(uint32, tag = "3")]
    pub bytes: u32,
}

/// `BackupBytes`
#[derive(Clone, PartialEq, Eq, Message)]
pub struct BackupBytes {
    #[prost(bytes = "bytes", tag = "1")]
    pub data: Bytes,
}

/// `CancelQuery`
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct CancelQuery {
    #[prost(uint64, tag = "1")]
    pub id: u64,
}

/// A program that is under way.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct QueryInfo {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(string, tag = "2")]
    pub tenant: String,
    #[prost(string, tag = "3")]
    pub token: String,
    #[prost(string, tag = "4")]
    pub client: String,
    #[prost(string, tag = "5")]
    pub peer: String,
    #[prost(string, tag = "6")]
    pub table: String,
    #[prost(uint32, tag = "7")]
    pub state: u32,
    #[prost(uint64, tag = "8")]
    pub elapsed_ns: u64,
    #[prost(uint64, tag = "9")]
    pub cpu_ns: u64,
    #[prost(uint64, tag = "10")]
    pub rows: u64,
    #[prost(uint64, tag = "11")]
    pub bytes: u64,
}

/// `QueryList`
#[derive(Clone, PartialEq, Eq, Message)]
pub struct QueryList {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub queries: Vec<Bytes>,
}

/// `StatusInfo`
#[derive(Clone, PartialEq, Eq, Message)]
pub struct StatusInfo {
    #[prost(string, tag = "1")]
    pub version: String,
    #[prost(uint64, tag = "2")]
    pub memory_bytes_limit: u64,
    #[prost(uint64, tag = "3")]
    pub memory_bytes_used: u64,
    #[prost(uint64, tag = "4")]
    pub page_bytes: u64,
    #[prost(string, tag = "5")]
    pub huge_pages: String,
    #[prost(uint64, tag = "6")]
    pub tables: u64,
    #[prost(uint64, tag = "7")]
    pub connections: u64,
    #[prost(uint64, tag = "8")]
    pub programs_running: u64,
    #[prost(uint64, tag = "9")]
    pub workers: u64,
    #[prost(uint64, tag = "10")]
    pub uptime_s: u64,
    #[prost(bytes = "bytes", repeated, tag = "11")]
    pub tenants: Vec<Bytes>,
    #[prost(uint64, tag = "12")]
    pub work_bytes_limit: u64,
    #[prost(uint64, tag = "13")]
    pub work_bytes_used: u64,
    #[prost(uint64, tag = "14")]
    pub work_bytes_used_most: u64,
}

/// `Error`
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Error {
    #[prost(uint32, tag = "1")]
    pub kind: u32,
    #[prost(string, tag = "2")]
    pub message: String,
    #[prost(string, optional, tag = "3")]
    pub advice: Option<String>,
    #[prost(uint64, optional, tag = "4")]
    pub retry_after_ms: Option<u64>,
}
