//! The fused way: group numbers are computed from key codes, arguments are read from bit-packed integers as lanes, and
//! partial sums have 64 bits.
//!
//! Usable for a row group if each group key is a dictionary, a boolean or a small range of integers, there are at most
//! 4096 combinations of their codes, and each argument is a lane whose sum over the whole row group is sure to fit 64
//! bits. Then the group of a row is computed from its codes, and sums are added in a table with one cache line per
//! group. The worker's hash table is accessed only at the end of the row group, once for each group that occurs.
//!
//! Without group keys, bit-packed columns are summed while they are unpacked ([`totals`]). A few groups use tables for
//! pairs of rows ([`few`]).

mod few;
mod run;
mod tables;
mod totals;

pub(super) use run::{bind, run};
