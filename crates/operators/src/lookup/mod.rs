//! Lookups: joins of scanned rows with other rows that were hashed by their join keys before (Ibex, section 5; Farview,
//! section 7).
//!
//! Input: batches of rows that are scanned (the probe side), and a [`LookupTable`] of the other rows (the build side).
//! Output: batches of joined rows, of at most [`limits::BATCH_ROWS`] rows each: the columns of the scanned row, then
//! those of the other one. Memory: the build side with its index, reported by [`LookupTable::bytes`], and one batch.
//! Parallelism: several threads build a table together, and any number probe it; each has a [`Probing`] of its own.
//! Errors: a residual condition that fails on a pair of rows, and a scalar subquery with several rows.
//!
//! Join keys are equal as group keys are ([`crate::group`]), with one exception: a NULL equals nothing. The join keys
//! of both sides have the same types.
//!
//! A pair of rows is produced only when its batch is asked for. One batch of scanned rows can therefore match a billion
//! of pairs, and the caller still decides after each output batch whether it goes on.

mod build;
mod column;
mod completion;
mod equal;
mod hashed;
mod index;
mod part;
mod probe;
mod ranked;
mod sample;
#[cfg(test)]
mod tests;

pub use build::{BuildStep, LookupBuild, LookupTable, Needs};
pub use completion::{Completion, Origin};
pub use probe::{Lookup, Probing};
pub use sample::share_of_sample;

/// Value in place of the number of a build row that means "no row".
const NONE: u32 = u32::MAX;
