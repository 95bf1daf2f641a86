//! Conditions of a row filter (a SQL condition evaluated on entries of a space in place) on numeric fields, which have
//! a fixed width and offset in every row.

use super::{Batch, each};
use crate::predicate::NumberRange;

/// Number of fields, the first of a row, whose validity bits are checked together in one word.
const FIELDS_TOGETHER: usize = u64::BITS as usize;

/// A conjunction of conditions: numeric fields that must all be set and be in their ranges.
#[derive(Clone, Debug, Default)]
pub(super) struct FieldRanges {
    /// Mask of the validity bits that must be set, for the first [`FIELDS_TOGETHER`] fields.
    valid: u64,
    ranges: Vec<FieldRange>,
    /// Fields that are compared at once (SIMD); `rest` has the other fields.
    lanes: Option<Lanes>,
    rest: Vec<FieldRange>,
}

/// Number of 32-bit integers compared at once.
const LANES: usize = 8;
const LANE_BYTES: usize = size_of::<u32>();

/// Minimum number of conditions for which comparing eight integers at once (SIMD) takes less time than comparing one by
/// one.
const LANES_LEAST: usize = 3;

/// Adjacent 32-bit integers of a row that are compared at once.
#[derive(Clone, Debug)]
struct Lanes {
    /// Offset of the first integer in the row.
    offset: usize,
    sign: [u32; LANES],
    low: [u32; LANES],
    /// Width of the range in each lane. In lanes without a condition, everything passes.
    more: [u32; LANES],
}

/// Position of a numeric field in a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Number {
    /// Index of the field in the schema.
    pub at: usize,
    /// Offset of the number in the row, in bytes.
    pub offset: usize,
    pub bytes: usize,
}

#[derive(Clone, Copy, Debug)]
struct FieldRange {
    number: Number,
    range: NumberRange,
}

/// A condition that a numeric field is, or is not, in a list.
#[derive(Clone, Debug)]
pub(super) struct ListCondition {
    pub number: Number,
    /// The bits of the numbers in the list, ascending.
    pub bits: Vec<u64>,
    pub is_inverted: bool,
}

/// Returns whether a field of a row is set, that is, not NULL.
#[inline]
pub(super) fn is_set(row: &[u8], at: usize) -> bool {
    row.get(at / 8).is_some_and(|byte| byte >> (at % 8) & 1 == 1)
}

/// Returns a word whose low bits are the validity bits of the first fields of a row; the bits above them are arbitrary.
#[inline]
fn first_word(row: &[u8]) -> u64 {
    match row.first_chunk() {
        Some(word) => u64::from_le_bytes(*word),
        None => row.iter().rev().fold(0, |bits, byte| bits << 8 | u64::from(*byte)),
    }
}

/// Returns the bits of the number of `BYTES` bytes at an offset; `None` if the row is too short.
#[inline]
fn read<const BYTES: usize>(row: &[u8], offset: usize) -> Option<u64> {
    let mut word = [0; 8];
    word[..BYTES].copy_from_slice(row.get(offset..)?.first_chunk::<BYTES>()?);
    Some(u64::from_le_bytes(word))
}

impl Number {
    fn bits(self, row: &[u8]) -> Option<u64> {
        match self.bytes {
            1 => read::<1>(row, self.offset),
            2 => read::<2>(row, self.offset),
            4 => read::<4>(row, self.offset),
            _ => read::<8>(row, self.offset),
        }
    }
}

impl FieldRanges {
    /// Adds the condition that a field is not NULL and in the range.
    pub fn add(&mut self, number: Number, range: NumberRange) {
        if number.at < FIELDS_TOGETHER {
            self.valid |= 1 << number.at;
        }
        self.ranges.push(FieldRange { number, range });
    }

    /// Adds all conditions of another list.
    pub fn add_all(&mut self, other: FieldRanges) {
        self.valid |= other.valid;
        self.ranges.extend(other.ranges);
    }

    /// Chooses which conditions are compared at once. Called after all conditions were added. `fixed_bytes` is the
    /// number of bytes of a row before the fields of variable width.
    pub fn pack(&mut self, fixed_bytes: usize) {
        let starts = self.ranges.iter().map(|field| field.number.offset);
        let packed = starts.filter_map(|start| Lanes::at(start, fixed_bytes, &self.ranges));
        match packed.min_by_key(|(_, rest)| rest.len()) {
            Some((lanes, rest)) if rest.len() + LANES_LEAST <= self.ranges.len() => {
                (self.lanes, self.rest) = (Some(lanes), rest);
            }
            _ => (self.lanes, self.rest) = (None, self.ranges.clone()),
        }
    }

