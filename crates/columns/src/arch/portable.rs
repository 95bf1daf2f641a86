//! Kernel operations for any CPU: plain loops, which the compiler vectorises with the baseline instructions of the
//! target.

use super::Simd;
use crate::lanes::Lane;

#[derive(Clone, Copy)]
pub(super) struct Portable;

macro_rules! comparisons {
    ($($t:ty, $at_most:ident, $within:ident, $parts:ident, $compress:ident, $keep:ident);*) => {$(
        #[inline(always)]
        fn $at_most(self, left: &[$t; 64 / size_of::<$t>()], right: &[$t; 64 / size_of::<$t>()]) -> u64 {
            at_most(left, right)
        }

        #[inline(always)]
        fn $within(self, values: &[$t; 64 / size_of::<$t>()], low: $t, span: $t) -> u64 {
            within(values, low, span)
        }

        #[inline(always)]
        fn $parts(
            self,
            low: &[$t; 64 / size_of::<$t>()],
            high: &[$t; 64 / size_of::<$t>()],
            shift: u32,
            mask: $t,
        ) -> [$t; 64 / size_of::<$t>()] {
            parts(low, high, shift, mask)
        }

        #[inline(always)]
        fn $compress(self, values: &[$t; 64 / size_of::<$t>()], mask: u64) -> [$t; 64 / size_of::<$t>()] {
            compress(values, mask)
        }

        #[inline(always)]
        fn $keep(self, values: &[$t; 64 / size_of::<$t>()], mask: u64) -> [$t; 64 / size_of::<$t>()] {
            keep(values, mask)
        }
    )*};
}

impl Simd for Portable {
    comparisons!(
        u8, at_most_u8, within_u8, parts_u8, compress_u8, keep_u8;
        u16, at_most_u16, within_u16, parts_u16, compress_u16, keep_u16;
        u32, at_most_u32, within_u32, parts_u32, compress_u32, keep_u32;
        u64, at_most_u64, within_u64, parts_u64, compress_u64, keep_u64
    );

    #[inline(always)]
    fn keys_f32(self, values: &[f32; 16]) -> [u32; 16] {
        values.map(key_f32)
    }

    #[inline(always)]
    fn keys_f64(self, values: &[f64; 8]) -> [u64; 8] {
        values.map(key_f64)
    }

    #[inline(always)]
    fn bits_at_u8(self, set: &[u8; 32], indices: &[u8; 64]) -> u64 {
        let bit = |index: u8| set[usize::from(index >> 3)] >> (index & 7) & 1;
        indices.iter().enumerate().fold(0, |bits, (i, index)| bits | u64::from(bit(*index)) << i)
    }

    #[inline(always)]
    fn bits_at_u16(self, set: &[u32], indices: &[u16; 32], offset: u32) -> u64 {
        let bit = |index: u16| bit_at(set, u32::from(index).wrapping_add(offset));
        indices.iter().enumerate().fold(0, |bits, (i, index)| bits | bit(*index) << i)
    }

    #[inline(always)]
    fn bits_at_u32(self, set: &[u32], indices: &[u32; 16], offset: u32) -> u64 {
        let bit = |index: u32| bit_at(set, index.wrapping_add(offset));
        indices.iter().enumerate().fold(0, |bits, (i, index)| bits | bit(*index) << i)
    }
}

#[inline(always)]
fn bit_at(set: &[u32], index: u32) -> u64 {
    set.get((index >> 5) as usize).map_or(0, |word| u64::from(word >> (index & 31) & 1))
}

#[inline(always)]
fn within<L: Lane, const N: usize>(values: &[L; N], low: L, span: L) -> u64 {
    let mut above = *values;
    above.iter_mut().for_each(|value| *value = value.minus(low));
    at_most(&above, &[span; N])
}

#[inline(always)]
pub(super) fn parts<L: Lane, const N: usize>(low: &[L; N], high: &[L; N], shift: u32, mask: L) -> [L; N] {
    let mut parts = *low;
    for (part, high) in parts.iter_mut().zip(high) {
        *part = L::part(*part, *high, shift, mask);
    }
    parts
}

/// Moves the values whose bit in `mask` is set to the front, in order; the values after them are unspecified. Each
/// value is written behind those kept so far, and is overwritten by the next value if its bit is clear, so that no
/// branch depends on the data.
#[inline(always)]
pub(super) fn compress<L: Lane, const N: usize>(values: &[L; N], mask: u64) -> [L; N] {
    let mut out = [L::default(); N];
    let mut count = 0;
    for (bit, value) in values.iter().enumerate() {
        // At most `bit` values were kept before this one, so that the index is within the array.
        out[count.min(N - 1)] = *value;
        count += (mask >> bit & 1) as usize;
    }
    out
}

#[inline(always)]
fn keep<L: Lane, const N: usize>(values: &[L; N], mask: u64) -> [L; N] {
    let mut kept = *values;
    for (bit, value) in kept.iter_mut().enumerate() {
        if mask >> bit & 1 == 0 {
            *value = L::default();
        }
    }
    kept
}

/// Returns an integer that compares as the float does in IEEE total order, with -0.0 equal to 0.0.
#[inline(always)]
pub(crate) fn key_f32(value: f32) -> u32 {
    let bits = if value == 0.0 { 0 } else { value.to_bits() };
    bits ^ ((bits.cast_signed() >> 31) as u32 >> 1) ^ 1 << 31
}

/// Returns an integer that compares as the float does in IEEE total order, with -0.0 equal to 0.0.
#[inline(always)]
pub(crate) fn key_f64(value: f64) -> u64 {
    let bits = if value == 0.0 { 0 } else { value.to_bits() };
    bits ^ ((bits.cast_signed() >> 63) as u64 >> 1) ^ 1 << 63
}

/// Returns a bitmap of the positions at which `left <= right`. Computes a byte for each value first, because the
/// compiler turns that loop into vector comparisons; the bytes are then converted to bits.
#[inline(always)]
fn at_most<L: Lane, const N: usize>(left: &[L; N], right: &[L; N]) -> u64 {
    let mut bytes = [0u8; N];
    for ((byte, left), right) in bytes.iter_mut().zip(left).zip(right) {
        *byte = u8::from(left <= right);
    }
    let (words, _) = bytes.as_chunks::<8>();
    // The multiplication gathers the lowest bits of a word's bytes in its top byte.
    let gathered =
        words.iter().map(|word| u64::from_le_bytes(*word).wrapping_mul(0x0102_0408_1020_4080) >> 56);
    gathered.enumerate().fold(0, |bits, (byte, value)| bits | value << (8 * byte))
}
