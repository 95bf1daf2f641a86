//! What is done to packed values while they are unpacked, compiled for every [`crate::arch::Level`].
//!
//! Contract. Input: whole blocks of packed distances. Output: values, or bitmaps: 64 rows to a word, the
//! first in the lowest bit; or their sum. Predicates clear bits of a bitmap of rows that are still wanted; a block
//! without such rows is not read. Memory: registers, and a bitmap of one block.

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

/// Words of the bitmap of a block.
pub(crate) const BLOCK_WORDS: usize = BLOCK_ROWS / 64;

/// Consecutive blocks of packed distances; the width is not 0.
#[derive(Clone, Copy)]
pub(crate) struct Blocks<'a, L> {
    pub width: u32,
    pub lanes: &'a [L],
}

impl<'a, L: Lane> Blocks<'a, L> {
    /// The lanes of one block.
    #[inline(always)]
    pub fn block(&self, index: usize) -> &'a [L] {
        let length = lanes::block_lanes::<L>(self.width);
        &self.lanes[index * length..(index + 1) * length]
    }

    /// Asks for the part of a block, if there is one, that its `number`-th pair of units will be read from: on
    /// the way through the block before, because the processor's own look ahead ends at each page.
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
    /// Asks for where the value of a row lies.
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

/// Puts the bits of a pair of units that starts at row `first` of a block; no others have been put there.
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
