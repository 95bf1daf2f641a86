//! Converts literals and integers to Arrow arrays of canonical types, and back.

use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, BinaryViewArray, BooleanArray, Float32Array, Float64Array,
    PrimitiveArray, StringViewArray, new_null_array,
};
use arrow_buffer::NullBuffer;
use arrow_schema::DataType;
use farpool_model::{Error, Literal, Result, Value, with_integer};
use std::sync::Arc;

/// Converts `literal` to an array of one row.
pub(super) fn of_literal(literal: &Literal) -> Result<ArrayRef> {
    Ok(match literal.value() {
        Value::Null => new_null_array(literal.data_type(), 1),
        Value::Bool(v) => Arc::new(BooleanArray::from(vec![*v])),
        Value::Int(v) => array_of_ints(literal.data_type(), [*v].into_iter(), None)?,
        Value::Float(v) if *literal.data_type() == DataType::Float32 => {
            Arc::new(Float32Array::from(vec![*v as f32]))
        }
        Value::Float(v) => Arc::new(Float64Array::from(vec![*v])),
        Value::Text(v) => Arc::new(StringViewArray::from(vec![v.as_str()])),
        Value::Bytes(v) => Arc::new(BinaryViewArray::from(vec![v.as_slice()])),
    })
}

/// Returns the value at `row` of an array of a canonical type; the reverse of [`of_literal`].
pub(crate) fn literal_at(array: &ArrayRef, row: usize) -> Result<Literal> {
    let value = match array.data_type() {
        _ if array.is_null(row) => Value::Null,
        DataType::Boolean => Value::Bool(array.as_boolean().value(row)),
        DataType::Float32 => Value::Float(array.as_primitive::<Float32Type>().value(row).into()),
        DataType::Float64 => Value::Float(array.as_primitive::<Float64Type>().value(row)),
        DataType::Utf8View => Value::Text(array.as_string_view().value(row).to_string()),
        DataType::BinaryView => Value::Bytes(array.as_binary_view().value(row).to_vec()),
        other => with_integer!(
            other,
            T => Value::Int(array.as_primitive::<T>().value(row).into()),
            return Err(Error::internal(format!("{other} is not canonical")))
        ),
    };
    Literal::new(value, array.data_type().clone())
}

/// Creates an array of an integer-like type. Values must be within the range of the type, except those of NULL rows,
/// which are truncated to its width.
pub(crate) fn array_of_ints(
    data_type: &DataType,
    values: impl Iterator<Item = i128>,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef> {
    with_integer!(
        data_type,
        T => {
            type Native = <T as ArrowPrimitiveType>::Native;
            let values: Vec<Native> = values.map(|v| v as Native).collect();
            Ok(Arc::new(PrimitiveArray::<T>::new(values.into(), nulls).with_data_type(data_type.clone())))
        },
        Err(Error::internal(format!("{data_type} does not hold integers")))
    )
}
