//! The casts that could lose something, each under the name of what it promises.

/// A count of bytes or rows as 64 bits; `usize` is never wider on the platforms we build for.
#[inline]
pub fn u64_from(n: usize) -> u64 {
    n as u64
}

/// A 64-bit count as `usize`, or the largest `usize`: for capacities and comparisons against a limit.
#[inline]
pub fn usize_saturating(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

/// A count as 32 bits. The caller has checked it against a limit below 2^32.
///
/// # Panics
/// When the promise does not hold.
#[inline]
pub fn u32_checked(n: usize) -> u32 {
    u32::try_from(n).expect("checked against a limit below 2^32")
}
