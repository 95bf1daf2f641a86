//! Kernels that unpack whole blocks of bit-packed values.

use super::Blocks;
use crate::arch::{Kernel, Simd};
use crate::lanes::{Lane, Pairs};
use farpool_model::limits::BLOCK_ROWS;

/// Kernel that unpacks one of the blocks and prefetches the next. The width must not be 0.
pub(crate) struct UnpackBlock<'a, L> {
    pub blocks: Blocks<'a, L>,
    pub index: usize,
    pub out: &'a mut [L; BLOCK_ROWS],
}

impl<L: Lane> Kernel for UnpackBlock<'_, L> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let UnpackBlock { blocks, index, out } = self;
        let pairs = Pairs::new(blocks.width, blocks.block(index));
        for number in 0..L::BITS {
            blocks.prefetch(simd, index + 1, number);
            let (first, left, right) = pairs.get(simd, number);
            let (left, right) = (left.as_ref(), right.as_ref());
            out[first..first + left.len()].copy_from_slice(left);
            out[first + left.len()..first + 2 * left.len()].copy_from_slice(right);
        }
    }
}

/// Kernel that unpacks as many blocks as `out` has room for, and writes `map` of each value. The width must not be 0.
pub(crate) struct UnpackBlocks<'a, L, T, F> {
    pub blocks: Blocks<'a, L>,
    pub out: &'a mut [[T; BLOCK_ROWS]],
    pub map: F,
}

impl<L: Lane, T, F: Fn(L) -> T> Kernel for UnpackBlocks<'_, L, T, F> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let UnpackBlocks { blocks, out, map } = self;
        // Cleared once for all blocks, because clearing takes a considerable part of the time of unpacking a block.
        let mut values = [L::default(); BLOCK_ROWS];
        for (index, out) in out.iter_mut().enumerate() {
            UnpackBlock { blocks, index, out: &mut values }.run(simd);
            // A separate loop, because the compiler vectorises it only if it is a single long loop.
            out.iter_mut().zip(&values).for_each(|(out, value)| *out = map(*value));
        }
    }
}

/// Kernel that unpacks `count` blocks one after the other, and calls `take` with `map` of the values of each. The width
/// must not be 0.
pub(crate) struct UnpackEach<'a, L, T, F, G> {
    pub blocks: Blocks<'a, L>,
    pub count: usize,
    /// Buffer for the mapped values of one block.
    pub mapped: &'a mut [T; BLOCK_ROWS],
    pub map: F,
    pub take: G,
}

impl<L: Lane, T, F: Fn(L) -> T, G: FnMut(&[T; BLOCK_ROWS])> Kernel for UnpackEach<'_, L, T, F, G> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let UnpackEach { blocks, count, mapped, map, mut take } = self;
        let mut values = [L::default(); BLOCK_ROWS];
        for index in 0..count {
            UnpackBlock { blocks, index, out: &mut values }.run(simd);
            mapped.iter_mut().zip(&values).for_each(|(mapped, value)| *mapped = map(*value));
            take(mapped);
        }
    }
}
