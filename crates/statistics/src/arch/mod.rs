//! Loops compiled several times, for different instruction sets, with the choice between them at run time.
//!
//! A [`Kernel`] is a single body of code. [`Level::run`] calls the copy of it that was compiled for the
//! level's instructions, with which the compiler vectorises the body's loops. [`farpool_model::cpu`] defines
//! the levels. Invariant: since the body is the same, so are the results, for integers bit by bit; bodies on
//! floats have to fix the order of additions.
//!
//! A body and all functions that it calls per value must be `#[inline(always)]`: a function that is not inlined is
//! compiled without the instructions.

#![expect(unsafe_code, reason = "instructions that not every processor has")]

mod registers;

use farpool_model::cpu::{self, Instructions};
pub(crate) use registers::SPARE;

/// A computation with one body for all levels.
pub(crate) trait Kernel {
    /// The result.
    type Output;

    /// Returns the body; `#[inline(always)]`.
    fn run(self) -> Self::Output;
}

/// A level of the processor's instructions, on which kernels run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Level(cpu::Level);

impl Level {
    /// The instructions that every processor has.
    #[cfg(test)]
    pub(crate) const PORTABLE: Level = Level(cpu::Level::PORTABLE);

    /// Returns the highest level of this processor.
    #[inline]
    pub(crate) fn best() -> Level {
        Level(cpu::Level::best())
    }

    /// Returns all levels of this processor, the lowest first.
    #[cfg(test)]
    pub(crate) fn all() -> impl Iterator<Item = Level> {
        cpu::Level::all().map(Level)
    }

    /// Returns the set of instructions, whose copy of a kernel may be called.
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
                // SAFETY: a level is made only where the processor has its instructions.
                unsafe { run_avx512(kernel) }
            }
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx2 => {
                // SAFETY: as above.
                unsafe { run_avx2(kernel) }
            }
            _ => kernel.run(),
        }
    }
}

/// Runs the kernel, compiled for AVX-512 as in Ice Lake (2019).
///
/// # Safety
/// The processor has the instructions.
#[cfg(target_arch = "x86_64")]
#[target_feature(
    enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,avx2,fma,bmi1,bmi2,lzcnt,popcnt"
)]
unsafe fn run_avx512<K: Kernel>(kernel: K) -> K::Output {
    kernel.run()
}

/// Returns the kernel, compiled for AVX2.
///
/// # Safety
/// The processor has the instructions.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
unsafe fn run_avx2<K: Kernel>(kernel: K) -> K::Output {
    kernel.run()
}
