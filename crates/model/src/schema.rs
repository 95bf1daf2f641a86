//! The Arrow types that the pool stores, and the canonical form of each logical type.
//!
//! Invariant: the schema of a table in the pool is canonical ([`canonical_schema`]), and so are the
//! batches that operators emit. Strings are `Utf8View` and binaries `BinaryView`, because views share
//! dictionaries and pages without copying.

use crate::{Error, Result, TYPE_NUMBERS, brief, cast, limits, sql_name, type_number, unit_number};
use arrow_schema::{DECIMAL128_MAX_PRECISION, DECIMAL128_MAX_SCALE, DataType, Field, Schema, SchemaRef};
use std::sync::Arc;

/// Returns the type in which the pool stores values of `data_type`; `None` if the pool cannot store them.
///
/// Supported are: bool; 8- to 64-bit integers with and without sign; 32- and 64-bit floats (16-bit floats are widened);
/// decimals of up to 38 digits; dates, those in milliseconds as days; timestamps of any unit, with or without time
/// zone; strings and binaries. Dictionary-encoded and run-end encoded arrays are stored as their values.
pub fn canonical_type(data_type: &DataType) -> Option<DataType> {
    use DataType::*;
    Some(match data_type {
        Boolean | Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32 | UInt64 => data_type.clone(),
        Float16 | Float32 => Float32,
        Float64 => Float64,
        Decimal32(p, s) | Decimal64(p, s) | Decimal128(p, s) => {
            return decimal(i16::from(*p), i16::from(*s));
        }
        Date32 | Date64 => Date32,
        Timestamp(..) => data_type.clone(),
        Utf8 | LargeUtf8 | Utf8View => Utf8View,
        Binary | LargeBinary | BinaryView | FixedSizeBinary(_) => BinaryView,
        Dictionary(_, values) => return canonical_type(values),
        RunEndEncoded(_, values) => return canonical_type(values.data_type()),
        _ => return None,
    })
}

/// Returns the decimal type of this precision and scale; `None` if it is not valid. Valid are 1 to 38 digits, and a
/// scale from -38 to the precision.
pub fn decimal(precision: i16, scale: i16) -> Option<DataType> {
    let (precision, scale) = (u8::try_from(precision).ok()?, i8::try_from(scale).ok()?);
    let fits = (1..=DECIMAL128_MAX_PRECISION).contains(&precision)
        && scale >= -DECIMAL128_MAX_SCALE
        && i16::from(scale) <= i16::from(precision);
    fits.then_some(DataType::Decimal128(precision, scale))
}

/// Returns the schema in which the pool stores a table with `schema`.
///
/// # Errors
/// `Invalid` if there is no column, if the pool cannot store a column's type, or if two columns have the same name;
/// `OverLimit` if there are more than [`limits::COLUMNS_MAX`] columns, or a name has more than
/// [`limits::NAME_BYTES_MAX`] bytes.
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
        if field.name().len() > limits::NAME_BYTES_MAX {
            let (most, bytes) = (limits::NAME_BYTES_MAX, field.name().len());
            let name = brief(field.name());
            let message = format!("the name of a column may have {most} bytes, {name:?} has {bytes}");
            return Err(Error::over_limit(message).advise("rename the column"));
        }
        if !names.insert(field.name().as_str()) {
            return Err(Error::invalid(format!("two columns are named {:?}", field.name()))
                .advise("rename one of them"));
        }
        let data_type = canonical_type(field.data_type()).ok_or_else(|| {
            Error::invalid(format!(
                "column {:?} has type {}, which the pool does not hold",
                field.name(),
                sql_name(field.data_type())
            ))
            .advise(
                "leave the column out (SELECT names the others, farpool load has --columns), or make text of it: \
                 CAST(x AS VARCHAR) of a time or interval, array_to_string(x, ',') of a list, x['name'] of a struct; \
                 farpool load --nested json of all that are nested",
            )
        })?;
        Ok(Field::new(field.name(), data_type, field.is_nullable()))
    });
    Ok(Arc::new(Schema::new(fields.collect::<Result<Vec<_>>>()?)))
}

