//! Operations on the bit-packed integers of a chunk without decoding them to an array. Values are processed in lanes
//! (unsigned integer types) as narrow as they permit.

use crate::arch::Level;
use crate::kernels::{Blocks, Member, MemberByte, Retain, RetainAtMost, Sum, Within};
use crate::lanes::Lane;
use crate::packed::{Packed, width_of, with_lane};
use farpool_model::CompareOp;
use farpool_model::limits::BLOCK_ROWS;
use std::ops::Range;

/// Integers of a chunk. Each is [`Integers::min`] plus a distance. Distances are bit-packed and are processed in lanes
/// of [`Integers::lane_bits`] bits. NULL rows have an arbitrary value between minimum and maximum.
#[derive(Clone, Copy, Debug)]
pub struct Integers<'a> {
    packed: &'a Packed,
}

impl<'a> Integers<'a> {
    pub(crate) fn new(packed: &'a Packed) -> Self {
        Integers { packed }
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.packed.rows
    }

    /// Returns a lower bound of the values, from which distances are counted.
    pub fn min(&self) -> i64 {
        self.packed.reference
    }

    /// Returns an upper bound of the values.
    pub fn max(&self) -> i64 {
        self.packed.max
    }

    /// Returns the number of bits of the integers to which distances are unpacked: 8, 16, 32 or 64.
    pub fn lane_bits(&self) -> u32 {
        self.packed.lane_bits()
    }

    /// Replaces `out` by the values of `rows`.
    ///
    /// # Panics
    /// When these rows do not exist.
    pub fn unpack(&self, rows: Range<usize>, out: &mut Vec<i64>) {
        let reference = self.packed.reference;
        with_lane!(self.packed.width, L => self.packed.unpack_with::<L, i64>(rows, out, |delta| {
            reference.wrapping_add(delta.widen() as i64)
        }));
    }

    /// Replaces `out` by the values of the given rows; ascending rows are fastest.
    ///
    /// # Panics
    /// When one of the rows does not exist.
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
    /// When these rows do not exist, or `lane_bits()` is not 8.
    pub fn unpack_deltas_u8(&self, rows: Range<usize>, out: &mut Vec<u8>) {
        self.unpack_deltas(rows, out);
    }

    /// Replaces `out` by the distances of `rows` from [`Integers::min`].
    ///
    /// # Panics
    /// When these rows do not exist, or `lane_bits()` is not 16.
    pub fn unpack_deltas_u16(&self, rows: Range<usize>, out: &mut Vec<u16>) {
        self.unpack_deltas(rows, out);
    }

    /// Replaces `out` by the distances of `rows` from [`Integers::min`].
    ///
    /// # Panics
    /// When these rows do not exist, or `lane_bits()` is not 32.
    pub fn unpack_deltas_u32(&self, rows: Range<usize>, out: &mut Vec<u32>) {
        self.unpack_deltas(rows, out);
    }

    /// Replaces `out` by the distances of `rows` from [`Integers::min`] as 32-bit integers, also if they fit fewer
    /// bits.
    ///
    /// # Panics
    /// When these rows do not exist, or `lane_bits()` is 64.
    pub fn widen_deltas_u32(&self, rows: Range<usize>, out: &mut Vec<u32>) {
        assert!(self.lane_bits() <= u32::BITS, "distances of {} bits", self.lane_bits());
        with_lane!(self.packed.width, L => self.packed.unpack_with::<L, u32>(rows, out, |delta| {
            delta.widen() as u32
        }));
    }

    /// Replaces `out` by `start` plus the distances of `rows` from [`Integers::min`], modulo 2^64.
    ///
    /// # Panics
    /// When these rows do not exist.
    pub fn unpack_deltas_from(&self, start: u64, rows: Range<usize>, out: &mut Vec<u64>) {
        with_lane!(self.packed.width, L => self.packed.unpack_with::<L, u64>(rows, out, |delta| {
            start.wrapping_add(delta.widen())
        }));
    }

    fn unpack_deltas<L: Lane>(&self, rows: Range<usize>, out: &mut Vec<L>) {
        assert_eq!(self.lane_bits(), L::BITS, "distances are held in other lanes");
        self.packed.unpack_with::<L, L>(rows, out, |delta| delta);
    }

    /// Returns the sum of the distances from [`Integers::min`] of `rows` rows from `start` on, which must be a multiple
    /// of 1024. If `selected` is given, only rows whose bit is set count; bit 0 is row `start`. Blocks of 1024 rows
    /// without a set bit are not read.
    ///
    /// # Panics
    /// When `start` is no multiple of 1024, the rows do not exist, or there are fewer bits than rows.
    pub fn sum_deltas(&self, start: usize, rows: usize, selected: Option<&[u64]>) -> u128 {
        assert!(start.is_multiple_of(BLOCK_ROWS), "sums start at a block");
        assert!(rows <= self.rows().saturating_sub(start), "{rows} rows from {start} of {}", self.rows());
        assert!(
            selected.is_none_or(|words| words.len() >= rows.div_ceil(64)),
            "a bit for each of {rows} rows"
        );
        if self.packed.width == 0 {
            return 0;
        }
        with_lane!(self.packed.width, L => {
            Level::best().run(Sum { blocks: self.blocks::<L>(start), rows, selected })
        })
    }

