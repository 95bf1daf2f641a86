//! An aggregation adapted to the row groups that it will read, from their zone maps and dictionaries, before any
//! row is read.
//!
//! A *way* is an implementation of aggregation (see [`super`]).
//!
//! A *batch* is the rows of a row group that are processed at a time, some thousand.

use super::aggregation::Aggregation;
use super::extent::{bounds_of, nullable};
use super::partial::Partial;
use super::radix::Shape;
use super::unfit::{Fit, Unfit};
use super::whole::Whole;
use super::{bound, packing};
use farpool_columns::RowGroup;
use farpool_model::Result;
use std::sync::Arc;

/// Number of bytes that the sketches and moments of the new groups of one batch may take under any memory limit: a
/// few times the size of a batch's arrays.
const STATE_BYTES_MIN: usize = 16 << 20;

const NO_TABLE: Unfit = Unfit("the table is not known");
const NO_KEYS: Unfit = Unfit("there are no keys");
const NOT_ALLOWED: Unfit = Unfit("only the plain way is allowed");

/// Number of rows that no execution has, where their number is not known. Reason: a thread would take days for them.
const ROWS_MAX: usize = 1 << 48;

/// An aggregation, with decisions that depend on the row groups that it reads.
pub(crate) struct FittedAggregation {
    pub(super) aggregation: Aggregation,
    /// Data of the whole-table way, or the reason why it cannot be used.
    pub(super) whole: Fit<Whole>,
    /// Layout for partitioning rows by the hash of their group keys once there are many groups; `None` if they are
    /// never partitioned.
    pub(super) radix: Option<Shape>,
    /// Upper bound of the bytes that the groups of one worker take; `None` if none is known.
    bytes_bound: Option<usize>,
    /// Whether the sum of each decimal argument fits 38 digits over any subset of the rows.
    sums_fit: bool,
}

impl FittedAggregation {
    /// Creates an aggregation for any row groups with its schema.
    ///
    /// # Errors
    /// Fails only on a bug in this crate.
    pub(crate) fn of_any(aggregation: Aggregation) -> Result<Self> {
        let has_keys = !aggregation.keys.is_empty();
        let bytes_bound = if has_keys { None } else { bound::bytes_of_states(&aggregation.states)? };
        Ok(FittedAggregation {
            aggregation,
            whole: Err(if has_keys { NO_TABLE } else { NO_KEYS }),
            radix: None,
            bytes_bound,
            sums_fit: false,
        })
    }

    /// Creates an aggregation for any row groups with its schema, whose columns have values within `bounds` (the least
    /// and the greatest), if these are known.
    ///
    /// # Errors
    /// Fails only on a bug in this crate.
    pub(crate) fn of_rows(
        mut aggregation: Aggregation,
        bounds: impl Fn(usize) -> Option<(i64, i64)>,
    ) -> Result<Self> {
        let sums_fit = bound::sums_of_rows_fit(&aggregation, ROWS_MAX, &bounds);
        if aggregation.paths.fused && !aggregation.keys.is_empty() {
            aggregation.packing = packing::of_rows(&aggregation, &bounds)?.map(Arc::new);
        }
        Ok(FittedAggregation { sums_fit, ..FittedAggregation::of_any(aggregation)? })
    }

    /// Creates an aggregation for exactly the row groups `groups`. Each worker may use `bytes_max` bytes for its
    /// groups.
    ///
    /// # Errors
    /// Fails only on a bug in this crate.
    pub(crate) fn of_table(aggregation: Aggregation, groups: &[&RowGroup], bytes_max: usize) -> Result<Self> {
        let mut fitted = FittedAggregation::of_any(aggregation)?;
        if fitted.aggregation.keys.is_empty() {
            return Ok(fitted);
        }
        fitted.whole = Err(NOT_ALLOWED);
        if fitted.aggregation.paths.fused {
            let aggregation = &mut fitted.aggregation;
            let accumulators = 0..aggregation.accumulators.len();
            let intervals = aggregation.lanes.intervals(|column| bounds_of(groups, column));
            let is_present = |a| aggregation.is_present(a, groups, &intervals);
            aggregation.present = accumulators.map(is_present).collect();
            fitted.whole = Whole::fit(aggregation, groups, bytes_max);
            if fitted.whole.is_err() {
                aggregation.packing = packing::of(aggregation, groups)?.map(Arc::new);
                fitted.radix = radix(aggregation, groups, bytes_max);
            }
        }
        fitted.bytes_bound = match &fitted.whole {
            Ok(whole) => Some(whole.bytes()),
            Err(_) => bound::bytes_of_groups(&fitted.aggregation, fitted.radix.as_ref(), groups),
        };
        fitted.sums_fit = bound::sums_fit(&fitted.aggregation, groups);
        Ok(fitted)
    }

    /// Creates an empty partial aggregation.
    pub(crate) fn new_partial(&self) -> Partial {
        Partial::new(&self.aggregation)
    }

    /// Returns an upper bound of the bytes that the groups of one worker take; `None` if none is known.
    pub(crate) fn bytes_bound(&self) -> Option<usize> {
        self.bytes_bound
    }

    /// Returns whether the sum of each decimal argument fits 38 digits over any subset of the rows.
    pub(crate) fn sums_fit(&self) -> bool {
        self.sums_fit
    }

    /// Returns whether `bytes` has room for the sketches and moments of as many new groups as one batch can have.
    /// Reason: groups that exceed the limit can be emitted only after the batch that added them.
    pub(crate) fn states_fit(&self, bytes: usize) -> bool {
        let each = bound::bytes_of_new_states(&self.aggregation.states);
        each.is_some_and(|each| each <= bytes.max(STATE_BYTES_MIN))
    }

    /// Returns the columns that are read, sorted.
    pub(crate) fn columns(&self) -> &[usize] {
        &self.aggregation.columns
    }

    /// Returns whether all group keys of a row are packed into one 64-bit word.
    #[cfg(test)]
    pub(crate) fn is_packed(&self) -> bool {
        self.aggregation.packing.is_some()
    }

    /// Returns whether rows may be partitioned by the hash of their group keys.
    #[cfg(test)]
    pub(crate) fn is_partitioned(&self) -> bool {
        self.radix.is_some()
    }

    /// Returns whether the whole-table way is used: one array of groups for the table instead of a hash table.
    #[cfg(test)]
    pub(crate) fn is_whole(&self) -> bool {
        self.whole.is_ok()
    }
}

/// Returns the layout for partitioning rows by the hash of their group keys. Returns `None` if there cannot be enough
/// groups for partitioning to pay, or the aggregation does not support it.
fn radix(aggregation: &Aggregation, groups: &[&RowGroup], bytes_max: usize) -> Option<Shape> {
    let rows: usize = groups.iter().map(|group| group.rows).sum();
    if rows <= aggregation.paths.groups_direct_max {
        return None;
    }
    let intervals = aggregation.lanes.intervals(|column| bounds_of(groups, column));
    Shape::fit(aggregation, &intervals, &|column| nullable(groups, column), bytes_max)
}
