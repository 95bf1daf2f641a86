//! The storage side of a pool: files that tables are read from, and the catalog of tables in memory.
//!
//! [`source::open`] reads Parquet, CSV, JSON and Arrow files; [`Catalog`] knows the current version of each
//! tenant's tables; a [`Load`] makes a new version and swaps it in.
//!
//! Invariant: a version, once in the catalog, never changes, and a load that does not commit leaves no
//! trace: neither in the catalog nor in the pool's memory.

#![forbid(unsafe_code)]

mod catalog;
pub mod source;

pub use catalog::{
    Access, AccessKind, AccessTrace, Append, Awaited, AwaitedProfile, AwaitedStatistics, Background, Backup,
    Cache, Catalog, Chore, Claim, Helpers, Load, Loads, Made, Piece, PieceDone, PlaceOnDisk, Recorded,
    Recovery, Stepped, adopt_backup, after_a_moment, check_data, place_on_disk,
};
