//! Converts values that are read from states (sketches, moments) to DataFusion's values.

use arrow_schema::{DataType, Field, Fields};
use datafusion::common::ScalarValue;
use datafusion::common::scalar::ScalarStructBuilder;
use farpool_model::{Error, Literal, Result};
use farpool_planner::reading::{ReadValue, Reading, frequency, frequent_fields};
use farpool_statistics::{Estimate, Sketch, State};
use std::sync::Arc;

/// Reads the value of `reading` from `state`.
///
/// # Errors
/// `Invalid` if the state does not support this reading.
pub(super) fn read(reading: &Reading, state: &State) -> Result<ScalarValue> {
    Ok(match reading.read(state)? {
        ReadValue::State(bytes) => ScalarValue::BinaryView(Some(bytes)),
        ReadValue::Count(count) => ScalarValue::UInt64(Some(count)),
        ReadValue::Number(number) => ScalarValue::Float64(number),
        ReadValue::Value(value) => match value.as_ref().and_then(farpool_sql::literal::to_scalar) {
            Some(value) => value,
            None => ScalarValue::try_from(&reading.data_type()).map_err(farpool_sql::error::unwrap)?,
        },
        ReadValue::Top(entries) => {
            let Reading::Top(_, of) = reading else {
                return Err(Error::internal("frequent values that were not asked for"));
            };
            let fields = frequent_fields(of.clone());
            let entries = entries.iter().map(|(value, count)| frequent(&fields, value, *count));
            let entries = entries.collect::<Result<Vec<_>>>()?;
            ScalarValue::List(ScalarValue::new_list_nullable(&entries, &DataType::Struct(fields)))
        }
        ReadValue::Matrix(rows) => {
            let row = |row: Vec<Option<f64>>| {
                let numbers: Vec<ScalarValue> = row.into_iter().map(ScalarValue::Float64).collect();
                ScalarValue::List(ScalarValue::new_list_nullable(&numbers, &DataType::Float64))
            };
            let rows: Vec<ScalarValue> = rows.into_iter().map(row).collect();
            let of = DataType::List(Arc::new(Field::new_list_field(DataType::Float64, true)));
            ScalarValue::List(ScalarValue::new_list_nullable(&rows, &of))
        }
    })
}

fn frequent(fields: &Fields, value: &Literal, count: u64) -> Result<ScalarValue> {
    let value = farpool_sql::literal::to_scalar(value)
        .ok_or_else(|| Error::internal(format!("a frequent value of type {}", value.data_type())))?;
    struct_of(fields, vec![value, ScalarValue::UInt64(Some(count))])
}

/// Estimates the number of rows that have `value`, which is cast to the sketch's type.
///
/// # Errors
/// `Invalid` if the cast fails, or if the sketch does not count frequencies.
pub(super) fn frequency_of(sketch: &Sketch, value: &ScalarValue) -> Result<Estimate> {
    frequency(sketch, &constant(value, sketch.data_type())?)
}

/// Converts `value` to a constant of the type `of` of a sketch.
///
/// # Errors
/// `Invalid` if it cannot be converted.
pub(super) fn constant(value: &ScalarValue, of: &DataType) -> Result<Literal> {
    let literal = value.cast_to(of).ok().and_then(|value| farpool_sql::literal::from_scalar(&value));
    literal
        .ok_or_else(|| Error::invalid(format!("the sketch is of {of}, and {value} is no value of that type")))
}

/// Creates a struct of these values.
///
/// # Errors
/// `Internal` if the values do not have the types of the fields.
pub(super) fn struct_of(fields: &Fields, values: Vec<ScalarValue>) -> Result<ScalarValue> {
    let mut builder = ScalarStructBuilder::new();
    for (field, value) in fields.iter().zip(values) {
        builder = builder.with_scalar(Arc::clone(field), value);
    }
    builder.build().map_err(farpool_sql::error::unwrap)
}
