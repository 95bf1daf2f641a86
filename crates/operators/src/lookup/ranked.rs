//! Numbers integers of a range in ascending order: a bitmap of the integers that occur, with the number of those before
//! each word (Jacobson, *Space-efficient static trees and graphs*, FOCS 1989).
//!
//! A range of 64 times as many integers as occur takes as much memory as a hash table of them, and is found in one
//! cache line each, without comparing keys.

use super::NONE;
use farpool_columns::working;
use farpool_model::cast::u32_checked;

/// Integers of a block.
const BLOCK: usize = u64::BITS as usize;

/// Bytes of the bitmap for each integer of the range, as a divisor.
const INTEGERS_PER_BYTE: usize = BLOCK / size_of::<Block>();

/// The integers that occur. First they are added, then counted, then numbered.
#[derive(Default)]
pub(super) struct Ranked {
    blocks: Vec<Block>,
    /// Number of blocks that are counted, and the integers in them.
    counted: usize,
    count: usize,
}

/// The integers that occur of [`BLOCK`] consecutive ones, as bits, and the number of those before.
#[derive(Clone, Copy, Default)]
struct Block {
    bits: u64,
    before: u32,
}

impl Ranked {
    /// Returns the bytes that integers below `span` take.
    pub(super) fn bytes_of(span: usize) -> usize {
        span / INTEGERS_PER_BYTE
    }

    /// Makes room for integers below `span`, at most `at_once` bytes at a time, but at least 16. Returns whether more room is
    /// to be made.
    pub(super) fn make_room(&mut self, span: usize, at_once: usize) -> bool {
        let wanted = span.div_ceil(BLOCK);
        let made = self.blocks.len();
        working::reserve(&mut self.blocks, wanted - made);
        self.blocks.resize(wanted.min(made + at_once / size_of::<Block>()), Block::default());
        self.blocks.len() < wanted
    }

    /// Adds integers for which there is room.
    pub(super) fn add(&mut self, integers: &[i64]) {
        for integer in integers {
            self.blocks[*integer as usize / BLOCK].bits |= 1 << (*integer as usize % BLOCK);
        }
    }

    /// Counts the integers that were added, reading at most `at_once` bytes, but at least 16. Returns whether there are more
    /// to be counted.
    pub(super) fn count_some(&mut self, at_once: usize) -> bool {
        let end = self.blocks.len().min(self.counted + at_once / size_of::<Block>());
        for block in &mut self.blocks[self.counted..end] {
            block.before = u32_checked(self.count);
            self.count += block.bits.count_ones() as usize;
        }
        self.counted = end;
        end < self.blocks.len()
    }

    /// Returns the number of different integers that were counted.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Returns the number of an integer, or [`NONE`] if it does not occur.
    #[inline(always)]
    pub(super) fn number(&self, integer: u64) -> u32 {
        let block = usize::try_from(integer / BLOCK as u64).ok().and_then(|block| self.blocks.get(block));
        let Block { bits, before } = block.copied().unwrap_or_default();
        let bit = 1 << (integer % BLOCK as u64);
        // Computed in any case, because a branch that depends on the data would be mispredicted.
        let number = before + (bits & (bit - 1)).count_ones();
        if bits & bit == 0 { NONE } else { number }
    }

    /// Returns the bytes of memory that the integers take.
    pub(super) fn bytes(&self) -> usize {
        self.blocks.capacity() * size_of::<Block>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::random::Random;
    use std::collections::BTreeSet;

    #[test]
    fn integers_are_numbered_in_their_order() {
        let mut random = Random::new(7);
        for span in [1, 63, 64, 65, 1000, 5000] {
            let integers: Vec<i64> = (0..span / 3 + 1).map(|_| random.below(span) as i64).collect();
            let mut ranked = Ranked::default();
            while ranked.make_room(span, 64) {}
            integers.chunks(10).for_each(|integers| ranked.add(integers));
            while ranked.count_some(64) {}
            let sorted: BTreeSet<i64> = integers.iter().copied().collect();
            assert_eq!(ranked.count(), sorted.len());
            assert!(ranked.bytes() >= Ranked::bytes_of(span));
            for integer in 0..span as i64 + 200 {
                let number = sorted.iter().position(|known| *known == integer);
                assert_eq!(ranked.number(integer as u64), number.map_or(NONE, |number| number as u32));
            }
            assert_eq!(ranked.number(u64::MAX), NONE);
        }
    }
}
