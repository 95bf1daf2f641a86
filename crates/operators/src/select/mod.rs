//! Selection: finds the rows of a row group that pass a filter (Korolija et al., *Farview*, CIDR 2022, section 5.3;
//! Woods et al., *Ibex*, PVLDB 2014, section 5).
//!
//! Input: the encoded chunks of a row group. Output: a bitmap of the rows for which the filter is true. Memory: a few
//! bitmaps of a batch, and the decoded columns of a batch for conditions without an encoded form. Parallelism: all
//! workers share a [`Filter`]; each binds it for itself. Errors: only conditions evaluated on decoded values can fail,
//! and only on rows that the cheaper conditions let pass.
//!
//! A filter is evaluated in three stages, each of which leaves fewer rows to the next: zone maps ([`Filter::verdict`]);
//! predicates on bit-packed integers and dictionary codes, combined as bitmaps; evaluation on decoded values. Columns
//! that only the filter reads are never part of the output.

mod bind;
mod compile;
mod keys;
mod memo;
mod order;
mod run;
mod texts;
mod verdict;

pub(crate) use bind::BoundFilter;
pub(crate) use compile::Filter;
pub(crate) use memo::FilterMemo;
