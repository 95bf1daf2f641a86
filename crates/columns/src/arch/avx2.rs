//! Kernel operations for AVX2 with the bit manipulation instructions of Haswell (2013). An operation processes 64
//! bytes of values, which take two registers.

use super::{Kernel, Simd, portable};
use std::arch::x86_64::*;

/// Proof that the CPU supports AVX2: only [`run`] creates it.
#[derive(Clone, Copy)]
pub(super) struct Avx2(());

/// Runs `kernel` compiled for AVX2.
///
/// # Safety
/// The CPU must support AVX2, BMI1, BMI2, LZCNT and POPCNT.
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(super) unsafe fn run<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Avx2(()))
}

/// Loads the first (`index` 0) or the second (1) 32 bytes of 64 bytes of integers.
#[inline(always)]
fn half<T, const N: usize>(values: &[T; N], index: usize) -> __m256i {
    const { assert!(size_of::<[T; N]>() == 64) };
    assert!(index < 2);
    // SAFETY: each half of the 64 bytes has 32 bytes, and the load needs no alignment. Only kernels that were started
    // with an [`Avx2`] token call this, so the CPU supports AVX2.
    unsafe { _mm256_loadu_si256(values.as_ptr().cast::<__m256i>().add(index)) }
}

/// Returns the contents of two registers as an array of 64 bytes.
#[inline(always)]
fn store<T, const N: usize>(registers: [__m256i; 2]) -> [T; N] {
    const { assert!(size_of::<[T; N]>() == 64) };
    // SAFETY: any 64 bytes are valid integers.
    unsafe { std::mem::transmute_copy(&registers) }
}

/// Comparisons `left <= right`, for each integer type.
mod at_most {
    use std::arch::x86_64::*;

    /// # Safety
    /// AVX2 must be available, as for all functions of this module.
    #[inline(always)]
    pub(super) unsafe fn bytes(left: [__m256i; 2], right: [__m256i; 2]) -> u64 {
        // SAFETY: the caller guarantees that AVX2 is available.
        let (low, high) = unsafe {
            let low = _mm256_cmpeq_epi8(_mm256_min_epu8(left[0], right[0]), left[0]);
            let high = _mm256_cmpeq_epi8(_mm256_min_epu8(left[1], right[1]), left[1]);
            (_mm256_movemask_epi8(low).cast_unsigned(), _mm256_movemask_epi8(high).cast_unsigned())
        };
        u64::from(low) | u64::from(high) << 32
    }

    #[inline(always)]
    pub(super) unsafe fn shorts(left: [__m256i; 2], right: [__m256i; 2]) -> u64 {
        // SAFETY: the caller guarantees that AVX2 is available.
        let bits = unsafe {
            let low = _mm256_cmpeq_epi16(_mm256_min_epu16(left[0], right[0]), left[0]);
            let high = _mm256_cmpeq_epi16(_mm256_min_epu16(left[1], right[1]), left[1]);
            // Packing works within 128-bit halves, so that the quarters of the result come in the order low, high,
            // low, high.
            _mm256_movemask_epi8(_mm256_permute4x64_epi64(_mm256_packs_epi16(low, high), 0b11_01_10_00))
        };
        u64::from(bits.cast_unsigned())
    }

    #[inline(always)]
    pub(super) unsafe fn words(left: [__m256i; 2], right: [__m256i; 2]) -> u64 {
        // SAFETY: the caller guarantees that AVX2 is available.
        let (low, high) = unsafe {
            let low = _mm256_cmpeq_epi32(_mm256_min_epu32(left[0], right[0]), left[0]);
            let high = _mm256_cmpeq_epi32(_mm256_min_epu32(left[1], right[1]), left[1]);
            (_mm256_movemask_ps(_mm256_castsi256_ps(low)), _mm256_movemask_ps(_mm256_castsi256_ps(high)))
        };
        u64::from(low.cast_unsigned()) | u64::from(high.cast_unsigned()) << 8
    }

    #[inline(always)]
    pub(super) unsafe fn longs(left: [__m256i; 2], right: [__m256i; 2]) -> u64 {
        // SAFETY: the caller guarantees that AVX2 is available.
        let (low, high) = unsafe {
            // AVX2 has only a signed comparison. Flipping the top bit of both operands turns it into an unsigned one.
            let sign = _mm256_set1_epi64x(i64::MIN);
            let low = _mm256_cmpgt_epi64(_mm256_xor_si256(left[0], sign), _mm256_xor_si256(right[0], sign));
            let high = _mm256_cmpgt_epi64(_mm256_xor_si256(left[1], sign), _mm256_xor_si256(right[1], sign));
            (_mm256_movemask_pd(_mm256_castsi256_pd(low)), _mm256_movemask_pd(_mm256_castsi256_pd(high)))
        };
        (u64::from(low.cast_unsigned()) | u64::from(high.cast_unsigned()) << 4) ^ 0xff
    }
}

