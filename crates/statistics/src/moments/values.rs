//! The numbers of an Arrow array as they count for moments.

use crate::decimals;
use arrow_array::cast::AsArray;
use arrow_array::types::Decimal128Type;
use arrow_array::{Array, ArrayRef, Int64Array};
use arrow_schema::DataType;
use farpool_model::{Error, Result};
use std::sync::Arc;

/// Calls a macro with the Arrow type and its native type of an exact column.
macro_rules! for_exact {
    ($data_type:expr, $body:ident) => {
        match $data_type {
            DataType::Int8 => $body!(Int8Type),
            DataType::Int16 => $body!(Int16Type),
            DataType::Int32 => $body!(Int32Type),
            DataType::Int64 => $body!(Int64Type),
            DataType::UInt8 => $body!(UInt8Type),
            DataType::UInt16 => $body!(UInt16Type),
            DataType::UInt32 => $body!(UInt32Type),
            DataType::UInt64 => $body!(UInt64Type),
            DataType::Decimal128(..) => $body!(Decimal128Type),
            other => unreachable!("the layout refuses {other}"),
        }
    };
}
pub(crate) use for_exact;

/// Refuses columns that are not those of the layout, or not equally long.
pub(crate) fn check(types: &[DataType], columns: &[ArrayRef]) -> Result<usize> {
    if columns.len() != types.len() {
        return Err(Error::invalid(format!(
            "moments over {} columns were given {} columns",
            types.len(),
            columns.len()
        )));
    }
    let rows = columns.first().map_or(0, |column| column.len());
    for (i, (column, data_type)) in columns.iter().zip(types).enumerate() {
        if column.data_type() != data_type {
            return Err(Error::invalid(format!(
                "column {i} of moments has type {data_type}, the values given have {}",
                column.data_type()
            )));
        }
        if column.len() != rows {
            return Err(Error::invalid(format!(
                "column {i} of moments has {} rows, column 0 has {rows}",
                column.len()
            )));
        }
    }
    Ok(rows)
}

/// Decimals whose unscaled values fit 64 bits as such integers; other arrays as they are.
pub(crate) fn narrowed(array: ArrayRef) -> ArrayRef {
    let Some(decimals) = array.as_primitive_opt::<Decimal128Type>() else { return array };
    let mut narrow = vec![0; decimals.len()];
    if !decimals::narrow(decimals.values(), &mut narrow) {
        return array;
    }
    Arc::new(Int64Array::new(narrow.into(), decimals.nulls().cloned()))
}
