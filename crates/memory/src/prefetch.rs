//! Prefetches memory into the CPU caches.

#![expect(unsafe_code, reason = "the instruction takes an address")]

/// Prefetches the cache line of `byte`, without waiting for it. Does nothing on CPUs other than x86-64.
#[inline(always)]
pub fn prefetch(byte: &u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: the instruction is part of every x86-64 processor, and reads nothing that a program could see.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(byte).cast()) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = byte;
}
