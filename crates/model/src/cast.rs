//! Casts that could lose information, each named for its guarantee.

/// Converts a count of bytes or rows to 64 bits; `usize` is never wider on the supported platforms.
#[inline]
pub fn u64_from(n: usize) -> u64 {
    n as u64
}

/// Converts a 64-bit count to `usize`, or to the largest `usize`: for capacities and comparisons against a
/// limit.
#[inline]
pub fn usize_saturating(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

/// Converts a count to 32 bits. The caller has checked it against a limit below 2^32.
///
/// # Panics
/// If the count does not fit.
#[inline]
pub fn u32_checked(n: usize) -> u32 {
    u32::try_from(n).expect("checked against a limit below 2^32")
}
