//! Stores of accumulators: the running values of all groups (such as their sums), in one vector per accumulator.
//!
//! The value of a group that has seen no row is the neutral element of the operation. An accumulator that counts rows
//! tells whether a group has seen any.

use super::floats;
use super::fold::{combine, for_fold, neutral};
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type};
use arrow_array::{Array, ArrayRef, BooleanArray};
use arrow_buffer::{BooleanBuffer, i256};
use arrow_schema::DataType;
use farpool_columns::working;
use farpool_model::{Error, Fold, Literal, Pick, Result, Value, schema, with_integer};
use farpool_statistics::States;
use std::cmp::Ordering;

/// Running values of one accumulator, by group.
#[derive(Debug)]
pub(crate) enum Store {
    /// A row count that is not computed, because it is only compared with 0 and every group is known to have rows.
    Present,
    Count(Vec<i64>),
    /// Exact sums of integers.
    Sum(Sums),
    FloatSum(Vec<f64>),
    /// Folds of integers and booleans.
    IntFold {
        values: Vec<i128>,
        fold: Fold,
    },
    FloatPick {
        values: Vec<f64>,
        pick: Pick,
    },
    BytesPick {
        values: Vec<Option<Box<[u8]>>>,
        pick: Pick,
        bytes: usize,
    },
    /// States of sketches or moments.
    States(States),
}

/// Exact sums of integers. They have 64 bits until one of them overflows, and then 128 bits. If one of those overflows,
/// `carries` has the signed number of overflows of each sum.
#[derive(Debug)]
pub(crate) enum Sums {
    Narrow(Vec<i64>),
    Wide { low: Vec<i128>, carries: Vec<i64> },
}

/// Values to be added to groups.
pub(crate) struct Input<'a> {
    pub(super) array: &'a ArrayRef,
    /// Group of each row; `None` if all rows belong to group 0.
    pub(super) groups: Option<&'a [u32]>,
    /// Rows that count; `None` if all do.
    pub(super) mask: Option<&'a BooleanArray>,
}

impl Store {
    /// Creates a store of counts without groups.
    pub(super) fn counts() -> Store {
        Store::Count(Vec::new())
    }

    /// Creates a store of sums without groups, for values of type `argument`.
    pub(super) fn sums(argument: &DataType) -> Store {
        if argument.is_floating() {
            Store::FloatSum(Vec::new())
        } else {
            Store::Sum(Sums::Narrow(Vec::new()))
        }
    }

    /// Creates a store of folds (such as minimum) without groups, for values of type `argument`.
    pub(super) fn folds(fold: Fold, argument: &DataType) -> Store {
        match fold {
            Fold::Pick(pick) if argument.is_floating() => Store::FloatPick { values: Vec::new(), pick },
            Fold::Pick(pick) if schema::is_bytes(argument) => {
                Store::BytesPick { values: Vec::new(), pick, bytes: 0 }
            }
            Fold::Pick(_) | Fold::Bits(_) => Store::IntFold { values: Vec::new(), fold },
        }
    }

    /// Creates a store with these counts.
    pub(super) fn of_counts(counts: Vec<i64>) -> Store {
        Store::Count(counts)
    }

    /// Creates a store with these sums.
    pub(super) fn of_sums(sums: Vec<i64>) -> Store {
        Store::Sum(Sums::Narrow(sums))
    }

    /// Creates a store with these folds of integers.
    pub(super) fn of_folds(values: Vec<i128>, fold: Fold) -> Store {
        Store::IntFold { values, fold }
    }

    /// Grows the store to `groups` groups. New groups have no values.
    pub(super) fn resize(&mut self, groups: usize) {
        match self {
            Store::Present => {}
            Store::Count(values) => resize(values, groups, 0),
            Store::Sum(sums) => sums.resize(groups),
            Store::FloatSum(values) => resize(values, groups, 0.0),
            Store::IntFold { values, fold } => resize(values, groups, neutral(*fold)),
            Store::FloatPick { values, pick } => resize(values, groups, neutral_float(*pick)),
            Store::BytesPick { values, .. } => values.resize(groups, None),
            Store::States(states) => states.resize(groups),
        }
    }

