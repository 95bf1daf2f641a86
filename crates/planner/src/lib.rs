//! The planning decisions on the client's side, independent of the query engine's types: how many rows a program will
//! return, which part of a query is pushed down to the pool, and how EXPLAIN shows that.
//!
//! Invariant: decisions made here change only where work is done, never the result. Whether an operator *can* run at
//! the pool is the pool's answer; whether it *should* run there is decided in [`split`], by the formulas of [`cost`].

#![forbid(unsafe_code)]

pub mod cost;
pub mod estimate;
pub mod explain;
pub mod finish;
pub mod groups;
pub mod joins;
pub mod reading;
pub mod rows;
pub mod split;
mod spread;
pub mod union;

#[cfg(test)]
mod tests;
