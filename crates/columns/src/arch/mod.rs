//! Kernels compiled several times, for what processors can do, and the choice between them at run time.
//!
//! A [`Kernel`] is one generic body. [`Level::run`] calls the copy of it that was compiled for the level's
//! instructions: the compiler then vectorises the body's loops with them, and the few steps that it does
//! badly (turning comparisons into bits, looking bits up) are written by hand, once for each instruction set,
//! behind [`Simd`]. Which levels there are, [`farpool_model::cpu`] says. Invariant: every level gives the same answers,
//! bit by bit.
//!
//! A body and all that it calls per value must be `#[inline(always)]`: what is not inlined is compiled
//! without the instructions.

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

/// A computation with a body for any level.
pub trait Kernel {
    /// What it gives.
    type Output;

    /// The body; `#[inline(always)]`.
    fn run<S: Simd>(self, simd: S) -> Self::Output;
}

/// What the compiler does not find by itself, 64 bytes of values at a time. The first value's answer is in
/// the lowest bit.
///
/// A step on arrays of few values is by hand even if it is simple: the compiler would take the array apart
/// before it looks for vectors.
pub trait Simd: Copy {
    /// Brings the cache line of `place` nearer, for it will be read soon.
    #[inline(always)]
    fn prefetch<T>(self, place: &T) {
        let _ = place;
    }

    /// Where `left <= right`.
    fn at_most_u8(self, left: &[u8; 64], right: &[u8; 64]) -> u64;

    /// Where `values - low`, modulo the type, is at most `span`.
    fn within_u8(self, values: &[u8; 64], low: u8, span: u8) -> u64;

    /// The bits of `high` and `low`, one behind the other, from `shift` on, as far as `mask` wants them.
    fn parts_u8(self, low: &[u8; 64], high: &[u8; 64], shift: u32, mask: u8) -> [u8; 64];

    /// The values whose bit of `mask` is set, in order; what follows them has no meaning.
    fn compress_u8(self, values: &[u8; 64], mask: u64) -> [u8; 64];

    /// The values whose bit of `mask` is set, in order, followed by `pad` up to the end.
    #[inline(always)]
    fn compress_padded_u8(self, values: &[u8; 64], mask: u64, pad: u8) -> [u8; 64] {
        if mask == u64::MAX {
            return *values;
        }
        let mut out = [pad; 64];
        let mut rest = mask;
        for place in &mut out {
            if rest == 0 {
                break;
            }
            *place = values[rest.trailing_zeros() as usize];
            rest &= rest - 1;
        }
        out
    }

    /// The values whose bit of `mask` is set, and 0 in the place of each other.
    fn keep_u8(self, values: &[u8; 64], mask: u64) -> [u8; 64];

    /// Where `left <= right`.
    fn at_most_u16(self, left: &[u16; 32], right: &[u16; 32]) -> u64;

    /// Where `values - low`, modulo the type, is at most `span`.
    fn within_u16(self, values: &[u16; 32], low: u16, span: u16) -> u64;

    /// The bits of `high` and `low`, one behind the other, from `shift` on, as far as `mask` wants them.
    fn parts_u16(self, low: &[u16; 32], high: &[u16; 32], shift: u32, mask: u16) -> [u16; 32];

    /// The values whose bit of `mask` is set, in order; what follows them has no meaning.
    fn compress_u16(self, values: &[u16; 32], mask: u64) -> [u16; 32];

    /// The values whose bit of `mask` is set, and 0 in the place of each other.
    fn keep_u16(self, values: &[u16; 32], mask: u64) -> [u16; 32];

    /// Where `left <= right`.
    fn at_most_u32(self, left: &[u32; 16], right: &[u32; 16]) -> u64;

    /// Where `values - low`, modulo the type, is at most `span`.
    fn within_u32(self, values: &[u32; 16], low: u32, span: u32) -> u64;

    /// The bits of `high` and `low`, one behind the other, from `shift` on, as far as `mask` wants them.
    fn parts_u32(self, low: &[u32; 16], high: &[u32; 16], shift: u32, mask: u32) -> [u32; 16];

    /// The values whose bit of `mask` is set, in order; what follows them has no meaning.
    fn compress_u32(self, values: &[u32; 16], mask: u64) -> [u32; 16];

    /// The values whose bit of `mask` is set, and 0 in the place of each other.
    fn keep_u32(self, values: &[u32; 16], mask: u64) -> [u32; 16];

    /// Where `left <= right`.
    fn at_most_u64(self, left: &[u64; 8], right: &[u64; 8]) -> u64;

    /// Where `values - low`, modulo the type, is at most `span`.
    fn within_u64(self, values: &[u64; 8], low: u64, span: u64) -> u64;

    /// The bits of `high` and `low`, one behind the other, from `shift` on, as far as `mask` wants them.
    fn parts_u64(self, low: &[u64; 8], high: &[u64; 8], shift: u32, mask: u64) -> [u64; 8];

    /// The values whose bit of `mask` is set, in order; what follows them has no meaning.
    fn compress_u64(self, values: &[u64; 8], mask: u64) -> [u64; 8];

    /// The values whose bit of `mask` is set, and 0 in the place of each other.
    fn keep_u64(self, values: &[u64; 8], mask: u64) -> [u64; 8];

    /// Numbers that compare as the floats do in IEEE 754's total order, but that -0.0 is 0.0.
    fn keys_f32(self, values: &[f32; 16]) -> [u32; 16];

    /// As [`Self::keys_f32`], of floats of 64 bits.
    fn keys_f64(self, values: &[f64; 8]) -> [u64; 8];

    /// The bit of `set` at each index, the lowest bit of a byte first.
    fn bits_at_u8(self, set: &[u8; 32], indices: &[u8; 64]) -> u64;

    /// The bit of `set` at each index, `offset` added modulo the type; the lowest bit of a half comes first;
    /// clear behind the end of the set. The set has less than 2^31 bits.
    fn bits_at_u16(self, set: &[u32], indices: &[u16; 32], offset: u32) -> u64;

    /// As [`Self::bits_at_u16`], by indices of 32 bits.
    fn bits_at_u32(self, set: &[u32], indices: &[u32; 16], offset: u32) -> u64;
}

/// A level of the processor's instructions, on which kernels run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level(cpu::Level);

impl Level {
    /// What every processor has.
    pub const PORTABLE: Level = Level(cpu::Level::PORTABLE);

    /// The level to use.
    #[inline]
    pub fn best() -> Level {
        Level(cpu::Level::best())
    }

    /// The levels that this processor has, the lowest first.
    pub fn all() -> impl Iterator<Item = Level> {
        cpu::Level::all().map(Level)
    }

    /// Runs the copy of a kernel for this level.
    #[inline]
    pub fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self.0.instructions() {
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx512 => {
                // SAFETY: a level is made only where the processor has its instructions.
                unsafe { avx512::run(kernel) }
            }
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx2 => {
                // SAFETY: as above.
                unsafe { avx2::run(kernel) }
            }
            _ => kernel.run(Portable),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
