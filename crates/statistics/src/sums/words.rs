//! Words (fixed-width integers) that hold the sums of groups, and the loops that add to them.
//!
//! Invariant: the sum of a group is its word, plus its carries times 2^b, where b is the number of bits of a word.
//! Every addition to a word is checked for overflow. Carries are allocated only after the first overflow.

use super::mean::{mean_of_decimals, mean_of_wide_decimals};
use arrow_array::types::ArrowPrimitiveType;
use arrow_array::{ArrayRef, Int64Array, PrimitiveArray};
use arrow_buffer::{ArrowNativeType, NullBuffer, i256};
use arrow_schema::DataType;
use std::sync::Arc;

/// A signed integer that holds a sum.
pub(super) trait Word: ArrowNativeType {
    /// Returns the sum modulo 2^b, where b is the number of bits of the word, and the carry.
    fn plus(self, other: Self) -> (Self, i64);

    /// Returns the difference modulo 2^b, where b is the number of bits of the word, and the carry.
    fn minus(self, other: Self) -> (Self, i64);
}

/// A word whose values can be decimals.
pub(super) trait Digits: Word + Ord {
    /// Returns whether the value has at most this many decimal digits.
    fn has_digits(&self, digits: u8) -> bool;

    /// Returns the mean of `count` values with this sum, as [`mean_of_wide_decimals`] does; `None` if it does not fit.
    fn mean(self, carries: i64, count: i64, factor: i128) -> Option<Self>;
}

impl Word for i64 {
    #[inline]
    fn plus(self, other: i64) -> (i64, i64) {
        let (sum, overflows) = self.overflowing_add(other);
        (sum, i64::from(overflows) * if other < 0 { -1 } else { 1 })
    }

    #[inline]
    fn minus(self, other: i64) -> (i64, i64) {
        let (difference, overflows) = self.overflowing_sub(other);
        (difference, i64::from(overflows) * if other < 0 { 1 } else { -1 })
    }
}

impl Word for i128 {
    #[inline]
    fn plus(self, other: i128) -> (i128, i64) {
        let (sum, overflows) = self.overflowing_add(other);
        (sum, i64::from(overflows) * if other < 0 { -1 } else { 1 })
    }

    #[inline]
    fn minus(self, other: i128) -> (i128, i64) {
        let (difference, overflows) = self.overflowing_sub(other);
        (difference, i64::from(overflows) * if other < 0 { 1 } else { -1 })
    }
}

impl Digits for i128 {
    fn has_digits(&self, digits: u8) -> bool {
        10_u128.checked_pow(digits.into()).is_none_or(|bound| self.unsigned_abs() < bound)
    }

    fn mean(self, carries: i64, count: i64, factor: i128) -> Option<i128> {
        if carries == 0 {
            return mean_of_decimals(self, count, factor);
        }
        let high = i128::from(carries) + if self < 0 { -1 } else { 0 };
        mean_of_wide_decimals(i256::from_parts(self.cast_unsigned(), high), count, factor)?.to_i128()
    }
}

impl Word for i256 {
    #[inline]
    fn plus(self, other: i256) -> (i256, i64) {
        let (sum, overflows) = self.overflowing_add(other);
        (sum, i64::from(overflows) * if other.is_negative() { -1 } else { 1 })
    }

    #[inline]
    fn minus(self, other: i256) -> (i256, i64) {
        let (difference, overflows) = self.overflowing_sub(other);
        (difference, i64::from(overflows) * if other.is_negative() { 1 } else { -1 })
    }
}

impl Digits for i256 {
    fn has_digits(&self, digits: u8) -> bool {
        let bound = i256::from_i128(10).checked_pow(digits.into());
        bound.is_none_or(|bound| bound.wrapping_neg() < *self && *self < bound)
    }

    /// Returns `None` for a sum that exceeds 256 bits, because there is no wider type for the division.
    fn mean(self, carries: i64, count: i64, factor: i128) -> Option<i256> {
        if carries == 0 { mean_of_wide_decimals(self, count, factor) } else { None }
    }
}

/// Rows that are added, and their groups.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows<'a> {
    /// The group of each row; `None` when all rows belong to the first group.
    pub groups: Option<&'a [usize]>,
    /// Rows that are added; `None` when all are.
    pub valid: Option<&'a NullBuffer>,
}

/// Whether values are added or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    In,
    Out,
}

/// A sum for each group.
#[derive(Debug, Default)]
pub(super) struct Totals<W> {
    words: Vec<W>,
    /// Carries of each word; empty while all are 0.
    carries: Vec<i64>,
}

impl<W: Word> Totals<W> {
    pub(super) fn len(&self) -> usize {
        self.words.len()
    }

    pub(super) fn resize(&mut self, groups: usize) {
        self.words.resize(groups, W::default());
        if !self.carries.is_empty() {
            self.carries.resize(groups, 0);
        }
    }

    pub(super) fn add<N: Copy + Into<W>>(&mut self, values: &[N], rows: Rows<'_>, direction: Direction) {
        match direction {
            Direction::In => self.combine(values, rows, W::plus),
            Direction::Out => self.combine(values, rows, W::minus),
        }
    }

