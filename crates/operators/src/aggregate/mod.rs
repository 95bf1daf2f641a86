//! Aggregation: counts, sums, means, folds and states of statistics, over all rows or by group
//! (Farview, section 5.4).
//!
//! Contract. Input: batches of a row group, in as many steps as its pace asks for. Output: after all row
//! groups, one row per group, or one row at all without keys. Order: none. Memory: the keys and accumulators of the groups seen
//! by each worker, reported by [`Partial::bytes`]. Parallelism: an [`Aggregation`] is shared, each worker
//! fills a [`Partial`] of its own; partials merge exactly, in independent tasks. Errors: an expression that
//! fails on a selected row; a sum that does not fit its type at the end.
//!
//! Arithmetic is exact: integers and decimals are summed in 128 bits with a count of the carries beyond, so
//! neither the order of rows nor the number of workers shows. Equal arguments, filters and accumulators of
//! different aggregates are computed once: `sum(x)`, `avg(x)` and `count(x)` share all they can.
//!
//! There are five ways through a row group, which give the same: [`whole`], into one array indexed by the keys,
//! when the zone maps of the table give them a domain that is not too large; [`fused`], on packed lanes with
//! group numbers of the row group, when its domain is small; [`mixed`], which takes from lanes and codes what
//! is there and decodes the rest; [`radix`], which sets rows aside by partition once there are many groups;
//! and [`general`], on decoded arrays, for everything.
//!
//! States are made of decoded arrays, beside the mixed and the general way of all else; but without keys, a
//! sketch of a column of few values is made of their counts ([`counted`]).
//!
//! A worker whose groups outgrow its memory lets them go as they are ([`spill`]): whoever gets the result
//! then has to merge them, and has been told so before.

mod aggregation;
mod bound;
mod dense;
mod finish;
mod floats;
mod fold;
mod fused;
mod general;
mod give;
mod merge;
mod mixed;
mod radix;
mod spill;
mod store;
mod valid;
mod whole;
mod zones;

pub(crate) use aggregation::Aggregation;
pub(crate) use general::{Memo, Partial, Passed};
pub(crate) use merge::Merging;
