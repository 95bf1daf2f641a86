//! Accumulators: the running values of all groups, a vector per accumulator.
//!
//! Whether a sum or an extreme has seen any value is told by the count that goes with it, not here; a group
//! without values holds the neutral element.

use super::compile::Kind;
use super::floats;
use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{Array, ArrayRef, BooleanArray};
use arrow_buffer::{BooleanBuffer, i256};
use arrow_schema::{DataType, TimeUnit};
use farpool_columns::working;
use farpool_model::{Error, Literal, Result, Value};
use farpool_statistics::States;
use std::cmp::Ordering;

/// The running values of one accumulator.
#[derive(Debug)]
pub(super) enum Store {
    /// At least 1 in every group, and nobody asks for more.
    Present,
    Count(Vec<i64>),
    /// Exact sums of integers.
    Sum(Sums),
    FloatSum(Vec<f64>),
    /// Extremes of integers and booleans.
    IntExtreme {
        values: Vec<i128>,
        wanted: Ordering,
    },
    FloatExtreme {
        values: Vec<f64>,
        wanted: Ordering,
    },
    BytesExtreme {
        values: Vec<Option<Box<[u8]>>>,
        wanted: Ordering,
        bytes: usize,
    },
    /// States of sketches or moments.
    States(States),
}

/// Exact sums of integers: of 64 bits until one overflows; then of 128 bits and, once one of those has
/// overflowed, the signed number of times that each did.
#[derive(Debug)]
pub(super) enum Sums {
    Narrow(Vec<i64>),
    Wide { low: Vec<i128>, carries: Vec<i64> },
}

/// Some values and the groups that they belong to.
pub(super) struct Input<'a> {
    pub(super) array: &'a ArrayRef,
    /// A group per row; `None` when all belong to group 0.
    pub(super) groups: Option<&'a [u32]>,
    /// Rows that count; `None` for all.
    pub(super) mask: Option<&'a BooleanArray>,
}

impl Store {
    /// An accumulator without groups, of an argument of type `argument`.
    pub(super) fn new(kind: Kind, argument: Option<&DataType>) -> Store {
        let wanted = wanted(kind);
        match (kind, argument) {
            (Kind::Count, _) | (_, None) => Store::Count(Vec::new()),
            (Kind::Sum, Some(t)) if t.is_floating() => Store::FloatSum(Vec::new()),
            (Kind::Sum, _) => Store::Sum(Sums::Narrow(Vec::new())),
            (_, Some(t)) if t.is_floating() => Store::FloatExtreme { values: Vec::new(), wanted },
            (_, Some(DataType::Utf8View | DataType::BinaryView)) => {
                Store::BytesExtreme { values: Vec::new(), wanted, bytes: 0 }
            }
            _ => Store::IntExtreme { values: Vec::new(), wanted },
        }
    }

    /// Counts that are known.
    pub(super) fn of_counts(counts: Vec<i64>) -> Store {
        Store::Count(counts)
    }

    /// Sums that are known.
    pub(super) fn of_sums(sums: Vec<i64>) -> Store {
        Store::Sum(Sums::Narrow(sums))
    }

    /// Extremes that are known.
    pub(super) fn of_extremes(values: Vec<i128>, kind: Kind) -> Store {
        Store::IntExtreme { values, wanted: wanted(kind) }
    }

