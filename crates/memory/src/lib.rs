//! The memory pool: one reserved mapping of 2 MiB pages, and who holds which of them.
//!
//! Bytes are written once, through an [`Extent`] that nobody else can see, and then frozen into a
//! [`Lease`] that many may read. The pages go back to the system when the last lease of their run is gone.
//!
//! Invariants: no byte is in two live extents or leases that differ; a writable byte is never readable
//! elsewhere; fresh pages are zero, but in a pool of one owner that recycles them; the bytes in use never exceed
//! the limit of the pool nor a tenant's quota.
//! After Farview (section 4.3: an MMU that gives out 2 MiB pages and keeps tenants apart).

mod extent;
mod huge;
mod mapping;
mod pool;
mod size;
mod table;
#[cfg(test)]
mod tests;
mod work;
pub mod working;

pub use extent::{Extent, Lease, LeaseSlice};
pub use huge::HugePages;
pub use pool::{Failures, Pool, PoolConfig, PoolUsage};
pub use size::size_text;
pub use table::PageId;
pub use work::{Account, Reservation, Waiting, WorkMemory, WorkUsage};
