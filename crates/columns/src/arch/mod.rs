//! Kernels compiled for several instruction sets, and the choice between them at run time.
//!
//! A [`Kernel`] is one generic body, compiled once for each level of CPU instructions ([`farpool_model::cpu`] defines
//! the levels); [`Level::run`] calls the copy for its level. The compiler vectorises the loops of the body with that
//! level's instructions. The few operations that it compiles badly (turning comparisons into bits, looking bits up) are
//! written by hand for each level, behind [`Simd`]. Invariant: every level gives the same results, bit by bit.
//!
//! A body and all functions that it calls per value must be `#[inline(always)]`, because a function that is not inlined
//! is compiled without the level's instructions.

#![expect(unsafe_code, reason = "instructions that not every processor has")]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod past_caches;
mod portable;

use farpool_model::cpu::{self, Instructions};
pub(crate) use past_caches::Writer;
use portable::Portable;
pub(crate) use portable::{key_f32, key_f64};

/// A computation whose body can be compiled for any level.
pub trait Kernel {
    /// Type of the result.
    type Output;

    /// Runs the body with the operations of one level. Must be `#[inline(always)]`.
    fn run<S: Simd>(self, simd: S) -> Self::Output;
}

/// Operations that the compiler does not vectorise well by itself, on 64 bytes of values at a time. In results that are
/// bitmaps, the lowest bit belongs to the first value.
///
/// Operations on arrays of few values are written by hand even if they are simple: the compiler would split
/// the array into scalars before it looks for vectors.
pub trait Simd: Copy {
    /// Prefetches the cache line of `place`, which will be read soon.
    #[inline(always)]
    fn prefetch<T>(self, place: &T) {
        let _ = place;
    }

    /// Returns a bitmap of the positions at which `left <= right`.
    fn at_most_u8(self, left: &[u8; 64], right: &[u8; 64]) -> u64;

    /// Returns a bitmap of the values for which `value - low`, which may wrap, is at most `span`.
    fn within_u8(self, values: &[u8; 64], low: u8, span: u8) -> u64;

    /// Returns for each value the bits from bit `shift` on of `low`, continued by the bits of `high` above them,
    /// masked by `mask`.
    fn parts_u8(self, low: &[u8; 64], high: &[u8; 64], shift: u32, mask: u8) -> [u8; 64];

    /// Moves the values whose bit in `mask` is set to the front, in order; the values after them are unspecified.
    fn compress_u8(self, values: &[u8; 64], mask: u64) -> [u8; 64];

    /// Moves the values whose bit in `mask` is set to the front, in order; fills the rest of `out` with `pad`.
    #[inline(always)]
    fn compress_padded_u8(self, values: &[u8; 64], mask: u64, pad: u8, out: &mut [u8; 64]) {
        *out = [pad; 64];
        let mut rest = mask;
        for place in out {
            if rest == 0 {
                break;
            }
            *place = values[rest.trailing_zeros() as usize];
            rest &= rest - 1;
        }
    }

    /// Keeps the values whose bit in `mask` is set, and sets the others to 0.
    fn keep_u8(self, values: &[u8; 64], mask: u64) -> [u8; 64];

    /// Returns a bitmap of the positions at which `left <= right`.
    fn at_most_u16(self, left: &[u16; 32], right: &[u16; 32]) -> u64;

    /// Returns a bitmap of the values for which `value - low`, which may wrap, is at most `span`.
    fn within_u16(self, values: &[u16; 32], low: u16, span: u16) -> u64;

    /// Returns for each value the bits from bit `shift` on of `low`, continued by the bits of `high` above them,
    /// masked by `mask`.
    fn parts_u16(self, low: &[u16; 32], high: &[u16; 32], shift: u32, mask: u16) -> [u16; 32];

    /// Moves the values whose bit in `mask` is set to the front, in order; the values after them are unspecified.
    fn compress_u16(self, values: &[u16; 32], mask: u64) -> [u16; 32];

    /// Keeps the values whose bit in `mask` is set, and sets the others to 0.
    fn keep_u16(self, values: &[u16; 32], mask: u64) -> [u16; 32];

