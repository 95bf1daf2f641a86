//! Kernel operations for AVX-512 as of Ice Lake (2019). An operation processes 64 bytes of values, which are one
//! register; comparisons return bitmaps directly.

use super::{Kernel, Simd, portable};
use std::arch::x86_64::*;

/// Proof that the CPU supports these AVX-512 extensions: only [`run`] creates it.
#[derive(Clone, Copy)]
pub(super) struct Avx512(());

/// Runs `kernel` compiled for AVX-512.
///
/// # Safety
/// The CPU must support all extensions that the attribute below enables.
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,avx512vpopcntdq,avx2,bmi1,bmi2,lzcnt,popcnt"
)]
pub(super) unsafe fn run<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Avx512(()))
}

/// Loads 64 bytes of integers.
#[inline(always)]
fn load<T, const N: usize>(values: &[T; N]) -> __m512i {
    const { assert!(size_of::<[T; N]>() == 64) };
    // SAFETY: there are 64 bytes, and the load needs no alignment. The token proves that the CPU supports AVX-512.
    unsafe { _mm512_loadu_si512(values.as_ptr().cast()) }
}

/// Returns the contents of a register as an array of 64 bytes.
#[inline(always)]
fn store<T, const N: usize>(register: __m512i) -> [T; N] {
    const { assert!(size_of::<[T; N]>() == 64) };
    // SAFETY: any 64 bytes are valid integers.
    unsafe { std::mem::transmute_copy(&register) }
}

macro_rules! comparisons {
    ($($t:ty, $at_most:ident, $within:ident, $compare:ident, $subtract:ident, $splat:ident);*) => {$(
        #[inline(always)]
        fn $at_most(self, left: &[$t; 64 / size_of::<$t>()], right: &[$t; 64 / size_of::<$t>()]) -> u64 {
            // SAFETY: the token proves that the CPU supports AVX-512.
            u64::from(unsafe { $compare(load(left), load(right)) })
        }

        #[inline(always)]
        fn $within(self, values: &[$t; 64 / size_of::<$t>()], low: $t, span: $t) -> u64 {
            // SAFETY: the token proves that the CPU supports AVX-512.
            u64::from(unsafe {
                $compare($subtract(load(values), $splat(low.cast_signed())), $splat(span.cast_signed()))
            })
        }
    )*};
}

macro_rules! parts {
    ($($t:ty, $parts:ident, $down:ident, $up:ident, $splat:ident);*) => {$(
        #[inline(always)]
        fn $parts(
            self,
            low: &[$t; 64 / size_of::<$t>()],
            high: &[$t; 64 / size_of::<$t>()],
            shift: u32,
            mask: $t,
        ) -> [$t; 64 / size_of::<$t>()] {
            // SAFETY: the token proves that the CPU supports AVX-512. A shift by the width of the type gives 0.
            store(unsafe {
                let (down, up) = (i64::from(shift), i64::from(<$t>::BITS - shift));
                let low = $down(load(low), _mm_cvtsi64_si128(down));
                let high = $up(load(high), _mm_cvtsi64_si128(up));
                _mm512_and_si512(_mm512_or_si512(low, high), $splat(mask.cast_signed()))
            })
        }
    )*};
}

macro_rules! compress {
    ($($t:ty, $mask:ty, $compress:ident, $instruction:ident);*) => {$(
        #[inline(always)]
        fn $compress(self, values: &[$t; 64 / size_of::<$t>()], mask: u64) -> [$t; 64 / size_of::<$t>()] {
            // SAFETY: the token proves that the CPU supports AVX-512.
            store(unsafe { $instruction(mask as $mask, load(values)) })
        }
    )*};
}

macro_rules! keep {
    ($($t:ty, $mask:ty, $keep:ident, $instruction:ident);*) => {$(
        #[inline(always)]
        fn $keep(self, values: &[$t; 64 / size_of::<$t>()], mask: u64) -> [$t; 64 / size_of::<$t>()] {
            // SAFETY: the token proves that the CPU supports AVX-512.
            store(unsafe { $instruction(mask as $mask, load(values)) })
        }
    )*};
}

impl Simd for Avx512 {
    #[inline(always)]
    fn prefetch<T>(self, place: &T) {
        // SAFETY: every x86-64 CPU has this instruction, and it accepts any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(place).cast()) }
    }

    comparisons!(
        u8, at_most_u8, within_u8, _mm512_cmple_epu8_mask, _mm512_sub_epi8, _mm512_set1_epi8;
        u16, at_most_u16, within_u16, _mm512_cmple_epu16_mask, _mm512_sub_epi16, _mm512_set1_epi16;
        u32, at_most_u32, within_u32, _mm512_cmple_epu32_mask, _mm512_sub_epi32, _mm512_set1_epi32;
        u64, at_most_u64, within_u64, _mm512_cmple_epu64_mask, _mm512_sub_epi64, _mm512_set1_epi64
    );

