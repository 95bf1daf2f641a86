//! The kernels that run next to the data: select, project, aggregate, group, distinct, top-k (Farview, section 5).
//!
//! A [`Plan`] is a [`farpool_model::Program`] compiled for one table schema. It is immutable and shared by
//! all workers; what a worker changes is its own [`State`]. A row group is processed in steps
//! ([`Plan::process_part`]), each of which takes as many rows as its [`Pace`] allows and may be any worker's;
//! at the end [`Plan::merge`] brings the partial states together.
//!
//! Invariant: the result does not depend on how a value was computed (on packed lanes, on dictionary codes, by Arrow's
//! kernels). Every fast path has a plain twin, and tests run both.

#![forbid(unsafe_code)]

mod aggregate;
mod bits;
mod encoded;
mod evaluate;
mod failure;
mod group;
mod lanes;
mod pace;
mod plan;
mod project;
mod select;
mod selection;
#[cfg(test)]
mod tests;
mod topk;

pub use aggregate::{ChosenWay, KeyForm, Way};
pub use group::HashKey;
pub use pace::{Pace, Progress, Unpaced};
pub use plan::{Memory, Merge, Plan, Shared, State, Verdict, Work};
