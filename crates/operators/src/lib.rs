//! Operators that run next to the data: select, project, aggregate, group, distinct, top-k (Korolija et al.,
//! *Farview*, CIDR 2022, section 5).
//!
//! A [`Plan`] is a [`farpool_model::Program`] (the part of a query over one table that is pushed down) compiled for one
//! table. It is immutable and shared by all workers; what a worker changes is in its own [`State`]. A row group is
//! processed in steps ([`Plan::process_part`]). Each step takes as many rows as its [`Pace`] allows, and any worker may
//! run the next one. At the end [`Plan::merge`] combines the states of all workers.
//!
//! Invariant: the result does not depend on how a value was computed (from bit-packed integers, from dictionary codes,
//! or by Arrow's kernels). Every fast path has a general implementation beside it, and tests compare the two.

#![forbid(unsafe_code)]

mod aggregate;
mod bits;
mod encoded;
mod evaluate;
mod failure;
mod group;
mod lanes;
mod lookup;
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
pub use lookup::{
    BuildStep, Completion, Lookup, LookupBuild, LookupTable, Needs, Origin, Probing, share_of_sample,
};
pub use pace::{Pace, Progress, Unpaced};
pub use plan::{Memory, Merge, Plan, Shared, State, Verdict, Work};
