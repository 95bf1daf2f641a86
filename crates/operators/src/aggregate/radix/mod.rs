//! The radix way: once there are many groups, rows are partitioned by the hash of their group keys and grouped later,
//! one partition at a time. The mixed way switches to it.
//!
//! A hash table of groups that exceeds the CPU caches costs a cache miss or two per row. From
//! [`Paths::groups_direct_max`](crate::plan::Paths) groups on, a worker therefore only appends the group keys and
//! arguments of each row to the records of its partition ([`Records`]). Packed group keys take one word there; others
//! are sequences of words, as in hash tables of groups. When the room for records is used up, the records of each
//! partition are grouped together ([`Part`]), in a hash table that fits the caches; a step groups as many partitions
//! as its time allows. Records that are left at the end are grouped when the partitions of all workers, which are
//! independent of each other, are merged. Source: Boncz, Manegold, Kersten, "Database Architecture Optimized for the
//! New Bottleneck: Memory Access", VLDB 1999 (radix partitioning).
//!
//! Input: group keys of rows, whose arguments are lanes. Output: groups. Memory: that of the groups, and for each
//! worker [`Shape::bytes_max`] or the records of one batch, whichever is more. Errors: only on bugs in this crate.

mod merge;
mod part;
mod records;
mod rows;
mod shape;
mod worker;

pub(super) use merge::Partitions;
pub(super) use shape::Shape;
pub(super) use worker::{Keys, Radix};