/// Returns a bitmap: for each index, the bit of `set` at that index.
///
/// # Safety
/// AVX2 must be available.
#[inline(always)]
unsafe fn bits_of_bytes(set: &[u8; 32], indices: __m256i) -> u64 {
    // SAFETY: the caller guarantees that AVX2 is available; each half of the set has 16 bytes.
    let bits = unsafe {
        let low = _mm256_broadcastsi128_si256(_mm_loadu_si128(set.as_ptr().cast()));
        let high = _mm256_broadcastsi128_si256(_mm_loadu_si128(set.as_ptr().cast::<__m128i>().add(1)));
        let place = _mm256_and_si256(_mm256_srli_epi16(indices, 3), _mm256_set1_epi8(15));
        let (low, high) = (_mm256_shuffle_epi8(low, place), _mm256_shuffle_epi8(high, place));
        // The top bit of each index selects the half of the set.
        let byte = _mm256_blendv_epi8(low, high, indices);
        let bit = _mm256_and_si256(indices, _mm256_set1_epi8(7));
        let bit = _mm256_shuffle_epi8(_mm256_set1_epi64x(0x8040_2010_0804_0201_u64 as i64), bit);
        _mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_and_si256(byte, bit), bit))
    };
    u64::from(bits.cast_unsigned())
}

/// Returns a bitmap: for each index, the bit of `set` at `index + offset`.
///
/// # Safety
/// AVX2 must be available, and the set must have less than 2^26 halves of words.
#[inline(always)]
unsafe fn bits_of_set(set: &[u32], indices: __m256i, offset: u32) -> u64 {
    // SAFETY: the caller guarantees that AVX2 is available. Only 32-bit words inside the set are read, because the
    // others are masked out. The index of a word has 27 bits, so that it is not negative.
    let bits = unsafe {
        let indices = _mm256_add_epi32(indices, _mm256_set1_epi32(offset.cast_signed()));
        let half = _mm256_srli_epi32(indices, 5);
        let inside = _mm256_cmpgt_epi32(_mm256_set1_epi32(set.len() as i32), half);
        let none = _mm256_setzero_si256();
        let halves = _mm256_mask_i32gather_epi32::<4>(none, set.as_ptr().cast(), half, inside);
        // The bit is shifted to the top, from which the mask is made. Shift instructions use all bits of the shift
        // count, so that the bits above the lowest five must be cleared.
        let up = _mm256_andnot_si256(indices, _mm256_set1_epi32(31));
        _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_sllv_epi32(halves, up)))
    };
    u64::from(bits.cast_unsigned())
}

macro_rules! comparisons {
    ($($t:ty, $at_most:ident, $within:ident, $steps:ident, $subtract:ident, $splat:ident);*) => {$(
        #[inline(always)]
        fn $at_most(self, left: &[$t; 64 / size_of::<$t>()], right: &[$t; 64 / size_of::<$t>()]) -> u64 {
            // SAFETY: the token proves that the CPU supports AVX2.
            unsafe { at_most::$steps([half(left, 0), half(left, 1)], [half(right, 0), half(right, 1)]) }
        }

        #[inline(always)]
        fn $within(self, values: &[$t; 64 / size_of::<$t>()], low: $t, span: $t) -> u64 {
            // SAFETY: the token proves that the CPU supports AVX2.
            unsafe {
                let (low, span) = ($splat(low.cast_signed()), $splat(span.cast_signed()));
                let above = [$subtract(half(values, 0), low), $subtract(half(values, 1), low)];
                at_most::$steps(above, [span, span])
            }
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
            // SAFETY: the token proves that the CPU supports AVX2. A shift by the width of the type gives 0.
            store(unsafe {
                let (down, up) = (i64::from(shift), i64::from(<$t>::BITS - shift));
                let (down, up) = (_mm_cvtsi64_si128(down), _mm_cvtsi64_si128(up));
                let mask = $splat(mask.cast_signed());
                let left = _mm256_or_si256($down(half(low, 0), down), $up(half(high, 0), up));
                let right = _mm256_or_si256($down(half(low, 1), down), $up(half(high, 1), up));
                [_mm256_and_si256(left, mask), _mm256_and_si256(right, mask)]
            })
        }
    )*};
}

/// Indices of the set bits of each byte, in ascending order. The remaining indices have their top bit set, for which a
/// shuffle writes 0.
static MEMBERS: [[u8; 8]; 256] = {
    let mut members = [[0x80; 8]; 256];
    let mut set = 0;
    while set < 256 {
        let (mut lane, mut count) = (0, 0);
        while lane < 8 {
            if set >> lane & 1 == 1 {
                members[set][count] = lane as u8;
                count += 1;
            }
            lane += 1;
        }
        set += 1;
    }
    members
};

