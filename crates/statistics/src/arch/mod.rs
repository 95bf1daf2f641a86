//! Loops compiled once for each level of CPU instructions, with the choice between them at run time.
//!
//! A [`Kernel`] is a single body of code. [`Level::run`] calls the copy of it that was compiled for its level
//! ([`farpool_model::cpu`] defines the levels); the compiler vectorises the loops of the body with that level's
//! instructions. Invariant: all copies of a body give the same results, for integers bit by bit. Bodies on floats must
//! fix the order of additions to achieve that.
//!
//! A body and all functions that it calls per value must be `#[inline(always)]`, because a function that is not inlined
//! is compiled without the level's instructions.

#![expect(unsafe_code, reason = "instructions that not every processor has")]

mod registers;

use farpool_model::cpu::{self, Instructions};
pub(crate) use registers::SPARE;

/// A computation whose body is compiled for every level.
pub(crate) trait Kernel {
    /// Type of the result.
    type Output;

    /// Runs the body. Must be `#[inline(always)]`.
    fn run(self) -> Self::Output;
}

/// A level of CPU instructions that kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Level(cpu::Level);

impl Level {
    /// Level that every CPU supports.
    #[cfg(test)]
    pub(crate) const PORTABLE: Level = Level(cpu::Level::PORTABLE);

    /// Returns the highest level that this CPU supports.
    #[inline]
    pub(crate) fn best() -> Level {
        Level(cpu::Level::best())
    }

    /// Returns all levels that this CPU supports, the lowest first.
    #[cfg(test)]
    pub(crate) fn all() -> impl Iterator<Item = Level> {
        cpu::Level::all().map(Level)
    }

    /// Returns the instruction set for which the copy of this level is compiled.
    #[inline]
    pub(crate) fn instructions(self) -> Instructions {
        self.0.instructions()
    }

    /// Runs the copy of a kernel for this level.
    #[inline]
    pub(crate) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self.instructions() {
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx512 => {
                // SAFETY: a level exists only where the CPU supports its instructions.
                unsafe { run_avx512(kernel) }
            }
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx2 => {
                // SAFETY: a level exists only where the CPU supports its instructions.
                unsafe { run_avx2(kernel) }
            }
            _ => kernel.run(),
        }
    }
}

/// Runs `kernel` compiled for AVX-512 as in Ice Lake (2019).
///
/// # Safety
/// The CPU must support the extensions that the attribute below enables.
#[cfg(target_arch = "x86_64")]
#[target_feature(
    enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,avx2,fma,bmi1,bmi2,lzcnt,popcnt"
)]
unsafe fn run_avx512<K: Kernel>(kernel: K) -> K::Output {
    kernel.run()
}

/// Runs `kernel` compiled for AVX2.
///
/// # Safety
/// The CPU must support the extensions that the attribute below enables.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
unsafe fn run_avx2<K: Kernel>(kernel: K) -> K::Output {
    kernel.run()
}
