//! Integer expressions on 64-bit lanes: the fast twin of the general evaluator for integers, dates and
//! decimals.
//!
//! Contract. Input: packed integers of one row group ([`farpool_columns::Integers`]). Output: one `i64` per
//! row, valid where none of the columns read is NULL (every operation here is NULL when an operand is).
//! Memory: one buffer of a batch per node. Errors: none. An expression is bound to a row group only if
//! interval analysis, from the least and greatest value of each chunk, proves that no intermediate result
//! leaves 64 bits or the range of its type: then nothing can wrap, overflow or fail, and no operation needs
//! a check. Otherwise the caller takes the general evaluator.
//!
//! Values under a NULL are within the chunk's bounds too, so they cannot overflow either.

mod bound;
mod build;
mod kernels;

pub(crate) use bound::{BoundLanes, LaneBuffers, RowSet};
pub(crate) use build::{LaneId, Lanes};
pub(crate) use kernels::retain_compared;