/// A 64-bit hash of the names, types and nullability of a table's columns, in order. Schemas that differ have different
/// fingerprints, except with a probability of 2^-64. The hash is the same on every machine and in every release
/// (`docs/wire.md`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SchemaFingerprint(pub u64);

impl SchemaFingerprint {
    /// Computes the fingerprint of `schema`, which must be canonical.
    pub fn of(schema: &Schema) -> Self {
        let mut hash = Fnv::default();
        for field in schema.fields() {
            hash.text(field.name());
            hash.data_type(field.data_type());
            hash.bytes(&[u8::from(field.is_nullable())]);
        }
        SchemaFingerprint(hash.0)
    }
}

/// Tags by which types with parameters begin in the hashed bytes of a fingerprint.
const DECIMAL: u8 = 14;
const TIMESTAMP: u8 = 15;
const _: () = assert!(TYPE_NUMBERS <= DECIMAL);

/// The 64-bit FNV-1a hash (Fowler, Noll, Vo; RFC 9923).
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Fnv(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }

    fn text(&mut self, text: &str) {
        self.bytes(&cast::u64_from(text.len()).to_le_bytes());
        self.bytes(text.as_bytes());
    }

    fn data_type(&mut self, data_type: &DataType) {
        match data_type {
            DataType::Decimal128(precision, scale) => {
                self.bytes(&[DECIMAL, *precision, scale.to_le_bytes()[0]]);
            }
            DataType::Timestamp(unit, zone) => {
                self.bytes(&[TIMESTAMP, unit_number(*unit), u8::from(zone.is_some())]);
                zone.iter().for_each(|zone| self.text(zone));
            }
            other => match type_number(other) {
                Some(number) => self.bytes(&[number]),
                // Types that no canonical schema has: a separate tag keeps them distinct from all that it may have.
                None => {
                    self.bytes(&[255]);
                    self.text(&other.to_string());
                }
            },
        }
    }
}

/// Describes for people the first difference between the columns of `before` and `now`; `None` if the columns are the
/// same.
pub fn difference(before: &Schema, now: &Schema) -> Option<String> {
    for field in before.fields() {
        let name = field.name();
        match now.fields().find(name) {
            None => return Some(format!("there is no column {name:?} any more")),
            Some((_, other)) if other.data_type() != field.data_type() => {
                let (was, is) = (field.data_type(), other.data_type());
                return Some(format!("column {name:?} has type {is}, no longer {was}"));
            }
            Some((_, other)) if other.is_nullable() != field.is_nullable() => {
                let may = if other.is_nullable() { "may now" } else { "can no longer" };
                return Some(format!("column {name:?} {may} be NULL"));
            }
            Some(_) => {}
        }
    }
    let names = |schema: &Schema| schema.fields().iter().map(|f| f.name().clone()).collect::<Vec<_>>();
    if let Some(new) = now.fields().iter().find(|field| before.fields().find(field.name()).is_none()) {
        return Some(format!("there is a new column {:?}", new.name()));
    }
    let (was, is) = (names(before), names(now));
    let moved = is.iter().zip(&was).find(|(is, was)| is != was)?;
    Some(format!("column {:?} stands where {:?} did", moved.0, moved.1))
}

/// Returns whether values of this canonical type are stored as integers, which holds for integers, decimals, dates and
/// timestamps.
pub fn is_integer_like(data_type: &DataType) -> bool {
    data_type.is_integer()
        || matches!(data_type, DataType::Decimal128(..) | DataType::Date32 | DataType::Timestamp(..))
}

/// Returns whether this canonical type is an integer, a float or a decimal.
pub fn is_numeric(data_type: &DataType) -> bool {
    data_type.is_integer() || data_type.is_floating() || matches!(data_type, DataType::Decimal128(..))
}

/// Returns whether values of this canonical type have variable length, which holds for strings and binaries.
pub fn is_bytes(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8View | DataType::BinaryView)
}
