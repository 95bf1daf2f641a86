//! AVX-512 as Ice Lake (2019) has it: 64 bytes are one register, and comparisons give bits at once.

use super::{Kernel, Simd};
use std::arch::x86_64::*;

/// Exists only inside [`run`].
#[derive(Clone, Copy)]
pub(super) struct Avx512(());

/// The kernel, compiled for AVX-512.
///
/// # Safety
/// The processor has the instructions.
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,avx512vpopcntdq,avx2,bmi1,bmi2,lzcnt,popcnt"
)]
pub(super) unsafe fn run<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Avx512(()))
}

/// 64 bytes of integers.
#[inline(always)]
fn load<T, const N: usize>(values: &[T; N]) -> __m512i {
    const { assert!(size_of::<[T; N]>() == 64) };
    // SAFETY: there are 64 bytes, and the load asks for no alignment. The token that leads here exists
    // only where there is AVX-512.
    unsafe { _mm512_loadu_si512(values.as_ptr().cast()) }
}

impl Simd for Avx512 {
    #[inline(always)]
    fn at_most_u8(self, left: &[u8; 64], right: &[u8; 64]) -> u64 {
        // SAFETY: there is AVX-512, or there would be no token.
        unsafe { _mm512_cmple_epu8_mask(load(left), load(right)) }
    }

    #[inline(always)]
    fn at_most_u16(self, left: &[u16; 32], right: &[u16; 32]) -> u64 {
        // SAFETY: as above.
        u64::from(unsafe { _mm512_cmple_epu16_mask(load(left), load(right)) })
    }

    #[inline(always)]
    fn at_most_u32(self, left: &[u32; 16], right: &[u32; 16]) -> u64 {
        // SAFETY: as above.
        u64::from(unsafe { _mm512_cmple_epu32_mask(load(left), load(right)) })
    }

    #[inline(always)]
    fn at_most_u64(self, left: &[u64; 8], right: &[u64; 8]) -> u64 {
        // SAFETY: as above.
        u64::from(unsafe { _mm512_cmple_epu64_mask(load(left), load(right)) })
    }

    #[inline(always)]
    fn bits_at_u8(self, set: &[u8; 32], indices: &[u8; 64]) -> u64 {
        let indices = load(indices);
        // SAFETY: there is AVX-512, or there would be no token; the set has the 32 bytes that are loaded.
        unsafe {
            let set = _mm512_broadcast_i64x4(_mm256_loadu_si256(set.as_ptr().cast()));
            let place = _mm512_and_si512(_mm512_srli_epi16(indices, 3), _mm512_set1_epi8(31));
            let byte = _mm512_permutexvar_epi8(place, set);
            let bit = _mm512_and_si512(indices, _mm512_set1_epi8(7));
            let bit = _mm512_shuffle_epi8(_mm512_set1_epi64(0x8040_2010_0804_0201_u64 as i64), bit);
            _mm512_test_epi8_mask(byte, bit)
        }
    }

    #[inline(always)]
    fn bits_at_u32(self, set: &[u32], indices: &[u32; 16]) -> u64 {
        assert!(i32::try_from(set.len()).is_ok(), "a set that indices with sign cannot reach");
        let indices = load(indices);
        // SAFETY: there is AVX-512, or there would be no token. Only words inside the set are read: the
        // others are masked out. A word's number has 27 bits, so that it has no sign.
        let bits = unsafe {
            let word = _mm512_srli_epi32(indices, 5);
            let inside = _mm512_cmplt_epu32_mask(word, _mm512_set1_epi32(set.len() as i32));
            let none = _mm512_setzero_si512();
            let words = _mm512_mask_i32gather_epi32::<4>(none, inside, word, set.as_ptr().cast());
            let place = _mm512_and_si512(indices, _mm512_set1_epi32(31));
            _mm512_test_epi32_mask(words, _mm512_sllv_epi32(_mm512_set1_epi32(1), place))
        };
        u64::from(bits)
    }
}
