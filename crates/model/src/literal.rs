//! Constants in programs and statistics: a value together with its canonical type.

use crate::{Error, Result, brief, schema};
use arrow_schema::DataType;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A value without its type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Value {
    /// SQL NULL.
    Null,
    /// A truth value.
    Bool(bool),
    /// An integer. For a decimal its unscaled value, for a date its days and for a timestamp its units since the epoch.
    Int(i128),
    /// A float; a 32-bit float is held widened, which is exact.
    Float(f64),
    /// A string.
    Text(String),
    /// A binary.
    Bytes(Vec<u8>),
}

/// A constant: a value together with its canonical type (see [`schema::canonical_type`]). Clones share the value,
/// because a compiled condition holds its constants several times. Two constants are equal if they have the same type
/// and value. Floats are compared bit by bit, because an expression may tell 0.0 and -0.0 apart.
#[derive(Clone, Debug)]
pub struct Literal {
    value: Arc<Value>,
    data_type: DataType,
}

impl PartialEq for Literal {
    fn eq(&self, other: &Self) -> bool {
        let same_value = match (&*self.value, &*other.value) {
            (Value::Float(a), Value::Float(b)) => a.to_bits() == b.to_bits(),
            (a, b) => a == b,
        };
        same_value && self.data_type == other.data_type
    }
}

impl Eq for Literal {}

impl Hash for Literal {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.data_type.hash(state);
        match &*self.value {
            Value::Null => {}
            Value::Bool(v) => v.hash(state),
            Value::Int(v) => v.hash(state),
            Value::Float(v) => v.to_bits().hash(state),
            Value::Text(v) => v.hash(state),
            Value::Bytes(v) => v.hash(state),
        }
    }
}

impl Literal {
    /// Creates a constant of `data_type`.
    ///
    /// # Errors
    /// `Invalid` if the type is not canonical or the value does not belong to it.
    pub fn new(value: Value, data_type: DataType) -> Result<Self> {
        let fits = match (&value, &data_type) {
            (Value::Null, _) => true,
            (Value::Bool(_), DataType::Boolean) => true,
            (Value::Int(v), data_type) => {
                integer_range(data_type).is_some_and(|(min, max)| (min..=max).contains(v))
            }
            (Value::Float(v), DataType::Float32) => v.is_nan() || f64::from(*v as f32) == *v,
            (Value::Float(_), DataType::Float64) => true,
            (Value::Text(_), DataType::Utf8View) => true,
            (Value::Bytes(_), DataType::BinaryView) => true,
            _ => false,
        };
        if !fits || schema::canonical_type(&data_type).as_ref() != Some(&data_type) {
            let text = brief(format_args!("{value:?}"));
            return Err(Error::invalid(format!("{text} is not a value of type {data_type}")));
        }
        Ok(Literal { value: Arc::new(value), data_type })
    }

    /// Creates the NULL of `data_type`, which must be canonical.
    pub fn null(data_type: DataType) -> Result<Self> {
        Literal::new(Value::Null, data_type)
    }

    /// Returns the value.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// Returns the canonical type.
    pub fn data_type(&self) -> &DataType {
        &self.data_type
    }

    /// Returns whether the constant is NULL.
    pub fn is_null(&self) -> bool {
        *self.value == Value::Null
    }

    /// Returns the bytes of a string or binary value; 0 for other types.
    pub fn bytes(&self) -> usize {
        match &*self.value {
            Value::Text(text) => text.len(),
            Value::Bytes(bytes) => bytes.len(),
            _ => 0,
        }
    }

    /// Returns the integer of a constant whose type is stored as integers; `None` for NULL and for other types.
    pub fn as_int(&self) -> Option<i128> {
        match *self.value {
            Value::Int(v) => Some(v),
            _ => None,
        }
    }

