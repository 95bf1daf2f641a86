//! Statistics of columns in one pass, as states that merge: sketches (HyperLogLog, Count-Min, Fast-AGMS) and
//! moments (from which correlations follow). Updated at the node, on data at rest or on its way in; merged
//! and read at either side.
//!
//! Invariant: a state is the same, bit for bit, however its rows were divided and in which order the parts
//! were merged, except sums of floats.

mod estimate;
mod histogram;

pub use estimate::Estimate;
pub use histogram::{BINS_MAX, Bin, Histogram};
