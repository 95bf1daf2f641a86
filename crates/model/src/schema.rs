//! Which Arrow types the pool holds, and the one canonical form that each logical type takes in it.
//!
//! Invariant: the schema of a table in the pool is canonical ([`canonical_schema`]), and so are the
//! batches that operators emit. Strings are `Utf8View` and binaries `BinaryView`, because views share
//! dictionaries and pages without copying.

use crate::{Error, Result, limits};
use arrow_schema::{DECIMAL128_MAX_PRECISION, DECIMAL128_MAX_SCALE, DataType, Field, Schema, SchemaRef};
use std::sync::Arc;

/// The type under which the pool holds values of `data_type`, or `None` when it does not hold them.
///
/// Held: bool; 8- to 64-bit integers with and without sign; 32- and 64-bit floats (16-bit ones widen);
/// decimals of up to 38 digits; dates; timestamps of any unit, with or without time zone; strings and
/// binaries. Dictionary and run-end encoded inputs are held as their values.
pub fn canonical_type(data_type: &DataType) -> Option<DataType> {
    use DataType::*;
    Some(match data_type {
        Boolean | Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32 | UInt64 => data_type.clone(),
        Float16 | Float32 => Float32,
        Float64 => Float64,
        Decimal32(p, s) | Decimal64(p, s) | Decimal128(p, s) => {
            return decimal(i16::from(*p), i16::from(*s));
        }
        Date32 => Date32,
        Date64 => Timestamp(arrow_schema::TimeUnit::Millisecond, None),
        Timestamp(..) => data_type.clone(),
        Utf8 | LargeUtf8 | Utf8View => Utf8View,
        Binary | LargeBinary | BinaryView | FixedSizeBinary(_) => BinaryView,
        Dictionary(_, values) => return canonical_type(values),
        RunEndEncoded(_, values) => return canonical_type(values.data_type()),
        _ => return None,
    })
}

/// The decimal type of this precision and scale, if there is one: up to 38 digits, no more behind the point than
/// there are, and no more than 38 zeros before it.
pub fn decimal(precision: i16, scale: i16) -> Option<DataType> {
    let (precision, scale) = (u8::try_from(precision).ok()?, i8::try_from(scale).ok()?);
    let fits = (1..=DECIMAL128_MAX_PRECISION).contains(&precision)
        && scale >= -DECIMAL128_MAX_SCALE
        && i16::from(scale) <= i16::from(precision);
    fits.then_some(DataType::Decimal128(precision, scale))
}

/// The schema under which the pool holds a table given with `schema`.
///
/// # Errors
/// `Invalid` when there is no column, a column's type is not held, or two columns share a name;
/// `OverLimit` when there are more than [`limits::COLUMNS_MAX`] columns.
pub fn canonical_schema(schema: &Schema) -> Result<SchemaRef> {
    if schema.fields().is_empty() {
        return Err(Error::invalid("a table needs at least one column"));
    }
    if schema.fields().len() > limits::COLUMNS_MAX {
        return Err(Error::over_limit(format!(
            "a table may have {} columns, this one has {}",
            limits::COLUMNS_MAX,
            schema.fields().len()
        )));
    }
    let mut names = std::collections::HashSet::new();
    let fields = schema.fields().iter().map(|field| {
        if !names.insert(field.name().as_str()) {
            return Err(Error::invalid(format!("two columns are named {:?}", field.name()))
                .advise("rename one of them"));
        }
        let data_type = canonical_type(field.data_type()).ok_or_else(|| {
            Error::invalid(format!(
                "column {:?} has type {}, which the pool does not hold",
                field.name(),
                field.data_type()
            ))
            .advise("leave the column out, or cast it to a number, date, timestamp, string or binary")
        })?;
        Ok(Field::new(field.name(), data_type, field.is_nullable()))
    });
    Ok(Arc::new(Schema::new(fields.collect::<Result<Vec<_>>>()?)))
}

/// Whether values of this canonical type are held as integers: integers, decimals, dates, timestamps.
pub fn is_integer_like(data_type: &DataType) -> bool {
    data_type.is_integer()
        || matches!(data_type, DataType::Decimal128(..) | DataType::Date32 | DataType::Timestamp(..))
}

/// Whether values of this canonical type are numbers: integers, floats, decimals.
pub fn is_numeric(data_type: &DataType) -> bool {
    data_type.is_integer() || data_type.is_floating() || matches!(data_type, DataType::Decimal128(..))
}

/// Whether values of this canonical type are variable-length bytes: strings and binaries.
pub fn is_bytes(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8View | DataType::BinaryView)
}
