//! The compute side's decisions, free of any engine's types: how many rows a program will give, which
//! part of a query goes to the pool, and how that is told to a person.
//!
//! Invariant: what is decided here changes only where work is done, never what comes out. Whether an
//! operator *can* run at the pool is the pool's answer; whether it *should* is decided in [`split`], by the
//! formulas of [`cost`].

#![forbid(unsafe_code)]

pub mod cost;
pub mod estimate;
pub mod explain;
pub mod finish;
pub mod joins;
pub mod reading;
pub mod split;
mod spread;

#[cfg(test)]
mod tests;
