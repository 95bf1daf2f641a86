//! The status of a node and its tenants.

use serde::{Deserialize, Serialize};

/// The status of a node, as `farpool status` shows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The version of farpool that the node runs.
    pub version: String,
    /// Maximum bytes of the pool, which holds the tables.
    pub memory_bytes_limit: u64,
    /// Bytes of the pool's memory pages in use.
    pub memory_bytes_used: u64,
    /// Maximum bytes of working memory, which is all memory except the pool.
    pub work_bytes_limit: u64,
    /// Bytes of working memory in use.
    pub work_bytes_used: u64,
    /// Maximum bytes of working memory that were in use at any time since the node started.
    pub work_bytes_used_most: u64,
    /// Bytes per memory page of the pool.
    pub page_bytes: u64,
    /// Kind of huge pages that the operating system grants: `explicit`, `transparent` or `none`.
    pub huge_pages: String,
    /// Number of tables of all tenants.
    pub tables: u64,
    /// Number of open connections.
    pub connections: u64,
    /// Number of running programs.
    pub programs_running: u64,
    /// Number of worker threads that run programs.
    pub workers: u64,
    /// Seconds since the node started.
    pub uptime_s: u64,
    /// Status of each tenant.
    pub tenants: Vec<TenantStatus>,
}

/// A tenant's limits, its current usage, and its cumulative usage since the node started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TenantStatus {
    /// The tenant's name.
    pub tenant: String,
    /// Bytes of the pool's memory pages that the tenant's tables hold.
    pub memory_bytes_used: u64,
    /// Bytes of working memory that the tenant uses.
    pub work_bytes_used: u64,
    /// Number of tables.
    pub tables: u64,
    /// Number of programs that ran to their end.
    pub programs: u64,
    /// Encoded bytes that the tenant's programs read.
    pub bytes_scanned: u64,
    /// CPU time of the tenant's programs, in nanoseconds.
    pub cpu_ns: u64,
    /// Weight of the tenant's share of the node's time, relative to other tenants.
    pub weight: u32,
    /// Maximum bytes of memory pages that the tenant's tables may hold. `None`, for this and the following limits, if
    /// only the node's own limit applies.
    pub memory_bytes_limit: Option<u64>,
    /// Maximum bytes of working memory that the tenant may use.
    pub work_bytes_limit: Option<u64>,
    /// Maximum number of programs of the tenant that run at once.
    pub programs_limit: Option<u64>,
    /// Maximum number of programs that wait because the tenant runs as many as it may.
    pub programs_waiting_limit: Option<u64>,
    /// Maximum bytes of the result of one program.
    pub result_bytes_limit: Option<u64>,
    /// Maximum number of open connections of the tenant.
    pub connections_limit: Option<u64>,
}
