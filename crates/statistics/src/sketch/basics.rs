//! Exact statistics of a column: number of rows, number of NULLs, minimum, maximum and sum.
//!
//! Invariant: except for sums of floats, they do not depend on how the rows were divided. Minimum and maximum follow
//! the order of [`Literal::compare`], with all NaNs above all numbers.

use super::block::BLOCK;
use super::items::{Items, Summary, Widen};
use crate::arch::{Kernel, Level};
use crate::floats::{float_of_order, float_order};
use crate::hash;
use arrow_buffer::i256;
use arrow_schema::DataType;
use farpool_model::{Literal, Value};

/// The sum of a column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Total {
    /// The exact sum of integers; for decimals, of the unscaled values.
    Integer(i256),
    /// The sum of floats, with an error of a few units of the last digit however many values there are. NaN
    /// if a value was NaN, or if there were infinities of both signs.
    Float(f64),
}

impl Total {
    /// Returns the nearest float; for decimals, that of the unscaled sum.
    pub fn as_f64(self) -> f64 {
        match self {
            Total::Integer(sum) => {
                let (low, high) = sum.to_parts();
                high as f64 * 2_f64.powi(128) + low as f64
            }
            Total::Float(sum) => sum,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Basics {
    pub rows: u64,
    pub nulls: u64,
    pub range: Option<(Literal, Literal)>,
    pub sum: Option<Sum>,
    /// Whether all values that are added next are known to be between the minimum and the maximum. Used only for
    /// strings, for which comparing is expensive.
    pub within: bool,
}

/// A running sum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Sum {
    Integer(i256),
    /// Sum of floats, and the sum of the rounding errors so far.
    Float {
        sum: f64,
        rest: f64,
    },
}

impl Basics {
    pub fn new(data_type: &DataType) -> Basics {
        let sum = match data_type {
            DataType::Decimal128(..) => Some(Sum::Integer(i256::ZERO)),
            number if number.is_integer() => Some(Sum::Integer(i256::ZERO)),
            DataType::Float32 | DataType::Float64 => Some(Sum::Float { sum: 0.0, rest: 0.0 }),
            _ => None,
        };
        Basics { rows: 0, nulls: 0, range: None, sum, within: false }
    }

    /// Returns the number of values, without NULLs.
    pub fn values(&self) -> u64 {
        self.rows - self.nulls
    }

    pub fn total(&self) -> Option<Total> {
        self.range.as_ref()?;
        Some(match self.sum? {
            Sum::Integer(sum) => Total::Integer(sum),
            Sum::Float { sum, rest } if sum.is_finite() => Total::Float(sum + rest),
            Sum::Float { sum, .. } => Total::Float(sum),
        })
    }

    /// Adds the values of a block. The caller counts the rows.
    pub fn update(&mut self, items: &Items<'_>, counts: Option<&[u64]>, data_type: &DataType) {
        match items {
            Items::Signed(words, summary) => {
                let Some(Summary { low, high, sum }) = summary.or_else(|| summary_of(words)) else { return };
                self.widen_integers(low.into(), high.into(), data_type);
                self.add_words(words, sum, counts, |word| i128::from(word as i64));
            }
            Items::Unsigned(words) => {
                let Some((low, high, sum)) = Level::best().run(Unsigned(words)) else { return };
                self.widen_integers(low.into(), high.into(), data_type);
                self.add_words(words, sum, counts, i128::from);
            }
            Items::Wide(values) => {
                let Some((low, high)) = extremes(values.iter().copied()) else { return };
                self.widen_integers(low, high, data_type);
                self.add_wide(values, counts);
            }
            Items::Floats(bits) => {
                let Some((low, high)) = Level::best().run(Floats(bits)) else { return };
                self.widen_floats(low, high, data_type);
                self.add_floats(bits, counts);
            }
            Items::Bytes(_) if self.within => {}
            Items::Bytes(values) => self.widen_bytes(values, data_type),
        }
    }

    pub fn merge(&mut self, other: &Basics) {
        self.rows += other.rows;
        self.nulls += other.nulls;
        if let Some((low, high)) = &other.range {
            self.widen(low.clone(), high.clone());
        }
        match (&mut self.sum, other.sum) {
            (Some(Sum::Integer(ours)), Some(Sum::Integer(theirs))) => *ours = ours.wrapping_add(theirs),
            (Some(ours), Some(Sum::Float { sum, rest })) => {
                ours.add_float(sum);
                ours.add_float(rest);
            }
            _ => {}
        }
    }

    pub fn widen(&mut self, low: Literal, high: Literal) {
        match &mut self.range {
            None => self.range = Some((low, high)),
            Some((least, greatest)) => {
                if before(&low, least) {
                    *least = low;
                }
                if before(greatest, &high) {
                    *greatest = high;
                }
            }
        }
    }

    /// Returns whether a block changes neither the minimum nor the maximum. Most blocks change neither, and then no
    /// literal is created.
    fn within(&self, inside: impl Fn(&Literal, &Literal) -> Option<bool>) -> bool {
        self.range.as_ref().is_some_and(|(least, greatest)| inside(least, greatest).unwrap_or(false))
    }

    fn widen_integers(&mut self, low: i128, high: i128, data_type: &DataType) {
        if self.within(|least, greatest| Some(least.as_int()? <= low && high <= greatest.as_int()?)) {
            return;
        }
        let value = |v| match data_type {
            DataType::Boolean => Value::Bool(v != 0),
            _ => Value::Int(v),
        };
        self.widen(literal(value(low), data_type), literal(value(high), data_type));
    }

    fn widen_floats(&mut self, low: i64, high: i64, data_type: &DataType) {
        let order = |literal: &Literal| match literal.value() {
            Value::Float(v) => Some(float_order(v.to_bits())),
            _ => None,
        };
        if !self.within(|least, greatest| Some(order(least)? <= low && high <= order(greatest)?)) {
            let float = |order| literal(Value::Float(float_of_order(order)), data_type);
            self.widen(float(low), float(high));
        }
    }

    fn widen_bytes(&mut self, values: &[&[u8]], data_type: &DataType) {
        let Some((low, high)) = extremes(values.iter().map(|v| (prefix(v), *v))) else { return };
        let ((_, low), (_, high)) = (low, high);
        if !self.within(|least, greatest| Some(bytes_of(least)? <= low && high <= bytes_of(greatest)?)) {
            self.widen(bytes_literal(low, data_type), bytes_literal(high, data_type));
        }
    }

    fn add_words(&mut self, words: &[u64], sum: i128, counts: Option<&[u64]>, wide: impl Fn(u64) -> i128) {
        match counts {
            None => self.add_integer(i256::from_i128(sum)),
            Some(counts) => self.add_products(words.iter().map(|word| wide(*word)).zip(counts)),
        }
    }

    fn add_wide(&mut self, values: &[i128], counts: Option<&[u64]>) {
        let values = values.iter().copied();
        match counts {
            None => self.add_products(values.zip(&[1; BLOCK])),
            Some(counts) => self.add_products(values.zip(counts)),
        }
    }

    /// Adds each value as many times as its count. The sum nearly always fits 128 bits; if not, 256 bits are used.
    fn add_products<'a>(&mut self, counted: impl Iterator<Item = (i128, &'a u64)>) {
        let mut sum = 0_i128;
        for (value, count) in counted {
            let short = i64::try_from(value).ok().zip(u32::try_from(*count).ok());
            match short.and_then(|(value, count)| sum.checked_add(i128::from(value) * i128::from(count))) {
                Some(more) => sum = more,
                None => self.add_integer(product(value, *count)),
            }
        }
        self.add_integer(i256::from_i128(sum));
    }

