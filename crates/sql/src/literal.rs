//! Converts constants between DataFusion's `ScalarValue` and the model's [`Literal`].
//!
//! Invariant: converting there and back changes only the representation: strings become views, narrow decimals become
//! 128 bits wide, and dictionary-encoded constants become plain values.

use arrow_schema::{DataType, TimeUnit};
use datafusion::common::ScalarValue;
use farpool_model::{Literal, Value, schema};

/// Converts a constant to the model's; `None` for types that pools do not have.
pub fn from_scalar(scalar: &ScalarValue) -> Option<Literal> {
    use ScalarValue as S;
    if let S::Dictionary(_, inner) | S::RunEndEncoded(_, _, inner) = scalar {
        return from_scalar(inner);
    }
    let int = |v: Option<i128>| v.map(Value::Int);
    let value = match scalar {
        S::Boolean(v) => v.map(Value::Bool),
        S::Int8(v) => int(v.map(Into::into)),
        S::Int16(v) => int(v.map(Into::into)),
        S::Int32(v) | S::Date32(v) => int(v.map(Into::into)),
        S::Int64(v) | S::Date64(v) => int(v.map(Into::into)),
        S::TimestampSecond(v, _)
        | S::TimestampMillisecond(v, _)
        | S::TimestampMicrosecond(v, _)
        | S::TimestampNanosecond(v, _) => int(v.map(Into::into)),
        S::UInt8(v) => int(v.map(Into::into)),
        S::UInt16(v) => int(v.map(Into::into)),
        S::UInt32(v) => int(v.map(Into::into)),
        S::UInt64(v) => int(v.map(Into::into)),
        S::Decimal32(v, ..) => int(v.map(Into::into)),
        S::Decimal64(v, ..) => int(v.map(Into::into)),
        S::Decimal128(v, ..) => int(*v),
        S::Float16(v) => v.map(|v| Value::Float(v.to_f64())),
        S::Float32(v) => v.map(|v| Value::Float(v.into())),
        S::Float64(v) => v.map(Value::Float),
        S::Utf8(v) | S::LargeUtf8(v) | S::Utf8View(v) => v.clone().map(Value::Text),
        S::Binary(v) | S::LargeBinary(v) | S::BinaryView(v) | S::FixedSizeBinary(_, v) => {
            v.clone().map(Value::Bytes)
        }
        _ => return None,
    };
    let data_type = schema::canonical_type(&scalar.data_type())?;
    Literal::new(value.unwrap_or(Value::Null), data_type).ok()
}

/// Converts a constant to DataFusion's, of the same canonical type.
pub fn to_scalar(literal: &Literal) -> Option<ScalarValue> {
    use ScalarValue as S;
    let data_type = literal.data_type();
    Some(match (literal.value(), data_type) {
        (Value::Null, _) => S::try_from(data_type).ok()?,
        (Value::Bool(v), _) => S::Boolean(Some(*v)),
        (Value::Int(v), _) => integer(*v, data_type)?,
        (Value::Float(v), DataType::Float32) => S::Float32(Some(*v as f32)),
        (Value::Float(v), _) => S::Float64(Some(*v)),
        (Value::Text(v), _) => S::Utf8View(Some(v.clone())),
        (Value::Bytes(v), _) => S::BinaryView(Some(v.clone())),
    })
}

fn integer(v: i128, data_type: &DataType) -> Option<ScalarValue> {
    use ScalarValue as S;
    Some(match data_type {
        DataType::Int8 => S::Int8(Some(v.try_into().ok()?)),
        DataType::Int16 => S::Int16(Some(v.try_into().ok()?)),
        DataType::Int32 => S::Int32(Some(v.try_into().ok()?)),
        DataType::Int64 => S::Int64(Some(v.try_into().ok()?)),
        DataType::UInt8 => S::UInt8(Some(v.try_into().ok()?)),
        DataType::UInt16 => S::UInt16(Some(v.try_into().ok()?)),
        DataType::UInt32 => S::UInt32(Some(v.try_into().ok()?)),
        DataType::UInt64 => S::UInt64(Some(v.try_into().ok()?)),
        DataType::Date32 => S::Date32(Some(v.try_into().ok()?)),
        DataType::Decimal128(precision, scale) => S::Decimal128(Some(v), *precision, *scale),
        DataType::Timestamp(unit, zone) => {
            let (v, zone) = (Some(i64::try_from(v).ok()?), zone.clone());
            match unit {
                TimeUnit::Second => S::TimestampSecond(v, zone),
                TimeUnit::Millisecond => S::TimestampMillisecond(v, zone),
                TimeUnit::Microsecond => S::TimestampMicrosecond(v, zone),
                TimeUnit::Nanosecond => S::TimestampNanosecond(v, zone),
            }
        }
        _ => return None,
    })
}
