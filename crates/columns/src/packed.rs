//! A bit-packed sequence of integers: each is stored as its distance from a common reference, in as few bits as the
//! largest distance needs (frame of reference).
//!
//! Invariants: every distance is at most `max - reference`, which does not overflow as an unsigned 64-bit number;
//! `data` has whole blocks of 1024 values, the last one padded. A [`Packed`] that is built from bytes of a peer must be
//! checked by [`Packed::check`] before anything else. Example: with a reference of 10 and a `max` of 12, distances have
//! 2 bits. If a peer packs a distance of 3, the value is 13, which is outside the bounds from which it was concluded
//! that sums do not overflow.
//!
//! A *lane* is an unsigned integer type in which packed values are stored, and a value of that type.

use crate::arch::Level;
use crate::kernels::{Blocks, Gather, Pick, UnpackBlock, UnpackBlocks, UnpackEach};
use crate::lanes::{self, Lane};
use arrow_buffer::{Buffer, MutableBuffer};
use farpool_model::limits::BLOCK_ROWS;
use farpool_model::{Error, Result};
use std::mem::MaybeUninit;
use std::ops::Range;

/// A bit-packed sequence of integers.
#[derive(Clone, Debug)]
pub(crate) struct Packed {
    pub reference: i64,
    pub max: i64,
    pub width: u32,
    pub rows: usize,
    pub data: Buffer,
}

/// Evaluates `$body` with `$lane` as the name of the lane type for values of `$width` bits.
macro_rules! with_lane {
    ($width:expr, $lane:ident => $body:expr) => {
        match $crate::lanes::lane_bits($width) {
            8 => {
                type $lane = u8;
                $body
            }
            16 => {
                type $lane = u16;
                $body
            }
            32 => {
                type $lane = u32;
                $body
            }
            _ => {
                type $lane = u64;
                $body
            }
        }
    };
}
pub(crate) use with_lane;

impl Packed {
    /// Creates a sequence of `rows` equal values, which takes no memory for data.
    pub fn constant(value: i64, rows: usize) -> Packed {
        Packed { reference: value, max: value, width: 0, rows, data: Buffer::default() }
    }

    /// Packs distances from `reference`, the greatest of which must be `max - reference`. `fill` is called for each
    /// block and writes the distances of its rows into its argument.
    pub fn pack_with<L: Lane>(
        (reference, max): (i64, i64),
        rows: usize,
        mut fill: impl FnMut(Range<usize>, &mut [L]),
    ) -> Packed {
        let width = width_of(max.wrapping_sub(reference) as u64);
        let block_lanes = lanes::block_lanes::<L>(width);
        let mut data =
            MutableBuffer::from_len_zeroed(rows.div_ceil(BLOCK_ROWS) * block_lanes * size_of::<L>());
        if width > 0 {
            let mut values = [L::default(); BLOCK_ROWS];
            for (block, out) in data.typed_data_mut::<L>().chunks_exact_mut(block_lanes).enumerate() {
                let start = block * BLOCK_ROWS;
                let count = BLOCK_ROWS.min(rows - start);
                fill(start..start + count, &mut values[..count]);
                values[count..].fill(L::default());
                lanes::pack_block(width, &values, out);
            }
        }
        Packed { reference, max, width, rows, data: data.into() }
    }

    /// Packs values that are at most `max`, with reference 0.
    pub fn pack_u32(values: &[u32], max: u32) -> Packed {
        let bounds = (0, i64::from(max));
        with_lane!(width_of(u64::from(max)), L => Packed::pack_with::<L>(bounds, values.len(), |rows, out| {
            for (out, value) in out.iter_mut().zip(&values[rows]) {
                *out = L::truncate(u64::from(*value));
            }
        }))
    }

    /// Returns the width of the lanes, in bits.
    pub fn lane_bits(&self) -> u32 {
        lanes::lane_bits(self.width)
    }

    /// Returns the packed data as lanes; `L` must be the lane type for the width.
    pub fn lanes<L: Lane>(&self) -> &[L] {
        debug_assert_eq!(L::BITS, self.lane_bits());
        self.data.typed_data::<L>()
    }

