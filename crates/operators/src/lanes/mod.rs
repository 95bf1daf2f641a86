//! Lanes: integer expressions evaluated as 64-bit integers. They are the fast path of the general evaluator for
//! integers, dates and decimals.
//!
//! Input: bit-packed integers of one row group ([`farpool_columns::Integers`]). Output: one `i64` per row, valid where
//! none of the columns that the expression reads is NULL (all operations here are NULL if an operand is). Memory: one
//! buffer of a batch per node. Errors: none. An expression is bound to a row group only if interval analysis, from the
//! minimum and maximum of each chunk, proves that no intermediate result exceeds 64 bits or the range of its type. Then
//! nothing can wrap, overflow or fail, and no operation needs a check. Otherwise the caller uses the general evaluator.
//!
//! The arbitrary values of NULL rows are between the minimum and maximum of their chunk, too, so they cannot overflow
//! either.

mod bound;
mod build;
mod kernels;

pub(crate) use bound::{BoundLanes, LaneBuffers, RowSet};
pub(crate) use build::{LaneId, Lanes};
pub(crate) use kernels::retain_compared;
