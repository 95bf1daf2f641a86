//! From a canonical data type at run time to the Arrow type at compile time.

use arrow_buffer::ArrowNativeType;

/// The native form of an integer-like type.
pub(crate) trait Int: ArrowNativeType + Ord {
    /// The value, widened.
    fn wide(self) -> i128;

    /// The low 64 bits of the value: all of it if it fits an `i64`.
    fn low(self) -> u64;

    /// The value of which these are the low bits, if it fits an `i64`.
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

/// Runs `$body` with `$arrow` naming the Arrow type of an integer-like canonical type, or `$otherwise`.
macro_rules! with_integer {
    ($data_type:expr, $arrow:ident => $body:expr, $otherwise:expr) => {{
        use arrow_array::types::*;
        use arrow_schema::{DataType, TimeUnit};
        macro_rules! run {
            ($type:ty) => {{
                type $arrow = $type;
                $body
            }};
        }
        match $data_type {
            DataType::Int8 => run!(Int8Type),
            DataType::Int16 => run!(Int16Type),
            DataType::Int32 => run!(Int32Type),
            DataType::Int64 => run!(Int64Type),
            DataType::UInt8 => run!(UInt8Type),
            DataType::UInt16 => run!(UInt16Type),
            DataType::UInt32 => run!(UInt32Type),
            DataType::UInt64 => run!(UInt64Type),
            DataType::Decimal128(..) => run!(Decimal128Type),
            DataType::Date32 => run!(Date32Type),
            DataType::Timestamp(TimeUnit::Second, _) => run!(TimestampSecondType),
            DataType::Timestamp(TimeUnit::Millisecond, _) => run!(TimestampMillisecondType),
            DataType::Timestamp(TimeUnit::Microsecond, _) => run!(TimestampMicrosecondType),
            DataType::Timestamp(TimeUnit::Nanosecond, _) => run!(TimestampNanosecondType),
            _ => $otherwise,
        }
    }};
}
pub(crate) use with_integer;
