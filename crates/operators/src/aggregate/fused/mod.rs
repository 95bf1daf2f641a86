//! The fused way: keys as dense codes, arguments on packed lanes, partial sums in 64 bits.
//!
//! A row group is eligible when each key is a dictionary, a boolean or a small range of integers, the product
//! of their domains is at most 4096, and each argument is bound to lanes with enough headroom for its sum
//! over the whole row group to fit 64 bits. Then the group of a row is computed from its codes, sums go into
//! a table with one cache line per group, and the worker's hash table is accessed only at the end of the row
//! group, once for each group that occurs.
//!
//! Without keys, packed columns are summed while they are unpacked ([`totals`]). A handful of groups uses
//! tables of pairs of rows ([`few`]).

mod few;
mod run;
mod tables;
mod totals;

pub(super) use run::{bind, run};
