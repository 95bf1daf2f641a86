//! Products of all pairs of columns of bytes, and of floats: the kernels behind moments, for what processors
//! can do, and the choice between them at run time.
//!
//! Invariant: a [`Level`] above the portable one exists only on a processor that has its instructions. Every
//! level gives the same products of bytes; those of floats differ in rounding.

#![expect(unsafe_code, reason = "instructions that not every processor has")]

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod amx;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;

use super::matrix::{Bytes, Floats};
use std::ops::Range;
use std::sync::atomic::{AtomicU8, Ordering};

/// A loop that the compiler vectorises by itself, with the instructions of a level. It and all that it calls
/// per value must be `#[inline(always)]`.
pub(crate) trait Kernel {
    /// What it gives.
    type Output;

    /// The body; `#[inline(always)]`.
    fn run(self) -> Self::Output;
}

/// Instructions that this processor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Level(Set);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
#[repr(u8)]
enum Set {
    Portable = 1,
    Avx2 = 2,
    /// AVX-512 with VNNI, as Ice Lake (2019) has them.
    Avx512 = 3,
    /// The same and tiles of 8-bit integers, as Sapphire Rapids (2023) has them.
    Amx = 4,
}

/// The level in use; 0 before the first question.
static BEST: AtomicU8 = AtomicU8::new(0);

impl Level {
    /// The level to use.
    pub(crate) fn best() -> Level {
        match BEST.load(Ordering::Relaxed) {
            1 => Level(Set::Portable),
            2 => Level(Set::Avx2),
            3 => Level(Set::Avx512),
            4 => Level(Set::Amx),
            _ => {
                let set = detected();
                BEST.store(set as u8, Ordering::Relaxed);
                Level(set)
            }
        }
    }

    /// The levels that this processor has, the lowest first.
    #[cfg(test)]
    pub(crate) fn all() -> impl Iterator<Item = Level> {
        let highest = detected();
        let sets = [Set::Portable, Set::Avx2, Set::Avx512, Set::Amx];
        sets.into_iter().filter(move |set| *set <= highest).map(Level)
    }

    /// Runs the copy of a kernel for this level.
    #[inline]
    pub(crate) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Set::Avx512 | Set::Amx => {
                // SAFETY: a level is made only where the processor has its instructions.
                unsafe { avx512::run(kernel) }
            }
            #[cfg(target_arch = "x86_64")]
            Set::Avx2 => {
                // SAFETY: as above.
                unsafe { avx2::run(kernel) }
            }
            _ => kernel.run(),
        }
    }

    /// The sum of the bytes of each column.
    pub(crate) fn byte_sums(self, matrix: &Bytes, to: &mut [u32]) {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Set::Avx512 | Set::Amx => {
                // SAFETY: a level is made only where the processor has its instructions.
                unsafe { avx512::byte_sums(matrix, to) }
            }
            _ => self.run(portable::ByteSums(matrix, to)),
        }
    }

    /// Sets the copy of the matrix in the order that the level's products want, if there is one.
    pub(crate) fn interleave(self, matrix: &mut Bytes) {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Set::Avx512 | Set::Amx => {
                // SAFETY: a level is made only where the processor has its instructions.
                unsafe { avx512::interleave(matrix) }
            }
            _ => {}
        }
    }

    /// The products of each column of `left` with each of `right`, row by row of `to`, which has `width`
    /// numbers in each. The ranges are whole groups.
    pub(crate) fn byte_products(
        self,
        matrix: &Bytes,
        sums: &[u32],
        (left, right): (Range<usize>, Range<usize>),
        to: &mut [u32],
        width: usize,
    ) {
        matrix.check(&left, &right, to.len(), width);
        match self.0 {
            #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
            Set::Amx => {
                // SAFETY: a level is made only where the processor has its instructions; the ranges and
                // the room were checked.
                unsafe { amx::byte_products(matrix, (left, right), to, width) }
            }
            #[cfg(target_arch = "x86_64")]
            Set::Avx512 => {
                // SAFETY: as above.
                unsafe { avx512::byte_products(matrix, sums, (left, right), to, width) }
            }
            _ => self.run(portable::ByteProducts { matrix, left, right, to, width }),
        }
    }

    /// The same for columns of floats.
    pub(crate) fn float_products(
        self,
        matrix: &Floats,
        (left, right): (Range<usize>, Range<usize>),
        to: &mut [f64],
        width: usize,
    ) {
        matrix.check(&left, &right, to.len(), width);
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Set::Avx512 | Set::Amx => {
                // SAFETY: a level is made only where the processor has its instructions; the ranges and
                // the room were checked.
                unsafe { avx512::float_products(matrix, (left, right), to, width) }
            }
            _ => self.run(portable::FloatProducts { matrix, left, right, to, width }),
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn detected() -> Set {
    let avx2 = std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma");
    let avx512 = std::is_x86_feature_detected!("avx512f")
        && std::is_x86_feature_detected!("avx512bw")
        && std::is_x86_feature_detected!("avx512dq")
        && std::is_x86_feature_detected!("avx512vl")
        && std::is_x86_feature_detected!("avx512vnni");
    match (avx2, avx512) {
        #[cfg(target_os = "linux")]
        (true, true) if amx::allowed() => Set::Amx,
        (true, true) => Set::Avx512,
        (true, false) => Set::Avx2,
        _ => Set::Portable,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn detected() -> Set {
    Set::Portable
}

#[cfg(test)]
mod tests;
