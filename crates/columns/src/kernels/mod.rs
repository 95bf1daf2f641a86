//! Kernels: operations on packed values that are fused with unpacking, compiled for every
//! [`crate::arch::Level`].
//!
//! Input: whole blocks of bit-packed distances from a common reference. Output: values, their sum, or bitmaps with 64
//! rows per word and the first row in the lowest bit. Predicates clear bits in a bitmap of the rows that are still
//! selected; a block without such rows is not read. Besides input and output, a kernel uses registers and a bitmap of
//! one block.
//!
//! Terms: a *lane* is an unsigned integer type in which packed values are stored, and a value of that type. A *unit*
//! is 64 bytes of lanes.

mod gather;
mod pick;
mod retain;
mod sum;
#[cfg(test)]
mod tests;
mod thin;
mod unpack;

pub(crate) use gather::Gather;
pub(crate) use pick::Pick;
pub(crate) use retain::{Member, MemberByte, Retain, RetainAtMost, RetainPlain, Within};
pub(crate) use sum::Sum;
pub(crate) use thin::{SLOT, Thin, Thinned};
pub(crate) use unpack::{UnpackBlock, UnpackBlocks, UnpackEach};

use crate::arch::Simd;
use crate::lanes::{self, Lane};
use farpool_model::limits::BLOCK_ROWS;

/// Number of words in the bitmap of a block.
pub(crate) const BLOCK_WORDS: usize = BLOCK_ROWS / 64;

/// Consecutive blocks of bit-packed distances. The width in bits must not be 0, since such blocks have no data.
#[derive(Clone, Copy)]
pub(crate) struct Blocks<'a, L> {
    pub width: u32,
    pub lanes: &'a [L],
}

impl<'a, L: Lane> Blocks<'a, L> {
    /// Returns the lanes of one block.
    #[inline(always)]
    pub fn block(&self, index: usize) -> &'a [L] {
        let length = lanes::block_lanes::<L>(self.width);
        &self.lanes[index * length..(index + 1) * length]
    }

    /// Prefetches the memory of a block, if it exists, for its pair of units (64 bytes of values each) with index
    /// `number`. Called while the block before is processed, because the hardware prefetcher stops at each page of
    /// memory.
    #[inline(always)]
    pub fn prefetch<S: Simd>(&self, simd: S, index: usize, number: u32) {
        let word = (number * self.width / L::BITS) as usize * (BLOCK_ROWS / L::BITS as usize);
        let start = index * lanes::block_lanes::<L>(self.width) + word;
        for half in [0, BLOCK_ROWS / L::BITS as usize / 2] {
            if let Some(lane) = self.lanes.get(start + half) {
                simd.prefetch(lane);
            }
        }
    }
}

impl<L: Lane> Blocks<'_, L> {
    /// Prefetches the lanes that hold the value of a row.
    #[inline(always)]
    pub fn prefetch_one<S: Simd>(&self, simd: S, row: usize) {
        let start = row / BLOCK_ROWS * lanes::block_lanes::<L>(self.width);
        for lane in lanes::lanes_of::<L>(self.width, row % BLOCK_ROWS) {
            if let Some(lane) = self.lanes.get(start + lane) {
                simd.prefetch(lane);
            }
        }
    }
}

/// Writes the bitmap of a pair of units (64 bytes of values each) that starts at row `first` of a block. Its bits
/// must be clear before.
#[inline(always)]
fn put<L: Lane>(bits: &mut [u64; BLOCK_WORDS], first: usize, pair: [u64; 2]) {
    let word = first / 64 % BLOCK_WORDS;
    if L::BITS == 8 {
        bits[word] = pair[0];
        bits[word + 1] = pair[1];
    } else {
        bits[word] |= (pair[0] | pair[1] << (512 / L::BITS)) << (first % 64);
    }
}
