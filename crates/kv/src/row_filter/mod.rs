//! Row filters: SQL conditions that are evaluated on entries (key and value) of a space in place, before any entry is
//! copied.
//!
//! A [`RowFilter`] is compiled from an [`Expr`] over the columns of a space. For each entry it tells whether the
//! condition may be true; where the condition is false or unknown, the entry is dropped. Parts that cannot be evaluated
//! in place (functions, regular expressions, columns stored in another form than shown) count as true, and the
//! remaining entries must be filtered again, unless [`RowFilter::is_exact`] says that no part was left out. Example:
//! `age > 30 and upper(name) = 'ADA'` drops entries by `age` alone.
//!
//! Entries are evaluated 64 at a time, one condition for all of them before the next: loops without data-dependent
//! branches keep many memory reads in flight. Negations are pushed down to single conditions, so that only "true" has
//! to be told from "false or unknown", and all numbers are compared as ranges of unsigned integers
//! (`predicate/bytes.rs`).

mod batch;
mod build;
mod fields;
#[cfg(test)]
mod tests;
mod texts;

pub(crate) use batch::{BATCH_ENTRIES, Batch, Slots};

use crate::entry::Kind;
use crate::rows::RowSchema;
use farpool_model::Expr;
use fields::{FieldRanges, ListCondition};
use std::sync::Arc;
use texts::BytesCondition;

/// A compiled condition on entries (key and value), evaluated on their bytes in memory without copying them.
#[derive(Clone, Debug)]
pub struct RowFilter {
    root: ConditionNode,
    is_exact: bool,
    kind: Kind,
    /// Bytes per entry of the columns with a fixed width that the filter reads.
    fixed_bytes: usize,
    /// Number of conditions; `texts` is the number of those that read bytes of variable length.
    conditions: usize,
    texts: usize,
}

/// Estimated nanoseconds of evaluating one condition on an entry; the next constant is the bytes of a value examined
/// per nanosecond.
const CONDITION_NS: usize = 3;
const BYTES_PER_NS: usize = 8;

/// A node of a compiled condition.
#[derive(Clone, Debug)]
enum ConditionNode {
    /// True for every entry, or not evaluable in place, in which case it counts as true.
    Always,
    /// False or unknown for every entry.
    Never,
    /// Numeric fields of a row that must all be in their ranges.
    Fields(FieldRanges),
    /// A field of a row that is, or is not, one of some numbers.
    Listed(ListCondition),
    /// A key, value or field that is compared as bytes.
    Text(BytesCondition),
    /// A field of a row, or the value of a string, that is, or is not, NULL.
    Null { field: Option<(Arc<RowSchema>, usize)>, is_null: bool },
    /// All parts must be true; the cheapest comes first.
    All(Vec<ConditionNode>),
    /// One part must be true; the cheapest comes first.
    Any(Vec<ConditionNode>),
}

impl RowFilter {
    /// Compiles a boolean expression over the columns of a space, those of `rows` or of
    /// [`crate::predicate::plain_schema`]. Keys begin with `prefix_bytes` bytes that are not part of the first column.
    /// Returns `None` if no part can be evaluated in place.
    pub fn of(condition: &Expr, rows: Option<&RowSchema>, prefix_bytes: usize) -> Option<RowFilter> {
        build::filter(condition, rows, prefix_bytes)
    }

    /// Returns whether the condition is true for every entry that passes, so that these need not be filtered again.
    pub fn is_exact(&self) -> bool {
        self.is_exact
    }

    /// Returns the kind of values that the filter reads.
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns how many bytes the filter reads of `entries` entries whose values have `value_bytes` bytes in total.
    pub(crate) fn bytes_read(&self, entries: usize, value_bytes: usize) -> usize {
        entries * self.fixed_bytes + if self.texts > 0 { value_bytes } else { 0 }
    }

    /// Returns the estimated nanoseconds to filter `entries` entries whose values have `value_bytes` bytes in total.
    pub(crate) fn cost_ns(&self, entries: usize, value_bytes: usize) -> usize {
        entries * self.conditions * CONDITION_NS + self.texts * value_bytes / BYTES_PER_NS
    }

    /// Returns a bitmap of the entries of a batch for which the condition may be true.
    pub(crate) fn judge(&self, batch: &Batch<'_>) -> u64 {
        self.root.judge(batch, batch.all())
    }
}

impl ConditionNode {
    /// Returns a bitmap of the entries among `asked` for which the node is true.
    fn judge(&self, batch: &Batch<'_>, asked: u64) -> u64 {
        match self {
            ConditionNode::Always => asked,
            ConditionNode::Never => 0,
            ConditionNode::Fields(fields) => fields.judge(batch, asked),
            ConditionNode::Listed(listed) => listed.judge(batch, asked),
            ConditionNode::Text(text) => text.judge(batch, asked),
            ConditionNode::Null { field: None, is_null } => {
                asked & if *is_null { !batch.has_value() } else { batch.has_value() }
            }
            ConditionNode::Null { field: Some((schema, at)), is_null } => {
                each(batch, asked, |row| schema.field(batch.values()[row], *at).is_none() == *is_null)
            }
            ConditionNode::All(parts) => parts.iter().fold(asked, |left, part| match left {
                0 => 0,
                left => part.judge(batch, left),
            }),
            ConditionNode::Any(parts) => parts.iter().fold(0, |found, part| match asked & !found {
                0 => found,
                left => found | part.judge(batch, left),
            }),
        }
    }
}

/// Returns a bitmap of the entries among `asked` for which `passes` returns true. If many are asked for, evaluates all
/// entries of the batch, without a branch per entry.
#[inline]
fn each(batch: &Batch<'_>, asked: u64, passes: impl Fn(usize) -> bool) -> u64 {
    let mut passed = 0;
    if asked.count_ones() as usize * 4 >= batch.count() {
        for row in 0..batch.count() {
            passed |= u64::from(passes(row)) << row;
        }
        return passed & asked;
    }
    let mut left = asked;
    while left != 0 {
        let row = left.trailing_zeros() as usize;
        left &= left - 1;
        passed |= u64::from(passes(row)) << row;
    }
    passed
}
