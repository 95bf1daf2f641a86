//! Unpacks a whole block.

use crate::arch::{Kernel, Simd};
use crate::lanes::{Lane, Pairs};
use farpool_model::limits::BLOCK_ROWS;

/// Writes `map` of each value of a block; the width is not 0.
pub(crate) struct UnpackBlock<'a, L, T, F> {
    pub width: u32,
    pub packed: &'a [L],
    pub out: &'a mut [T; BLOCK_ROWS],
    pub map: F,
}

impl<L: Lane, T, F: Fn(L) -> T> Kernel for UnpackBlock<'_, L, T, F> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let UnpackBlock { width, packed, out, map } = self;
        let pairs = Pairs::new(width, packed);
        for number in 0..L::BITS {
            let (first, left, right) = pairs.get(number);
            let (left, right) = (left.as_ref(), right.as_ref());
            let (lefts, rights) = out[first..first + 2 * left.len()].split_at_mut(left.len());
            lefts.iter_mut().zip(left).for_each(|(out, value)| *out = map(*value));
            rights.iter_mut().zip(right).for_each(|(out, value)| *out = map(*value));
        }
    }
}
