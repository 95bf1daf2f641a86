//! Kernels of moments for AVX-512 with VNNI: one instruction multiplies four bytes of a column with those of 16
//! other columns, or a float with 8 others.

use crate::moments::matrix::{Bytes, Floats, GROUP, LANES, LINE};
use std::arch::x86_64::*;
use std::ops::Range;

/// Sums the bytes of each column, with the instruction for sums of absolute differences, from 0.
///
/// # Safety
/// The CPU must support the extensions that the attribute below enables.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn byte_sums(matrix: &Bytes, to: &mut [u32]) {
    for (column, sum) in to.iter_mut().enumerate() {
        let mut sums = _mm512_setzero_si512();
        for line in matrix.column(column).as_chunks::<LINE>().0 {
            // SAFETY: a line has 64 bytes.
            let bytes = unsafe { _mm512_loadu_si512(line.as_ptr().cast()) };
            sums = _mm512_add_epi64(sums, _mm512_sad_epu8(bytes, _mm512_setzero_si512()));
        }
        *sum = _mm512_reduce_add_epi64(sums) as u32;
    }
}

/// Interleaves the matrix as [`super::avx2::interleave`] does.
///
/// # Safety
/// The CPU must support AVX-512.
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn interleave(matrix: &mut Bytes) {
    let (stride, group_stride, lines) = (matrix.stride(), matrix.group_stride(), matrix.lines());
    let (plain, interleaved) = matrix.both_mut();
    for (group, to) in interleaved.chunks_exact_mut(group_stride).enumerate() {
        for (line, to) in to.as_chunks_mut::<{ GROUP * LINE }>().0[..lines].iter_mut().enumerate() {
            let from = &plain[group * GROUP * stride + line * LINE..][..(GROUP - 1) * stride + LINE];
            // SAFETY: 16 lines, `stride` bytes apart, lie in `from`.
            unsafe { transpose(from.as_ptr(), stride, to) };
        }
    }
}

/// Transposes a matrix of 16 by 16 quads of bytes.
///
/// # Safety
/// The processor has AVX-512; 64 bytes can be read at `from` and each of the next 15 strides behind it.
#[target_feature(enable = "avx512f")]
unsafe fn transpose(from: *const u8, stride: usize, to: &mut [u8; GROUP * LINE]) {
    // SAFETY: the caller guarantees AVX-512 and the sizes.
    let row = |k: usize| unsafe { _mm512_loadu_si512(from.add(k * stride).cast()) };
    let mut quads = [_mm512_setzero_si512(); GROUP];
    for k in 0..4 {
        let rows: [__m512i; 4] = std::array::from_fn(|i| row(4 * k + i));
        let low = [_mm512_unpacklo_epi32(rows[0], rows[1]), _mm512_unpacklo_epi32(rows[2], rows[3])];
        let high = [_mm512_unpackhi_epi32(rows[0], rows[1]), _mm512_unpackhi_epi32(rows[2], rows[3])];
        // In each 128-bit quarter q: the quads 4 q + w of the four rows.
        quads[k] = _mm512_unpacklo_epi64(low[0], low[1]);
        quads[4 + k] = _mm512_unpackhi_epi64(low[0], low[1]);
        quads[8 + k] = _mm512_unpacklo_epi64(high[0], high[1]);
        quads[12 + k] = _mm512_unpackhi_epi64(high[0], high[1]);
    }
    let (lines, _) = to.as_chunks_mut::<LINE>();
    for w in 0..4 {
        let [a, b, c, d] = [quads[4 * w], quads[4 * w + 1], quads[4 * w + 2], quads[4 * w + 3]];
        let (ab_even, ab_odd) = (_mm512_shuffle_i32x4::<0x88>(a, b), _mm512_shuffle_i32x4::<0xdd>(a, b));
        let (cd_even, cd_odd) = (_mm512_shuffle_i32x4::<0x88>(c, d), _mm512_shuffle_i32x4::<0xdd>(c, d));
        let quads = [
            _mm512_shuffle_i32x4::<0x88>(ab_even, cd_even),
            _mm512_shuffle_i32x4::<0x88>(ab_odd, cd_odd),
            _mm512_shuffle_i32x4::<0xdd>(ab_even, cd_even),
            _mm512_shuffle_i32x4::<0xdd>(ab_odd, cd_odd),
        ];
        for (q, quad) in quads.into_iter().enumerate() {
            // SAFETY: a line has 64 bytes.
            unsafe { _mm512_storeu_si512(lines[4 * q + w].as_mut_ptr().cast(), quad) };
        }
    }
}

/// Number of columns on the left of a tile of products.
const TILE: usize = 8;

