//! Vector instruction sets of this processor, as levels for which kernels are compiled.
//!
//! A crate with kernels compiles each kernel once per [`Instructions`] and calls the copy for a [`Level`]. Invariant: a
//! [`Level`] above the portable one exists only on a processor that has all instructions of the level, so that calling
//! the copy is sound.

use std::cell::Cell;

/// An instruction set that this processor is known to have. Only functions of this module create one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level(Instructions);

/// Instruction sets, from the lowest to the highest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub enum Instructions {
    /// The instructions that the program is compiled for. Every supported processor has them.
    Portable,
    /// `avx2`, `fma`, `bmi1`, `bmi2`, `lzcnt` and `popcnt`, as Haswell (2013) has them.
    Avx2,
    /// [`Instructions::Avx2`], and `avx512f`, `avx512bw`, `avx512cd`, `avx512dq`, `avx512vl`, `avx512vbmi`,
    /// `avx512vbmi2`, `avx512vnni` and `avx512vpopcntdq`, as Ice Lake (2019) has them. Earlier processors have only
    /// some of these instructions, and reduce their clock rate for 512-bit vectors.
    Avx512,
}

const ALL: [Instructions; 3] = [Instructions::Portable, Instructions::Avx2, Instructions::Avx512];

thread_local! {
    /// Result of [`Level::best`] on this thread; `None` before the first call.
    static BEST: Cell<Option<Level>> = const { Cell::new(None) };
}

impl Level {
    /// The instructions that every supported processor has.
    pub const PORTABLE: Level = Level(Instructions::Portable);

    /// Returns the level that kernels should use: the highest level of the processor or, in a closure that
    /// [`Level::within`] runs, the level given there.
    #[inline]
    pub fn best() -> Level {
        BEST.get().unwrap_or_else(Level::detect)
    }

    #[cold]
    fn detect() -> Level {
        let level = Level(detected());
        BEST.set(Some(level));
        level
    }

    /// Returns the levels that this processor has, the lowest first.
    pub fn all() -> impl Iterator<Item = Level> {
        let highest = detected();
        ALL.into_iter().filter(move |instructions| *instructions <= highest).map(Level)
    }

    /// Returns the instruction set, for which a kernel's copy may be called.
    #[inline]
    pub fn instructions(self) -> Instructions {
        self.0
    }

    /// Runs `work` with this level as the result of [`Level::best`] on the calling thread. For tests and measurements
    /// of lower levels. Threads that `work` starts are not affected.
    pub fn within<T>(self, work: impl FnOnce() -> T) -> T {
        struct Restore(Option<Level>);
        impl Drop for Restore {
            fn drop(&mut self) {
                BEST.set(self.0);
            }
        }
        let _restore = Restore(BEST.replace(Some(self)));
        work()
    }
}

#[cfg(target_arch = "x86_64")]
fn detected() -> Instructions {
    macro_rules! has {
        ($($feature:tt),*) => { $(std::is_x86_feature_detected!($feature))&&* };
    }
    let avx2 = has!("avx2", "fma", "bmi1", "bmi2", "lzcnt", "popcnt");
    let avx512 = has!("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx512vbmi", "avx512vbmi2")
        && has!("avx512vnni", "avx512vpopcntdq");
    match (avx2, avx512) {
        (true, true) => Instructions::Avx512,
        (true, false) => Instructions::Avx2,
        _ => Instructions::Portable,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn detected() -> Instructions {
    Instructions::Portable
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_the_best_one_only_within_its_work() {
        let best = Level::best();
        assert_eq!(Level::all().last(), Some(best));
        for level in Level::all() {
            assert_eq!(
                level.within(|| (Level::best(), Level::PORTABLE.within(Level::best))),
                (level, Level::PORTABLE)
            );
            assert!(std::panic::catch_unwind(|| level.within(|| panic!("a test that fails"))).is_err());
            assert_eq!(Level::best(), best);
        }
    }
}
