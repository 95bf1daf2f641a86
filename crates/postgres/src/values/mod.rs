//! Values in the representations of PostgreSQL's protocol: text as PostgreSQL's output functions write it, and binary as
//! its send functions do; and both read back into Arrow's arrays.
//!
//! Invariant: a value that has no representation, such as a date before Julian day 0, is an error and never another
//! value. Times are in microseconds there: the digits behind them are cut off.

mod binary;
mod calendar;
mod columns;
mod input;
mod text;

pub use calendar::Zone;
pub use columns::{Columns, Style};
pub use input::{array_of_one, bytes_of_text, elements_of_text, without_offset};