    /// Returns a bitmap of the positions at which `left <= right`.
    fn at_most_u32(self, left: &[u32; 16], right: &[u32; 16]) -> u64;

    /// Returns a bitmap of the values for which `value - low`, which may wrap, is at most `span`.
    fn within_u32(self, values: &[u32; 16], low: u32, span: u32) -> u64;

    /// Returns for each value the bits from bit `shift` on of `low`, continued by the bits of `high` above them,
    /// masked by `mask`.
    fn parts_u32(self, low: &[u32; 16], high: &[u32; 16], shift: u32, mask: u32) -> [u32; 16];

    /// Moves the values whose bit in `mask` is set to the front, in order; the values after them are unspecified.
    fn compress_u32(self, values: &[u32; 16], mask: u64) -> [u32; 16];

    /// Keeps the values whose bit in `mask` is set, and sets the others to 0.
    fn keep_u32(self, values: &[u32; 16], mask: u64) -> [u32; 16];

    /// Returns a bitmap of the positions at which `left <= right`.
    fn at_most_u64(self, left: &[u64; 8], right: &[u64; 8]) -> u64;

    /// Returns a bitmap of the values for which `value - low`, which may wrap, is at most `span`.
    fn within_u64(self, values: &[u64; 8], low: u64, span: u64) -> u64;

    /// Returns for each value the bits from bit `shift` on of `low`, continued by the bits of `high` above them,
    /// masked by `mask`.
    fn parts_u64(self, low: &[u64; 8], high: &[u64; 8], shift: u32, mask: u64) -> [u64; 8];

    /// Moves the values whose bit in `mask` is set to the front, in order; the values after them are unspecified.
    fn compress_u64(self, values: &[u64; 8], mask: u64) -> [u64; 8];

    /// Keeps the values whose bit in `mask` is set, and sets the others to 0.
    fn keep_u64(self, values: &[u64; 8], mask: u64) -> [u64; 8];

    /// Returns integers that compare as the floats do in the total order of IEEE 754, except that -0.0 equals
    /// 0.0.
    fn keys_f32(self, values: &[f32; 16]) -> [u32; 16];

    /// Returns integers as [`Self::keys_f32`] does, for 64-bit floats.
    fn keys_f64(self, values: &[f64; 8]) -> [u64; 8];

    /// Returns a bitmap: for each index, the bit of `set` at that index. Bit 0 is the lowest bit of the first byte.
    fn bits_at_u8(self, set: &[u8; 32], indices: &[u8; 64]) -> u64;

    /// Returns a bitmap: for each index, the bit of `set` at `index + offset` (modulo 2^32), and 0 beyond the end of
    /// `set`. Bit 0 is the lowest bit of the first word. `set` must have fewer than 2^31 bits.
    fn bits_at_u16(self, set: &[u32], indices: &[u16; 32], offset: u32) -> u64;

    /// Looks up bits as [`Self::bits_at_u16`] does, for 32-bit indices.
    fn bits_at_u32(self, set: &[u32], indices: &[u32; 16], offset: u32) -> u64;
}

/// A level of CPU instructions that kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level(cpu::Level);

impl Level {
    /// Level that every supported CPU has.
    pub const PORTABLE: Level = Level(cpu::Level::PORTABLE);

    /// Returns the highest level that kernels may use on this thread.
    #[inline]
    pub fn best() -> Level {
        Level(cpu::Level::best())
    }

    /// Returns the levels that this CPU supports, the lowest first.
    pub fn all() -> impl Iterator<Item = Level> {
        cpu::Level::all().map(Level)
    }

    /// Runs the copy of `kernel` that is compiled for this level.
    #[inline]
    pub fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self.0.instructions() {
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx512 => {
                // SAFETY: a level exists only where the CPU supports its instructions.
                unsafe { avx512::run(kernel) }
            }
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx2 => {
                // SAFETY: a level exists only where the CPU supports its instructions.
                unsafe { avx2::run(kernel) }
            }
            _ => kernel.run(Portable),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
