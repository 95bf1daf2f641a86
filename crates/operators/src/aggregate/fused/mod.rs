//! The fused way: reads bit-packed columns and adds to the groups in one pass, without decoding them to arrays. A
//! row's group number is computed from the codes of its group keys (position in the dictionary, boolean, or distance
//! from the least integer). Arguments are *lanes*: columns or expressions that are evaluated as 64-bit integers.
//! Partial sums have
//! 64 bits.
//!
//! Usable for a row group if each group key is a dictionary, a boolean or a small range of integers, there are at
//! most 4096 combinations of their codes, and each argument is a lane whose sum over the whole row group is sure to
//! fit 64 bits. Sums are added in tables that are indexed by group number. The worker's hash table is accessed only
//! at the end of the row group, once for each group that occurs.
//!
//! Without group keys, bit-packed columns are summed while they are unpacked ([`totals`]). With few groups, rows are
//! added two at a time, in tables that are indexed by the pair of their groups ([`few`]).

mod few;
mod run;
mod tables;
mod totals;

pub(super) use run::{bind, run};
