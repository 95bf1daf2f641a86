//! Formats values that a node reports about its columns, for people and for programs.

use arrow::array::{ArrayRef, Int32Array, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use arrow::util::display::array_value_to_string;
use farpool_model::{Literal, Value as Held};
use serde_json::Value;
use std::sync::Arc;

/// Formats a value without quotes.
pub fn text(literal: &Literal) -> String {
    match (literal.value(), literal.data_type()) {
        (Held::Text(text), _) => text.clone(),
        (Held::Int(value), data_type @ (DataType::Timestamp(..) | DataType::Date32)) => {
            temporal(*value, data_type).unwrap_or_else(|| literal.to_string())
        }
        _ => literal.to_string(),
    }
}

fn temporal(value: i128, data_type: &DataType) -> Option<String> {
    let array: ArrayRef = match data_type {
        DataType::Date32 => Arc::new(Int32Array::from(vec![i32::try_from(value).ok()?])),
        _ => Arc::new(Int64Array::from(vec![i64::try_from(value).ok()?])),
    };
    array_value_to_string(&cast(&array, data_type).ok()?, 0).ok()
}

/// Converts a value to JSON. NULL, booleans, and numbers that lose no digit keep their kind; other values become
/// strings.
pub fn json(literal: &Literal) -> Value {
    match (literal.value(), literal.data_type()) {
        (Held::Null, _) => Value::Null,
        (Held::Bool(value), _) => Value::Bool(*value),
        (Held::Float(value), _) => float(*value),
        (Held::Int(value), data_type) if data_type.is_integer() => match i64::try_from(*value) {
            Ok(value) => value.into(),
            Err(_) => u64::try_from(*value).map_or_else(|_| value.to_string().into(), Into::into),
        },
        (Held::Int(value), DataType::Decimal128(..)) if value.unsigned_abs() < 1 << 53 => {
            literal.to_string().parse().map_or_else(|_| literal.to_string().into(), float)
        }
        _ => text(literal).into(),
    }
}

/// Converts a float to a JSON number, or to its text if JSON cannot represent it.
pub fn float(value: f64) -> Value {
    match crate::json_float(value) {
        Some(text) => text.into(),
        None => value.into(),
    }
}