/// Writes the values whose bit in `mask` is set to `out`, in order, and fills `out` behind them with `pad`. Eight
/// values are processed at a time: each store writes the selected ones of them, followed by pads, and the next store
/// begins at these pads.
///
/// `out` is not read here: a wide load right behind the narrow stores would wait for all of them.
///
/// # Safety
/// The CPU must support AVX2.
#[inline(always)]
unsafe fn compress_bytes(values: &[u8; 64], mask: u64, pad: u8, out: &mut [u8; 64]) {
    *out = [pad; 64];
    let (mut rest, mut end) = (mask, 0);
    for eight in values.as_chunks::<8>().0 {
        if rest == 0 {
            break;
        }
        let set = (rest & 0xff) as usize;
        // SAFETY: the caller guarantees AVX2. Eight bytes can be read at each position that is read; at most eight
        // values are selected of each eight, so that the output of each step has room after that of the steps before.
        unsafe {
            let members = _mm_loadl_epi64(MEMBERS[set].as_ptr().cast());
            let picked = _mm_shuffle_epi8(_mm_loadl_epi64(eight.as_ptr().cast()), members);
            let padded = _mm_blendv_epi8(picked, _mm_set1_epi8(pad.cast_signed()), members);
            _mm_storel_epi64(out[end..end + 8].as_mut_ptr().cast(), padded);
        }
        end += set.count_ones() as usize;
        rest >>= 8;
    }
}

/// Defines a function that moves selected values to the front by the portable code, because AVX2 has no instruction for
/// that.
macro_rules! compress {
    ($($t:ty, $compress:ident);*) => {$(
        #[inline(always)]
        fn $compress(self, values: &[$t; 64 / size_of::<$t>()], mask: u64) -> [$t; 64 / size_of::<$t>()] {
            portable::compress(values, mask)
        }
    )*};
}

/// Defines a function that sets values whose bit in the mask is clear to 0: each lane of the register receives the mask
/// and isolates its own bit.
macro_rules! keep {
    ($($t:ty, $keep:ident, $splat:ident, $equal:ident, $bits:expr);*) => {$(
        #[inline(always)]
        fn $keep(self, values: &[$t; 64 / size_of::<$t>()], mask: u64) -> [$t; 64 / size_of::<$t>()] {
            const BITS: [$t; 32 / size_of::<$t>()] = $bits;
            // SAFETY: the token proves that the CPU supports AVX2; the bits take 32 bytes.
            store(unsafe {
                let bits = _mm256_loadu_si256(BITS.as_ptr().cast());
                let low = _mm256_and_si256($splat(mask as _), bits);
                let high = _mm256_and_si256($splat((mask >> BITS.len()) as _), bits);
                [
                    _mm256_and_si256(half(values, 0), $equal(low, bits)),
                    _mm256_and_si256(half(values, 1), $equal(high, bits)),
                ]
            })
        }
    )*};
}

impl Simd for Avx2 {
    #[inline(always)]
    fn prefetch<T>(self, place: &T) {
        // SAFETY: every x86-64 CPU has this instruction, and it accepts any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(place).cast()) }
    }

    comparisons!(
        u8, at_most_u8, within_u8, bytes, _mm256_sub_epi8, _mm256_set1_epi8;
        u16, at_most_u16, within_u16, shorts, _mm256_sub_epi16, _mm256_set1_epi16;
        u32, at_most_u32, within_u32, words, _mm256_sub_epi32, _mm256_set1_epi32;
        u64, at_most_u64, within_u64, longs, _mm256_sub_epi64, _mm256_set1_epi64x
    );

    parts!(
        u16, parts_u16, _mm256_srl_epi16, _mm256_sll_epi16, _mm256_set1_epi16;
        u32, parts_u32, _mm256_srl_epi32, _mm256_sll_epi32, _mm256_set1_epi32;
        u64, parts_u64, _mm256_srl_epi64, _mm256_sll_epi64, _mm256_set1_epi64x
    );

    compress!(u16, compress_u16; u32, compress_u32; u64, compress_u64);

    #[inline(always)]
    fn compress_u8(self, values: &[u8; 64], mask: u64) -> [u8; 64] {
        let mut out = [0; 64];
        self.compress_padded_u8(values, mask, 0, &mut out);
        out
    }

    #[inline(always)]
    fn compress_padded_u8(self, values: &[u8; 64], mask: u64, pad: u8, out: &mut [u8; 64]) {
        // SAFETY: the token proves that the CPU supports AVX2.
        unsafe { compress_bytes(values, mask, pad, out) }
    }

