//! Code shared by the implementations of aggregation that keep groups in an array ([`super::whole`],
//! [`super::fused`], and [`super::mixed`] where it can). The array index of a group is its *group number*, computed
//! from the integer codes (such as dictionary codes) of its group keys. This module computes group numbers and the
//! measures (sums and folds) of each group, and scans the rows of a row group.
//!
//! NULLs, conditions of `FILTER (WHERE …)` and rows that the query's filter excluded are handled by masks: a value
//! that is masked out adds 0.

mod keys;
mod masks;
mod measures;
mod rows;
mod scan;

pub(super) use keys::{DenseKeys, KeyBuffers, KeyFrame};
pub(super) use measures::{Measures, Source, SumOf};
pub(super) use rows::DenseRows;
pub(super) use scan::{ROWS_AT_A_TIME, ROWS_OF_A_PART, Scratch, Target, each_batch};