/// Computes the sums over all rows of the products of pairs of byte columns.
///
/// # Safety
/// The CPU must support the extensions that the attribute below enables; the ranges and the length of `to` must have
/// been checked; the matrix must be interleaved.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
pub(super) unsafe fn byte_products(
    matrix: &Bytes,
    sums: &[u32],
    (left, right): (Range<usize>, Range<usize>),
    to: &mut [u32],
    width: usize,
) {
    for i in left.clone().step_by(TILE) {
        for j in right.clone().step_by(2 * GROUP) {
            let at = &mut to[(i - left.start) * width + j - right.start..];
            // SAFETY: the caller guarantees AVX-512 and the sizes.
            unsafe {
                if j + GROUP < right.end {
                    byte_tile::<2>(matrix, sums, i, j / GROUP, at, width);
                } else {
                    byte_tile::<1>(matrix, sums, i, j / GROUP, at, width);
                }
            }
        }
    }
}

/// Computes the sums of products of 8 columns, from column `i` on, with the columns of `N` groups of 16.
///
/// The instruction multiplies unsigned by signed bytes, so 128 is subtracted from the bytes on the right; 128
/// times the sum of the bytes on the left corrects the result.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn byte_tile<const N: usize>(
    matrix: &Bytes,
    sums: &[u32],
    i: usize,
    group: usize,
    to: &mut [u32],
    width: usize,
) {
    let mut tile = [[_mm512_setzero_si512(); N]; TILE];
    let left: [&[u8]; TILE] = std::array::from_fn(|k| matrix.column(i + k));
    let right: [&[u8]; N] = std::array::from_fn(|n| matrix.interleaved(group + n));
    let half = _mm512_set1_epi8(-128);
    for quad in 0..matrix.lines() * LINE / 4 {
        // SAFETY: for each quad (four rows), a column has 4 bytes and a group 64.
        unsafe {
            let right: [__m512i; N] = std::array::from_fn(|n| {
                _mm512_xor_si512(_mm512_loadu_si512(right[n].as_ptr().add(64 * quad).cast()), half)
            });
            for k in 0..TILE {
                let left = _mm512_set1_epi32(left[k].as_ptr().add(4 * quad).cast::<i32>().read_unaligned());
                for n in 0..N {
                    tile[k][n] = _mm512_dpbusd_epi32(tile[k][n], left, right[n]);
                }
            }
        }
    }
    for (k, tile) in tile.iter().enumerate() {
        let back = _mm512_set1_epi32((sums[i + k] << 7).cast_signed());
        for (n, tile) in tile.iter().enumerate() {
            let to = &mut to[k * width + n * GROUP..][..GROUP];
            // SAFETY: 16 numbers are 64 bytes.
            unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), _mm512_add_epi32(*tile, back)) };
        }
    }
}

/// Computes the sums over all rows of the products of pairs of float columns.
///
/// # Safety
/// The CPU must support the extensions that the attribute below enables; the ranges and the length of `to` must have
/// been checked.
#[target_feature(enable = "avx512f,fma")]
pub(super) unsafe fn float_products(
    matrix: &Floats,
    (left, right): (Range<usize>, Range<usize>),
    to: &mut [f64],
    width: usize,
) {
    for j in right.clone().step_by(3 * LANES) {
        for i in left.clone().step_by(TILE) {
            let at = &mut to[(i - left.start) * width + j - right.start..];
            // SAFETY: the caller guarantees AVX-512 and the sizes.
            unsafe {
                match (right.end - j) / LANES {
                    1 => float_tile::<1>(matrix, i, j / LANES, at, width),
                    2 => float_tile::<2>(matrix, i, j / LANES, at, width),
                    _ => float_tile::<3>(matrix, i, j / LANES, at, width),
                }
            }
        }
    }
}

/// Computes the sums of products of 8 columns, from column `i` on, with the columns of `N` groups of 8.
#[inline]
#[target_feature(enable = "avx512f,fma")]
unsafe fn float_tile<const N: usize>(matrix: &Floats, i: usize, group: usize, to: &mut [f64], width: usize) {
    let mut tile = [[_mm512_setzero_pd(); N]; TILE];
    let left: [&[f64]; TILE] = std::array::from_fn(|k| matrix.column(i + k));
    let right: [&[[f64; LANES]]; N] = std::array::from_fn(|n| matrix.group(group + n));
    for r in 0..matrix.rows() {
        // SAFETY: for each row, a column has one value and a group 8.
        unsafe {
            let right: [__m512d; N] =
                std::array::from_fn(|n| _mm512_loadu_pd(right[n].as_ptr().add(r).cast()));
            for k in 0..TILE {
                let left = _mm512_set1_pd(*left[k].as_ptr().add(r));
                for n in 0..N {
                    tile[k][n] = _mm512_fmadd_pd(left, right[n], tile[k][n]);
                }
            }
        }
    }
    for (k, tile) in tile.iter().enumerate() {
        for (n, tile) in tile.iter().enumerate() {
            let to = &mut to[k * width + n * LANES..][..LANES];
            // SAFETY: 8 numbers are 64 bytes.
            unsafe { _mm512_storeu_pd(to.as_mut_ptr(), *tile) };
        }
    }
}