    /// Clears the bits of rows whose value is not between `low` and `high`, both included; with `inside` false, of
    /// rows whose value is. The result for NULL rows is unspecified. Bit 0 of `alive` is row `start`, which must be a
    /// multiple of 1024. `alive` must not have more words than the rows from `start` on need.
    ///
    /// If minimum and maximum decide, no values are read. Blocks of 1024 rows without a set bit are not read either.
    /// Values are compared in lanes as narrow as they permit.
    ///
    /// # Panics
    /// When `start` is no multiple of 1024 or there are too many bits.
    pub fn retain_within(&self, low: i128, high: i128, inside: bool, start: usize, alive: &mut [u64]) {
        self.check_start(start, alive);
        let (min, max) = (i128::from(self.min()), i128::from(self.max()));
        if low > high || high < min || max < low {
            return if inside {
                alive.fill(0)
            };
        }
        if low <= min && max <= high {
            return if !inside {
                alive.fill(0)
            };
        }
        // Both limits are between minimum and maximum now, so that their distances from the minimum fit the lanes.
        let (low, high) = (low.max(min), high.min(max));
        let (low, span) = ((low - min) as u64, (high - low) as u64);
        with_lane!(self.packed.width, L => {
            let condition = Within { low: L::truncate(low), span: L::truncate(span) };
            Level::best().run(Retain { blocks: self.blocks::<L>(start), condition, inside, alive });
        });
    }

    /// Clears the bits of rows whose value is not in `set`; with `inside` false, of rows whose value is.
    /// Otherwise as [`Integers::retain_within`].
    ///
    /// # Panics
    /// As [`Integers::retain_within`].
    pub fn retain_members(&self, set: &IntegerSet, inside: bool, start: usize, alive: &mut [u64]) {
        self.check_start(start, alive);
        let offset = i128::from(self.min()) - i128::from(set.first);
        if self.packed.width == 0 {
            return if set.contains(self.min()) != inside {
                alive.fill(0)
            };
        }
        if self.lane_bits() == 8 {
            let condition = MemberByte { set: &set.bytes_from(offset) };
            return Level::best().run(Retain { blocks: self.blocks(start), condition, inside, alive });
        }
        let last = i128::from(self.max()) - i128::from(set.first);
        let near = -(1 << 31)..1 << 31;
        if !near.contains(&offset) || !near.contains(&last) {
            return self.retain_far_members(set, inside, start, alive);
        }
        // A negative sum wraps to 2^31 or more, which is beyond the end of every set.
        let condition = Member { offset: offset as u32, set: &set.halves };
        match self.lane_bits() {
            16 => Level::best().run(Retain { blocks: self.blocks::<u16>(start), condition, inside, alive }),
            _ => Level::best().run(Retain { blocks: self.blocks::<u32>(start), condition, inside, alive }),
        }
    }

    /// Tests row by row. Efficient enough, because if the values are spread so widely, few rows are left or few
    /// values are in the set.
    fn retain_far_members(&self, set: &IntegerSet, inside: bool, start: usize, alive: &mut [u64]) {
        let last = set.first.saturating_add(set.halves.len() as i64 * 32);
        let mut near = alive.to_vec();
        self.retain_within(set.first.into(), last.into(), true, start, &mut near);
        for (index, (word, near)) in alive.iter_mut().zip(near).enumerate() {
            let member = |bit: usize| set.contains(self.packed.value_at(start + index * 64 + bit));
            let members = (0..64).filter(|bit| near >> bit & 1 == 1 && member(*bit));
            let members = members.fold(0, |bits, bit| bits | 1 << bit);
            *word &= if inside { members } else { !members };
        }
    }

    /// Clears the bits of rows for which `value op other` is false, where `other` is the value of the same row in
    /// `other`. Otherwise as [`Integers::retain_within`].
    ///
    /// # Panics
    /// As [`Integers::retain_within`], for each of the two operands.
    pub fn retain_compared(&self, op: CompareOp, other: &Integers<'_>, start: usize, alive: &mut [u64]) {
        match op {
            CompareOp::LtEq => self.retain_at_most(other, true, start, alive),
            CompareOp::Gt => self.retain_at_most(other, false, start, alive),
            CompareOp::GtEq => other.retain_at_most(self, true, start, alive),
            CompareOp::Lt => other.retain_at_most(self, false, start, alive),
            CompareOp::Eq => {
                self.retain_at_most(other, true, start, alive);
                other.retain_at_most(self, true, start, alive);
            }
            CompareOp::NotEq => {
                let before = alive.to_vec();
                self.retain_compared(CompareOp::Eq, other, start, alive);
                alive.iter_mut().zip(before).for_each(|(equal, before)| *equal = before & !*equal);
            }
        }
    }

