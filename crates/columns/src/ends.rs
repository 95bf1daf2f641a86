//! Ends of the values in a sequence of consecutive byte strings.
//!
//! The ends in a block of 1024 values are close to a straight line, so only their distances from a line are stored,
//! bit-packed. This takes a tenth to a quarter of plain 32-bit offsets, and any single end can still be read directly
//! (packed lengths would be smaller, but would have to be summed up from the start of the block). Invariant, once built
//! or checked: the ends ascend, and the last one is the length of the bytes. Example of ends that do not: with 3, 2 the
//! second string would start at 3 and end at 2.

use crate::lanes::Lane;
use crate::packed::{Packed, width_of, with_lane};
use arrow_buffer::Buffer;
use farpool_model::limits::BLOCK_ROWS;
use farpool_model::{Error, Result};
use std::ops::Range;

/// Ends of byte strings.
#[derive(Clone, Debug)]
pub(crate) struct Ends {
    /// One line for each block.
    pub lines: Buffer,
    /// Distances of the ends from the lines. No end is below its line.
    pub above: Packed,
}

/// Line below the ends of a block: for the i-th value `base + (slope * i >> SLOPE_BITS)`, modulo 2^32. The unit of the
/// slope is 1/1024 byte.
#[derive(Clone, Copy)]
struct EndsLine {
    base: u32,
    slope: u32,
}

const SLOPE_BITS: u32 = BLOCK_ROWS.trailing_zeros();

impl EndsLine {
    #[inline(always)]
    fn at(self, index: usize) -> u32 {
        // The product has at most 42 bits, and ends are below 2^31, so that the result modulo 2^32 is right.
        self.base.wrapping_add(((u64::from(self.slope) * index as u64) >> SLOPE_BITS) as u32)
    }

    /// Returns the highest line that has the average slope of the ends and exceeds none of them.
    fn below(start: u32, ends: &[u32]) -> EndsLine {
        let last = ends.last().copied().unwrap_or(start);
        let slope = u64::from(last - start) * BLOCK_ROWS as u64 / ends.len().max(1) as u64;
        let line = EndsLine { base: start, slope: u32::try_from(slope).unwrap_or(u32::MAX) };
        let distances = ends.iter().enumerate().map(|(i, end)| end.wrapping_sub(line.at(i)) as i32);
        let lowest = distances.min().unwrap_or(0);
        EndsLine { base: start.wrapping_add(lowest as u32), ..line }
    }
}

impl Ends {
    /// Encodes ends, which must ascend and be below 2^31.
    pub fn new(ends: &[u32]) -> Ends {
        let mut start = 0;
        let mut lines = Vec::with_capacity(ends.len().div_ceil(BLOCK_ROWS));
        let mut above = Vec::with_capacity(ends.len());
        for block in ends.chunks(BLOCK_ROWS) {
            let line = EndsLine::below(start, block);
            above.extend(block.iter().enumerate().map(|(i, end)| end.wrapping_sub(line.at(i))));
            lines.extend([line.base, line.slope]);
            start = block.last().copied().unwrap_or(start);
        }
        let max = above.iter().copied().max().unwrap_or(0);
        Ends { lines: Buffer::from_vec(lines), above: Packed::pack_u32(&above, max) }
    }

    /// Returns the number of values.
    pub fn rows(&self) -> usize {
        self.above.rows
    }

    fn line(&self, block: usize) -> EndsLine {
        let lines = self.lines.typed_data::<u32>();
        EndsLine { base: lines[2 * block], slope: lines[2 * block + 1] }
    }

    /// Returns the byte range of the value of `row`.
    #[inline]
    pub fn range(&self, row: usize) -> Range<usize> {
        let start = if row == 0 { 0 } else { self.end(row - 1) };
        start as usize..self.end(row) as usize
    }

    fn end(&self, row: usize) -> u32 {
        let above = with_lane!(self.above.width, L => self.above.delta_at::<L>(row).widen());
        self.line(row / BLOCK_ROWS).at(row % BLOCK_ROWS).wrapping_add(above as u32)
    }

    /// Returns the ends of the values of `rows`, preceded by the start of the first one.
    pub fn bounds(&self, rows: Range<usize>) -> Vec<u32> {
        let mut bounds = Vec::with_capacity(rows.len() + 1);
        bounds.push(if rows.start == 0 { 0 } else { self.end(rows.start - 1) });
        let mut row = rows.start;
        with_lane!(self.above.width, L => self.above.for_each_piece::<L>(rows, |piece| {
            let (line, first) = (self.line(row / BLOCK_ROWS), row % BLOCK_ROWS);
            let ends = piece.iter().enumerate();
            bounds.extend(ends.map(|(i, above)| line.at(first + i).wrapping_add(above.widen() as u32)));
            row += piece.len();
        }));
        bounds
    }

    /// Checks that these are the ends of `rows` values which take `bytes` bytes together.
    ///
    /// # Errors
    /// `Corrupt` when they are not.
    pub fn check(&self, rows: usize, bytes: usize) -> Result<()> {
        let fits = self.above.rows == rows && self.lines.len() == rows.div_ceil(BLOCK_ROWS) * 8;
        if !fits || self.above.reference != 0 || width_of(self.above.max as u64) > 32 {
            return Err(Error::corrupt("ends of strings of another number than rows"));
        }
        self.above.check()?;
        let bounds = self.bounds(0..rows);
        if !bounds.is_sorted() || bounds.last().copied().unwrap_or(0) as usize != bytes {
            return Err(Error::corrupt("ends of strings that do not ascend to the end of their bytes"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ends_of(lengths: &[u32]) -> Vec<u32> {
        lengths
            .iter()
            .scan(0, |end, length| {
                *end += length;
                Some(*end)
            })
            .collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn ends_come_back_whole_and_one_by_one(
            lengths in prop::collection::vec(prop_oneof![8 => 0..40u32, 1 => 0..100_000u32], 0..3000),
        ) {
            let ends = ends_of(&lengths);
            let packed = Ends::new(&ends);
            packed.check(ends.len(), ends.last().copied().unwrap_or(0) as usize).unwrap();
            prop_assert_eq!(&packed.bounds(0..ends.len())[1..], &ends[..]);
            for row in (0..ends.len()).step_by(37) {
                let start = if row == 0 { 0 } else { ends[row - 1] };
                prop_assert_eq!(packed.range(row), start as usize..ends[row] as usize);
            }
        }
    }

    #[test]
    fn ends_of_equal_lengths_take_no_more_than_their_lines() {
        let packed = Ends::new(&ends_of(&[17; 2048]));
        assert_eq!((packed.lines.len(), packed.above.data.len()), (2 * 8, 0));
    }

    #[test]
    fn one_huge_value_is_no_trouble_for_the_line() {
        let ends = [(1 << 31) - 1];
        let packed = Ends::new(&ends);
        packed.check(1, ends[0] as usize).unwrap();
        assert_eq!(packed.range(0), 0..ends[0] as usize);
    }
}
