//! Encodes types and constants for Substrait plans, and decodes them.
//!
//! Unsigned integers are type variation 1 of the signed ones, as in DataFusion. Timestamps with a time zone other than
//! UTC have a type of farpool's own, `timestamp_zone(precision, zone)`, because Substrait's types do not keep the zone.
//! Strings and binaries are always decoded as views (`Utf8View`, `BinaryView`).

use super::functions::FARPOOL;
use super::proto::{self, Kind, LiteralType, NULLABLE, ParameterKind};
use arrow_schema::{DataType, TimeUnit};
use bytes::Bytes;
use farpool_model::{Error, Literal, Result, Value, limits, schema};
use prost::Message;
use std::collections::HashMap;

/// The type variation that marks unsigned integers. Plans do not declare it, because DataFusion, which uses the same
/// variation, rejects plans that declare one.
const UNSIGNED_VARIATION: u32 = 1;
/// The name of farpool's own type of timestamps with a time zone.
pub(super) const ZONED_TYPE: &str = "timestamp_zone";
/// The anchor (id within a plan) under which farpool's encoder declares that type.
pub(super) const ZONED_ANCHOR: u32 = 1;
/// The extension that defines farpool's own types.
pub(super) const TYPES_URN: &str = FARPOOL;

const UTC: &str = "UTC";

/// The names of the user-defined types of a plan, by their anchors.
pub(super) type TypeNames = HashMap<u32, String>;

/// Encodes a canonical type; `None` for other types.
pub(super) fn write_type(data_type: &DataType, nullability: i32) -> Option<proto::Type> {
    let simple = |type_variation_reference| proto::Simple { type_variation_reference, nullability };
    let sized = |size| proto::WithSize { size, type_variation_reference: 0, nullability };
    let kind = match data_type {
        DataType::Boolean => Kind::Bool(simple(0)),
        DataType::Int8 => Kind::I8(simple(0)),
        DataType::Int16 => Kind::I16(simple(0)),
        DataType::Int32 => Kind::I32(simple(0)),
        DataType::Int64 => Kind::I64(simple(0)),
        DataType::UInt8 => Kind::I8(simple(UNSIGNED_VARIATION)),
        DataType::UInt16 => Kind::I16(simple(UNSIGNED_VARIATION)),
        DataType::UInt32 => Kind::I32(simple(UNSIGNED_VARIATION)),
        DataType::UInt64 => Kind::I64(simple(UNSIGNED_VARIATION)),
        DataType::Float32 => Kind::Fp32(simple(0)),
        DataType::Float64 => Kind::Fp64(simple(0)),
        DataType::Decimal128(precision, scale) => Kind::Decimal(proto::Decimal {
            scale: (*scale).into(),
            precision: (*precision).into(),
            type_variation_reference: 0,
            nullability,
        }),
        DataType::Date32 => Kind::Date(simple(0)),
        DataType::Timestamp(unit, None) => Kind::PrecisionTimestamp(sized(precision(*unit))),
        DataType::Timestamp(unit, Some(zone)) if &**zone == UTC => {
            Kind::PrecisionTimestampTz(sized(precision(*unit)))
        }
        DataType::Timestamp(unit, Some(zone)) => Kind::UserDefined(proto::UserDefined {
            type_reference: ZONED_ANCHOR,
            type_variation_reference: 0,
            nullability,
            type_parameters: zone_parameters(*unit, zone),
        }),
        DataType::Utf8View => Kind::String(simple(0)),
        DataType::BinaryView => Kind::Binary(simple(0)),
        _ => return None,
    };
    Some(proto::Type { kind: Some(kind) })
}

/// Decodes a type to a canonical one; `None` if farpool does not support it.
pub(super) fn read_type(r#type: &proto::Type, names: &TypeNames) -> Option<DataType> {
    let signed = |simple: &proto::Simple, signed: DataType, unsigned: DataType| {
        if simple.type_variation_reference == UNSIGNED_VARIATION { unsigned } else { signed }
    };
    Some(match r#type.kind.as_ref()? {
        Kind::Bool(_) => DataType::Boolean,
        Kind::I8(s) => signed(s, DataType::Int8, DataType::UInt8),
        Kind::I16(s) => signed(s, DataType::Int16, DataType::UInt16),
        Kind::I32(s) => signed(s, DataType::Int32, DataType::UInt32),
        Kind::I64(s) => signed(s, DataType::Int64, DataType::UInt64),
        Kind::Fp32(_) => DataType::Float32,
        Kind::Fp64(_) => DataType::Float64,
        Kind::String(_) | Kind::FixedChar(_) | Kind::Varchar(_) => DataType::Utf8View,
        Kind::Binary(_) | Kind::FixedBinary(_) => DataType::BinaryView,
        Kind::Timestamp(_) => DataType::Timestamp(TimeUnit::Microsecond, None),
        Kind::TimestampTz(_) => DataType::Timestamp(TimeUnit::Microsecond, Some(UTC.into())),
        Kind::Date(_) => DataType::Date32,
        Kind::Decimal(d) => decimal(d.precision, d.scale)?,
        Kind::PrecisionTimestamp(s) => DataType::Timestamp(unit(s.size)?, None),
        Kind::PrecisionTimestampTz(s) => DataType::Timestamp(unit(s.size)?, Some(UTC.into())),
        Kind::UserDefined(u) => user_defined(names.get(&u.type_reference)?, &u.type_parameters)?,
        Kind::UserDefinedTypeReference(reference) => user_defined(names.get(reference)?, &[])?,
        _ => return None,
    })
}

