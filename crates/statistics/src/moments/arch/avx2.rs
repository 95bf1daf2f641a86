//! Kernels of moments for AVX2: sums of products of byte columns. Bytes are widened to 16 bits, and one
//! instruction multiplies and adds two rows of eight columns.
//!
//! A *tile* is the sums of products of some columns, which are kept in registers.

use crate::moments::matrix::{Bytes, GROUP, LINE};
use std::arch::x86_64::*;
use std::ops::Range;

/// Number of columns on the left of a tile of products. Reason: with 16 columns on the right, the sums of a tile take
/// half of the registers.
const TILE: usize = 4;

/// Number of 32-bit numbers per register.
const NUMBERS: usize = 8;

/// Interleaves the bytes of each group of 16 columns, for each line of 64 rows, in units of four rows (quads): the
/// quads of all 16 columns for the first four rows, then those for the next four rows, and so on.
pub(super) fn interleave(matrix: &mut Bytes) {
    let (stride, group_stride, lines) = (matrix.stride(), matrix.group_stride(), matrix.lines());
    let (plain, interleaved) = matrix.both_mut();
    for (group, to) in interleaved.chunks_exact_mut(group_stride).enumerate() {
        for (line, to) in to.as_chunks_mut::<{ GROUP * LINE }>().0[..lines].iter_mut().enumerate() {
            for column in 0..GROUP {
                let from = &plain[(group * GROUP + column) * stride + line * LINE..][..LINE];
                let to = to[4 * column..].chunks_mut(LINE);
                from.as_chunks::<4>().0.iter().zip(to).for_each(|(from, to)| to[..4].copy_from_slice(from));
            }
        }
    }
}

/// Computes the sums over all rows of the products of pairs of byte columns.
///
/// # Safety
/// The CPU must support AVX2; the ranges and the length of `to` must have been checked; the matrix must be interleaved.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn byte_products(
    matrix: &Bytes,
    (left, right): (Range<usize>, Range<usize>),
    to: &mut [u32],
    width: usize,
) {
    for i in left.clone().step_by(TILE) {
        for j in right.clone().step_by(GROUP) {
            let at = &mut to[(i - left.start) * width + j - right.start..];
            // SAFETY: the caller guarantees AVX2 and the size of `to`.
            unsafe { byte_tile(matrix, i, j / GROUP, at, width) }
        }
    }
}

/// Computes the sums of products of 4 columns, from column `i` on, with the columns of a group. The even and the odd
/// bytes of each four rows are widened separately, which needs only a mask and a shift.
///
/// # Safety
/// As [`byte_products`].
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn byte_tile(matrix: &Bytes, i: usize, group: usize, to: &mut [u32], width: usize) {
    let mut tile = [[_mm256_setzero_si256(); 2]; TILE];
    let left: [&[u8]; TILE] = std::array::from_fn(|k| matrix.column(i + k));
    let right = matrix.interleaved(group);
    let low_bytes = _mm256_set1_epi16(0xff);
    for quad in 0..matrix.lines() * LINE / 4 {
        // SAFETY: for each quad (four rows), a column has 4 bytes and a group 64.
        unsafe {
            let right: [__m256i; 2] =
                std::array::from_fn(|n| _mm256_loadu_si256(right.as_ptr().add(64 * quad + 32 * n).cast()));
            let even = right.map(|right| _mm256_and_si256(right, low_bytes));
            let odd = right.map(|right| _mm256_srli_epi16::<8>(right));
            for k in 0..TILE {
                let left = _mm256_set1_epi32(left[k].as_ptr().add(4 * quad).cast::<i32>().read_unaligned());
                let left = (_mm256_and_si256(left, low_bytes), _mm256_srli_epi16::<8>(left));
                for n in 0..2 {
                    let products = (_mm256_madd_epi16(left.0, even[n]), _mm256_madd_epi16(left.1, odd[n]));
                    let products = _mm256_add_epi32(products.0, products.1);
                    tile[k][n] = _mm256_add_epi32(tile[k][n], products);
                }
            }
        }
    }
    for (k, tile) in tile.iter().enumerate() {
        for (n, tile) in tile.iter().enumerate() {
            let to = &mut to[k * width + n * NUMBERS..][..NUMBERS];
            // SAFETY: 8 numbers are 32 bytes.
            unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), *tile) };
        }
    }
}
