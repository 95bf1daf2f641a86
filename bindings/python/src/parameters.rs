//! Conversion of Python values to parameters of a statement. Each becomes an Arrow array of one row.

use crate::errors;
use arrow::array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float64Array, Int64Array,
    IntervalMonthDayNanoArray, ListArray, NullArray, StringArray, Time64MicrosecondArray,
    TimestampMicrosecondArray, UInt64Array,
};
use arrow::buffer::OffsetBuffer;
use arrow::compute::{CastOptions, cast_with_options, concat};
use arrow::datatypes::{DataType, Field, IntervalMonthDayNano};
use arrow::error::ArrowError;
use farpool::{Error, Parameters};
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyByteArray, PyBytes, PyDate, PyDateTime, PyDelta, PyDict, PyFloat, PyInt, PyList, PyString,
    PyTime, PyTuple,
};
use std::sync::Arc;

/// The number of the day 1970-01-01 in Python's calendar (`date.toordinal`).
const EPOCH: i64 = 719_163;

/// Converts the parameter values: a list or tuple for `$1`, `$2`, … and `?`, or a dictionary for named parameters.
///
/// # Errors
/// `TypeError` or the package's `DataError` for a value that has no SQL type.
pub fn given(values: Option<&Bound<'_, PyAny>>) -> PyResult<Parameters> {
    let Some(values) = values else { return Ok(Parameters::None) };
    if let Ok(named) = values.cast::<PyDict>() {
        let named = named.iter().map(|(name, value)| {
            let name: String = name.extract()?;
            Ok((name.trim_start_matches('$').to_string(), array(&value)?))
        });
        return named.collect::<PyResult<_>>().map(Parameters::Named);
    }
    if values.is_instance_of::<PyList>() || values.is_instance_of::<PyTuple>() {
        let values = values.try_iter()?.map(|value| array(&value?));
        return values.collect::<PyResult<_>>().map(Parameters::Numbered);
    }
    let what = format!("parameters are a list, a tuple or a dictionary, not {}", values.get_type().name()?);
    Err(refused(values, what, "write [value, …] for $1, $2, … and ?, or {\"name\": value} for $name"))
}

fn array(value: &Bound<'_, PyAny>) -> PyResult<ArrayRef> {
    if value.is_none() {
        return Ok(Arc::new(NullArray::new(1)));
    }
    if let Ok(value) = value.cast::<PyBool>() {
        return Ok(Arc::new(BooleanArray::from(vec![value.is_true()])));
    }
    if value.is_instance_of::<PyInt>() {
        return integer(value);
    }
    if let Ok(value) = value.cast::<PyFloat>() {
        return Ok(Arc::new(Float64Array::from(vec![value.value()])));
    }
    if let Ok(value) = value.cast::<PyString>() {
        return Ok(Arc::new(StringArray::from(vec![value.to_cow()?.as_ref()])));
    }
    if value.is_instance_of::<PyBytes>() || value.is_instance_of::<PyByteArray>() {
        let bytes: Vec<u8> = value.extract()?;
        return Ok(Arc::new(BinaryArray::from(vec![bytes.as_slice()])));
    }
    if value.is_instance_of::<PyDateTime>() {
        return timestamp(value);
    }
    if value.is_instance_of::<PyDate>() {
        return Ok(Arc::new(Date32Array::from(vec![days(value)? as i32])));
    }
    if value.is_instance_of::<PyTime>() {
        return Ok(Arc::new(Time64MicrosecondArray::from(vec![time_of_day(value)?])));
    }
    if value.is_instance_of::<PyDelta>() {
        let (days, seconds): (i32, i64) = (number(value, "days")?, number(value, "seconds")?);
        let nanoseconds = (seconds * 1_000_000 + number::<i64>(value, "microseconds")?) * 1000;
        let interval = IntervalMonthDayNano::new(0, days, nanoseconds);
        return Ok(Arc::new(IntervalMonthDayNanoArray::from(vec![interval])));
    }
    if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        return list(value);
    }
    let kind = value.get_type();
    match (kind.module()?.to_cow()?.as_ref(), kind.name()?.to_cow()?.as_ref()) {
        ("decimal", "Decimal") => decimal(value),
        ("uuid", "UUID") => array(value.str()?.as_any()),
        (module, "NAType") if module.starts_with("pandas") => Ok(Arc::new(NullArray::new(1))),
        // Numbers, texts and times of NumPy.
        ("numpy", _) if value.hasattr("item")? => {
            let item = value.call_method0("item")?;
            match item.get_type().module()?.to_cow()?.as_ref() {
                "numpy" => Err(unknown(value)),
                _ => array(&item),
            }
        }
        _ => Err(unknown(value)),
    }
}

fn integer(value: &Bound<'_, PyAny>) -> PyResult<ArrayRef> {
    if let Ok(value) = value.extract::<i64>() {
        return Ok(Arc::new(Int64Array::from(vec![value])));
    }
    if let Ok(value) = value.extract::<u64>() {
        return Ok(Arc::new(UInt64Array::from(vec![value])));
    }
    decimal(value)
}

