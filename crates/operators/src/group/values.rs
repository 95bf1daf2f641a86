//! Converts group keys between Arrow arrays and 64-bit integers (lanes). Floats are converted to their bits, booleans
//! to 0 and 1, and decimals to one or two integers.

use crate::evaluate::array_of_ints;
use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{Array, ArrayRef, BooleanArray, Float32Array, Float64Array};
use arrow_buffer::NullBuffer;
use arrow_schema::DataType;
use farpool_model::{Error, Result, with_integer};
use std::borrow::Cow;
use std::sync::Arc;

/// Values of one group key for the rows of a batch.
pub(crate) enum KeyValues<'a> {
    /// Decoded values of any type.
    Array(ArrayRef),
    /// Values of an integer-like type, evaluated as 64-bit integers (a lane).
    Lane {
        /// One value per row.
        values: &'a [i64],
        /// The rows that are NULL; `None` if no row is.
        nulls: Option<NullBuffer>,
    },
}

impl KeyValues<'_> {
    /// Returns which rows are NULL; `None` if no row is.
    pub(super) fn nulls(&self) -> Option<&NullBuffer> {
        let nulls = match self {
            KeyValues::Array(array) => array.nulls(),
            KeyValues::Lane { nulls, .. } => nulls.as_ref(),
        };
        nulls.filter(|n| n.null_count() > 0)
    }

    /// Returns the values of a group key of up to 64 bits as integers.
    pub(super) fn narrow(&self) -> Result<Cow<'_, [i64]>> {
        match self {
            KeyValues::Array(array) => lanes_of_array(array),
            KeyValues::Lane { values, .. } => Ok(Cow::Borrowed(values)),
        }
    }

    /// Returns the values of a decimal group key.
    pub(super) fn wide(&self) -> impl Iterator<Item = i128> + '_ {
        let (wide, narrow) = match self {
            KeyValues::Array(array) => (&array.as_primitive::<Decimal128Type>().values()[..], [].as_slice()),
            KeyValues::Lane { values, .. } => ([].as_slice(), *values),
        };
        wide.iter().copied().chain(narrow.iter().map(|value| i128::from(*value)))
    }
}

/// Converts an array to one integer per row: for decimals, the low 64 bits. The integer of a NULL is unspecified.
///
/// # Errors
/// Fails only on a bug in this crate.
pub(crate) fn lanes_of_array(array: &ArrayRef) -> Result<Cow<'_, [i64]>> {
    let lanes: Vec<i64> = match array.data_type() {
        DataType::Int64 => return Ok(Cow::Borrowed(array.as_primitive::<Int64Type>().values())),
        DataType::Boolean => array.as_boolean().values().iter().map(i64::from).collect(),
        // Adding 0.0 turns -0.0 into 0.0, so that both are the same group key.
        DataType::Float32 => {
            let values = array.as_primitive::<Float32Type>().values();
            values.iter().map(|v| i64::from((v + 0.0).to_bits())).collect()
        }
        DataType::Float64 => {
            let values = array.as_primitive::<Float64Type>().values();
            values.iter().map(|v| (v + 0.0).to_bits().cast_signed()).collect()
        }
        other => with_integer!(
            other,
            T => array.as_primitive::<T>().values().iter().map(|v| *v as i64).collect(),
            return Err(Error::internal(format!("{other} is no key of 64 bits")))
        ),
    };
    Ok(Cow::Owned(lanes))
}

/// Converts integers that stand for group keys to an array of `data_type`.
///
/// # Errors
/// Fails only on a bug in this crate.
pub(super) fn array_of_lanes(
    data_type: &DataType,
    keys: impl Iterator<Item = i128>,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef> {
    Ok(match data_type {
        DataType::Boolean => {
            let values: Vec<bool> = keys.map(|key| key == 1).collect();
            Arc::new(BooleanArray::new(values.into(), nulls))
        }
        DataType::Float32 => {
            let values: Vec<f32> = keys.map(|key| f32::from_bits(key as u32)).collect();
            Arc::new(Float32Array::new(values.into(), nulls))
        }
        DataType::Float64 => {
            let values: Vec<f64> = keys.map(|key| f64::from_bits(key as u64)).collect();
            Arc::new(Float64Array::new(values.into(), nulls))
        }
        other => array_of_ints(other, keys, nulls)?,
    })
}
