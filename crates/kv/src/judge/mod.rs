//! Conditions of SQL that are judged where entries lie, before anything of these is copied.
//!
//! A [`RowFilter`] is made of an [`Expr`] over the columns of a space. It says of each entry whether the condition may be true
//! for it: where it is false or unknown, the entry is dropped. What cannot be judged in place (functions, regular expressions,
//! columns that are not stored as they are shown) counts as true, so that whoever has the condition judges what is left again,
//! unless [`RowFilter::is_exact`] says that nothing was left out.
//!
//! Entries are judged 64 at a time, a condition for all of them before the next one: loops without branches that depend on
//! values keep many reads of memory in flight. Negations stand at conditions only, so that true alone has to be told from the
//! rest, and all numbers are compared as ranges of integers without sign (`predicate/bytes.rs`).

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
use fields::{Fields, Listed};
use std::sync::Arc;
use texts::Text;

/// A condition on the entries of a space, to be judged where these lie.
#[derive(Clone, Debug)]
pub struct RowFilter {
    root: Node,
    is_exact: bool,
    kind: Kind,
    /// Bytes of the columns of fixed width that it is about.
    fixed_bytes: usize,
    /// Conditions, and how many of them look at bytes of no fixed number.
    conditions: usize,
    texts: usize,
}

/// About what it takes to judge an entry by one condition, and to look at its bytes.
const CONDITION_NS: usize = 3;
const BYTES_PER_NS: usize = 8;

/// A part of a condition.
#[derive(Clone, Debug)]
enum Node {
    /// Is true for every entry, as far as it can be judged.
    Always,
    /// Is true for no entry.
    Never,
    /// Fields of rows, all of which are numbers in their ranges.
    Fields(Fields),
    /// A field of a row that is one of some numbers, or none of these.
    Listed(Listed),
    /// A key, a value or a field, compared as bytes.
    Text(Text),
    /// A field of a row, or the value of a string, that is NULL, or is not.
    Null { field: Option<(Arc<RowSchema>, usize)>, is_null: bool },
    /// All of these are true; the cheapest first.
    All(Vec<Node>),
    /// One of these is true; the cheapest first.
    Any(Vec<Node>),
}

impl RowFilter {
    /// Makes a filter of a boolean over the columns of a space: those of `rows`, or of [`crate::predicate::plain_schema`].
    /// Keys begin with `prefix_bytes` bytes that are not part of the first column. `None` where nothing of it can be judged in
    /// place.
    pub fn of(condition: &Expr, rows: Option<&RowSchema>, prefix_bytes: usize) -> Option<RowFilter> {
        build::filter(condition, rows, prefix_bytes)
    }

    /// Whether an entry that is not dropped is one for which the condition is true, so that it need not be judged again.
    pub fn is_exact(&self) -> bool {
        self.is_exact
    }

    /// The kind of values that it is about.
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// Bytes that are read to judge entries with so many bytes of values.
    pub(crate) fn bytes_read(&self, entries: usize, value_bytes: usize) -> usize {
        entries * self.fixed_bytes + if self.texts > 0 { value_bytes } else { 0 }
    }

    /// About how long it takes to judge entries with so many bytes of values, in nanoseconds.
    pub(crate) fn cost_ns(&self, entries: usize, value_bytes: usize) -> usize {
        entries * self.conditions * CONDITION_NS + self.texts * value_bytes / BYTES_PER_NS
    }

    /// The entries of a batch for which the condition may be true, a bit each.
    pub(crate) fn judge(&self, batch: &Batch<'_>) -> u64 {
        self.root.judge(batch, batch.all())
    }
}

impl Node {
    /// Those of `asked` for which it is true.
    fn judge(&self, batch: &Batch<'_>, asked: u64) -> u64 {
        match self {
            Node::Always => asked,
            Node::Never => 0,
            Node::Fields(fields) => fields.judge(batch, asked),
            Node::Listed(listed) => listed.judge(batch, asked),
            Node::Text(text) => text.judge(batch, asked),
            Node::Null { field: None, is_null } => {
                asked & if *is_null { !batch.has_value() } else { batch.has_value() }
            }
            Node::Null { field: Some((schema, at)), is_null } => {
                each(batch, asked, |row| schema.field(batch.values()[row], *at).is_none() == *is_null)
            }
            Node::All(parts) => parts.iter().fold(asked, |left, part| match left {
                0 => 0,
                left => part.judge(batch, left),
            }),
            Node::Any(parts) => parts.iter().fold(0, |found, part| match asked & !found {
                0 => found,
                left => found | part.judge(batch, left),
            }),
        }
    }
}

/// Those of `asked` that pass. Where many are asked, all are judged, without a branch for each.
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