    /// Returns the blocks from `block` on; the width must not be 0.
    pub fn blocks_from<L: Lane>(&self, block: usize) -> Blocks<'_, L> {
        Blocks { width: self.width, lanes: &self.lanes::<L>()[block * lanes::block_lanes::<L>(self.width)..] }
    }

    /// Calls `visit` with the distances of `rows` in consecutive pieces, each within one block.
    #[inline]
    pub fn for_each_piece<L: Lane>(&self, rows: Range<usize>, mut visit: impl FnMut(&[L])) {
        let mut values = [L::default(); BLOCK_ROWS];
        let mut row = rows.start;
        self.check_rows(&rows);
        while row < rows.end {
            let first = row % BLOCK_ROWS;
            let count = (BLOCK_ROWS - first).min(rows.end - row);
            self.unpack_block(row / BLOCK_ROWS, &mut values);
            visit(&values[first..first + count]);
            row += count;
        }
    }

    /// Replaces `out` by `map` of the distances of `rows`.
    pub fn unpack_with<L: Lane, T: Copy + Default>(
        &self,
        rows: Range<usize>,
        out: &mut Vec<T>,
        map: impl Fn(L) -> T + Copy,
    ) {
        self.check_rows(&rows);
        out.clear();
        out.reserve(rows.len());
        let mut row = rows.start;
        while row < rows.end {
            let (block, first) = (row / BLOCK_ROWS, row % BLOCK_ROWS);
            let blocks = if first == 0 { (rows.end - row) / BLOCK_ROWS } else { 0 };
            if blocks > 0 {
                self.append_blocks(block, blocks, out, map);
                row += blocks * BLOCK_ROWS;
                continue;
            }
            let count = (BLOCK_ROWS - first).min(rows.end - row);
            let mut values = [L::default(); BLOCK_ROWS];
            self.unpack_block(block, &mut values);
            out.extend(values[first..first + count].iter().map(|value| map(*value)));
            row += count;
        }
    }

    /// Calls `take` with `map` of the distances of `rows`, in consecutive pieces, each within one block.
    #[inline]
    pub fn unpack_to<L: Lane, T: Copy + Default>(
        &self,
        rows: Range<usize>,
        map: impl Fn(L) -> T + Copy,
        mut take: impl FnMut(&[T]),
    ) {
        self.check_rows(&rows);
        let mut mapped = [T::default(); BLOCK_ROWS];
        let mut row = rows.start;
        let take = |mapped: &[T; BLOCK_ROWS]| {
            let first = row % BLOCK_ROWS;
            let count = (BLOCK_ROWS - first).min(rows.end - row);
            take(&mapped[first..first + count]);
            row += count;
        };
        let first = rows.start / BLOCK_ROWS;
        let count = if rows.is_empty() { 0 } else { rows.end.div_ceil(BLOCK_ROWS) - first };
        if self.width == 0 {
            mapped.fill(map(L::default()));
            return std::iter::repeat_n(&mapped, count).for_each(take);
        }
        let blocks = self.blocks_from::<L>(first);
        Level::best().run(UnpackEach { blocks, count, mapped: &mut mapped, map, take });
    }

    /// Appends unpacked blocks to `out`, in memory that is not cleared first.
    #[expect(unsafe_code, reason = "clearing took as long as unpacking")]
    fn append_blocks<L: Lane, T: Copy>(
        &self,
        first: usize,
        count: usize,
        out: &mut Vec<T>,
        map: impl Fn(L) -> T,
    ) {
        let rows = count * BLOCK_ROWS;
        if self.width == 0 {
            return out.extend(std::iter::repeat_n(map(L::default()), rows));
        }
        out.reserve(rows);
        let length = out.len();
        let (room, _) = out.spare_capacity_mut()[..rows].as_chunks_mut::<BLOCK_ROWS>();
        let map = |value: L| MaybeUninit::new(map(value));
        Level::best().run(UnpackBlocks { blocks: self.blocks_from::<L>(first), out: room, map });
        // SAFETY: there was room for the blocks, and each of their values was written.
        unsafe { out.set_len(length + rows) }
    }

    fn unpack_block<L: Lane>(&self, block: usize, out: &mut [L; BLOCK_ROWS]) {
        if self.width == 0 {
            return out.fill(L::default());
        }
        Level::best().run(UnpackBlock { blocks: self.blocks_from::<L>(0), index: block, out });
    }

    /// Returns the `count` rows whose bits are set as a new sequence with the same bounds and width.
    pub fn pick(&self, selected: &[u64], count: usize) -> Packed {
        let mut data = Buffer::default();
        if self.width > 0 {
            with_lane!(self.width, L => {
                let lanes = count.div_ceil(BLOCK_ROWS) * lanes::block_lanes::<L>(self.width);
                let mut out = Vec::with_capacity(lanes);
                Level::best().run(Pick { blocks: self.blocks_from::<L>(0), selected, out: &mut out });
                data = Buffer::from_vec(out);
            });
        }
        Packed { rows: count, data, ..*self }
    }

    /// Returns the size of a block in bytes.
    fn block_bytes(&self) -> usize {
        BLOCK_ROWS / 8 * self.width as usize
    }

    fn check_rows(&self, rows: &Range<usize>) {
        assert!(rows.start <= rows.end && rows.end <= self.rows, "rows {rows:?} of {}", self.rows);
    }

    /// Returns the distance of one row.
    #[inline]
    pub fn delta_at<L: Lane>(&self, row: usize) -> L {
        if self.width == 0 {
            return L::default();
        }
        lanes::unpack_one(self.width, self.blocks_from(0).block(row / BLOCK_ROWS), row % BLOCK_ROWS)
    }

    /// Returns the value of one row.
    pub fn value_at(&self, row: usize) -> i64 {
        let delta = with_lane!(self.width, L => self.delta_at::<L>(row).widen());
        self.reference.wrapping_add(delta as i64)
    }

    /// Calls `visit` with the distance of each of `rows`, all of which must exist. Ascending rows are fastest.
    #[inline]
    pub fn for_each_of<L: Lane>(&self, rows: &[u32], mut visit: impl FnMut(L)) {
        if self.width == 0 {
            return rows.iter().for_each(|_| visit(L::default()));
        }
        Level::best().run(Gather { blocks: self.blocks_from::<L>(0), rows, visit });
    }

    /// Checks that the fields are consistent and no distance exceeds `max - reference`.
    ///
    /// # Errors
    /// `Corrupt` when they are not.
    pub fn check(&self) -> Result<()> {
        let range = self.max.wrapping_sub(self.reference) as u64;
        if self.max < self.reference || self.width != width_of(range) {
            return Err(Error::corrupt("packed integers whose bounds do not fit their width"));
        }
        let blocks = self.rows.div_ceil(BLOCK_ROWS);
        if self.data.len() != blocks * self.block_bytes() {
            return Err(Error::corrupt("packed integers of another number than rows"));
        }
        match with_lane!(self.width, L => self.is_within::<L>(range)) {
            true => Ok(()),
            false => Err(Error::corrupt("packed integers beyond their bounds")),
        }
    }

    /// Returns whether every distance is at most `range`, which must have no more bits than the width.
    fn is_within<L: Lane>(&self, range: u64) -> bool {
        let most = L::truncate(range);
        if self.width == L::BITS {
            let mut largest = L::default();
            self.for_each_piece::<L>(0..self.rows, |piece| {
                largest = piece.iter().fold(largest, |largest, distance| largest.max(*distance));
            });
            return largest <= most;
        }
        // No distance uses the highest bit of the lane, so that a difference has that bit exactly if the distance is
        // larger than `range`. Differences are vectorised on every level of CPU instructions, but maxima of 64-bit
        // integers are not; these took a fifth of the time of a scan from disk.
        let mut differences = L::default();
        self.for_each_piece::<L>(0..self.rows, |piece| {
            differences = piece.iter().fold(differences, |all, distance| all | most.minus(*distance));
        });
        differences.widen() >> (L::BITS - 1) == 0
    }
}

