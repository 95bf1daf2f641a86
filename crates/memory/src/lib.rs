//! The memory pool.

use farpool_model::{Result, TenantName};
use std::ops::{Deref, Range};
use std::sync::Arc;

/// How a pool is made.
#[derive(Clone, Copy, Debug)]
pub struct PoolConfig {
    /// Bytes that may be in use at once; rounded down to whole pages.
    pub bytes_limit: usize,
}

/// The number of a page in the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageId(pub u32);

/// Huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HugePages {
    /// Reserved by the system's administrator (`nr_hugepages`).
    Explicit,
    /// Given by the kernel where it can.
    Transparent,
    /// None.
    None,
}

impl HugePages {
    /// As `farpool status` says it.
    pub fn name(self) -> &'static str {
        todo!()
    }
}

/// What a pool holds.
#[derive(Clone, Debug)]
pub struct PoolUsage {
    /// Limit.
    pub bytes_limit: u64,
    /// Bytes of pages in use.
    pub bytes_used: u64,
    /// Huge pages.
    pub huge_pages: HugePages,
    /// By tenant.
    pub tenants: Vec<(TenantName, u64)>,
}

/// The pool.
#[derive(Debug)]
pub struct Pool;

impl Pool {
    /// New.
    pub fn new(_config: PoolConfig) -> Result<Arc<Pool>> {
        todo!()
    }
    /// Allocates.
    pub fn allocate(self: &Arc<Self>, _tenant: &TenantName, _bytes: usize) -> Result<Extent> {
        todo!()
    }
    /// Usage.
    pub fn usage(&self) -> PoolUsage {
        todo!()
    }
    /// Quota.
    pub fn set_quota(&self, _tenant: &TenantName, _bytes: Option<usize>) {
        todo!()
    }
    /// Raw.
    pub fn read_raw(&self, _tenant: &TenantName, _page: PageId, _range: Range<usize>) -> Result<Vec<u8>> {
        todo!()
    }
}

/// Extent.
#[derive(Debug)]
pub struct Extent;

impl Extent {
    /// Bytes.
    #[expect(clippy::len_without_is_empty, reason = "skeleton")]
    pub fn len(&self) -> usize {
        todo!()
    }
    /// Bytes.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        todo!()
    }
    /// Freeze.
    pub fn freeze(self, _used_bytes: usize) -> Lease {
        todo!()
    }
}

/// Lease.
#[derive(Clone, Debug)]
pub struct Lease;

impl Lease {
    /// Slice.
    pub fn slice(&self, _range: Range<usize>) -> LeaseSlice {
        todo!()
    }
    /// Pages.
    pub fn pages(&self) -> &[PageId] {
        todo!()
    }
}

impl Deref for Lease {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        todo!()
    }
}

/// Slice.
#[derive(Clone, Debug)]
pub struct LeaseSlice;

impl Deref for LeaseSlice {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        todo!()
    }
}
