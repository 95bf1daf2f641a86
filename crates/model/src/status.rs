//! The status that a pool reports.

use serde::{Deserialize, Serialize};

/// The state of a pool, as `farpool status` shows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The version of farpool that the pool runs.
    pub version: String,
    /// Bytes of memory that the pool may use.
    pub memory_bytes_limit: u64,
    /// Bytes of pages in use.
    pub memory_bytes_used: u64,
    /// Bytes that the memory for work, beside the pool, may take.
    pub work_bytes_limit: u64,
    /// Bytes of memory for work in use.
    pub work_bytes_used: u64,
    /// The most bytes of memory for work that were ever in use.
    pub work_bytes_used_most: u64,
    /// Bytes of one page.
    pub page_bytes: u64,
    /// Whether the system grants huge pages, and how: `explicit`, `transparent` or `none`.
    pub huge_pages: String,
    /// Tables of all tenants.
    pub tables: u64,
    /// Connections that are open.
    pub connections: u64,
    /// Programs that are running.
    pub programs_running: u64,
    /// Worker threads that run programs.
    pub workers: u64,
    /// Seconds since the pool started.
    pub uptime_s: u64,
    /// Usage of each tenant.
    pub tenants: Vec<TenantStatus>,
}

/// A tenant's limits, its current usage, and its cumulative usage since the pool started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TenantStatus {
    /// The tenant's name.
    pub tenant: String,
    /// Bytes of pages that its tables hold.
    pub memory_bytes_used: u64,
    /// Bytes of memory for work that it uses.
    pub work_bytes_used: u64,
    /// Tables.
    pub tables: u64,
    /// Programs that ran to their end.
    pub programs: u64,
    /// Encoded bytes that its programs read.
    pub bytes_scanned: u64,
    /// CPU time of its programs, in nanoseconds.
    pub cpu_ns: u64,
    /// Weight of the tenant's share of the node's time, relative to other tenants.
    pub weight: u32,
    /// Bytes of pages that its tables may hold; `None`, here and below, if only the node's own limit applies.
    pub memory_bytes_limit: Option<u64>,
    /// Bytes of memory for work that it may use.
    pub work_bytes_limit: Option<u64>,
    /// Programs that it may have running at once.
    pub programs_limit: Option<u64>,
    /// Programs that may wait while the most allowed are running.
    pub programs_waiting_limit: Option<u64>,
    /// Bytes that the result of one of its programs may have.
    pub result_bytes_limit: Option<u64>,
    /// Connections that it may have at once.
    pub connections_limit: Option<u64>,
}