/// Encodes a constant.
pub(super) fn write_literal(literal: &Literal) -> Result<proto::Literal> {
    let data_type = literal.data_type();
    let null = || write_type(data_type, NULLABLE).map(LiteralType::Null);
    let kind = match literal.value() {
        Value::Null => null(),
        Value::Bool(v) => Some(LiteralType::Boolean(*v)),
        Value::Int(v) => write_integer(*v, data_type),
        Value::Float(v) if *data_type == DataType::Float32 => Some(LiteralType::Fp32(*v as f32)),
        Value::Float(v) => Some(LiteralType::Fp64(*v)),
        Value::Text(v) => Some(LiteralType::String(v.clone())),
        Value::Bytes(v) => Some(LiteralType::Binary(v.clone().into())),
    };
    let Some(kind) = kind else {
        return Err(Error::internal(format!("no Substrait literal for {literal} of type {data_type}")));
    };
    let variation = if data_type.is_unsigned_integer() { UNSIGNED_VARIATION } else { 0 };
    Ok(proto::Literal {
        literal_type: Some(kind),
        nullable: literal.is_null(),
        type_variation_reference: variation,
    })
}

fn write_integer(value: i128, data_type: &DataType) -> Option<LiteralType> {
    // The ranges were checked when the constant was created; a 64-bit unsigned integer keeps its bits.
    let (narrow, wide) = (value as i32, value as i64);
    let at = |unit: &TimeUnit| proto::PrecisionTimestampValue { precision: precision(*unit), value: wide };
    Some(match data_type {
        DataType::Int8 | DataType::UInt8 => LiteralType::I8(narrow),
        DataType::Int16 | DataType::UInt16 => LiteralType::I16(narrow),
        DataType::Int32 | DataType::UInt32 => LiteralType::I32(narrow),
        DataType::Int64 | DataType::UInt64 => LiteralType::I64(wide),
        DataType::Date32 => LiteralType::Date(narrow),
        DataType::Decimal128(precision, scale) => LiteralType::Decimal(proto::DecimalValue {
            value: value.to_le_bytes().to_vec().into(),
            precision: (*precision).into(),
            scale: (*scale).into(),
        }),
        DataType::Timestamp(unit, None) => LiteralType::PrecisionTimestamp(at(unit)),
        DataType::Timestamp(unit, Some(zone)) if &**zone == UTC => {
            LiteralType::PrecisionTimestampTz(at(unit))
        }
        DataType::Timestamp(unit, Some(zone)) => {
            let instant = proto::Literal {
                literal_type: Some(LiteralType::I64(wide)),
                nullable: false,
                type_variation_reference: 0,
            };
            LiteralType::UserDefined(proto::UserDefinedValue {
                type_reference: ZONED_ANCHOR,
                type_parameters: zone_parameters(*unit, zone),
                r#struct: Some(proto::StructValue { fields: vec![instant.encode_to_vec().into()] }),
            })
        }
        _ => return None,
    })
}

