//! Kernels of moments (sums of products of pairs of columns) for any CPU: plain loops, which the compiler
//! vectorises for each level of CPU instructions.

use super::Kernel;
use crate::moments::matrix::{Bytes, Floats, LANES};
use std::ops::Range;

/// Sums the bytes of each column.
pub(super) struct ByteSums<'a>(pub(super) &'a Bytes, pub(super) &'a mut [u32]);

impl Kernel for ByteSums<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (column, sum) in self.1.iter_mut().enumerate() {
            *sum = self.0.column(column).iter().map(|byte| u32::from(*byte)).sum();
        }
    }
}

/// Sums over all rows of the products of pairs of byte columns.
pub(super) struct ByteProducts<'a> {
    pub(super) matrix: &'a Bytes,
    pub(super) left: Range<usize>,
    pub(super) right: Range<usize>,
    pub(super) to: &'a mut [u32],
    pub(super) width: usize,
}

impl Kernel for ByteProducts<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (i, row) in self.left.zip(self.to.chunks_mut(self.width)) {
            let left = self.matrix.column(i);
            for (j, to) in self.right.clone().zip(row) {
                let pairs = left.iter().zip(self.matrix.column(j));
                *to = pairs.map(|(a, b)| u32::from(u16::from(*a) * u16::from(*b))).sum();
            }
        }
    }
}

/// Sums over all rows of the products of pairs of float columns.
pub(super) struct FloatProducts<'a> {
    pub(super) matrix: &'a Floats,
    pub(super) left: Range<usize>,
    pub(super) right: Range<usize>,
    pub(super) to: &'a mut [f64],
    pub(super) width: usize,
}

impl Kernel for FloatProducts<'_> {
    type Output = ();

    /// Multiplies four columns on the left with a group of columns on the right at a time.
    #[inline(always)]
    fn run(self) {
        let first = self.right.start;
        for i in self.left.clone().step_by(4) {
            for j in self.right.clone().step_by(LANES) {
                let group = self.matrix.group(j / LANES);
                let left: [&[f64]; 4] = std::array::from_fn(|k| self.matrix.column(i + k));
                let mut sums = [[0.0; LANES]; 4];
                for (r, values) in group.iter().enumerate() {
                    for k in 0..4 {
                        let a = left[k][r];
                        (0..LANES).for_each(|lane| sums[k][lane] += a * values[lane]);
                    }
                }
                for (k, sums) in sums.iter().enumerate() {
                    let at = (i - self.left.start + k) * self.width + j - first;
                    self.to[at..at + LANES].copy_from_slice(sums);
                }
            }
        }
    }
}