    parts!(
        u16, parts_u16, _mm512_srl_epi16, _mm512_sll_epi16, _mm512_set1_epi16;
        u32, parts_u32, _mm512_srl_epi32, _mm512_sll_epi32, _mm512_set1_epi32;
        u64, parts_u64, _mm512_srl_epi64, _mm512_sll_epi64, _mm512_set1_epi64
    );

    compress!(
        u8, u64, compress_u8, _mm512_maskz_compress_epi8;
        u16, u32, compress_u16, _mm512_maskz_compress_epi16;
        u32, u16, compress_u32, _mm512_maskz_compress_epi32;
        u64, u8, compress_u64, _mm512_maskz_compress_epi64
    );

    keep!(
        u8, u64, keep_u8, _mm512_maskz_mov_epi8;
        u16, u32, keep_u16, _mm512_maskz_mov_epi16;
        u32, u16, keep_u32, _mm512_maskz_mov_epi32;
        u64, u8, keep_u64, _mm512_maskz_mov_epi64
    );

    #[inline(always)]
    fn keys_f32(self, values: &[f32; 16]) -> [u32; 16] {
        let values = load(values);
        // SAFETY: the token proves that the CPU supports AVX-512.
        store(unsafe {
            let nonzero = _mm512_cmp_ps_mask::<_CMP_NEQ_UQ>(_mm512_castsi512_ps(values), _mm512_setzero_ps());
            let bits = _mm512_maskz_mov_epi32(nonzero, values);
            let turned = _mm512_srli_epi32(_mm512_srai_epi32(bits, 31), 1);
            _mm512_xor_si512(_mm512_xor_si512(bits, turned), _mm512_set1_epi32(i32::MIN))
        })
    }

    #[inline(always)]
    fn keys_f64(self, values: &[f64; 8]) -> [u64; 8] {
        let values = load(values);
        // SAFETY: the token proves that the CPU supports AVX-512.
        store(unsafe {
            let nonzero = _mm512_cmp_pd_mask::<_CMP_NEQ_UQ>(_mm512_castsi512_pd(values), _mm512_setzero_pd());
            let bits = _mm512_maskz_mov_epi64(nonzero, values);
            let turned = _mm512_srli_epi64(_mm512_srai_epi64(bits, 63), 1);
            _mm512_xor_si512(_mm512_xor_si512(bits, turned), _mm512_set1_epi64(i64::MIN))
        })
    }

    #[inline(always)]
    fn compress_padded_u8(self, values: &[u8; 64], mask: u64, pad: u8, out: &mut [u8; 64]) {
        // SAFETY: the token proves that the CPU supports AVX-512.
        *out = store(unsafe {
            _mm512_mask_compress_epi8(_mm512_set1_epi8(pad.cast_signed()), mask, load(values))
        });
    }

    #[inline(always)]
    fn parts_u8(self, low: &[u8; 64], high: &[u8; 64], shift: u32, mask: u8) -> [u8; 64] {
        // AVX-512 has no shifts of bytes; the compiler builds them from shifts of wider integers.
        portable::parts(low, high, shift, mask)
    }

    #[inline(always)]
    fn bits_at_u8(self, set: &[u8; 32], indices: &[u8; 64]) -> u64 {
        let indices = load(indices);
        // SAFETY: the token proves that the CPU supports AVX-512; the set has the 32 bytes that are loaded.
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
    fn bits_at_u16(self, set: &[u32], indices: &[u16; 32], offset: u32) -> u64 {
        let indices = load(indices);
        // SAFETY: the token proves that the CPU supports AVX-512.
        let (low, high) = unsafe {
            let (low, high) = (_mm512_castsi512_si256(indices), _mm512_extracti64x4_epi64::<1>(indices));
            (_mm512_cvtepu16_epi32(low), _mm512_cvtepu16_epi32(high))
        };
        self.bits_at_u32(set, &store(low), offset) | self.bits_at_u32(set, &store(high), offset) << 16
    }

    #[inline(always)]
    fn bits_at_u32(self, set: &[u32], indices: &[u32; 16], offset: u32) -> u64 {
        assert!(set.len() < 1 << 26, "a set that indices with sign cannot reach");
        // SAFETY: the token proves that the CPU supports AVX-512. Only 32-bit words inside the set are read, because
        // the others are masked out. The index of a word has 27 bits, so that it is not negative.
        let bits = unsafe {
            let indices = _mm512_add_epi32(load(indices), _mm512_set1_epi32(offset.cast_signed()));
            let half = _mm512_srli_epi32(indices, 5);
            let inside = _mm512_cmplt_epu32_mask(half, _mm512_set1_epi32(set.len() as i32));
            let none = _mm512_setzero_si512();
            let halves = _mm512_mask_i32gather_epi32::<4>(none, inside, half, set.as_ptr().cast());
            let place = _mm512_and_si512(indices, _mm512_set1_epi32(31));
            _mm512_test_epi32_mask(halves, _mm512_sllv_epi32(_mm512_set1_epi32(1), place))
        };
        u64::from(bits)
    }
}
