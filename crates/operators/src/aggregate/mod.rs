//! Aggregation, over all rows or by group: counts, sums, means, folds (such as minimum and maximum), sketches and
//! moments (Korolija et al., *Farview*, CIDR 2022, section 5.4).
//!
//! Input: batches of a row group, in as many steps as its pace asks for. Output, after all row groups: one row per
//! group, in no particular order, or a single row without group keys. Memory: the group keys and accumulators of the
//! groups that each worker has seen, reported by [`Partial::bytes`]. Parallelism: all workers share a
//! [`FittedAggregation`], and each fills a [`Partial`] of its own; partials are merged exactly, in independent tasks.
//! Errors: an expression that fails on a selected row, or a final sum that does not fit its type.
//!
//! Arithmetic is exact: integers and decimals are summed in 128 bits with a count of the carries beyond, so that the
//! result depends neither on the order of rows nor on the number of workers. Equal arguments, filters and accumulators
//! of different aggregates are computed once: `sum(x)`, `avg(x)` and `count(x)` share all they can.
//!
//! # The ways
//! A *way* is an implementation of the aggregation of a row group. All ways give the same result. [`choose`] tries them
//! in this order and gives the reason for its choice (`docs/grouping.md` has a diagram, and what each way gains):
//! 1. [`zones`]: without group keys and filter, from zone maps alone.
//! 2. [`whole`]: into one array for the whole table, indexed by the codes of the group keys, if the zone maps of the
//!    table show that there are not too many possible groups.
//! 3. [`fused`]: into an array for the row group, from bit-packed integers, if its group keys have few possible
//!    combinations.
//! 4. [`mixed`]: from encoded values where possible, and decoded arrays otherwise. Groups are looked up in a hash
//!    table; once there are many groups, rows are partitioned first ([`radix`]).
//! 5. [`general`]: from decoded arrays only. It supports everything, and tests compare the other ways with it.
//!
//! # The files
//! Each depends only on those above it.
//! - the compiled aggregation: [`aggregation`]; accumulators and results: [`store`], [`fold`], [`floats`],
//!   [`finish`]; how groups are emitted: [`give`];
//! - code shared by ways: [`extent`], [`unfit`], [`valid`], [`arrays`], [`packing`], [`dense`];
//! - the ways; they share [`partial`], the state of one worker;
//! - what is known of a whole table: [`fitted`], with [`bound`], which bounds the memory;
//! - [`choose`], and [`run`], which runs the chosen way and, if groups exceed the memory limit, emits them early
//!   ([`spill`]) or fails ([`limit`]);
//! - [`merge`], which merges the workers' partials.
//!
//! A *lane* is a column or an expression evaluated as 64-bit integers ([`crate::lanes`]). Rows are *partitioned* by the
//! hash of their group keys. The *discard group* is an additional group of an array, to which rows that are not
//! selected are added so that no branch is needed.

mod aggregation;
mod arrays;
mod bound;
mod choose;
mod dense;
mod extent;
mod finish;
mod fitted;
mod floats;
mod fold;
mod fused;
mod general;
mod give;
mod limit;
mod merge;
mod mixed;
mod packing;
mod partial;
mod radix;
mod run;
mod spill;
mod store;
mod unfit;
mod valid;
mod whole;
mod zones;

pub(crate) use aggregation::Aggregation;
pub use choose::{ChosenWay, Way};
pub(crate) use fitted::FittedAggregation;
pub(crate) use merge::Merging;
pub use mixed::KeyForm;
pub(crate) use partial::Partial;
pub(crate) use run::{Memo, Passed};