    /// Adds an integer. 256 bits cannot overflow: there are fewer than 2^63 rows of at most 128 bits.
    fn add_integer(&mut self, value: i256) {
        if let Some(Sum::Integer(sum)) = &mut self.sum {
            *sum = sum.wrapping_add(value);
        }
    }

    fn add_floats(&mut self, bits: &[u64], counts: Option<&[u64]>) {
        let Some(sum) = &mut self.sum else { return };
        match counts {
            None => sum.add_float(pairwise(bits)),
            Some(counts) => {
                bits.iter().zip(counts).for_each(|(b, c)| sum.add_float(f64::from_bits(*b) * *c as f64));
            }
        }
    }
}

impl Sum {
    /// Adds a value and keeps the rounding error (Knuth's TwoSum).
    fn add_float(&mut self, value: f64) {
        let Sum::Float { sum, rest } = self else { return };
        let new = *sum + value;
        let part = new - *sum;
        let lost = (*sum - (new - part)) + (value - part);
        *sum = new;
        if lost.is_finite() {
            *rest += lost;
        }
    }
}

/// Sums the floats of a block pairwise, so that the rounding error grows only with the logarithm of their number.
fn pairwise(bits: &[u64]) -> f64 {
    match bits.len() {
        0..=16 => bits.iter().map(|bits| f64::from_bits(*bits)).sum(),
        more => {
            let (left, right) = bits.split_at(more / 2);
            pairwise(left) + pairwise(right)
        }
    }
}

