//! The common interface of the Rust integer types in which values of integer-like types (integers, decimals, dates
//! and timestamps) are stored.

use arrow_buffer::ArrowNativeType;

/// Rust type in which values of an integer-like type are stored.
pub(crate) trait Int: ArrowNativeType + Ord {
    /// Returns the value, widened.
    fn wide(self) -> i128;

    /// Returns the low 64 bits of the value: all of it if it fits an `i64`.
    fn low(self) -> u64;

    /// Reconstructs a value that fits an `i64` from its low 64 bits.
    fn of_low(low: u64) -> Self;
}

macro_rules! impl_int {
    ($($t:ty),*) => {$(
        impl Int for $t {
            #[inline(always)]
            fn wide(self) -> i128 {
                self as i128
            }

            #[inline(always)]
            fn low(self) -> u64 {
                self as u64
            }

            #[inline(always)]
            fn of_low(low: u64) -> Self {
                low as i64 as $t
            }
        }
    )*};
}

impl_int!(i8, i16, i32, i64, i128, u8, u16, u32, u64);