/// Returns the number of bits that integers up to `range` need.
pub(crate) fn width_of(range: u64) -> u32 {
    u64::BITS - range.leading_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_beyond_the_bounds_are_found_at_every_width() {
        let mut state = 5_u64;
        for width in 1..=u64::BITS {
            let all = u64::MAX >> (u64::BITS - width);
            for rows in [1, 1000, 3 * BLOCK_ROWS] {
                let mut random = |most: u64| {
                    state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                    (state ^ state >> 29) & most
                };
                let mut distances: Vec<u64> = (0..rows).map(|_| random(all)).collect();
                // The highest bit is set in one distance. The width then stays when the bound becomes the largest
                // distance, or one less.
                distances[rows / 2] |= all ^ all >> 1;
                let bounds = |range: u64| (i64::MIN, i64::MIN.wrapping_add(range as i64));
                let mut packed = with_lane!(width, L => Packed::pack_with::<L>(bounds(all), rows, |rows, out| {
                    out.iter_mut().zip(&distances[rows]).for_each(|(out, distance)| *out = L::truncate(*distance));
                }));
                let largest = *distances.iter().max().unwrap();
                for range in [all, largest, largest.wrapping_sub(1), all ^ all >> 1] {
                    packed.max = bounds(range).1;
                    let is_sound =
                        width_of(range) == width && distances.iter().all(|distance| *distance <= range);
                    assert_eq!(packed.check().is_ok(), is_sound, "{width} bits, {rows} rows, up to {range}");
                }
            }
        }
    }
}
