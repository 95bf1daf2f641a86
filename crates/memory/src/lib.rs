//! The memory pool: one reserved mapping of 2 MiB pages, and the owners of its pages.
//!
//! Bytes are written once, through an [`Extent`] with a single owner, and then frozen into a [`Lease`] that
//! many may read. Whole pages ([`Pool::allocate`]) go back to the system when the last lease of their run is
//! dropped; pieces of any size ([`Pool::allocate_piece`]) share pages with others of the same tenant, and a
//! page goes back when no piece reaches into it any more.
//!
//! Invariants: no byte is in two live extents or leases that differ; a writable byte is never readable
//! elsewhere; no page has bytes of two tenants, and no tenant reads bytes that were another's; the bytes of
//! pages in use, counted as whole pages, never exceed the limit of the pool nor a tenant's quota. After
//! Farview (section 4.3: an MMU that gives out 2 MiB pages and keeps tenants apart).

mod extent;
mod huge;
mod mapping;
mod pieces;
mod pool;
mod prefetch;
mod size;
mod table;
#[cfg(test)]
mod tests;
mod work;
pub mod working;

pub use extent::{Extent, Lease, LeaseSlice};
pub use huge::HugePages;
pub use pool::{Failures, Pool, PoolConfig, PoolUsage, Reclaim};
pub use prefetch::prefetch;
pub use size::{parse_size, size_text};
pub use table::{PageId, Tenure};
pub use work::{Account, PendingReservation, Reservation, WorkLine, WorkMemory, WorkUsage};
