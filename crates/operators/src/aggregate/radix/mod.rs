//! The radix way: with many groups, rows are partitioned by the hash of their keys and grouped later, one
//! partition at a time. The mixed way switches to it once it has many groups.
//!
//! A table of groups that outgrows the caches costs a cache miss or two for each row. From
//! [`Paths::groups_direct_max`](crate::plan::Paths) groups on, a worker therefore only appends the keys and
//! arguments of each row to the records of its partition ([`Records`]): packed keys as one word, others as
//! the row of words that tables of groups hold. When the room for records is used up, the records of each
//! partition are grouped in one go ([`Part`]), in a table that fits the caches, as many partitions in each
//! step as its time allows. Records left at the end are grouped when the workers' partitions, which are
//! independent, are merged. Source: Boncz, Manegold, Kersten, "Database Architecture Optimized for the New
//! Bottleneck: Memory Access", VLDB 1999 (radix partitioning).
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
