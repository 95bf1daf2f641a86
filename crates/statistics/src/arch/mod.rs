//! Loops compiled several times, for what processors can do, and the choice between them at run time.
//!
//! A [`Kernel`] is one body. [`Level::run`] calls the copy of it that was compiled for the level's
//! instructions, with which the compiler vectorises the body's loops. Invariant: a [`Level`] above the
//! portable one exists only on a processor that has its instructions. As the body is the same, so are the
//! answers, for integers bit by bit; bodies on floats have to fix the order in which they add.
//!
//! A body and all that it calls per value must be `#[inline(always)]`: what is not inlined is compiled
//! without the instructions.

#![expect(unsafe_code, reason = "instructions that not every processor has")]

mod registers;

pub(crate) use registers::SPARE;

use std::sync::atomic::{AtomicU8, Ordering};

/// A computation with one body for all levels.
pub(crate) trait Kernel {
    /// What it gives.
    type Output;

    /// The body; `#[inline(always)]`.
    fn run(self) -> Self::Output;
}

/// Instructions that this processor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level(Set);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
#[repr(u8)]
enum Set {
    Portable = 1,
    Avx2 = 2,
    /// With the extensions that Ice Lake has; earlier processors slow down on 512 bits.
    Avx512 = 3,
}

/// The level in use; 0 before the first question.
static BEST: AtomicU8 = AtomicU8::new(0);

impl Level {
    /// What every processor has.
    pub const PORTABLE: Level = Level(Set::Portable);

    /// The level to use.
    #[inline]
    pub fn best() -> Level {
        match BEST.load(Ordering::Relaxed) {
            1 => Level(Set::Portable),
            2 => Level(Set::Avx2),
            3 => Level(Set::Avx512),
            _ => Level::detect(),
        }
    }

    /// The levels that this processor has, the lowest first.
    pub fn all() -> impl Iterator<Item = Level> {
        let highest = detected();
        [Set::Portable, Set::Avx2, Set::Avx512].into_iter().filter(move |set| *set <= highest).map(Level)
    }

    /// Makes this the level to use in the whole process: for tests and comparisons of the lower ones.
    pub fn force(self) {
        BEST.store(self.0 as u8, Ordering::Relaxed);
    }

    #[cold]
    fn detect() -> Level {
        let level = Level(detected());
        level.force();
        level
    }

    /// Runs the copy of a kernel for this level.
    #[inline]
    pub(crate) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Set::Avx512 => {
                // SAFETY: a level is made only where the processor has its instructions.
                unsafe { run_avx512(kernel) }
            }
            #[cfg(target_arch = "x86_64")]
            Set::Avx2 => {
                // SAFETY: as above.
                unsafe { run_avx2(kernel) }
            }
            _ => kernel.run(),
        }
    }
}

/// The kernel, compiled for AVX-512 as Ice Lake (2019) has it.
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

/// The kernel, compiled for AVX2.
///
/// # Safety
/// The processor has the instructions.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
unsafe fn run_avx2<K: Kernel>(kernel: K) -> K::Output {
    kernel.run()
}

#[cfg(target_arch = "x86_64")]
fn detected() -> Set {
    macro_rules! all {
        ($($feature:tt),*) => { $(std::is_x86_feature_detected!($feature))&&* };
    }
    let avx2 = all!("avx2", "fma", "bmi1", "bmi2", "lzcnt", "popcnt");
    let avx512 = all!("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx512vbmi", "avx512vbmi2");
    match (avx2, avx512) {
        (true, true) => Set::Avx512,
        (true, false) => Set::Avx2,
        _ => Set::Portable,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn detected() -> Set {
    Set::Portable
}