    #[inline]
    fn combine<N: Copy + Into<W>>(&mut self, values: &[N], rows: Rows<'_>, op: impl Fn(W, W) -> (W, i64)) {
        match (rows.groups, rows.valid) {
            (Some(groups), None) => {
                for (group, value) in groups.iter().zip(values) {
                    self.step(*group, (*value).into(), &op);
                }
            }
            (Some(groups), Some(valid)) => {
                for row in valid.valid_indices() {
                    self.step(groups[row], values[row].into(), &op);
                }
            }
            (None, None) => self.fold(values.iter().copied(), &op),
            (None, Some(valid)) => self.fold(valid.valid_indices().map(|row| values[row]), &op),
        }
    }

    /// Adds one value. Carries are so rare that a branch is cheaper than always adding to the carries.
    #[inline]
    fn step(&mut self, group: usize, value: W, op: &impl Fn(W, W) -> (W, i64)) {
        let word = &mut self.words[group];
        let (sum, carry) = op(*word, value);
        *word = sum;
        if carry != 0 {
            self.carry(group, carry);
        }
    }

    /// Adds values to the first group, whose sum stays in registers meanwhile.
    #[inline]
    fn fold<N: Into<W>>(&mut self, values: impl Iterator<Item = N>, op: &impl Fn(W, W) -> (W, i64)) {
        let Some(word) = self.words.first_mut() else { return };
        let (mut sum, mut carries) = (*word, 0);
        for value in values {
            let (next, carry) = op(sum, value.into());
            sum = next;
            carries += carry;
        }
        *word = sum;
        if carries != 0 {
            self.carry(0, carries);
        }
    }

    #[cold]
    fn carry(&mut self, group: usize, carry: i64) {
        self.carries.resize(self.words.len(), 0);
        self.carries[group] += carry;
    }

    pub(super) fn add_carries(&mut self, carries: &[i64], rows: Rows<'_>) {
        for (row, carry) in carries.iter().enumerate() {
            if *carry != 0 && rows.valid.is_none_or(|valid| valid.is_valid(row)) {
                self.carry(rows.groups.map_or(0, |groups| groups[row]), *carry);
            }
        }
    }

    fn carries(&self, group: usize) -> i64 {
        self.carries.get(group).copied().unwrap_or(0)
    }

    /// Returns the sums of the first `groups` groups, 0 for groups without values; `None` if one exceeds its word.
    pub(super) fn exact(&self, groups: usize) -> Option<&[W]> {
        let carries = self.carries.get(..groups).unwrap_or(&[]);
        carries.iter().all(|carry| *carry == 0).then(|| &self.words[..groups])
    }

    /// Removes the first `groups` groups. Returns their words, as an array of `data_type`, and their carries.
    pub(super) fn take<T: ArrowPrimitiveType<Native = W>>(
        &mut self,
        groups: usize,
        nulls: Option<NullBuffer>,
        data_type: DataType,
    ) -> (ArrayRef, Int64Array) {
        let words = take_first(&mut self.words, groups);
        let carries = match self.carries.is_empty() {
            true => vec![0; groups],
            false => take_first(&mut self.carries, groups),
        };
        let words = PrimitiveArray::<T>::new(words.into(), nulls).with_data_type(data_type);
        (Arc::new(words), Int64Array::from(carries))
    }

    pub(super) fn drop_first(&mut self, groups: usize) {
        take_first(&mut self.words, groups);
        if !self.carries.is_empty() {
            take_first(&mut self.carries, groups);
        }
    }

    pub(super) fn bytes_held(&self) -> usize {
        self.words.capacity() * size_of::<W>() + self.carries.capacity() * size_of::<i64>()
    }
}

impl<W: Digits> Totals<W> {
    /// Returns the sums of the first `groups` groups; `None` if one has more than `digits` decimal digits.
    pub(super) fn decimals(&self, groups: usize, digits: u8) -> Option<&[W]> {
        let sums = self.exact(groups)?;
        // Only the least and the greatest sum are checked, which needs only a comparison per sum.
        let ends = [sums.iter().min(), sums.iter().max()];
        ends.iter().flatten().all(|end| end.has_digits(digits)).then_some(sums)
    }

    /// Returns the means of the first `groups` groups, multiplied by `factor`; 0 for groups without values.
    /// `counts` has the number of values of each group. `None` if a mean has more than `digits` decimal
    /// digits.
    pub(super) fn means(&self, groups: usize, counts: &[u64], factor: i128, digits: u8) -> Option<Vec<W>> {
        let mean = |group: usize| match i64::try_from(counts.get(group).copied().unwrap_or(0)).ok()? {
            0 => Some(W::default()),
            count => self.words[group]
                .mean(self.carries(group), count, factor)
                .filter(|mean| mean.has_digits(digits)),
        };
        (0..groups).map(mean).collect()
    }
}

/// Removes the first `count` values and returns them. If these are all values, nothing is copied.
pub(super) fn take_first<T>(values: &mut Vec<T>, count: usize) -> Vec<T> {
    if count >= values.len() { std::mem::take(values) } else { values.drain(..count).collect() }
}
