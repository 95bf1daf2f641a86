//! Selection: finds the rows of a row group that pass a filter (Farview, section 5.3; Ibex, section 5).
//!
//! Contract. Input: the encoded chunks of a row group. Output: a bitmap of the rows for which the filter is true.
//! Order: that of the rows. Memory: a few bitmaps of a batch, and the decoded columns of a batch for conditions without
//! an encoded form. Parallelism: a [`Filter`] is shared; each worker binds it for itself. Errors: only from the general
//! evaluator, only on rows that the cheaper parts let pass.
//!
//! Three stages, each of which may decide a row group or a row: the zone maps ([`Filter::verdict`]);
//! predicates on packed integers and dictionary codes, combined as bitmaps; the general evaluator over the
//! rows that are left. Columns that only the filter reads are never materialised.

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
