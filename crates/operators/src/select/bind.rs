//! A filter bound to the chunks of one row group, and its evaluation batch by batch.

use super::compile::{Filter, Form, Leaf, Predicate};
use super::truth::Truth;
use crate::bits;
use crate::evaluate::{Compiled, Frame, Members};
use crate::lanes::{BoundLanes, LaneBuffers, LaneId, RowSet};
use crate::selection::Selection;
use arrow_array::cast::AsArray;
use arrow_array::{Array, BooleanArray};
use farpool_columns::{Chunk, Dictionary, Integers, RowGroup};
use farpool_model::{CompareOp, KeySet, Result};
use std::ops::Range;

/// Runs of matching codes up to which each run is compared on the packed lanes; above, codes are unpacked
/// and looked up.
const RUNS_MAX: usize = 3;

/// A filter bound to one row group.
pub(crate) struct BoundFilter<'a> {
    root: Bound<'a>,
    lanes: BoundLanes<'a>,
    group: &'a RowGroup,
}

enum Bound<'a> {
    Known(Option<bool>),
    And(Vec<Bound<'a>>),
    Or(Vec<Bound<'a>>),
    Not(Box<Bound<'a>>),
    IsNull(&'a Chunk),
    /// Codes or values within any of some closed ranges.
    Ranges {
        integers: Integers<'a>,
        ranges: Vec<(i128, i128)>,
        chunk: &'a Chunk,
    },
    /// A truth value for each code, the first belonging to code `min()`.
    Table {
        codes: Integers<'a>,
        table: Vec<bool>,
        chunk: &'a Chunk,
    },
    Members {
        integers: Integers<'a>,
        members: &'a Members,
        chunk: &'a Chunk,
    },
    Set {
        integers: Integers<'a>,
        set: &'a KeySet,
        chunk: &'a Chunk,
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
    /// Binds the filter to the chunks of `group`.
    ///
    /// # Errors
    /// `Invalid` when a predicate fails on a value of a dictionary; in practice never.
    pub(crate) fn bind<'a>(&'a self, group: &'a RowGroup) -> Result<BoundFilter<'a>> {
        let lanes = self.lanes.bind(group);
        let root = bind(&self.root, group, &lanes)?;
        Ok(BoundFilter { root, lanes, group })
    }
}

impl BoundFilter<'_> {
    /// The rows of `within` that pass; only those are looked at.
    ///
    /// # Errors
    /// `Invalid` when the filter fails on one of the rows.
    pub(crate) fn select(&self, within: &Selection, buffers: &mut LaneBuffers) -> Result<Selection> {
        let rows = within.range.len();
        let alive = within.bits.clone().unwrap_or_else(|| bits::ones(rows));
        let mut run = Run { filter: self, range: within.range.clone(), buffers };
        let mut yes = match &self.root {
            // Nobody asks whether a row that does not pass is false or NULL: later parts skip both.
            Bound::And(parts) => run.all(parts, &alive, true)?.yes,
            root => run.truth(root, &alive)?.yes,
        };
        if within.bits.is_some() {
            bits::and(&mut yes, &alive);
        }
        Ok(Selection::new(within.range.clone(), yes))
    }
}

fn bind<'a>(predicate: &'a Predicate, group: &'a RowGroup, lanes: &BoundLanes<'a>) -> Result<Bound<'a>> {
    let all = |parts: &'a [Predicate]| {
        parts.iter().map(|part| bind(part, group, lanes)).collect::<Result<Vec<_>>>()
    };
    Ok(match predicate {
        Predicate::Known(value) => Bound::Known(*value),
        Predicate::And(parts) => Bound::And(all(parts)?),
        Predicate::Or(parts) => Bound::Or(all(parts)?),
        Predicate::Not(inner) => Bound::Not(Box::new(bind(inner, group, lanes)?)),
        Predicate::IsNull(column) => Bound::IsNull(&group.chunks[*column]),
        Predicate::Leaf(leaf) => bind_leaf(leaf, group, lanes)?,
    })
}

