//! Any processor: plain loops, which the compiler vectorises with what all processors of the target have.

use super::Simd;

#[derive(Clone, Copy)]
pub(super) struct Portable;

impl Simd for Portable {
    #[inline(always)]
    fn at_most_u8(self, left: &[u8; 64], right: &[u8; 64]) -> u64 {
        at_most(left, right)
    }

    #[inline(always)]
    fn at_most_u16(self, left: &[u16; 32], right: &[u16; 32]) -> u64 {
        at_most(left, right)
    }

    #[inline(always)]
    fn at_most_u32(self, left: &[u32; 16], right: &[u32; 16]) -> u64 {
        at_most(left, right)
    }

    #[inline(always)]
    fn at_most_u64(self, left: &[u64; 8], right: &[u64; 8]) -> u64 {
        at_most(left, right)
    }

    #[inline(always)]
    fn bits_at_u8(self, set: &[u8; 32], indices: &[u8; 64]) -> u64 {
        let bit = |index: u8| set[usize::from(index >> 3)] >> (index & 7) & 1;
        indices.iter().enumerate().fold(0, |bits, (i, index)| bits | u64::from(bit(*index)) << i)
    }

    #[inline(always)]
    fn bits_at_u32(self, set: &[u32], indices: &[u32; 16]) -> u64 {
        let bit = |index: u32| set.get((index >> 5) as usize).map_or(0, |word| word >> (index & 31) & 1);
        indices.iter().enumerate().fold(0, |bits, (i, index)| bits | u64::from(bit(*index)) << i)
    }
}

/// A byte for each value first, because that loop becomes vector compares; the bytes then become bits.
#[inline(always)]
fn at_most<T: Copy + PartialOrd, const N: usize>(left: &[T; N], right: &[T; N]) -> u64 {
    let mut bytes = [0u8; N];
    for ((byte, left), right) in bytes.iter_mut().zip(left).zip(right) {
        *byte = u8::from(left <= right);
    }
    let (words, _) = bytes.as_chunks::<8>();
    // The multiplication brings the lowest bits of a word's bytes together in its top byte.
    let gathered =
        words.iter().map(|word| u64::from_le_bytes(*word).wrapping_mul(0x0102_0408_1020_4080) >> 56);
    gathered.enumerate().fold(0, |bits, (byte, value)| bits | value << (8 * byte))
}
