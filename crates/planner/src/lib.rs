//! The planning decisions of the compute side, free of any engine's types: how many rows a program will
//! return, which part of a query is pushed to the pool, and how that is explained to a person.
//!
//! Invariant: decisions made here change only where work is done, never the result. Whether an operator *can*
//! run at the pool is the pool's answer; whether it *should* is decided in [`split`], by the formulas of
//! [`cost`].

#![forbid(unsafe_code)]

pub mod cost;
pub mod estimate;
pub mod explain;
pub mod finish;
pub mod groups;
pub mod joins;
pub mod reading;
pub mod split;
mod spread;
pub mod union;

#[cfg(test)]
mod tests;