    /// Returns the bytes of memory that the store takes.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Store::Present => 0,
            Store::Count(values) => values.capacity() * 8,
            Store::Sum(Sums::Narrow(sums)) => sums.capacity() * 8,
            Store::Sum(Sums::Wide { low, carries }) => low.capacity() * 16 + carries.capacity() * 8,
            Store::FloatSum(values) | Store::FloatPick { values, .. } => values.capacity() * 8,
            Store::IntFold { values, .. } => values.capacity() * 16,
            Store::BytesPick { values, bytes, .. } => values.capacity() * 16 + bytes,
            Store::States(states) => states.bytes_held(),
        }
    }

    /// Adds `rows` rows to the counts of their groups.
    pub(super) fn count_rows(&mut self, rows: usize, groups: Option<&[u32]>, mask: Option<&BooleanArray>) {
        let counts = match self {
            Store::Present => return,
            Store::Count(counts) => counts,
            _ => unreachable!("only counts count rows"),
        };
        match (groups, mask) {
            (None, None) => counts[0] += rows as i64,
            (None, Some(mask)) => counts[0] += mask.true_count() as i64,
            (Some(groups), None) => groups.iter().for_each(|g| counts[*g as usize] += 1),
            (Some(groups), Some(mask)) => {
                mask.values().set_indices().for_each(|row| counts[groups[row] as usize] += 1);
            }
        }
    }

    /// Adds the values that are not NULL to their groups.
    pub(super) fn update(&mut self, input: &Input<'_>) -> Result<()> {
        match self {
            Store::Present => {}
            Store::States(_) => return Err(Error::internal("a state is made of whole columns")),
            Store::Count(counts) if input.groups.is_none() => {
                counts[0] += input.valid().map_or(input.array.len(), |valid| valid.count_set_bits()) as i64;
            }
            Store::Count(counts) => input.for_each_valid(|group, _| counts[group] += 1),
            Store::Sum(sums) => return input.for_each_int(|group, value| sums.add(group, value)),
            Store::FloatSum(values) if input.groups.is_none() => values[0] += input.sum_of_floats()?,
            Store::FloatSum(values) => return input.for_each_float(|group, value| values[group] += value),
            Store::IntFold { values, fold } => {
                return for_fold!(*fold, combine => input.for_each_int(|group, value| {
                    values[group] = combine(values[group], value);
                }));
            }
            Store::FloatPick { values, pick } => {
                let pick = *pick;
                return input.for_each_float(|group, value| keep_float(&mut values[group], value, pick));
            }
            Store::BytesPick { values, pick, bytes } => {
                let pick = *pick;
                let mut keep = |group: usize, value: &[u8]| {
                    *bytes = bytes.wrapping_add_signed(keep_bytes(&mut values[group], value, pick));
                };
                match input.array.data_type() {
                    DataType::Utf8View => {
                        let array = input.array.as_string_view();
                        input.for_each_valid(|group, row| keep(group, array.value(row).as_bytes()));
                    }
                    _ => {
                        let array = input.array.as_binary_view();
                        input.for_each_valid(|group, row| keep(group, array.value(row)));
                    }
                }
            }
        }
        Ok(())
    }

    /// Adds integers to their groups (with `groups` `None`, to group 0), or counts them. Leaves out rows whose bit in
    /// `valid` is clear.
    pub(super) fn update_lanes(&mut self, groups: Option<&[u32]>, values: &[i64], valid: Option<&[u64]>) {
        let group = |row: usize| groups.map_or(0, |g| g[row] as usize);
        match self {
            Store::Present => {}
            Store::Count(counts) => each_row(values.len(), valid, |row| counts[group(row)] += 1),
            Store::Sum(sums) => {
                each_row(values.len(), valid, |row| sums.add_narrow(group(row), values[row]));
            }
            Store::IntFold { values: folded, fold } => {
                for_fold!(*fold, combine => each_row(values.len(), valid, |row| {
                    let folded = &mut folded[group(row)];
                    *folded = combine(*folded, i128::from(values[row]));
                }));
            }
            Store::FloatSum(_) | Store::FloatPick { .. } | Store::BytesPick { .. } | Store::States(_) => {
                unreachable!("lanes hold integers")
            }
        }
    }

    /// Adds a partial value, computed from several rows, to a group: a count, sum or fold.
    pub(super) fn add_partial(&mut self, group: usize, value: i64) {
        match self {
            Store::Present => {}
            Store::Count(counts) => counts[group] += value,
            Store::Sum(sums) => sums.add_narrow(group, value),
            Store::IntFold { values, fold } => {
                values[group] = combine(*fold, values[group], i128::from(value));
            }
            Store::FloatSum(_) | Store::FloatPick { .. } | Store::BytesPick { .. } | Store::States(_) => {
                unreachable!("lanes hold integers")
            }
        }
    }

    /// Folds one value into a group: the minimum or maximum of the accumulator's argument in a row group, taken from
    /// a zone map.
    pub(super) fn keep(&mut self, group: usize, value: &Literal) {
        match (self, value.value()) {
            (Store::IntFold { values, fold }, Value::Int(value)) => {
                values[group] = combine(*fold, values[group], *value);
            }
            (Store::IntFold { values, fold }, Value::Bool(value)) => {
                values[group] = combine(*fold, values[group], i128::from(*value));
            }
            (Store::FloatPick { values, pick }, Value::Float(value)) => {
                keep_float(&mut values[group], *value, *pick);
            }
            (Store::BytesPick { values, pick, bytes }, value) => {
                let value = match value {
                    Value::Text(text) => text.as_bytes(),
                    Value::Bytes(bytes) => bytes,
                    _ => unreachable!("a bound has its column's type"),
                };
                *bytes = bytes.wrapping_add_signed(keep_bytes(&mut values[group], value, *pick));
            }
            _ => unreachable!("a bound has its column's type"),
        }
    }

    /// Merges the groups `from` of `other` into the groups `to` of this store, pair by pair.
    pub(super) fn merge(&mut self, other: &Store, from: &[u32], to: &[u32]) -> Result<()> {
        let pairs = from.iter().zip(to).map(|(f, t)| (*f as usize, *t as usize));
        match (self, other) {
            (Store::Present, Store::Present) => {}
            (Store::Count(values), Store::Count(others)) => pairs.for_each(|(f, t)| values[t] += others[f]),
            (Store::FloatSum(values), Store::FloatSum(others)) => {
                pairs.for_each(|(f, t)| values[t] += others[f]);
            }
            (Store::Sum(sums), Store::Sum(others)) => pairs.for_each(|(f, t)| sums.add_sum(t, others, f)),
            (Store::IntFold { values, fold }, Store::IntFold { values: others, .. }) => {
                for_fold!(*fold, combine => pairs.for_each(|(f, t)| values[t] = combine(values[t], others[f])));
            }
            (Store::FloatPick { values, pick }, Store::FloatPick { values: others, .. }) => {
                pairs.for_each(|(f, t)| keep_float(&mut values[t], others[f], *pick));
            }
            (Store::BytesPick { values, pick, bytes }, Store::BytesPick { values: others, .. }) => pairs
                .for_each(|(f, t)| {
                    if let Some(value) = &others[f] {
                        *bytes = bytes.wrapping_add_signed(keep_bytes(&mut values[t], value, *pick));
                    }
                }),
            (Store::States(states), Store::States(others)) => return states.merge(others, from, to),
            _ => return Err(Error::internal("partial aggregations of different programs")),
        }
        Ok(())
    }

    /// Returns the sketches or moments of this store.
    ///
    /// # Errors
    /// `Internal` when the store has none.
    pub(super) fn states(&mut self) -> Result<&mut States> {
        match self {
            Store::States(states) => Ok(states),
            _ => Err(Error::internal("a value where a state is wanted")),
        }
    }

    /// Returns the count of a group.
    pub(super) fn count(&self, group: usize) -> i64 {
        match self {
            Store::Present => 1,
            Store::Count(counts) => counts[group],
            _ => unreachable!("only counts count"),
        }
    }
}