fn summary_of(words: &[u64]) -> Option<Summary> {
    let mut copy = vec![0; words.len()];
    Level::best().run(Widen { values: words, words: &mut copy, word: |word| word })
}

/// Kernel that returns the minimum, the maximum and the sum of a block of unsigned integers.
struct Unsigned<'a>(&'a [u64]);

impl Kernel for Unsigned<'_> {
    type Output = Option<(u64, u64, i128)>;

    #[inline(always)]
    fn run(self) -> Option<(u64, u64, i128)> {
        let first = *self.0.first()?;
        let (mut low, mut high, mut ends, mut starts) = (first, first, 0_u64, 0_u64);
        for word in self.0 {
            (low, high) = (low.min(*word), high.max(*word));
            ends += word & 0xffff_ffff;
            starts += word >> 32;
        }
        Some((low, high, (i128::from(starts) << 32) + i128::from(ends)))
    }
}

/// Kernel that returns the minimum and the maximum of a block of floats, in the order of [`float_order`].
struct Floats<'a>(&'a [u64]);

impl Kernel for Floats<'_> {
    type Output = Option<(i64, i64)>;

    #[inline(always)]
    fn run(self) -> Option<(i64, i64)> {
        let first = float_order(*self.0.first()?);
        let orders = self.0.iter().map(|bits| float_order(*bits));
        Some(orders.fold((first, first), |(low, high), order| (low.min(order), high.max(order))))
    }
}

fn product(value: i128, count: u64) -> i256 {
    i256::from_i128(value).wrapping_mul(i256::from_i128(count.into()))
}

fn extremes<T: Ord + Copy>(mut values: impl Iterator<Item = T>) -> Option<(T, T)> {
    let first = values.next()?;
    Some(values.fold((first, first), |(low, high), value| (low.min(value), high.max(value))))
}

/// Returns the first 8 bytes, padded with zeros, as a number. Values with different prefixes compare as these numbers
/// do.
#[inline]
fn prefix(bytes: &[u8]) -> u64 {
    hash::word(&bytes[..bytes.len().min(8)]).swap_bytes()
}

fn before(one: &Literal, other: &Literal) -> bool {
    one.compare(other).is_some_and(std::cmp::Ordering::is_lt)
}

fn bytes_of(literal: &Literal) -> Option<&[u8]> {
    match literal.value() {
        Value::Text(text) => Some(text.as_bytes()),
        Value::Bytes(bytes) => Some(bytes),
        _ => None,
    }
}

/// Returns a value of the column as a literal.
pub(crate) fn literal(value: Value, data_type: &DataType) -> Literal {
    Literal::new(value, data_type.clone()).expect("the value was in a column of that type")
}

pub(crate) fn bytes_literal(bytes: &[u8], data_type: &DataType) -> Literal {
    let value = match data_type {
        DataType::Utf8View => Value::Text(String::from_utf8_lossy(bytes).into_owned()),
        _ => Value::Bytes(bytes.to_vec()),
    };
    literal(value, data_type)
}