/// Decodes a constant; `Ok(None)` if farpool does not support its type.
///
/// # Errors
/// `Invalid` if the value does not belong to its type.
pub(super) fn read_literal(literal: &proto::Literal, names: &TypeNames) -> Result<Option<Literal>> {
    let Some(kind) = &literal.literal_type else {
        return Err(Error::invalid("a constant without a value"));
    };
    let is_unsigned = literal.type_variation_reference == UNSIGNED_VARIATION;
    // Some producers send an unsigned value as a signed one with the same bits, others send the value itself; the low
    // bits are the same.
    let integer = |value: i64, signed: DataType, unsigned: DataType| match (is_unsigned, &unsigned) {
        (false, _) => (Value::Int(value.into()), signed),
        (true, DataType::UInt8) => (Value::Int((value as u8).into()), unsigned),
        (true, DataType::UInt16) => (Value::Int((value as u16).into()), unsigned),
        (true, DataType::UInt32) => (Value::Int((value as u32).into()), unsigned),
        (true, _) => (Value::Int((value as u64).into()), unsigned),
    };
    let instant = |value: i64, unit: TimeUnit, zone: Option<&str>| {
        (Value::Int(value.into()), DataType::Timestamp(unit, zone.map(Into::into)))
    };
    let text = |text: &str| (Value::Text(text.to_string()), DataType::Utf8View);
    let (value, data_type) = match kind {
        LiteralType::Boolean(v) => (Value::Bool(*v), DataType::Boolean),
        LiteralType::I8(v) => integer((*v).into(), DataType::Int8, DataType::UInt8),
        LiteralType::I16(v) => integer((*v).into(), DataType::Int16, DataType::UInt16),
        LiteralType::I32(v) => integer((*v).into(), DataType::Int32, DataType::UInt32),
        LiteralType::I64(v) => integer(*v, DataType::Int64, DataType::UInt64),
        LiteralType::Fp32(v) => (Value::Float((*v).into()), DataType::Float32),
        LiteralType::Fp64(v) => (Value::Float(*v), DataType::Float64),
        LiteralType::String(v) | LiteralType::FixedChar(v) => text(v),
        LiteralType::VarChar(v) => text(&v.value),
        LiteralType::Binary(v) | LiteralType::FixedBinary(v) => {
            (Value::Bytes(v.to_vec()), DataType::BinaryView)
        }
        LiteralType::Timestamp(v) => instant(*v, TimeUnit::Microsecond, None),
        LiteralType::TimestampTz(v) => instant(*v, TimeUnit::Microsecond, Some(UTC)),
        LiteralType::PrecisionTimestamp(v) | LiteralType::PrecisionTimestampTz(v) => {
            let zone = matches!(kind, LiteralType::PrecisionTimestampTz(_)).then_some(UTC);
            let Some(unit) = unit(v.precision) else { return Ok(None) };
            instant(v.value, unit, zone)
        }
        LiteralType::Date(v) => (Value::Int((*v).into()), DataType::Date32),
        LiteralType::Decimal(v) => {
            match (<[u8; 16]>::try_from(&v.value[..]), decimal(v.precision, v.scale)) {
                (Ok(bytes), Some(data_type)) => (Value::Int(i128::from_le_bytes(bytes)), data_type),
                _ => return Err(Error::invalid("a decimal constant has 16 bytes and up to 38 digits")),
            }
        }
        LiteralType::Null(r#type) => match read_type(r#type, names) {
            Some(data_type) => (Value::Null, data_type),
            None => return Ok(None),
        },
        LiteralType::UserDefined(v) => return read_user_defined(v, names),
        _ => return Ok(None),
    };
    Literal::new(value, data_type).map(Some)
}

fn read_user_defined(value: &proto::UserDefinedValue, names: &TypeNames) -> Result<Option<Literal>> {
    let data_type = names.get(&value.type_reference).and_then(|n| user_defined(n, &value.type_parameters));
    let fields = value.r#struct.as_ref().map(|s| s.fields.as_slice());
    let (Some(data_type @ DataType::Timestamp(..)), Some([field])) = (data_type, fields) else {
        return Ok(None);
    };
    match super::read::<proto::Literal>(field)?.literal_type {
        Some(LiteralType::I64(instant)) => Literal::new(Value::Int(instant.into()), data_type).map(Some),
        _ => Ok(None),
    }
}

/// Returns whether an expression of type `actual` may stand where a plan declares the type `declared`: if they are
/// equal except for the time zone of a timestamp, which Substrait does not keep.
pub(super) fn agree(declared: &DataType, actual: &DataType) -> bool {
    match (declared, actual) {
        (DataType::Timestamp(a, Some(_)), DataType::Timestamp(b, Some(_))) => a == b,
        _ => declared == actual,
    }
}

/// Returns whether the type needs farpool's own type of timestamps with a time zone.
pub(super) fn is_zoned(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Timestamp(_, Some(zone)) if &**zone != UTC)
}

fn user_defined(name: &str, parameters: &[Bytes]) -> Option<DataType> {
    match name {
        "u8" => return Some(DataType::UInt8),
        "u16" => return Some(DataType::UInt16),
        "u32" => return Some(DataType::UInt32),
        "u64" => return Some(DataType::UInt64),
        ZONED_TYPE => {}
        _ => return None,
    }
    let [precision, zone] = parameters else { return None };
    let read = |bytes: &Bytes| super::read::<proto::Parameter>(bytes).ok()?.parameter;
    match (read(precision)?, read(zone)?) {
        (ParameterKind::Integer(precision), ParameterKind::String(zone)) => {
            let unit = unit(precision.try_into().ok()?)?;
            (zone.len() <= limits::NAME_BYTES_MAX).then(|| DataType::Timestamp(unit, Some(zone.into())))
        }
        _ => None,
    }
}

fn zone_parameters(unit: TimeUnit, zone: &str) -> Vec<Bytes> {
    let parameter = |kind| proto::Parameter { parameter: Some(kind) }.encode_to_vec().into();
    vec![
        parameter(ParameterKind::Integer(precision(unit).into())),
        parameter(ParameterKind::String(zone.to_string())),
    ]
}

fn decimal(precision: i32, scale: i32) -> Option<DataType> {
    schema::decimal(precision.try_into().ok()?, scale.try_into().ok()?)
}

fn precision(unit: TimeUnit) -> i32 {
    match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 3,
        TimeUnit::Microsecond => 6,
        TimeUnit::Nanosecond => 9,
    }
}

fn unit(precision: i32) -> Option<TimeUnit> {
    Some(match precision {
        0 => TimeUnit::Second,
        3 => TimeUnit::Millisecond,
        6 => TimeUnit::Microsecond,
        9 => TimeUnit::Nanosecond,
        _ => return None,
    })
}