impl Sums {
    fn resize(&mut self, groups: usize) {
        match self {
            Sums::Narrow(sums) => resize(sums, groups, 0),
            Sums::Wide { low, carries } => {
                resize(low, groups, 0);
                if !carries.is_empty() {
                    carries.resize(groups, 0);
                }
            }
        }
    }

    #[inline]
    fn add_narrow(&mut self, group: usize, value: i64) {
        if let Sums::Narrow(sums) = self
            && let Some(sum) = sums[group].checked_add(value)
        {
            sums[group] = sum;
            return;
        }
        self.add(group, i128::from(value));
    }

    #[inline]
    fn add(&mut self, group: usize, value: i128) {
        match self {
            Sums::Narrow(sums) => {
                let sum = i64::try_from(value).ok().and_then(|value| sums[group].checked_add(value));
                match sum {
                    Some(sum) => sums[group] = sum,
                    None => {
                        self.widen();
                        self.add(group, value);
                    }
                }
            }
            Sums::Wide { low, carries } => {
                let (sum, overflow) = low[group].overflowing_add(value);
                low[group] = sum;
                if overflow {
                    carries.resize(low.len(), 0);
                    carries[group] += if value < 0 { -1 } else { 1 };
                }
            }
        }
    }

    #[cold]
    fn widen(&mut self) {
        if let Sums::Narrow(sums) = self {
            let low = sums.iter().map(|sum| i128::from(*sum)).collect();
            *self = Sums::Wide { low, carries: Vec::new() };
        }
    }