fn bind_leaf<'a>(leaf: &'a Leaf, group: &'a RowGroup, lanes: &BoundLanes<'a>) -> Result<Bound<'a>> {
    let general = Bound::General(&leaf.general);
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
        Form::Bytes { column } => {
            let chunk = &*group.chunks[*column];
            match chunk.dictionary() {
                Some(dictionary) if !leaf.general.is_fallible() => {
                    in_dictionary(&leaf.general, *column, dictionary, chunk)?.unwrap_or(general)
                }
                _ => general,
            }
        }
        Form::Lanes { op, left, right } => {
            let bound = lanes.interval(*left).is_some() && lanes.interval(*right).is_some();
            if !bound {
                return Ok(general);
            }
            Bound::Lanes { op: *op, left: *left, right: *right, general: &leaf.general }
        }
        Form::General => general,
    })
}

fn in_range<'a>(integers: Integers<'a>, low: i128, high: i128, chunk: &'a Chunk) -> Bound<'a> {
    let (min, max) = (i128::from(integers.min()), i128::from(integers.max()));
    if chunk.null_count() == 0 {
        if low > high || high < min || max < low {
            return Bound::Known(Some(false));
        }
        if low <= min && max <= high {
            return Bound::Known(Some(true));
        }
    }
    Bound::Ranges { integers, ranges: vec![(low, high)], chunk }
}

/// Lists with few members inside the chunk's bounds become ranges; long ones are looked up.
fn in_members<'a>(integers: Integers<'a>, members: &'a Members, chunk: &'a Chunk) -> Bound<'a> {
    if let Some(set) = members.set() {
        return in_set(integers, set, chunk);
    }
    let (min, max) = (i128::from(integers.min()), i128::from(integers.max()));
    let mut runs: Vec<(i128, i128)> = Vec::new();
    for value in members.ints().iter().copied().filter(|v| (min..=max).contains(v)) {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == value => *last = value,
            _ => runs.push((value, value)),
        }
    }
    match runs.len() {
        0 if chunk.null_count() == 0 => Bound::Known(Some(false)),
        0..=RUNS_MAX => Bound::Ranges { integers, ranges: runs, chunk },
        _ => Bound::Members { integers, members, chunk },
    }
}

/// A set is looked up unless none of its keys can be in the chunk.
fn in_set<'a>(integers: Integers<'a>, set: &'a KeySet, chunk: &'a Chunk) -> Bound<'a> {
    if chunk.null_count() == 0 && (set.max() < integers.min() || integers.max() < set.min()) {
        return Bound::Known(Some(false));
    }
    Bound::Set { integers, set, chunk }
}

/// The predicate on a dictionary's values, as ranges or a table of codes. `None` when the predicate is
/// NULL for some value that is not, or not NULL for NULL: then codes do not tell.
fn in_dictionary<'a>(
    predicate: &Compiled,
    column: usize,
    dictionary: Dictionary<'a>,
    chunk: &'a Chunk,
) -> Result<Option<Bound<'a>>> {
    let values = dictionary.values();
    if chunk.null_count() > 0 {
        let null = arrow_array::new_null_array(values.data_type(), 1);
        if predicate.array(&Frame::new(1, vec![(column, null)]))?.null_count() == 0 {
            return Ok(None);
        }
    }
    let frame = Frame::new(values.len(), vec![(column, values.clone())]);
    let matches = predicate.array(&frame)?;
    let matches = matches.as_boolean();
    if matches.null_count() > 0 {
        return Ok(None);
    }
    let codes = dictionary.codes();
    let runs = runs(matches);
    Ok(Some(match runs.len() {
        0 if chunk.null_count() == 0 => Bound::Known(Some(false)),
        1 if chunk.null_count() == 0 && matches.true_count() == matches.len() => Bound::Known(Some(true)),
        0..=RUNS_MAX => Bound::Ranges { integers: codes, ranges: runs, chunk },
        _ => {
            let first = usize::try_from(codes.min()).unwrap_or(0);
            let last = usize::try_from(codes.max()).unwrap_or(0).min(matches.len().saturating_sub(1));
            Bound::Table { codes, table: (first..=last).map(|i| matches.value(i)).collect(), chunk }
        }
    }))
}

