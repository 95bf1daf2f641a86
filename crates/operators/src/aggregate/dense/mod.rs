//! Code shared by the ways that compute a group number from the codes of the group keys ([`super::whole`],
//! [`super::fused`], and [`super::mixed`] where it can): group numbers, the measures of each group, and the scan over
//! the rows of a row group.
//!
//! NULLs, conditions of `FILTER (WHERE …)` and unselected rows are handled by masks: a value that is masked out adds 0.

mod keys;
mod masks;
mod measures;
mod rows;
mod scan;

pub(super) use keys::{DenseKeys, KeyBuffers, KeyFrame};
pub(super) use measures::{Measures, Source, SumOf};
pub(super) use rows::DenseRows;
pub(super) use scan::{ROWS_AT_A_TIME, ROWS_OF_A_PART, Scratch, Target, each_batch};