    keep!(
        u16, keep_u16, _mm256_set1_epi16, _mm256_cmpeq_epi16, {
            let mut bits = [1; 16];
            let mut lane = 1;
            while lane < 16 {
                bits[lane] = bits[lane - 1] << 1;
                lane += 1;
            }
            bits
        };
        u32, keep_u32, _mm256_set1_epi32, _mm256_cmpeq_epi32, [1, 2, 4, 8, 16, 32, 64, 128];
        u64, keep_u64, _mm256_set1_epi64x, _mm256_cmpeq_epi64, [1, 2, 4, 8]
    );

    #[inline(always)]
    fn keep_u8(self, values: &[u8; 64], mask: u64) -> [u8; 64] {
        // SAFETY: the token proves that the CPU supports AVX2.
        store(unsafe {
            let bits = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64.cast_signed());
            // Distributes each byte of the mask to the eight bytes that its bits select.
            let (first, second) = (0x0101_0101_0101_0101, 0x0202_0202_0202_0202);
            let places = _mm256_set_epi64x(first + second, second, first, 0);
            let kept = |mask: u64, values| {
                let mask = _mm256_shuffle_epi8(_mm256_set1_epi32(mask as i32), places);
                _mm256_and_si256(values, _mm256_cmpeq_epi8(_mm256_and_si256(mask, bits), bits))
            };
            [kept(mask, half(values, 0)), kept(mask >> 32, half(values, 1))]
        })
    }

    #[inline(always)]
    fn keys_f32(self, values: &[f32; 16]) -> [u32; 16] {
        // SAFETY: the token proves that the CPU supports AVX2.
        let keys = |values| unsafe {
            let zero = _mm256_cmp_ps::<_CMP_EQ_OQ>(_mm256_castsi256_ps(values), _mm256_setzero_ps());
            let bits = _mm256_andnot_si256(_mm256_castps_si256(zero), values);
            let turned = _mm256_srli_epi32(_mm256_srai_epi32(bits, 31), 1);
            _mm256_xor_si256(_mm256_xor_si256(bits, turned), _mm256_set1_epi32(i32::MIN))
        };
        store([keys(half(values, 0)), keys(half(values, 1))])
    }

    #[inline(always)]
    fn keys_f64(self, values: &[f64; 8]) -> [u64; 8] {
        // SAFETY: the token proves that the CPU supports AVX2.
        let keys = |values| unsafe {
            let zero = _mm256_cmp_pd::<_CMP_EQ_OQ>(_mm256_castsi256_pd(values), _mm256_setzero_pd());
            let bits = _mm256_andnot_si256(_mm256_castpd_si256(zero), values);
            let negative = _mm256_cmpgt_epi64(_mm256_setzero_si256(), bits);
            let turned = _mm256_srli_epi64(negative, 1);
            _mm256_xor_si256(_mm256_xor_si256(bits, turned), _mm256_set1_epi64x(i64::MIN))
        };
        store([keys(half(values, 0)), keys(half(values, 1))])
    }

    #[inline(always)]
    fn parts_u8(self, low: &[u8; 64], high: &[u8; 64], shift: u32, mask: u8) -> [u8; 64] {
        // AVX2 has no shifts of bytes; the compiler builds them from shifts of wider integers.
        portable::parts(low, high, shift, mask)
    }

    #[inline(always)]
    fn bits_at_u8(self, set: &[u8; 32], indices: &[u8; 64]) -> u64 {
        // SAFETY: the token proves that the CPU supports AVX2.
        unsafe { bits_of_bytes(set, half(indices, 0)) | bits_of_bytes(set, half(indices, 1)) << 32 }
    }

    #[inline(always)]
    fn bits_at_u16(self, set: &[u32], indices: &[u16; 32], offset: u32) -> u64 {
        assert!(set.len() < 1 << 26, "a set that indices with sign cannot reach");
        let (a, b) = (half(indices, 0), half(indices, 1));
        // SAFETY: the token proves that the CPU supports AVX2; the length of the set was checked.
        unsafe {
            let first = _mm256_cvtepu16_epi32(_mm256_castsi256_si128(a));
            let second = _mm256_cvtepu16_epi32(_mm256_extracti128_si256::<1>(a));
            let third = _mm256_cvtepu16_epi32(_mm256_castsi256_si128(b));
            let fourth = _mm256_cvtepu16_epi32(_mm256_extracti128_si256::<1>(b));
            bits_of_set(set, first, offset)
                | bits_of_set(set, second, offset) << 8
                | bits_of_set(set, third, offset) << 16
                | bits_of_set(set, fourth, offset) << 24
        }
    }

    #[inline(always)]
    fn bits_at_u32(self, set: &[u32], indices: &[u32; 16], offset: u32) -> u64 {
        assert!(set.len() < 1 << 26, "a set that indices with sign cannot reach");
        // SAFETY: the token proves that the CPU supports AVX2; the length of the set was checked.
        unsafe {
            bits_of_set(set, half(indices, 0), offset) | bits_of_set(set, half(indices, 1), offset) << 8
        }
    }
}