    fn add_sum(&mut self, group: usize, other: &Sums, from: usize) {
        match other {
            Sums::Narrow(sums) => self.add_narrow(group, sums[from]),
            Sums::Wide { low, carries } => {
                self.add(group, low[from]);
                if let Some(others) = carries.get(from).filter(|carries| **carries != 0) {
                    self.widen();
                    let Sums::Wide { low, carries } = self else { return };
                    carries.resize(low.len(), 0);
                    carries[group] += others;
                }
            }
        }
    }

    /// Returns the sum of a group; `None` if it does not fit 128 bits.
    pub(super) fn exact(&self, group: usize) -> Option<i128> {
        match self {
            Sums::Narrow(sums) => Some(i128::from(sums[group])),
            Sums::Wide { low, carries } => {
                let carried = carries.get(group).is_some_and(|c| *c != 0);
                (!carried).then(|| low[group])
            }
        }
    }

    /// Returns the sum of a group in 256 bits.
    pub(super) fn wide(&self, group: usize) -> i256 {
        match self {
            Sums::Narrow(sums) => i256::from_i128(i128::from(sums[group])),
            Sums::Wide { low, carries } => {
                let low = low[group];
                let carries = carries.get(group).copied().unwrap_or(0);
                i256::from_parts(low.cast_unsigned(), i128::from(carries) + if low < 0 { -1 } else { 0 })
            }
        }
    }
}

