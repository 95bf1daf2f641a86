//! Kernels of moments: sums of the products of all pairs of columns of bytes, and of columns of floats. They exist for
//! several levels of CPU instructions, with the choice between them at run time.
//!
//! Invariant: every level gives the same sums for bytes. For floats they differ by rounding.

#![expect(unsafe_code, reason = "instructions that not every processor has")]

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod amx;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;

use super::matrix::{Bytes, Floats};
pub(crate) use crate::arch::Kernel;
use farpool_model::cpu::Instructions;
use std::ops::Range;

/// A level of CPU instructions that kernels of moments are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Level {
    cpu: crate::arch::Level,
    /// Whether the CPU also has AMX (matrix instructions) with 8-bit integers, as Sapphire Rapids (2023) has.
    has_tiles: bool,
}

impl Level {
    /// Returns the highest level that this CPU supports.
    pub(crate) fn best() -> Level {
        let cpu = crate::arch::Level::best();
        Level { cpu, has_tiles: cpu.instructions() == Instructions::Avx512 && has_tiles() }
    }

    /// Returns all levels that this CPU supports, the lowest first.
    #[cfg(test)]
    pub(crate) fn all() -> impl Iterator<Item = Level> {
        let without_tiles = crate::arch::Level::all().map(|cpu| Level { cpu, has_tiles: false });
        without_tiles.chain(Some(Level::best()).filter(|best| best.has_tiles))
    }

    /// Runs the copy of a kernel for this level.
    #[inline]
    pub(crate) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        self.cpu.run(kernel)
    }

    /// Sums the bytes of each column.
    pub(crate) fn byte_sums(self, matrix: &Bytes, to: &mut [u32]) {
        match self.cpu.instructions() {
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx512 => {
                // SAFETY: a level exists only where the CPU supports its instructions.
                unsafe { avx512::byte_sums(matrix, to) }
            }
            _ => self.run(portable::ByteSums(matrix, to)),
        }
    }

    /// Fills the interleaved copy of the matrix, if the kernels of this level read it.
    pub(crate) fn interleave(self, matrix: &mut Bytes) {
        match self.cpu.instructions() {
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx512 => {
                // SAFETY: a level exists only where the CPU supports its instructions.
                unsafe { avx512::interleave(matrix) }
            }
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx2 => avx2::interleave(matrix),
            _ => {}
        }
    }

    /// Computes the sums over all rows of the products of each column of `left` with each column of `right`. Writes
    /// them row by row to `to`, whose rows have `width` numbers. Both ranges must consist of whole groups of columns.
    pub(crate) fn byte_products(
        self,
        matrix: &Bytes,
        sums: &[u32],
        (left, right): (Range<usize>, Range<usize>),
        to: &mut [u32],
        width: usize,
    ) {
        matrix.check(&left, &right, to.len(), width);
        match self.cpu.instructions() {
            #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
            Instructions::Avx512 if self.has_tiles => {
                // SAFETY: a level has tiles only where the process may use them; the ranges and the room were
                // checked.
                unsafe { amx::byte_products(matrix, (left, right), to, width) }
            }
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx512 => {
                // SAFETY: a level exists only where the CPU supports its instructions; ranges and room were checked.
                unsafe { avx512::byte_products(matrix, sums, (left, right), to, width) }
            }
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx2 => {
                // SAFETY: a level exists only where the CPU supports its instructions.
                unsafe { avx2::byte_products(matrix, (left, right), to, width) }
            }
            _ => self.run(portable::ByteProducts { matrix, left, right, to, width }),
        }
    }

    /// Computes sums of products for columns of floats, as [`Self::byte_products`] does for bytes.
    pub(crate) fn float_products(
        self,
        matrix: &Floats,
        (left, right): (Range<usize>, Range<usize>),
        to: &mut [f64],
        width: usize,
    ) {
        matrix.check(&left, &right, to.len(), width);
        match self.cpu.instructions() {
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx512 => {
                // SAFETY: a level exists only where the CPU supports its instructions; the ranges and
                // the room were checked.
                unsafe { avx512::float_products(matrix, (left, right), to, width) }
            }
            _ => self.run(portable::FloatProducts { matrix, left, right, to, width }),
        }
    }
}

/// Returns whether this process may use AMX. Linux is asked only once.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn has_tiles() -> bool {
    static ALLOWED: std::sync::LazyLock<bool> = std::sync::LazyLock::new(amx::allowed);
    *ALLOWED
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
fn has_tiles() -> bool {
    false
}

#[cfg(test)]
mod tests;
