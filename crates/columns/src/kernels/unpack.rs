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
    fn run<S: Simd>(self, simd: S) {
        let UnpackBlock { width, packed, out, map } = self;
        let pairs = Pairs::new(width, packed);
        let mut values = [L::default(); BLOCK_ROWS];
        for number in 0..L::BITS {
            let (first, left, right) = pairs.get(simd, number);
            let (left, right) = (left.as_ref(), right.as_ref());
            values[first..first + left.len()].copy_from_slice(left);
            values[first + left.len()..first + 2 * left.len()].copy_from_slice(right);
        }
        // By itself, because one long loop is what the compiler makes vectors of.
        out.iter_mut().zip(&values).for_each(|(out, value)| *out = map(*value));
    }
}