impl Input<'_> {
    #[inline]
    fn for_each_valid(&self, mut f: impl FnMut(usize, usize)) {
        let group = |row: usize| self.groups.map_or(0, |g| g[row] as usize);
        match self.valid() {
            None => (0..self.array.len()).for_each(|row| f(group(row), row)),
            Some(valid) => valid.set_indices().for_each(|row| f(group(row), row)),
        }
    }

    fn valid(&self) -> Option<BooleanBuffer> {
        let nulls = self.array.nulls().map(|n| n.inner());
        match (nulls, self.mask.map(BooleanArray::values)) {
            (None, None) => None,
            (Some(valid), None) | (None, Some(valid)) => Some(valid.clone()),
            (Some(nulls), Some(mask)) => Some(nulls & mask),
        }
    }

    #[inline]
    fn for_each_int(&self, mut f: impl FnMut(usize, i128)) -> Result<()> {
        if let Some(booleans) = self.array.as_boolean_opt() {
            let values = booleans.values();
            self.for_each_valid(|group, row| f(group, i128::from(values.value(row))));
            return Ok(());
        }
        let data_type = self.array.data_type();
        with_integer!(
            data_type,
            Held => {
                let values = self.array.as_primitive::<Held>().values();
                self.for_each_valid(|group, row| f(group, i128::from(values[row])));
            },
            return Err(Error::internal(format!("{data_type} does not hold integers")))
        );
        Ok(())
    }

    /// Returns the sum of the values that the mask does not exclude.
    fn sum_of_floats(&self) -> Result<f64> {
        let valid = self.valid().map(|valid| crate::bits::of_buffer(&valid));
        let valid = valid.as_deref();
        match self.array.data_type() {
            DataType::Float32 => Ok(floats::sum(self.array.as_primitive::<Float32Type>().values(), valid)),
            DataType::Float64 => Ok(floats::sum(self.array.as_primitive::<Float64Type>().values(), valid)),
            other => Err(Error::internal(format!("{other} does not hold floats"))),
        }
    }

    #[inline]
    fn for_each_float(&self, mut f: impl FnMut(usize, f64)) -> Result<()> {
        match self.array.data_type() {
            DataType::Float32 => {
                let values = self.array.as_primitive::<Float32Type>().values();
                self.for_each_valid(|group, row| f(group, f64::from(values[row])));
            }
            DataType::Float64 => {
                let values = self.array.as_primitive::<Float64Type>().values();
                self.for_each_valid(|group, row| f(group, values[row]));
            }
            other => return Err(Error::internal(format!("{other} does not hold floats"))),
        }
        Ok(())
    }
}

fn resize<T: Clone>(values: &mut Vec<T>, groups: usize, neutral: T) {
    working::reserve(values, groups.saturating_sub(values.len()));
    values.resize(groups, neutral);
}

#[inline]
fn each_row(rows: usize, valid: Option<&[u64]>, f: impl FnMut(usize)) {
    match valid {
        None => (0..rows).for_each(f),
        Some(valid) => crate::bits::for_each(valid, f),
    }
}

/// Returns the neutral element of a pick (minimum, maximum or any value) of floats: the value that every other one
/// replaces. NaN counts as the greatest value, whatever its sign.
fn neutral_float(pick: Pick) -> f64 {
    match pick {
        Pick::Least => f64::NAN,
        Pick::Greatest | Pick::Any => f64::NEG_INFINITY,
    }
}

/// Replaces `kept` by `value` if the pick (minimum, maximum) prefers `value`. `Pick::Any` is implemented as the
/// maximum, as for integers.
#[inline]
fn keep_float(kept: &mut f64, value: f64, pick: Pick) {
    let wanted = match pick {
        Pick::Least => Ordering::Less,
        Pick::Greatest | Pick::Any => Ordering::Greater,
    };
    if order(value, *kept) == wanted {
        *kept = value;
    }
}

/// Compares floats in total order, except that NaN is the greatest value, whatever its sign.
fn order(left: f64, right: f64) -> Ordering {
    match (left.is_nan(), right.is_nan()) {
        (false, false) => left.total_cmp(&right),
        (left, right) => left.cmp(&right),
    }
}

/// Replaces `kept` by `value` if the pick (minimum, maximum) prefers `value`. Returns the number of bytes by which
/// the kept value has grown. For `Pick::Any` the first string stays, so that no other is compared or copied.
fn keep_bytes(kept: &mut Option<Box<[u8]>>, value: &[u8], pick: Pick) -> isize {
    let replaces = match (kept.as_deref(), pick) {
        (None, _) => true,
        (Some(kept), Pick::Least) => value < kept,
        (Some(kept), Pick::Greatest) => value > kept,
        (Some(_), Pick::Any) => false,
    };
    if !replaces {
        return 0;
    }
    let before = kept.as_ref().map_or(0, |k| k.len());
    *kept = Some(value.into());
    value.len() as isize - before as isize
}
