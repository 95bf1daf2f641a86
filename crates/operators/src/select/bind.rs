//! Filters bound to the chunks of one row group: each predicate takes the form that fits the encoding of its chunk.
//!
//! Only the rows for which a filter is true are wanted, so the evaluation needs no third truth value for NULL: `a AND
//! b` is true where both are true and false where one of them is false, and `NOT a` is true where `a` is false. Binding
//! therefore pushes negations down to the leaves. Rows whose value is NULL, for which a leaf is neither true nor false,
//! are dropped at the leaf.
//!
//! A *code* is the index of a string in the sorted dictionary of its chunk.

use super::compile::{Filter, Form, Leaf, Predicate};
use super::keys::BoundKeys;
use super::memo::{FilterMemo, Known};
use super::order::Order;
use super::texts::Texts as Searched;
use crate::evaluate::{Compiled, Frame, Members};
use crate::lanes::{BoundLanes, LaneId};
use arrow_array::Array;
use arrow_buffer::BooleanBuffer;
use farpool_columns::{Chunk, Dictionary, Floats, IntegerSet, Integers, RowGroup, Texts};
use farpool_model::{CompareOp, Result};

/// Maximum number of ranges of matching codes or integers that are compared one by one; for more of them, values are
/// looked up in a bitmap. Reason: one comparison costs a quarter of a look-up on 16-bit lanes.
const RUNS_MAX: usize = 3;

/// A filter bound to one row group.
pub(crate) struct BoundFilter<'a> {
    pub(super) root: Bound<'a>,
    pub(super) lanes: BoundLanes<'a>,
    pub(super) group: &'a RowGroup,
}

/// The rows for which a predicate (or its negation) is true.
pub(super) enum Bound<'a> {
    /// All rows, or no rows.
    Known(bool),
    /// Rows for which all operands are true, and the order in which these are evaluated.
    All(Vec<Bound<'a>>, &'a Order),
    /// Rows for which at least one operand is true, and the order in which these are evaluated.
    Any(Vec<Bound<'a>>, &'a Order),
    /// Rows whose value in the chunk is NULL; with the flag false, rows whose value is not NULL.
    Null(&'a Chunk, bool),
    /// Rows for which the outcome of the test equals the flag. Rows with a NULL are excluded.
    Leaf(Test<'a>, bool),
}

/// Test of a row's value. Rows whose value is NULL are dropped, whichever outcome is wanted.
pub(super) enum Test<'a> {
    /// Dictionary codes or integers that lie in one of some closed ranges.
    Ranges {
        integers: Integers<'a>,
        ranges: Vec<(i128, i128)>,
        chunk: &'a Chunk,
    },
    /// Dictionary codes that are members of a set.
    Codes {
        codes: Integers<'a>,
        set: IntegerSet,
        chunk: &'a Chunk,
    },
    Members {
        integers: Integers<'a>,
        members: &'a Members,
        chunk: &'a Chunk,
    },
    /// Values whose hash is in a key filter (a Bloom-style filter of join keys).
    Keys(BoundKeys<'a>),
    /// Strings that match a pattern, tested by an automaton.
    Texts {
        texts: Texts<'a>,
        chunk: &'a Chunk,
    },
    Floats {
        floats: Floats<'a>,
        op: CompareOp,
        literal: f64,
        chunk: &'a Chunk,
    },
    Columns {
        op: CompareOp,
        left: Integers<'a>,
        right: Integers<'a>,
        general: &'a Compiled,
    },
    Lanes {
        op: CompareOp,
        left: LaneId,
        right: LaneId,
        general: &'a Compiled,
    },
    General(&'a Compiled),
}

impl Filter {
    /// Binds the filter to the chunks of `group`. `memo` must have the results of [`Filter::ask_dictionaries`] for
    /// `group`.
    ///
    /// # Errors
    /// `Invalid` when a predicate fails on NULL, which does not happen for well-typed filters.
    pub(crate) fn bind<'a>(&'a self, group: &'a RowGroup, memo: &'a FilterMemo) -> Result<BoundFilter<'a>> {
        let lanes = self.lanes.bind(group);
        let root = bind(&self.root, true, group, &lanes, &mut memo.known())?;
        Ok(BoundFilter { root, lanes, group })
    }
}

/// Binds `predicate`, or its negation if `wanted` is false.
fn bind<'a>(
    predicate: &'a Predicate,
    wanted: bool,
    group: &'a RowGroup,
    lanes: &BoundLanes<'a>,
    known: &mut Known<'a>,
) -> Result<Bound<'a>> {
    Ok(match predicate {
        Predicate::Known(value) => Bound::Known(*value == Some(wanted)),
        Predicate::And(of) | Predicate::Or(of) => {
            let order = known.order()?;
            let bind = |part| bind(part, wanted, group, lanes, known);
            let bound = of.parts.iter().map(bind).collect::<Result<_>>()?;
            let all = matches!(predicate, Predicate::And(_)) == wanted;
            if all { Bound::All(bound, order) } else { Bound::Any(bound, order) }
        }
        Predicate::Not(inner) => bind(inner, !wanted, group, lanes, known)?,
        Predicate::IsNull(column) => {
            let chunk = &*group.chunks[*column];
            if chunk.null_count() == 0 { Bound::Known(!wanted) } else { Bound::Null(chunk, wanted) }
        }
        Predicate::Leaf(leaf) => match bind_leaf(leaf, group, lanes, known.matches()?)? {
            Outcome::Known(value) => Bound::Known(value == wanted),
            Outcome::Test(test) => Bound::Leaf(test, wanted),
        },
    })
}

