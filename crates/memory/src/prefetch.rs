//! Has memory that is read soon come to the cache in the meantime.

#![expect(unsafe_code, reason = "the instruction takes an address")]

/// Asks the processor for the cache line of a byte, and does not wait for it. Does nothing where there is no such
/// instruction.
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
