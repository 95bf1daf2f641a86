//! What is known of the row groups that an aggregation will read, found out once before any of them is read.

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

/// Bytes up to which the states of a batch's new groups may always grow: a few times what its arrays take.
const STATE_BYTES_MIN: usize = 16 << 20;

const NO_TABLE: Unfit = Unfit("the table is not known");
const NO_KEYS: Unfit = Unfit("there are no keys");
const NOT_ALLOWED: Unfit = Unfit("only the plain way is allowed");

/// An aggregation, and what is known of what it reads.
pub(crate) struct FittedAggregation {
    pub(super) aggregation: Aggregation,
    /// The whole-table way, or why it cannot be taken.
    pub(super) whole: Fit<Whole>,
    /// How rows are partitioned once there are many groups, if they may be.
    pub(super) radix: Option<Shape>,
    /// Bytes that the groups of one worker can take, if that is known.
    bytes_bound: Option<usize>,
    /// Whether every sum of decimals keeps within 38 digits whatever rows it is of.
    sums_fit: bool,
}

impl FittedAggregation {
    /// An aggregation that may read any row groups with its schema.
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

    /// An aggregation that reads the row groups `groups` and no others. A worker may hold `bytes_max`.
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
            aggregation.present = accumulators.map(|a| aggregation.is_present(a, groups)).collect();
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

    /// An empty partial aggregation.
    pub(crate) fn new_partial(&self) -> Partial {
        Partial::new(&self.aggregation)
    }

    /// Bytes that the groups of one worker can take, if that is known.
    pub(crate) fn bytes_bound(&self) -> Option<usize> {
        self.bytes_bound
    }

    /// Whether every sum of decimals keeps within 38 digits whatever rows it is of.
    pub(crate) fn sums_fit(&self) -> bool {
        self.sums_fit
    }

    /// Whether there is room in `bytes` for the states of new groups of a whole batch, after which groups that
    /// outgrow their room leave.
    pub(crate) fn states_fit(&self, bytes: usize) -> bool {
        let each = bound::bytes_of_new_states(&self.aggregation.states);
        each.is_some_and(|each| each <= bytes.max(STATE_BYTES_MIN))
    }

    /// The columns that are read, sorted.
    pub(crate) fn columns(&self) -> &[usize] {
        &self.aggregation.columns
    }

    /// Whether keys are packed.
    #[cfg(test)]
    pub(crate) fn is_packed(&self) -> bool {
        self.aggregation.packing.is_some()
    }

    /// Whether rows may be partitioned.
    #[cfg(test)]
    pub(crate) fn is_partitioned(&self) -> bool {
        self.radix.is_some()
    }

    /// Whether row groups go the whole-table way.
    #[cfg(test)]
    pub(crate) fn is_whole(&self) -> bool {
        self.whole.is_ok()
    }
}

/// How rows of many groups are partitioned, if there may be as many and what is computed of them allows it.
fn radix(aggregation: &Aggregation, groups: &[&RowGroup], bytes_max: usize) -> Option<Shape> {
    let rows: usize = groups.iter().map(|group| group.rows).sum();
    if rows <= aggregation.paths.groups_direct_max {
        return None;
    }
    let intervals = aggregation.lanes.intervals(|column| bounds_of(groups, column));
    Shape::fit(aggregation, &intervals, &|column| nullable(groups, column), bytes_max)
}