/// Converts an integer or a `Decimal` from its digits.
fn decimal(value: &Bound<'_, PyAny>) -> PyResult<ArrayRef> {
    let too_large = || {
        refused(
            value,
            format!("{value} has no type in SQL"),
            "a number has up to 38 digits and is no NaN or infinity",
        )
    };
    // In positional notation: Decimal("1E+2") is 100.
    let text: String = match value.is_instance_of::<PyInt>() {
        true => value.str()?.extract()?,
        false => value.call_method1("__format__", ("f",))?.extract()?,
    };
    let digits = text.trim_start_matches('-');
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let unscaled: i128 = format!("{whole}{fraction}").parse().map_err(|_| too_large())?;
    let unscaled = if text.starts_with('-') { -unscaled } else { unscaled };
    let scale = i8::try_from(fraction.len()).map_err(|_| too_large())?;
    let precision = (whole.trim_start_matches('0').len() + fraction.len()).max(1);
    let precision = u8::try_from(precision).map_err(|_| too_large())?;
    let array = Decimal128Array::from(vec![unscaled]).with_precision_and_scale(precision, scale);
    Ok(Arc::new(array.map_err(|_| too_large())?))
}

fn timestamp(value: &Bound<'_, PyAny>) -> PyResult<ArrayRef> {
    // pandas' NaT is a datetime that does not equal itself.
    if value.ne(value)? {
        return Ok(Arc::new(NullArray::new(1)));
    }
    let offset = value.call_method0("utcoffset")?;
    let mut microseconds = days(value)? * 86_400_000_000 + time_of_day(value)?;
    if offset.is_none() {
        return Ok(Arc::new(TimestampMicrosecondArray::from(vec![microseconds])));
    }
    let seconds = number::<i64>(&offset, "days")? * 86_400 + number::<i64>(&offset, "seconds")?;
    microseconds -= seconds * 1_000_000 + number::<i64>(&offset, "microseconds")?;
    Ok(Arc::new(TimestampMicrosecondArray::from(vec![microseconds]).with_timezone("+00:00")))
}

/// Returns the days of a date since 1970-01-01.
fn days(date: &Bound<'_, PyAny>) -> PyResult<i64> {
    Ok(date.call_method0("toordinal")?.extract::<i64>()? - EPOCH)
}

/// Returns the microseconds of a time since midnight.
fn time_of_day(time: &Bound<'_, PyAny>) -> PyResult<i64> {
    let (hour, minute): (i64, i64) = (number(time, "hour")?, number(time, "minute")?);
    let seconds = (hour * 60 + minute) * 60 + number::<i64>(time, "second")?;
    Ok(seconds * 1_000_000 + number::<i64>(time, "microsecond")?)
}

fn number<'py, T: FromPyObjectOwned<'py>>(of: &Bound<'py, PyAny>, name: &str) -> PyResult<T> {
    of.getattr(name)?.extract().map_err(Into::into)
}

/// Converts a sequence to an Arrow list whose elements have one type.
fn list(values: &Bound<'_, PyAny>) -> PyResult<ArrayRef> {
    let elements = values.try_iter()?.map(|value| array(&value?)).collect::<PyResult<Vec<_>>>()?;
    let failed = |error: ArrowError| {
        let what = format!("a list whose elements differ in their types: {error}");
        refused(values, what, "give elements of one type")
    };
    let data_type = common_type(&elements).map_err(failed)?;
    let strictly = CastOptions { safe: false, ..CastOptions::default() };
    let cast = |element: &ArrayRef| cast_with_options(element, &data_type, &strictly);
    let cast = elements.iter().map(cast).collect::<Result<Vec<_>, _>>().map_err(failed)?;
    let whole = match cast.is_empty() {
        true => arrow::array::new_empty_array(&data_type),
        false => concat(&cast.iter().map(AsRef::as_ref).collect::<Vec<&dyn Array>>()).map_err(failed)?,
    };
    let offsets = OffsetBuffer::from_lengths([whole.len()]);
    let field = Arc::new(Field::new_list_field(data_type, true));
    Ok(Arc::new(ListArray::try_new(field, offsets, whole, None).map_err(failed)?))
}

/// Returns the common type of all elements: None has any type, and an integer among floats becomes a float.
fn common_type(elements: &[ArrayRef]) -> Result<DataType, ArrowError> {
    let types = elements.iter().map(|element| element.data_type()).filter(|kind| !kind.is_null());
    types.cloned().try_fold(DataType::Null, |all, one| match (&all, &one) {
        _ if all.is_null() || all == one => Ok(one),
        (DataType::Float64, one) if one.is_numeric() => Ok(all),
        (all, DataType::Float64) if all.is_numeric() => Ok(one),
        (DataType::Int64, DataType::UInt64) => Ok(one),
        (DataType::UInt64, DataType::Int64) => Ok(all),
        (DataType::Decimal128(..), DataType::Decimal128(..)) => Ok(DataType::Decimal128(38, 18)),
        _ => Err(ArrowError::CastError(format!("{all} and {one}"))),
    })
}

fn unknown(value: &Bound<'_, PyAny>) -> PyErr {
    let kind = value.get_type().name().map_or_else(|_| "this".to_string(), |name| name.to_string());
    let advice = "give None, a bool, int, float, Decimal, str, bytes, date, time, datetime or timedelta, or a list of them";
    refused(value, format!("a parameter of type {kind} has no type in SQL"), advice)
}

fn refused(value: &Bound<'_, PyAny>, what: String, advice: &str) -> PyErr {
    errors::raised(value.py(), &Error::invalid(what).advise(advice))
}
