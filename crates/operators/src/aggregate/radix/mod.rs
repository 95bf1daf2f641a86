//! The radix way: rows of many groups are partitioned by the hash of their keys, and grouped later, a partition
//! at a time. Rows come to it from the mixed way, once that has many groups.
//!
//! A table of groups that outgrows the caches costs a cache miss or two for each row. From
//! [`Paths::groups_direct_max`](crate::plan::Paths) groups on, a worker therefore only writes the keys and the
//! arguments of each row behind those of the same partition ([`Records`]): keys that are packed as one word,
//! others as the row of words that tables of groups hold. When the room for them is used up, each partition's
//! records are grouped at once ([`Part`]), in a table that the caches hold, as many partitions in each step as
//! its time allows; what is left at the end is grouped when the workers' partitions are merged, which have
//! nothing to do with one another. Source: Boncz, Manegold, Kersten, "Database Architecture Optimized for the
//! New Bottleneck: Memory Access", VLDB 1999 (radix partitioning).
//!
//! Contract. Input: rows of keys whose arguments are on lanes. Output: groups. Memory: that of the groups,
//! and [`Shape::bytes_max`] for each worker, or one batch where that is more. Errors: only bugs in this crate.

mod merge;
mod part;
mod records;
mod rows;
mod shape;
mod worker;

pub(super) use merge::Partitions;
pub(super) use shape::Shape;
pub(super) use worker::{Keys, Radix};
