//! Statistics of columns, computed in one pass, whose states can be merged: sketches (HyperLogLog, Count-Min,
//! Fast-AGMS), moments (from which correlations follow), and exact sums. States are updated at the node, from stored
//! rows or from rows that are loaded; node and engine both merge and read them. The crate also has the checked
//! arithmetic that both sides share.
//!
//! Invariant: a state is the same, bit for bit, however the rows were divided and in which order the parts were merged.
//! Exceptions are sums of floats and the set of values that a sketch keeps as frequent.

mod arch;
mod arithmetic;
mod bounds;
mod bytes;
mod datasketches;
mod decimals;
mod estimate;
mod floats;
pub mod hash;
mod histogram;
pub mod keys;
mod moments;
mod profile;
mod rank;
pub mod redis_hll;
mod sketch;
mod states;
mod sums;

pub use arithmetic::{arithmetic, negative};
pub use bytes::sealed;
pub use datasketches::HyperLogLog;
pub use estimate::Estimate;
pub use histogram::{BINS_MAX, Bin, Histogram};
pub use moments::{Form, MOMENTS_VERSION, Moments, Regression, sealed_moments};
pub use profile::{ColumnMoments, ColumnProfile, Profile, is_numeric};
pub use rank::{kendall, spearman};
pub use sketch::{Frequencies, Quantile, Sketch, Total, Trust, check};
pub use states::{State, StateForm, States};
pub use sums::{ExactSums, Purpose, mean_of_decimals, mean_of_wide_decimals};