    /// Makes room for `groups` groups.
    pub(super) fn resize(&mut self, groups: usize) {
        match self {
            Store::Present => {}
            Store::Count(values) => resize(values, groups, 0),
            Store::Sum(sums) => sums.resize(groups),
            Store::FloatSum(values) => resize(values, groups, 0.0),
            Store::IntExtreme { values, wanted } => resize(values, groups, neutral_int(*wanted)),
            Store::FloatExtreme { values, wanted } => resize(values, groups, neutral_float(*wanted)),
            Store::BytesExtreme { values, .. } => values.resize(groups, None),
            Store::States(states) => states.resize(groups),
        }
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Store::Present => 0,
            Store::Count(values) => values.capacity() * 8,
            Store::Sum(Sums::Narrow(sums)) => sums.capacity() * 8,
            Store::Sum(Sums::Wide { low, carries }) => low.capacity() * 16 + carries.capacity() * 8,
            Store::FloatSum(values) | Store::FloatExtreme { values, .. } => values.capacity() * 8,
            Store::IntExtreme { values, .. } => values.capacity() * 16,
            Store::BytesExtreme { values, bytes, .. } => values.capacity() * 16 + bytes,
            Store::States(states) => states.bytes_held(),
        }
    }

    /// Adds `rows` rows to the counts.
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

    /// Adds the values that are not NULL.
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
            Store::IntExtreme { values, wanted } => {
                let wanted = *wanted;
                return input.for_each_int(|group, value| keep_int(&mut values[group], value, wanted));
            }
            Store::FloatExtreme { values, wanted } => {
                let wanted = *wanted;
                return input.for_each_float(|group, value| keep_float(&mut values[group], value, wanted));
            }
            Store::BytesExtreme { values, wanted, bytes } => {
                let wanted = *wanted;
                let mut keep = |group: usize, value: &[u8]| {
                    *bytes = bytes.wrapping_add_signed(keep_bytes(&mut values[group], value, wanted));
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

    /// Adds integers on lanes, each to its group (without groups, to 0), or counts them. `valid` has a bit
    /// for each row that counts.
    pub(super) fn update_lanes(&mut self, groups: Option<&[u32]>, values: &[i64], valid: Option<&[u64]>) {
        let group = |row: usize| groups.map_or(0, |g| g[row] as usize);
        match self {
            Store::Present => {}
            Store::Count(counts) => each_row(values.len(), valid, |row| counts[group(row)] += 1),
            Store::Sum(sums) => {
                each_row(values.len(), valid, |row| sums.add_narrow(group(row), values[row]));
            }
            Store::IntExtreme { values: extremes, wanted } => {
                let wanted = *wanted;
                each_row(values.len(), valid, |row| {
                    keep_int(&mut extremes[group(row)], i128::from(values[row]), wanted);
                });
            }
            _ => unreachable!("lanes hold integers"),
        }
    }

    /// Adds an integer that stands for several rows: a partial count, sum or extreme.
    pub(super) fn add_partial(&mut self, group: usize, value: i64) {
        match self {
            Store::Present => {}
            Store::Count(counts) => counts[group] += value,
            Store::Sum(sums) => sums.add_narrow(group, value),
            Store::IntExtreme { values, wanted } => keep_int(&mut values[group], i128::from(value), *wanted),
            _ => unreachable!("lanes hold integers"),
        }
    }

    /// Takes one value into account, a bound of this accumulator's argument.
    pub(super) fn keep(&mut self, group: usize, value: &Literal) {
        match (self, value.value()) {
            (Store::IntExtreme { values, wanted }, Value::Int(value)) => {
                keep_int(&mut values[group], *value, *wanted);
            }
            (Store::IntExtreme { values, wanted }, Value::Bool(value)) => {
                keep_int(&mut values[group], i128::from(*value), *wanted);
            }
            (Store::FloatExtreme { values, wanted }, Value::Float(value)) => {
                keep_float(&mut values[group], *value, *wanted);
            }
            (Store::BytesExtreme { values, wanted, bytes }, value) => {
                let value = match value {
                    Value::Text(text) => text.as_bytes(),
                    Value::Bytes(bytes) => bytes,
                    _ => unreachable!("a bound has its column's type"),
                };
                *bytes = bytes.wrapping_add_signed(keep_bytes(&mut values[group], value, *wanted));
            }
            _ => unreachable!("a bound has its column's type"),
        }
    }

    /// Merges the groups `from` of `other` into the groups `to` of this.
    pub(super) fn merge(&mut self, other: &Store, from: &[u32], to: &[u32]) -> Result<()> {
        let pairs = from.iter().zip(to).map(|(f, t)| (*f as usize, *t as usize));
        match (self, other) {
            (Store::Present, Store::Present) => {}
            (Store::Count(values), Store::Count(others)) => pairs.for_each(|(f, t)| values[t] += others[f]),
            (Store::FloatSum(values), Store::FloatSum(others)) => {
                pairs.for_each(|(f, t)| values[t] += others[f]);
            }
            (Store::Sum(sums), Store::Sum(others)) => pairs.for_each(|(f, t)| sums.add_sum(t, others, f)),
            (Store::IntExtreme { values, wanted }, Store::IntExtreme { values: others, .. }) => {
                pairs.for_each(|(f, t)| keep_int(&mut values[t], others[f], *wanted));
            }
            (Store::FloatExtreme { values, wanted }, Store::FloatExtreme { values: others, .. }) => {
                pairs.for_each(|(f, t)| keep_float(&mut values[t], others[f], *wanted));
            }
            (Store::BytesExtreme { values, wanted, bytes }, Store::BytesExtreme { values: others, .. }) => {
                pairs.for_each(|(f, t)| {
                    if let Some(value) = &others[f] {
                        *bytes = bytes.wrapping_add_signed(keep_bytes(&mut values[t], value, *wanted));
                    }
                })
            }
            (Store::States(states), Store::States(others)) => return states.merge(others, from, to),
            _ => return Err(Error::internal("partial aggregations of different programs")),
        }
        Ok(())
    }

    /// The states.
    ///
    /// # Errors
    /// `Internal` when there are none.
    pub(super) fn states(&mut self) -> Result<&mut States> {
        match self {
            Store::States(states) => Ok(states),
            _ => Err(Error::internal("a value where a state is wanted")),
        }
    }

    /// The count of a group.
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

    /// The sum of a group; `None` when it does not fit 128 bits.
    pub(super) fn exact(&self, group: usize) -> Option<i128> {
        match self {
            Sums::Narrow(sums) => Some(i128::from(sums[group])),
            Sums::Wide { low, carries } => {
                let carried = carries.get(group).is_some_and(|c| *c != 0);
                (!carried).then(|| low[group])
            }
        }
    }

    /// The sum of a group, whatever it is.
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
        macro_rules! each {
            ($t:ty) => {{
                let values = self.array.as_primitive::<$t>().values();
                self.for_each_valid(|group, row| f(group, i128::from(values[row])));
            }};
        }
        match self.array.data_type() {
            DataType::Boolean => {
                let values = self.array.as_boolean().values();
                self.for_each_valid(|group, row| f(group, i128::from(values.value(row))));
            }
            DataType::Int8 => each!(Int8Type),
            DataType::Int16 => each!(Int16Type),
            DataType::Int32 => each!(Int32Type),
            DataType::Int64 => each!(Int64Type),
            DataType::UInt8 => each!(UInt8Type),
            DataType::UInt16 => each!(UInt16Type),
            DataType::UInt32 => each!(UInt32Type),
            DataType::UInt64 => each!(UInt64Type),
            DataType::Date32 => each!(Date32Type),
            DataType::Timestamp(TimeUnit::Second, _) => each!(TimestampSecondType),
            DataType::Timestamp(TimeUnit::Millisecond, _) => each!(TimestampMillisecondType),
            DataType::Timestamp(TimeUnit::Microsecond, _) => each!(TimestampMicrosecondType),
            DataType::Timestamp(TimeUnit::Nanosecond, _) => each!(TimestampNanosecondType),
            DataType::Decimal128(..) => each!(Decimal128Type),
            other => return Err(Error::internal(format!("{other} does not hold integers"))),
        }
        Ok(())
    }

    /// The sum of the values that count.
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

fn wanted(kind: Kind) -> Ordering {
    if kind == Kind::Min { Ordering::Less } else { Ordering::Greater }
}

fn neutral_int(wanted: Ordering) -> i128 {
    if wanted == Ordering::Less { i128::MAX } else { i128::MIN }
}

/// The last float of the order in which extremes are taken: NaN is greatest, whatever its sign.
fn neutral_float(wanted: Ordering) -> f64 {
    if wanted == Ordering::Less { f64::NAN } else { f64::NEG_INFINITY }
}

#[inline]
fn keep_int(kept: &mut i128, value: i128, wanted: Ordering) {
    *kept = if wanted == Ordering::Less { value.min(*kept) } else { value.max(*kept) };
}

#[inline]
fn keep_float(kept: &mut f64, value: f64, wanted: Ordering) {
    if order(value, *kept) == wanted {
        *kept = value;
    }
}

/// Total order, except that NaN is greatest whatever its sign.
fn order(left: f64, right: f64) -> Ordering {
    match (left.is_nan(), right.is_nan()) {
        (false, false) => left.total_cmp(&right),
        (left, right) => left.cmp(&right),
    }
}

/// Keeps the wanted one of two values; returns by how many bytes the kept one grew.
fn keep_bytes(kept: &mut Option<Box<[u8]>>, value: &[u8], wanted: Ordering) -> isize {
    match kept {
        Some(kept) if value.cmp(kept) != wanted => 0,
        _ => {
            let before = kept.as_ref().map_or(0, |k| k.len());
            *kept = Some(value.into());
            value.len() as isize - before as isize
        }
    }
}
