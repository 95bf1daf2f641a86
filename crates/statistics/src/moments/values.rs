//! Reads the numbers of Arrow arrays for moments (sums and sums of products of pairs of columns).

use crate::decimals;
use arrow_array::cast::AsArray;
use arrow_array::types::Decimal128Type;
use arrow_array::{Array, ArrayRef, Int64Array};
use arrow_schema::DataType;
use farpool_model::{Error, Result};
use std::sync::Arc;

/// Evaluates `$body` with `$arrow` naming the Arrow type of an exact column (of integers or decimals).
macro_rules! for_exact {
    ($data_type:expr, $arrow:ident => $body:expr) => {
        farpool_model::with_integer!($data_type, $arrow => $body, unreachable!("the layout refuses {}", $data_type))
    };
}
pub(crate) use for_exact;

/// Checks that the columns have the types of the layout and equal lengths; returns their length.
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

/// Converts decimals whose unscaled values fit 64 bits to 64-bit integers; returns other arrays unchanged.
pub(crate) fn narrowed(array: ArrayRef) -> ArrayRef {
    let Some(decimals) = array.as_primitive_opt::<Decimal128Type>() else { return array };
    let mut narrow = vec![0; decimals.len()];
    if !decimals::narrow(decimals.values(), &mut narrow) {
        return array;
    }
    Arc::new(Int64Array::new(narrow.into(), decimals.nulls().cloned()))
}
