//! Aggregation: counts, sums, means, folds and states of statistics, over all rows or by group
//! (Farview, section 5.4).
//!
//! Contract. Input: batches of a row group, in as many steps as its pace asks for. Output: after all row
//! groups, one row per group, or one row at all without keys. Order: none. Memory: the keys and accumulators of the
//! groups seen by each worker, reported by [`Partial::bytes`]. Parallelism: a [`FittedAggregation`] is shared, each
//! worker fills a [`Partial`] of its own; partials merge exactly, in independent tasks. Errors: an expression that
//! fails on a selected row; a sum that does not fit its type at the end.
//!
//! Arithmetic is exact: integers and decimals are summed in 128 bits with a count of the carries beyond, so that the
//! result depends neither on the order of rows nor on the number of workers. Equal arguments, filters and accumulators
//! of different aggregates are computed once: `sum(x)`, `avg(x)` and `count(x)` share all they can.
//!
//! # The ways
//! Several ways through a row group give the same result; [`choose`] tries them in this order and says why it
//! chose one (`docs/grouping.md` has a diagram of them, and what each gains):
//! 1. [`zones`]: without keys or filter, from zone maps alone.
//! 2. [`whole`]: into one array indexed by the keys, when the zone maps of the table give them a domain that is not
//!    too large.
//! 3. [`fused`]: on packed lanes with group numbers within the row group, when the domain of its keys is
//!    small.
//! 4. [`mixed`]: from lanes and codes where they are available, the rest decoded; groups are looked up in a
//!    hash table, and [`radix`] partitions rows first once there are many groups.
//! 5. [`general`]: on decoded arrays, for everything; the plain twin that tests compare the others with.
//!
//! # The files
//! Each depends only on those above it.
//! - the compiled aggregation: [`aggregation`]; accumulators and results: [`store`], [`fold`], [`floats`],
//!   [`finish`]; how groups leave: [`give`];
//! - code shared by ways: [`extent`], [`unfit`], [`valid`], [`arrays`], [`packing`], [`dense`];
//! - the ways; they share [`partial`], the state of one worker;
//! - what is known of a whole table: [`fitted`], with [`bound`], which bounds the memory;
//! - [`choose`], and [`run`], which runs the chosen way and lets groups that exceed the memory leave
//!   ([`spill`]);
//! - [`merge`], which merges the workers' partials.
//!
//! A *lane* is a column or an expression as 64-bit integers ([`crate::lanes`]), and nothing else here. Rows are
//! *partitioned* by the hash of their keys. Rows that are not selected go to the *discard group* of an array.

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
