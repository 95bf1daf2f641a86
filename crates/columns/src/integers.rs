//! Operations on packed integers as they lie, on lanes as narrow as the values need.

use crate::bitmap;
use crate::lanes::Lane;
use crate::packed::{Packed, with_lane};
use farpool_model::CompareOp;
use farpool_model::limits::BLOCK_ROWS;
use std::ops::Range;

/// The integers of a chunk: each is [`Integers::min`] plus a distance, which is packed in lanes of
/// [`Integers::lane_bits`]. Rows that are NULL hold some value within the bounds.
#[derive(Clone, Copy, Debug)]
pub struct Integers<'a> {
    packed: &'a Packed,
}

impl<'a> Integers<'a> {
    pub(crate) fn new(packed: &'a Packed) -> Self {
        Integers { packed }
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.packed.rows
    }

    /// No value is less. It is also what distances count from.
    pub fn min(&self) -> i64 {
        self.packed.reference
    }

    /// No value is greater.
    pub fn max(&self) -> i64 {
        self.packed.max
    }

    /// Bits of the lanes that distances unpack to: 8, 16, 32 or 64.
    pub fn lane_bits(&self) -> u32 {
        self.packed.lane_bits()
    }

    /// Replaces `out` by the values of `rows`.
    ///
    /// # Panics
    /// When there are no such rows.
    pub fn unpack(&self, rows: Range<usize>, out: &mut Vec<i64>) {
        out.clear();
        out.reserve(rows.len());
        let reference = self.packed.reference;
        with_lane!(self.packed.width, L => self.packed.for_each_piece::<L>(rows, |piece| {
            out.extend(piece.iter().map(|delta| reference.wrapping_add(delta.widen() as i64)));
        }));
    }

    /// Replaces `out` by the values of single rows; ascending rows are cheapest.
    ///
    /// # Panics
    /// When there is no such row.
    pub fn gather(&self, rows: &[u32], out: &mut Vec<i64>) {
        out.clear();
        out.reserve(rows.len());
        let reference = self.packed.reference;
        with_lane!(self.packed.width, L => self.packed.for_each_of::<L>(rows, |delta| {
            out.push(reference.wrapping_add(delta.widen() as i64));
        }));
    }

    /// Replaces `out` by the distances of `rows` from [`Integers::min`].
    ///
    /// # Panics
    /// When there are no such rows, or `lane_bits()` is not 8.
    pub fn unpack_deltas_u8(&self, rows: Range<usize>, out: &mut Vec<u8>) {
        self.unpack_deltas(rows, out);
    }

    /// Replaces `out` by the distances of `rows` from [`Integers::min`].
    ///
    /// # Panics
    /// When there are no such rows, or `lane_bits()` is not 16.
    pub fn unpack_deltas_u16(&self, rows: Range<usize>, out: &mut Vec<u16>) {
        self.unpack_deltas(rows, out);
    }

    /// Replaces `out` by the distances of `rows` from [`Integers::min`].
    ///
    /// # Panics
    /// When there are no such rows, or `lane_bits()` is not 32.
    pub fn unpack_deltas_u32(&self, rows: Range<usize>, out: &mut Vec<u32>) {
        self.unpack_deltas(rows, out);
    }

    fn unpack_deltas<L: Lane>(&self, rows: Range<usize>, out: &mut Vec<L>) {
        assert_eq!(self.lane_bits(), L::BITS, "distances are held in other lanes");
        out.clear();
        out.reserve(rows.len());
        self.packed.for_each_piece::<L>(rows, |piece| out.extend_from_slice(piece));
    }

    /// Writes a bit for each of `rows`: whether its value compares to `literal` in this way. Bits behind
    /// the last row are cleared. What a NULL row gives is unspecified.
    ///
    /// Where the bounds decide, nothing is unpacked; otherwise the lanes are compared as narrow as they are.
    ///
    /// # Panics
    /// When there are no such rows, their start is no multiple of 1024, or `out` is too short.
    pub fn compare(&self, op: CompareOp, literal: i128, rows: Range<usize>, out: &mut [u64]) {
        assert!(rows.start.is_multiple_of(BLOCK_ROWS), "comparisons start at a block");
        assert!(rows.start <= rows.end && rows.end <= self.rows(), "rows {rows:?} of {}", self.rows());
        let (out, behind) = out.split_at_mut(rows.len().div_ceil(64));
        behind.fill(0);
        match self.decided(op, literal) {
            Some(answer) => out.fill(if answer { u64::MAX } else { 0 }),
            None => {
                let delta = (literal - i128::from(self.packed.reference)) as u64;
                with_lane!(self.packed.width, L => self.compare_lanes::<L>(op, L::truncate(delta), rows.clone(), out));
            }
        }
        bitmap::clear_behind(out, rows.len());
    }

    /// Writes a bit for each of `rows`: whether its value lies between `low` and `high`, both included and
    /// both within the bounds. Otherwise as [`Integers::compare`], of which it saves one.
    ///
    /// # Panics
    /// As [`Integers::compare`].
    pub fn within(&self, low: i64, high: i64, rows: Range<usize>, out: &mut [u64]) {
        assert!(rows.start.is_multiple_of(BLOCK_ROWS), "comparisons start at a block");
        assert!(self.min() <= low && high <= self.max(), "{low} to {high} lie within the bounds");
        let (out, behind) = out.split_at_mut(rows.len().div_ceil(64));
        behind.fill(0);
        let delta = |value: i64| value.wrapping_sub(self.packed.reference) as u64;
        with_lane!(self.packed.width, L => {
            let (low, high) = (L::truncate(delta(low)), L::truncate(delta(high)));
            let mut word = 0;
            self.packed.for_each_piece::<L>(rows.clone(), |piece| {
                let words = piece.len().div_ceil(64);
                bitmap::within(piece, low, high, &mut out[word..word + words]);
                word += words;
            });
        });
        bitmap::clear_behind(out, rows.len());
    }

    /// The answer for every row, if the bounds give one. If they do not, the literal lies within them.
    pub fn decided(&self, op: CompareOp, literal: i128) -> Option<bool> {
        let (min, max) = (i128::from(self.min()), i128::from(self.max()));
        let (all_less, all_greater) = (max < literal, min > literal);
        let all_equal = min == literal && max == literal;
        match op {
            CompareOp::Eq if all_less || all_greater => Some(false),
            CompareOp::Eq | CompareOp::LtEq | CompareOp::GtEq if all_equal => Some(true),
            CompareOp::NotEq if all_less || all_greater => Some(true),
            CompareOp::NotEq if all_equal => Some(false),
            CompareOp::Lt | CompareOp::LtEq if all_less => Some(true),
            CompareOp::Lt | CompareOp::LtEq if all_greater => Some(false),
            CompareOp::Gt | CompareOp::GtEq if all_greater => Some(true),
            CompareOp::Gt | CompareOp::GtEq if all_less => Some(false),
            CompareOp::Lt if min == literal => Some(false),
            CompareOp::Gt if max == literal => Some(false),
            CompareOp::LtEq if max == literal => Some(true),
            CompareOp::GtEq if min == literal => Some(true),
            _ => None,
        }
    }

    fn compare_lanes<L: Lane>(&self, op: CompareOp, literal: L, rows: Range<usize>, out: &mut [u64]) {
        let mut word = 0;
        self.packed.for_each_piece::<L>(rows, |piece| {
            let words = piece.len().div_ceil(64);
            bitmap::compare(op, piece, literal, &mut out[word..word + words]);
            word += words;
        });
    }
}