    /// Compares two non-NULL constants of one type, in the order of the operators: floats in total order (-NaN < … < -0
    /// < 0 < … < NaN). Returns `None` if one is NULL or the types differ.
    pub fn compare(&self, other: &Literal) -> Option<Ordering> {
        if self.data_type != other.data_type {
            return None;
        }
        match (&*self.value, &*other.value) {
            (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
            (Value::Int(a), Value::Int(b)) => Some(a.cmp(b)),
            (Value::Float(a), Value::Float(b)) => Some(a.total_cmp(b)),
            (Value::Text(a), Value::Text(b)) => Some(a.as_bytes().cmp(b.as_bytes())),
            (Value::Bytes(a), Value::Bytes(b)) => Some(a.cmp(b)),
            _ => None,
        }
    }
}

/// Returns the minimum and maximum of a type that is stored as integers; `None` for other types.
pub fn integer_range(data_type: &DataType) -> Option<(i128, i128)> {
    Some(match data_type {
        DataType::Int8 => (i8::MIN.into(), i8::MAX.into()),
        DataType::Int16 => (i16::MIN.into(), i16::MAX.into()),
        DataType::Int32 | DataType::Date32 => (i32::MIN.into(), i32::MAX.into()),
        DataType::Int64 | DataType::Timestamp(..) => (i64::MIN.into(), i64::MAX.into()),
        DataType::UInt8 => (0, u8::MAX.into()),
        DataType::UInt16 => (0, u16::MAX.into()),
        DataType::UInt32 => (0, u32::MAX.into()),
        DataType::UInt64 => (0, u64::MAX.into()),
        // A stored decimal may exceed its declared precision (arrow does not check); only 128 bits bound it.
        DataType::Decimal128(..) => (i128::MIN, i128::MAX),
        _ => return None,
    })
}

impl fmt::Display for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&*self.value, &self.data_type) {
            (Value::Null, _) => f.write_str("NULL"),
            (Value::Bool(v), _) => write!(f, "{v}"),
            (Value::Int(v), DataType::Decimal128(_, scale)) => f.write_str(&decimal_text(*v, *scale)),
            (Value::Int(v), DataType::Date32) => f.write_str(&date_text(*v)),
            (Value::Int(v), DataType::Timestamp(unit, _)) => write!(f, "timestamp({v} {unit:?})"),
            (Value::Int(v), _) => write!(f, "{v}"),
            (Value::Float(v), _) => write!(f, "{v:?}"),
            (Value::Text(v), _) => quoted(f, v),
            (Value::Bytes(v), _) => {
                f.write_str("X'")?;
                v.iter().try_for_each(|b| write!(f, "{b:02X}"))?;
                f.write_str("'")
            }
        }
    }
}

/// Writes `text` as an SQL string in single quotes, with every `'` in it doubled.
pub(crate) fn quoted(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_str("'")?;
    for (place, piece) in text.split('\'').enumerate() {
        f.write_str(if place > 0 { "''" } else { "" })?;
        f.write_str(piece)?;
    }
    f.write_str("'")
}

fn decimal_text(unscaled: i128, scale: i8) -> String {
    let sign = if unscaled < 0 { "-" } else { "" };
    let digits = unscaled.unsigned_abs().to_string();
    match usize::try_from(scale) {
        Ok(0) => format!("{sign}{digits}"),
        Ok(scale) => {
            let digits = format!("{digits:0>width$}", width = scale + 1);
            let (whole, fraction) = digits.split_at(digits.len() - scale);
            format!("{sign}{whole}.{fraction}")
        }
        Err(_) => format!("{sign}{digits}{}", "0".repeat(usize::from(scale.unsigned_abs()))),
    }
}

/// Formats days since 1970-01-01 as a date of the proleptic Gregorian calendar (Howard Hinnant's algorithm).
fn date_text(days: i128) -> String {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let day_of_era = z.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i128::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_literal_reads_as_sql_would_write_it() {
        let show = |value, data_type| Literal::new(value, data_type).unwrap().to_string();
        assert_eq!(show(Value::Int(-5), DataType::Decimal128(15, 2)), "-0.05");
        assert_eq!(show(Value::Int(12345), DataType::Decimal128(15, 2)), "123.45");
        assert_eq!(show(Value::Int(10_471), DataType::Date32), "1998-09-02");
        assert_eq!(show(Value::Int(-1), DataType::Date32), "1969-12-31");
        assert_eq!(show(Value::Text("it's".into()), DataType::Utf8View), "'it''s'");
        assert_eq!(show(Value::Bytes(vec![0, 255]), DataType::BinaryView), "X'00FF'");
        assert_eq!(show(Value::Null, DataType::Int8), "NULL");
    }

    #[test]
    fn floats_are_the_same_constant_only_to_the_last_bit() {
        let float = |v| Literal::new(Value::Float(v), DataType::Float64).unwrap();
        assert_ne!(float(0.0), float(-0.0));
        assert_eq!(float(f64::NAN), float(f64::NAN));
        assert_ne!(float(1.0), Literal::new(Value::Float(1.0), DataType::Float32).unwrap());
    }

    #[test]
    fn a_literal_outside_its_type_is_refused() {
        assert!(Literal::new(Value::Int(128), DataType::Int8).is_err());
        assert!(Literal::new(Value::Int(-1), DataType::UInt64).is_err());
        assert!(Literal::new(Value::Text("x".into()), DataType::Utf8).is_err(), "Utf8 is not canonical");
        assert!(Literal::new(Value::Float(0.1), DataType::Float32).is_err(), "0.1 is no 32-bit float");
        assert!(Literal::new(Value::Bool(true), DataType::Int8).is_err());
    }
}
