//! AVX2 (Haswell, 2013): the plain loops, compiled for it.

use super::Kernel;

/// The kernel, compiled for AVX2.
///
/// # Safety
/// The processor has the instructions.
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn run<K: Kernel>(kernel: K) -> K::Output {
    kernel.run()
}
