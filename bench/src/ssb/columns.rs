//! Columns of rows that are generated as values of a type.

use arrow::array::{ArrayRef, BooleanArray, Int32Array, StringViewArray};
use std::sync::Arc;

/// A column of numbers.
pub fn numbers<R>(rows: &[R], of: impl Fn(&R) -> i32) -> ArrayRef {
    Arc::new(Int32Array::from_iter_values(rows.iter().map(of)))
}

/// A column of strings.
pub fn texts<R>(rows: &[R], of: impl for<'a> Fn(&'a R) -> &'a str) -> ArrayRef {
    Arc::new(StringViewArray::from_iter_values(rows.iter().map(of)))
}

/// A column of flags.
pub fn flags<R>(rows: &[R], of: impl Fn(&R) -> bool) -> ArrayRef {
    Arc::new(rows.iter().map(|row| Some(of(row))).collect::<BooleanArray>())
}