/// The runs of true values as closed ranges of their positions.
fn runs(values: &BooleanArray) -> Vec<(i128, i128)> {
    let slices = values.values().set_slices();
    slices.map(|(start, end)| (start as i128, end as i128 - 1)).collect()
}

/// One evaluation over one batch.
struct Run<'r, 'a> {
    filter: &'r BoundFilter<'a>,
    range: Range<usize>,
    buffers: &'r mut LaneBuffers,
}

impl Run<'_, '_> {
    /// The outcome on the rows of `alive`; on others it may be anything.
    fn truth(&mut self, bound: &Bound<'_>, alive: &[u64]) -> Result<Truth> {
        let rows = self.range.len();
        Ok(match bound {
            Bound::Known(value) => Truth::known(*value, rows),
            Bound::And(parts) => self.all(parts, alive, false)?,
            Bound::Or(parts) => self.any(parts, alive)?,
            Bound::Not(inner) => self.truth(inner, alive)?.not(rows),
            Bound::IsNull(chunk) => {
                let yes = self.validity(chunk).map_or_else(|| bits::zeros(rows), |v| bits::not(&v, rows));
                Truth { yes, null: None }
            }
            Bound::Ranges { integers, ranges, chunk } => {
                let mut yes = bits::zeros(rows);
                for (low, high) in ranges {
                    bits::or(&mut yes, &self.in_range(integers, *low, *high));
                }
                Truth::with_validity(yes, self.validity(chunk), rows)
            }
            Bound::Table { codes, table, chunk } => {
                let min = codes.min();
                let yes = self.per_value(codes, |code| table[(code - min) as usize]);
                Truth::with_validity(yes, self.validity(chunk), rows)
            }
            Bound::Members { integers, members, chunk } => {
                let yes = self.per_value(integers, |v| members.has_int(v.into()));
                Truth::with_validity(yes, self.validity(chunk), rows)
            }
            Bound::Set { integers, set, chunk } => {
                let yes = self.per_value(integers, |key| set.contains(key));
                Truth::with_validity(yes, self.validity(chunk), rows)
            }
            Bound::Lanes { op, left, right, general } => self.lanes(*op, *left, *right, general),
            Bound::General(compiled) => self.general(compiled, alive)?,
        })
    }