    fn retain_at_most(&self, other: &Integers<'_>, inside: bool, start: usize, alive: &mut [u64]) {
        self.check_start(start, alive);
        other.check_start(start, alive);
        let (min, max) = (self.min().min(other.min()), self.max().max(other.max()));
        let offset = |integers: &Integers<'_>| integers.min().wrapping_sub(min) as u64;
        let (left_offset, right_offset) = (offset(self), offset(other));
        with_lane!(self.packed.width, L => with_lane!(other.packed.width, R => {
            with_lane!(width_of(max.wrapping_sub(min) as u64), W => Level::best().run(RetainAtMost {
                left: self.blocks::<L>(start),
                left_offset: W::truncate(left_offset),
                right: other.blocks::<R>(start),
                right_offset: W::truncate(right_offset),
                inside,
                alive,
            }))
        }));
    }

    fn blocks<L: Lane>(&self, start: usize) -> Blocks<'_, L> {
        self.packed.blocks_from(start / BLOCK_ROWS)
    }

    fn check_start(&self, start: usize, alive: &[u64]) {
        assert!(start.is_multiple_of(BLOCK_ROWS), "predicates start at a block");
        let words = self.rows().saturating_sub(start).div_ceil(64);
        assert!(alive.len() <= words, "{} words of bits for the rows from {start}", alive.len());
    }
}

/// Set of integers in a narrow range, as a bitmap.
#[derive(Clone, Debug)]
pub struct IntegerSet {
    first: i64,
    /// The bitmap in words of 32 bits, because vectors of indices have 32-bit lanes, too.
    halves: Vec<u32>,
}

impl IntegerSet {
    /// Creates the set of all integers `first + i` for which `holds(i)` is true, where `i` is less than `count`.
    ///
    /// # Panics
    /// When `count` is 2^31 or more.
    pub fn new(first: i64, count: usize, holds: impl Fn(usize) -> bool) -> IntegerSet {
        assert!(count < 1 << 31, "a bitmap of {count} bits");
        let bit = |i: usize| u32::from(i < count && holds(i)) << (i % 32);
        let half = |half: usize| (half * 32..half * 32 + 32).map(bit).fold(0, |bits, bit| bits | bit);
        IntegerSet { first, halves: (0..count.div_ceil(32)).map(half).collect() }
    }

    /// Creates the set of integers whose bits are set in `words`; the lowest bit of the first word stands for `first`.
    ///
    /// # Panics
    /// When there are 2^31 bits or more.
    pub fn of_bitmap(first: i64, words: &[u64]) -> IntegerSet {
        assert!(words.len() < 1 << 25, "a bitmap of {} words", words.len());
        IntegerSet {
            first,
            halves: words.iter().flat_map(|word| [*word as u32, (word >> 32) as u32]).collect(),
        }
    }

    /// Creates the set of `integers`, which must be in ascending order.
    ///
    /// # Panics
    /// When the last is 2^31 or more above the first.
    pub fn of_sorted(integers: &[i64]) -> IntegerSet {
        let (first, last) = (integers.first().copied().unwrap_or(0), integers.last().copied().unwrap_or(0));
        let span = last.wrapping_sub(first) as u64;
        assert!(span < (1 << 31) - 32, "a bitmap of {span} bits");
        let mut halves = vec![0; (span / 32) as usize + 1];
        for integer in integers {
            let bit = integer.wrapping_sub(first) as u64;
            halves[(bit / 32) as usize] |= 1 << (bit % 32);
        }
        IntegerSet { first, halves }
    }

    /// Returns whether the set has `integer`.
    #[inline]
    pub fn contains(&self, integer: i64) -> bool {
        let bit = integer.wrapping_sub(self.first) as u64;
        let half = usize::try_from(bit / 32).ok().and_then(|half| self.halves.get(half));
        integer >= self.first && half.is_some_and(|half| half >> (bit % 32) & 1 == 1)
    }

    /// Returns 256 bits of the bitmap from bit `offset` on; bits outside the bitmap are 0.
    fn bytes_from(&self, offset: i128) -> [u8; 32] {
        std::array::from_fn(|byte| {
            let bit = |bit: usize| {
                let at = offset + (byte * 8 + bit) as i128;
                let half = usize::try_from(at >> 5).ok().and_then(|half| self.halves.get(half));
                half.is_some_and(|half| half >> (at & 31) & 1 == 1)
            };
            (0..8).map(|i| u8::from(bit(i)) << i).fold(0, |bits, bit| bits | bit)
        })
    }
}
