//! The general evaluator: evaluates any expression on decoded Arrow arrays, by Arrow's kernels.
//!
//! Input: a [`Frame`], some rows of some columns. Output: one value per row, in the order of the rows, or one value for
//! all. Memory: the intermediate arrays of one frame, whose number of rows the caller limits. Parallelism: any number
//! of threads may use a [`Compiled`]. Errors: those of the kernels for the values (division by zero, a cast that does
//! not fit), but never on a row that an earlier condition of an AND, OR or CASE has excluded.
//!
//! This evaluator defines the results of all operators on encoded data; tests compare them with it.

mod compile;
mod frame;
mod kernels;
mod members;
mod scalar;

pub(crate) use compile::Compiled;
#[cfg(test)]
pub(crate) use compile::scalar_of;
pub(crate) use frame::Frame;
pub(crate) use kernels::truth;
pub(crate) use members::Members;
pub(crate) use scalar::{array_of_ints, literal_at};