    fn all(&mut self, parts: &[Bound<'_>], alive: &[u64], only_true: bool) -> Result<Truth> {
        let mut sofar = Truth::known(Some(true), self.range.len());
        let mut alive = alive.to_vec();
        for part in parts {
            if alive.iter().all(|w| *w == 0) {
                break;
            }
            sofar = sofar.and(self.truth(part, &alive)?);
            if only_true {
                bits::and(&mut alive, &sofar.yes);
            } else {
                bits::and(&mut alive, &sofar.not_false());
            }
        }
        Ok(sofar)
    }

    fn any(&mut self, parts: &[Bound<'_>], alive: &[u64]) -> Result<Truth> {
        let mut sofar = Truth::known(Some(false), self.range.len());
        let mut alive = alive.to_vec();
        for part in parts {
            if alive.iter().all(|w| *w == 0) {
                break;
            }
            sofar = sofar.or(self.truth(part, &alive)?);
            bits::and_not(&mut alive, &sofar.yes);
        }
        Ok(sofar)
    }

    fn validity(&self, chunk: &Chunk) -> Option<Vec<u64>> {
        if chunk.null_count() == 0 {
            return None;
        }
        chunk.validity(self.range.clone()).map(|buffer| bits::of_buffer(&buffer))
    }

    fn in_range(&self, integers: &Integers<'_>, low: i128, high: i128) -> Vec<u64> {
        let rows = self.range.len();
        let mut yes = bits::zeros(rows);
        if low > high {
            return yes;
        }
        let (min, max) = (i128::from(integers.min()), i128::from(integers.max()));
        if high < min || max < low {
            return yes;
        }
        match (low <= min, max <= high) {
            (true, true) => return bits::ones(rows),
            (true, false) => integers.compare(CompareOp::LtEq, high, self.range.clone(), &mut yes),
            (false, true) => integers.compare(CompareOp::GtEq, low, self.range.clone(), &mut yes),
            _ if low == high => integers.compare(CompareOp::Eq, low, self.range.clone(), &mut yes),
            // Both lie within the bounds, which are of 64 bits.
            _ => integers.within(low as i64, high as i64, self.range.clone(), &mut yes),
        }
        yes
    }

    fn per_value(&mut self, integers: &Integers<'_>, test: impl Fn(i64) -> bool) -> Vec<u64> {
        let values = self.buffers.scratch();
        integers.unpack(self.range.clone(), values);
        bits::collect(self.range.len(), |row| test(values[row]))
    }

    fn lanes(&mut self, op: CompareOp, left: LaneId, right: LaneId, general: &Compiled) -> Truth {
        let rows = self.range.len();
        let lanes = &self.filter.lanes;
        lanes.evaluate(&[left, right], RowSet::Range(self.range.start, self.range.end), self.buffers);
        let (l, r) = (&self.buffers.values(left)[..rows], &self.buffers.values(right)[..rows]);
        let yes = match op {
            CompareOp::Eq => bits::collect(rows, |i| l[i] == r[i]),
            CompareOp::NotEq => bits::collect(rows, |i| l[i] != r[i]),
            CompareOp::Lt => bits::collect(rows, |i| l[i] < r[i]),
            CompareOp::LtEq => bits::collect(rows, |i| l[i] <= r[i]),
            CompareOp::Gt => bits::collect(rows, |i| l[i] > r[i]),
            CompareOp::GtEq => bits::collect(rows, |i| l[i] >= r[i]),
        };
        let mut valid: Option<Vec<u64>> = None;
        for column in general.columns() {
            let column = self.validity(&self.filter.group.chunks[*column]);
            valid = match (valid, column) {
                (Some(mut l), Some(r)) => {
                    bits::and(&mut l, &r);
                    Some(l)
                }
                (l, r) => l.or(r),
            };
        }
        Truth::with_validity(yes, valid, rows)
    }

    fn general(&self, compiled: &Compiled, alive: &[u64]) -> Result<Truth> {
        let rows = self.range.len();
        let selection = Selection::new(self.range.clone(), alive.to_vec());
        let frame = selection.frame(self.filter.group, compiled.columns())?;
        let values = compiled.array(&frame)?;
        let values = values.as_boolean();
        let null = values.nulls().map(|nulls| bits::of_buffer(&!nulls.inner()));
        let mut yes = bits::of_buffer(values.values());
        if let Some(null) = &null {
            bits::and_not(&mut yes, null);
        }
        match &selection.bits {
            None => Ok(Truth { yes, null }),
            Some(alive) => Ok(Truth {
                yes: spread(&yes, alive, rows),
                null: null.map(|null| spread(&null, alive, rows)),
            }),
        }
    }
}

/// Puts the bits of `packed`, one per set bit of `places`, where those are.
fn spread(packed: &[u64], places: &[u64], rows: usize) -> Vec<u64> {
    let mut out = bits::zeros(rows);
    let mut next = 0;
    bits::for_each(places, |row| {
        out[row / 64] |= u64::from(bits::get(packed, next)) << (row % 64);
        next += 1;
    });
    out
}
