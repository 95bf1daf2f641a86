//! The memory pool: one reserved mapping of 2 MiB pages, and the owners of its pages.
//!
//! Bytes are written once, through an [`Extent`] with a single owner, and then frozen into a [`Lease`] that many may
//! read. Whole pages ([`Pool::allocate`]) return to the system when the last lease of their allocation is dropped.
//! Pieces of any size ([`Pool::allocate_piece`]) share pages with others of the same tenant; a page returns to the
//! system when no piece has bytes in it.
//!
//! Invariants: no byte is in two live extents or leases, except clones and slices of one lease; a byte that can be
//! written is not readable elsewhere; no page has bytes of two tenants, and no tenant reads bytes that another has
//! written; pages in use never exceed the limit of the pool nor their tenant's quota. After *Farview* (Korolija et
//! al., CIDR 2022, section 4.3: an MMU that assigns 2 MiB pages and isolates tenants).

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
