//! AVX2 with the bit instructions of its time (Haswell, 2013): 64 bytes are two registers.

use super::{Kernel, Simd};
use std::arch::x86_64::*;

/// Exists only inside [`run`].
#[derive(Clone, Copy)]
pub(super) struct Avx2(());

/// The kernel, compiled for AVX2.
///
/// # Safety
/// The processor has the instructions.
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(super) unsafe fn run<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Avx2(()))
}

/// One half of 64 bytes of integers.
#[inline(always)]
fn half<T, const N: usize>(values: &[T; N], index: usize) -> __m256i {
    const { assert!(size_of::<[T; N]>() == 64) };
    assert!(index < 2);
    // SAFETY: 32 bytes lie at either half of 64; the load asks for no alignment. The token that leads here
    // exists only where there is AVX2.
    unsafe { _mm256_loadu_si256(values.as_ptr().cast::<__m256i>().add(index)) }
}

impl Simd for Avx2 {
    #[inline(always)]
    fn at_most_u8(self, left: &[u8; 64], right: &[u8; 64]) -> u64 {
        let bits = |i| {
            let (left, right) = (half(left, i), half(right, i));
            // SAFETY: there is AVX2, or there would be no token.
            let bits = unsafe { _mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_min_epu8(left, right), left)) };
            u64::from(bits.cast_unsigned())
        };
        bits(0) | bits(1) << 32
    }

    #[inline(always)]
    fn at_most_u16(self, left: &[u16; 32], right: &[u16; 32]) -> u64 {
        let (a, b) = (half(left, 0), half(left, 1));
        // SAFETY: there is AVX2, or there would be no token.
        let bits = unsafe {
            let a = _mm256_cmpeq_epi16(_mm256_min_epu16(a, half(right, 0)), a);
            let b = _mm256_cmpeq_epi16(_mm256_min_epu16(b, half(right, 1)), b);
            // Packing goes by 128 bits: the quarters come out as a, b, a, b.
            _mm256_movemask_epi8(_mm256_permute4x64_epi64(_mm256_packs_epi16(a, b), 0b11_01_10_00))
        };
        u64::from(bits.cast_unsigned())
    }

    #[inline(always)]
    fn at_most_u32(self, left: &[u32; 16], right: &[u32; 16]) -> u64 {
        let bits = |i| {
            let (left, right) = (half(left, i), half(right, i));
            // SAFETY: there is AVX2, or there would be no token.
            let bits = unsafe {
                let equal = _mm256_cmpeq_epi32(_mm256_min_epu32(left, right), left);
                _mm256_movemask_ps(_mm256_castsi256_ps(equal))
            };
            u64::from(bits.cast_unsigned())
        };
        bits(0) | bits(1) << 8
    }

    #[inline(always)]
    fn at_most_u64(self, left: &[u64; 8], right: &[u64; 8]) -> u64 {
        let bits = |i| {
            let (left, right) = (half(left, i), half(right, i));
            // SAFETY: there is AVX2, or there would be no token.
            let bits = unsafe {
                // There is only a comparison with sign: with the top bit turned over it is one without.
                let sign = _mm256_set1_epi64x(i64::MIN);
                let greater = _mm256_cmpgt_epi64(_mm256_xor_si256(left, sign), _mm256_xor_si256(right, sign));
                _mm256_movemask_pd(_mm256_castsi256_pd(greater)) ^ 0b1111
            };
            u64::from(bits.cast_unsigned())
        };
        bits(0) | bits(1) << 4
    }

    #[inline(always)]
    fn bits_at_u8(self, set: &[u8; 32], indices: &[u8; 64]) -> u64 {
        let bits = |i| {
            let indices = half(indices, i);
            // SAFETY: there is AVX2, or there would be no token; 16 bytes lie at either half of the set.
            let bits = unsafe {
                let low = _mm256_broadcastsi128_si256(_mm_loadu_si128(set.as_ptr().cast()));
                let high = _mm256_broadcastsi128_si256(_mm_loadu_si128(set.as_ptr().cast::<__m128i>().add(1)));
                let place = _mm256_and_si256(_mm256_srli_epi16(indices, 3), _mm256_set1_epi8(15));
                let (low, high) = (_mm256_shuffle_epi8(low, place), _mm256_shuffle_epi8(high, place));
                // The top bit of the index says which half of the set.
                let byte = _mm256_blendv_epi8(low, high, indices);
                let bit = _mm256_and_si256(indices, _mm256_set1_epi8(7));
                let bit = _mm256_shuffle_epi8(_mm256_set1_epi64x(0x8040_2010_0804_0201_u64 as i64), bit);
                _mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_and_si256(byte, bit), bit))
            };
            u64::from(bits.cast_unsigned())
        };
        bits(0) | bits(1) << 32
    }

    #[inline(always)]
    fn bits_at_u32(self, set: &[u32], indices: &[u32; 16]) -> u64 {
        assert!(i32::try_from(set.len()).is_ok(), "a set that indices with sign cannot reach");
        let bits = |i| {
            let indices = half(indices, i);
            // SAFETY: there is AVX2, or there would be no token. Only words inside the set are read: the
            // others are masked out. A word's number has 27 bits, so that it has no sign.
            let bits = unsafe {
                let word = _mm256_srli_epi32(indices, 5);
                let inside = _mm256_cmpgt_epi32(_mm256_set1_epi32(set.len() as i32), word);
                let none = _mm256_setzero_si256();
                let words = _mm256_mask_i32gather_epi32::<4>(none, set.as_ptr().cast(), word, inside);
                // The bit goes to the top, which is what the mask is made of. Shifts look at all bits of
                // their counts, so those above the lowest five must go.
                let up = _mm256_andnot_si256(indices, _mm256_set1_epi32(31));
                _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_sllv_epi32(words, up)))
            };
            u64::from(bits.cast_unsigned())
        };
        bits(0) | bits(1) << 8
    }
}
