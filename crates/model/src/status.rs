//! What a pool says about itself.

use serde::{Deserialize, Serialize};

/// The state of a pool, as `farpool status` shows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The version of farpool that runs there.
    pub version: String,
    /// Bytes of memory that the pool may use.
    pub memory_bytes_limit: u64,
    /// Bytes of pages in use.
    pub memory_bytes_used: u64,
    /// Bytes of memory for work, beside the pool, that may be in use.
    pub work_bytes_limit: u64,
    /// Bytes of it in use.
    pub work_bytes_used: u64,
    /// The most bytes of it that ever were in use.
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
    /// Use by tenant.
    pub tenants: Vec<TenantStatus>,
}

/// What a tenant holds and has used since the pool started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TenantStatus {
    /// The name.
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
    /// How many times the share of another it gets of the node's time.
    pub weight: u32,
    /// Bytes of pages that its tables may hold; `None`, here and below, where only the node's own bound counts.
    pub memory_bytes_limit: Option<u64>,
    /// Bytes of memory for work that it may use.
    pub work_bytes_limit: Option<u64>,
    /// Programs that it may have running at once.
    pub programs_limit: Option<u64>,
    /// Programs that may wait while so many run.
    pub programs_waiting_limit: Option<u64>,
    /// Bytes that the result of one of its programs may have.
    pub result_bytes_limit: Option<u64>,
    /// Connections that it may have at once.
    pub connections_limit: Option<u64>,
}