/// Outcome of binding a leaf (a condition without AND, OR and NOT) to its chunk.
enum Outcome<'a> {
    /// The test has this outcome for all rows, and no row is NULL.
    Known(bool),
    Test(Test<'a>),
}

/// Binds a leaf. `matches` tells for each entry of the leaf's dictionary whether the leaf is true for it; `None` if the
/// dictionary does not decide the leaf.
fn bind_leaf<'a>(
    leaf: &'a Leaf,
    group: &'a RowGroup,
    lanes: &BoundLanes<'a>,
    matches: Option<BooleanBuffer>,
) -> Result<Outcome<'a>> {
    if let (Some((column, dictionary)), Some(matches)) = (leaf.dictionary(group), matches)
        && let Some(outcome) = in_dictionary(&leaf.general, column, dictionary, group, &matches)?
    {
        return Ok(outcome);
    }
    let general = Outcome::Test(Test::General(&leaf.general));
    Ok(match &leaf.form {
        Form::Range { column, low, high } => {
            let chunk = &*group.chunks[*column];
            match chunk.integers() {
                Some(integers) => in_range(integers, *low, *high, chunk),
                None => general,
            }
        }
        Form::Members { column, members } => {
            let chunk = &*group.chunks[*column];
            match chunk.integers() {
                Some(integers) if !members.has_null() => in_members(integers, members, chunk),
                _ => general,
            }
        }
        Form::Keys { columns, filter } => match columns[..] {
            [column] if group.chunks[column].dictionary().is_some() => general,
            _ => match BoundKeys::new(columns, filter, group) {
                Some(keys) => Outcome::Test(Test::Keys(keys)),
                None => general,
            },
        },
        Form::Float { column, op, literal } => {
            let chunk = &*group.chunks[*column];
            match chunk.floats() {
                Some(floats) => Outcome::Test(Test::Floats { floats, op: *op, literal: *literal, chunk }),
                None => general,
            }
        }
        Form::Bytes { column, texts } => {
            let chunk = &*group.chunks[*column];
            let automaton =
                texts.as_ref().filter(|_| chunk.dictionary().is_none()).and_then(Searched::automaton);
            match automaton.and_then(|automaton| chunk.texts(automaton)) {
                Some(texts) => Outcome::Test(Test::Texts { texts, chunk }),
                None => general,
            }
        }
        Form::Lanes { op, left, right } => {
            if lanes.interval(*left).is_none() || lanes.interval(*right).is_none() {
                return Ok(general);
            }
            let (op, general) = (*op, &leaf.general);
            Outcome::Test(match (lanes.integers(*left), lanes.integers(*right)) {
                (Some(left), Some(right)) => Test::Columns { op, left, right, general },
                _ => Test::Lanes { op, left: *left, right: *right, general },
            })
        }
        Form::General => general,
    })
}

fn in_range<'a>(integers: Integers<'a>, low: i128, high: i128, chunk: &'a Chunk) -> Outcome<'a> {
    let (min, max) = (i128::from(integers.min()), i128::from(integers.max()));
    if chunk.null_count() == 0 {
        if low > high || high < min || max < low {
            return Outcome::Known(false);
        }
        if low <= min && max <= high {
            return Outcome::Known(true);
        }
    }
    Outcome::Test(Test::Ranges { integers, ranges: vec![(low, high)], chunk })
}

/// Tests membership in a list: by ranges if the members within the chunk's bounds form few of them, otherwise by
/// look-up.
fn in_members<'a>(integers: Integers<'a>, members: &'a Members, chunk: &'a Chunk) -> Outcome<'a> {
    match members.runs(integers.min(), integers.max(), RUNS_MAX) {
        Some(runs) if runs.is_empty() && chunk.null_count() == 0 => Outcome::Known(false),
        Some(ranges) => Outcome::Test(Test::Ranges { integers, ranges, chunk }),
        None => Outcome::Test(Test::Members { integers, members, chunk }),
    }
}

/// Tests a predicate that is true for the dictionary entries whose bit is set in `matches`, by ranges or a set of
/// codes. Returns `None` if the predicate is not NULL for NULL, because then codes alone do not decide it.
fn in_dictionary<'a>(
    predicate: &Compiled,
    column: usize,
    dictionary: Dictionary<'a>,
    group: &'a RowGroup,
    matches: &BooleanBuffer,
) -> Result<Option<Outcome<'a>>> {
    let (codes, chunk) = (dictionary.codes(), &*group.chunks[column]);
    if chunk.null_count() > 0 {
        let null = arrow_array::new_null_array(chunk.data_type(), 1);
        if predicate.array(&Frame::new(1, vec![(column, null)]))?.null_count() == 0 {
            return Ok(None);
        }
    }
    let runs = runs(matches);
    Ok(Some(match runs.len() {
        0 if chunk.null_count() == 0 => Outcome::Known(false),
        1 if chunk.null_count() == 0 && matches.count_set_bits() == matches.len() => Outcome::Known(true),
        0..=RUNS_MAX => Outcome::Test(Test::Ranges { integers: codes, ranges: runs, chunk }),
        _ => {
            let set = IntegerSet::new(0, matches.len(), |code| matches.value(code));
            Outcome::Test(Test::Codes { codes, set, chunk })
        }
    }))
}

/// Returns the runs of consecutive set bits, each as its first and last position.
fn runs(values: &BooleanBuffer) -> Vec<(i128, i128)> {
    let slices = values.set_slices();
    slices.map(|(start, end)| (start as i128, end as i128 - 1)).collect()
}
