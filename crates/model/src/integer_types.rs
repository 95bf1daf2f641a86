//! Macros that dispatch at run time from a canonical type whose values are stored as integers to an Arrow type at
//! compile time. These types are called integer-like: integers, decimals (unscaled), dates and timestamps.
//!
//! They are macros, and the crate that uses them must depend on `arrow-array` and `arrow-schema` itself, because this
//! crate depends on Arrow's schemas only.

/// Runs `$body` with `$arrow` as the Arrow type of `$data_type` (a `&DataType`), or `$otherwise` if the type is not
/// integer-like. The body is compiled once per type.
#[macro_export]
macro_rules! with_integer {
    ($data_type:expr, $arrow:ident => $body:expr, $otherwise:expr $(,)?) => {{
        macro_rules! run {
            ($type:ty) => {{
                type $arrow = $type;
                $body
            }};
        }
        match $data_type {
            ::arrow_schema::DataType::UInt64 => run!(::arrow_array::types::UInt64Type),
            ::arrow_schema::DataType::Decimal128(..) => run!(::arrow_array::types::Decimal128Type),
            narrow => $crate::with_narrow_integer!(narrow, $arrow => $body, $otherwise),
        }
    }};
}

/// Runs `$body` like [`with_integer!`], but only for types whose values fit a signed 64-bit integer, which excludes
/// `UInt64` and decimals.
#[macro_export]
macro_rules! with_narrow_integer {
    ($data_type:expr, $arrow:ident => $body:expr, $otherwise:expr $(,)?) => {{
        use ::arrow_array::types::*;
        use ::arrow_schema::{DataType, TimeUnit};
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
            DataType::Date32 => run!(Date32Type),
            DataType::Timestamp(TimeUnit::Second, _) => run!(TimestampSecondType),
            DataType::Timestamp(TimeUnit::Millisecond, _) => run!(TimestampMillisecondType),
            DataType::Timestamp(TimeUnit::Microsecond, _) => run!(TimestampMicrosecondType),
            DataType::Timestamp(TimeUnit::Nanosecond, _) => run!(TimestampNanosecondType),
            _ => $otherwise,
        }
    }};
}
