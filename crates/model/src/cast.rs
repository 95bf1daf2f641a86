//! Casts that could lose information, each named for its guarantee.

/// Converts a number of bytes or rows to 64 bits without loss, because `usize` has at most 64 bits on the supported
/// platforms.
#[inline]
pub fn u64_from(n: usize) -> u64 {
    n as u64
}

/// Converts a 64-bit number to `usize`, or to `usize::MAX` if it does not fit. For capacities and for comparisons with
/// a limit.
#[inline]
pub fn usize_saturating(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

/// Converts a number to 32 bits. The caller must have checked it against a limit below 2^32.
///
/// # Panics
/// If the number does not fit.
#[inline]
pub fn u32_checked(n: usize) -> u32 {
    u32::try_from(n).expect("checked against a limit below 2^32")
}
