//! The words in which sums are kept, and the loops that add to them.
//!
//! Invariant: the sum of a group is its word plus its carries times two to the number of bits of the word. No
//! word is added to without looking whether it overflowed; where none ever did, there are no carries in memory.

use super::mean::{mean_of_decimals, mean_of_wide_decimals};
use arrow_array::types::ArrowPrimitiveType;
use arrow_array::{ArrayRef, Int64Array, PrimitiveArray};
use arrow_buffer::{ArrowNativeType, NullBuffer, i256};
use arrow_schema::DataType;
use std::sync::Arc;

/// A signed integer that sums are kept in.
pub(super) trait Word: ArrowNativeType {
    /// The sum, and by how many times two to the number of bits it is more than that.
    fn plus(self, other: Self) -> (Self, i64);

    /// The difference, likewise.
    fn minus(self, other: Self) -> (Self, i64);
}

/// A word that decimals are made of.
pub(super) trait Digits: Word + Ord {
    /// Whether it has so many decimal digits at most.
    fn has_digits(&self, digits: u8) -> bool;

    /// The mean of `count` values with this sum, as [`mean_of_wide_decimals`]; `None` when it does not fit.
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

    /// There is no wider type to divide in: a mean is lost whose sum has more than 256 bits.
    fn mean(self, carries: i64, count: i64, factor: i128) -> Option<i256> {
        if carries == 0 { mean_of_wide_decimals(self, count, factor) } else { None }
    }
}

/// Which rows count, and for which group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows<'a> {
    /// The group of each row; `None` when all are of the first.
    pub groups: Option<&'a [usize]>,
    /// `None` when all count.
    pub valid: Option<&'a NullBuffer>,
}

/// Whether values come or go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    In,
    Out,
}

/// A sum for each group.
#[derive(Debug, Default)]
pub(super) struct Totals<W> {
    words: Vec<W>,
    /// As many as words, or none while all are 0.
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

    /// A carry is so rare that looking for it is cheaper than adding zeros to another vector.
    #[inline]
    fn step(&mut self, group: usize, value: W, op: &impl Fn(W, W) -> (W, i64)) {
        let word = &mut self.words[group];
        let (sum, carry) = op(*word, value);
        *word = sum;
        if carry != 0 {
            self.carry(group, carry);
        }
    }

    /// To the first group, whose sum stays in registers meanwhile.
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

    /// The sums of the first `groups` groups, if each fits its word. Those of groups without values are 0.
    pub(super) fn exact(&self, groups: usize) -> Option<&[W]> {
        let carries = self.carries.get(..groups).unwrap_or(&[]);
        carries.iter().all(|carry| *carry == 0).then(|| &self.words[..groups])
    }

    /// Words, as decimals of this type, and carries of the first `groups` groups.
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
    /// The sums of the first `groups` groups, if each has so many decimal digits at most.
    pub(super) fn decimals(&self, groups: usize, digits: u8) -> Option<&[W]> {
        let sums = self.exact(groups)?;
        // Only the ends are looked at: that is a comparison for each sum, and no call.
        let ends = [sums.iter().min(), sums.iter().max()];
        ends.iter().flatten().all(|end| end.has_digits(digits)).then_some(sums)
    }

    /// The means of the first `groups` groups, of so many values each, scaled up by `factor`; 0 of no values.
    /// `None` if one has more decimal digits than `digits`.
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

/// Takes the first `count` values out. All of them without a copy, and few of many without one of the rest.
pub(super) fn take_first<T>(values: &mut Vec<T>, count: usize) -> Vec<T> {
    if count >= values.len() { std::mem::take(values) } else { values.drain(..count).collect() }
}
