//! The general evaluator: every expression, over decoded Arrow arrays, by Arrow's kernels.
//!
//! Contract. Input: a [`Frame`], some rows of some columns. Output: one value per row, or one value for all. Order:
//! that of the rows. Memory: the intermediate arrays of one frame, whose rows the caller bounds. Parallelism: none of
//! its own; a [`Compiled`] is shared freely. Errors: those of the kernels for the values (division by zero, a cast that
//! does not fit), never on a row that an earlier condition of an AND, OR or CASE has ruled out.
//!
//! This evaluator is the plain twin of every operator on encoded data, and defines their results.

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
