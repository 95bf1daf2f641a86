//! Bodies of messages, as protocol buffers, about the operation of a node: its status, running queries and backups.

use bytes::Bytes;
use prost::Message;

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

/// Body of the message `BackupFiles`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct BackupFiles {
    #[prost(fixed64, tag = "1")]
    pub node: u64,
    /// Encoded [`BackupFile`]s, which are decoded one by one.
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub files: Vec<Bytes>,
}

/// A file of a backup, a part of [`BackupFiles`].
#[derive(Clone, PartialEq, Eq, Message)]
pub struct BackupFile {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(uint64, tag = "2")]
    pub bytes: u64,
}

/// Body of the message `BackupRead`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct BackupRead {
    #[prost(string, tag = "1")]
    pub file: String,
    #[prost(uint64, tag = "2")]
    pub offset: u64,
    #[prost(uint32, tag = "3")]
    pub bytes: u32,
}

/// Body of the message `BackupBytes`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct BackupBytes {
    #[prost(bytes = "bytes", tag = "1")]
    pub data: Bytes,
}

/// Body of the message `CancelQuery`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct CancelQuery {
    #[prost(uint64, tag = "1")]
    pub id: u64,
}

/// A running program, a part of [`QueryList`].
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

/// Body of the message `QueryList`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct QueryList {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub queries: Vec<Bytes>,
}

/// Body of the message `StatusInfo`.
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