    pub fn judge(&self, batch: &Batch<'_>, asked: u64) -> u64 {
        let (values, valid) = (batch.values(), self.valid);
        let mut left = match &self.lanes {
            None => each(batch, asked, |row| first_word(values[row]) & valid == valid),
            Some(lanes) => each(batch, asked, |row| {
                (first_word(values[row]) & valid == valid) & lanes.passes(values[row])
            }),
        };
        for field in &self.rest {
            if left == 0 {
                break;
            }
            left = field.judge(batch, left);
        }
        left
    }
}

impl Lanes {
    /// Returns lanes that start at `offset`, or slightly before it to end within the fixed bytes, and the fields that
    /// are not in them.
    fn at(offset: usize, fixed_bytes: usize, fields: &[FieldRange]) -> Option<(Lanes, Vec<FieldRange>)> {
        let beyond = (offset + LANES * LANE_BYTES).saturating_sub(fixed_bytes);
        let offset = offset.checked_sub(beyond.next_multiple_of(LANE_BYTES))?;
        let (sign, low, more) = ([0; LANES], [0; LANES], [u32::MAX; LANES]);
        let mut lanes = Lanes { offset, sign, low, more };
        let rest = fields.iter().filter(|field| !lanes.take(field)).copied().collect();
        Some((lanes, rest))
    }

    /// Adds a condition if its field is in a lane that has no condition yet; returns whether it was added.
    fn take(&mut self, field: &FieldRange) -> bool {
        let distance = field.number.offset.wrapping_sub(self.offset);
        let (lane, is_whole) = (distance / LANE_BYTES, distance.is_multiple_of(LANE_BYTES));
        let Some((sign, low, more)) = field.range.as_lane().filter(|_| field.number.at < FIELDS_TOGETHER)
        else {
            return false;
        };
        if lane >= LANES || !is_whole || self.more[lane] != u32::MAX {
            return false;
        }
        (self.sign[lane], self.low[lane], self.more[lane]) = (sign, low, more);
        true
    }

    #[inline]
    fn passes(&self, row: &[u8]) -> bool {
        let Some(bytes) =
            row.get(self.offset..).and_then(|rest| rest.first_chunk::<{ LANES * LANE_BYTES }>())
        else {
            return false;
        };
        let (numbers, _) = bytes.as_chunks::<LANE_BYTES>();
        let conditions = self.sign.iter().zip(&self.low).zip(&self.more);
        let beyond = numbers.iter().zip(conditions).fold(0, |beyond, (number, ((sign, low), more))| {
            let key = u32::from_le_bytes(*number) ^ sign;
            beyond | u32::from(key.wrapping_sub(*low) > *more)
        });
        beyond == 0
    }
}

impl FieldRange {
    fn judge(&self, batch: &Batch<'_>, asked: u64) -> u64 {
        let at = self.number.at;
        let asked = if at < FIELDS_TOGETHER {
            asked
        } else {
            each(batch, asked, |row| is_set(batch.values()[row], at))
        };
        match (self.range.is_float(), self.number.bytes) {
            (true, 4) => self.judge_as::<4, true>(batch, asked),
            (true, _) => self.judge_as::<8, true>(batch, asked),
            (false, 1) => self.judge_as::<1, false>(batch, asked),
            (false, 2) => self.judge_as::<2, false>(batch, asked),
            (false, 4) => self.judge_as::<4, false>(batch, asked),
            (false, _) => self.judge_as::<8, false>(batch, asked),
        }
    }

    fn judge_as<const BYTES: usize, const IS_FLOAT: bool>(&self, batch: &Batch<'_>, asked: u64) -> u64 {
        let (values, offset, range) = (batch.values(), self.number.offset, self.range);
        each(batch, asked, |row| {
            read::<BYTES>(values[row], offset).is_some_and(|bits| range.passes_as::<IS_FLOAT>(bits))
        })
    }
}

impl ListCondition {
    pub fn judge(&self, batch: &Batch<'_>, asked: u64) -> u64 {
        each(batch, asked, |row| {
            let row = batch.values()[row];
            is_set(row, self.number.at)
                && self
                    .number
                    .bits(row)
                    .is_some_and(|bits| self.bits.binary_search(&bits).is_ok() != self.is_inverted)
        })
    }
}
