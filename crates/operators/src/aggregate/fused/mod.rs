//! The fused way: keys as dense codes, arguments on packed lanes, partial sums in 64 bits.
//!
//! A row group is eligible when each key is a dictionary, a boolean or a small range of integers, the
//! product of their domains is at most 4096, and each argument is bound to lanes with so much
//! head-room that the sum over the whole row group fits 64 bits. Then the group of a row is computed from its codes,
//! sums go into a table of one cache line per group, and only at the end of the row group is the worker's
//! hash table touched, once per group that occurs.
//!
//! Without keys, sums of packed columns are taken while these are unpacked ([`totals`]). A handful of groups has
//! tables of pairs of rows ([`few`]).

mod few;
mod run;
mod tables;
mod totals;

pub(super) use run::{bind, run};
