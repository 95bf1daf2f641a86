//! Conversion of values of Arrow arrays to Python objects, for `fetchall` and similar methods.
//!
//! Invariant: NULL is `None`, and nothing else is. A value that Python has no type for, such as a date before the year
//! 1, is an error and not another value.

use crate::errors;
use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Date64Type, Decimal32Type, Decimal64Type, Decimal128Type,
    Decimal256Type, DurationMicrosecondType, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type,
    Int32Type, Int64Type, IntervalMonthDayNanoType, Time64MicrosecondType, TimeUnit,
    TimestampMicrosecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow::temporal_conversions::{
    date32_to_datetime, date64_to_datetime, time64us_to_time, timestamp_us_to_datetime,
};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use farpool::Error;
use pyo3::BoundObject;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDelta, PyDict, PyList, PyString, PyTuple, PyTzInfo};
use std::fmt::Display;

static DECIMAL: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static ZONE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

type Values<'py> = Vec<Bound<'py, PyAny>>;

/// Returns rows of a batch as tuples.
pub fn rows<'py>(py: Python<'py>, batch: &RecordBatch) -> PyResult<Vec<Bound<'py, PyTuple>>> {
    let columns = batch.columns().iter().map(|column| Ok(values(py, column)?.into_iter()));
    let mut columns = columns.collect::<PyResult<Vec<_>>>()?;
    let row = |_| PyTuple::new(py, columns.iter_mut().filter_map(Iterator::next).collect::<Vec<_>>());
    (0..batch.num_rows()).map(row).collect()
}

fn values<'py>(py: Python<'py>, array: &dyn Array) -> PyResult<Values<'py>> {
    match array.data_type() {
        DataType::Null => Ok(vec![py.None().into_bound(py); array.len()]),
        DataType::Boolean => {
            let array = array.as_boolean();
            each(py, array, |row| Ok(array.value(row).into_pyobject(py)?.to_owned().into_any()))
        }
        DataType::Int8 => numbers::<Int8Type>(py, array),
        DataType::Int16 => numbers::<Int16Type>(py, array),
        DataType::Int32 => numbers::<Int32Type>(py, array),
        DataType::Int64 => numbers::<Int64Type>(py, array),
        DataType::UInt8 => numbers::<UInt8Type>(py, array),
        DataType::UInt16 => numbers::<UInt16Type>(py, array),
        DataType::UInt32 => numbers::<UInt32Type>(py, array),
        DataType::UInt64 => numbers::<UInt64Type>(py, array),
        DataType::Float32 => numbers::<Float32Type>(py, array),
        DataType::Float64 => numbers::<Float64Type>(py, array),
        DataType::Float16 => {
            let array = array.as_primitive::<Float16Type>();
            each(py, array, |row| Ok(array.value(row).to_f64().into_pyobject(py)?.into_any()))
        }
        DataType::Utf8 => texts(py, array.as_string::<i32>().iter()),
        DataType::LargeUtf8 => texts(py, array.as_string::<i64>().iter()),
        DataType::Utf8View => texts(py, array.as_string_view().iter()),
        DataType::Binary => bytes(py, array.as_binary::<i32>().iter()),
        DataType::LargeBinary => bytes(py, array.as_binary::<i64>().iter()),
        DataType::BinaryView => bytes(py, array.as_binary_view().iter()),
        DataType::FixedSizeBinary(_) => bytes(py, array.as_fixed_size_binary().iter()),
        DataType::Decimal32(..) => {
            decimals(py, array, |row| array.as_primitive::<Decimal32Type>().value_as_string(row))
        }
        DataType::Decimal64(..) => {
            decimals(py, array, |row| array.as_primitive::<Decimal64Type>().value_as_string(row))
        }
        DataType::Decimal128(..) => {
            decimals(py, array, |row| array.as_primitive::<Decimal128Type>().value_as_string(row))
        }
        DataType::Decimal256(..) => {
            decimals(py, array, |row| array.as_primitive::<Decimal256Type>().value_as_string(row))
        }
        DataType::Date32 => times::<Date32Type, _>(py, array, |days| Some(date32_to_datetime(days)?.date())),
        DataType::Date64 => {
            times::<Date64Type, _>(py, array, |value| Some(date64_to_datetime(value)?.date()))
        }
        DataType::Time32(_) | DataType::Time64(TimeUnit::Nanosecond) => {
            values(py, &converted(py, array, &DataType::Time64(TimeUnit::Microsecond))?)
        }
        DataType::Time64(_) => times::<Time64MicrosecondType, _>(py, array, time64us_to_time),
        DataType::Timestamp(TimeUnit::Microsecond, None) => {
            times::<TimestampMicrosecondType, _>(py, array, timestamp_us_to_datetime)
        }
        DataType::Timestamp(TimeUnit::Microsecond, Some(zone)) => instants(py, array, zone),
        DataType::Timestamp(_, zone) => {
            let data_type = DataType::Timestamp(TimeUnit::Microsecond, zone.clone());
            values(py, &converted(py, array, &data_type)?)
        }
        DataType::Duration(TimeUnit::Microsecond) => {
            let array = array.as_primitive::<DurationMicrosecondType>();
            each(py, array, |row| delta(py, 0, array.value(row)))
        }
        DataType::Duration(_) => {
            values(py, &converted(py, array, &DataType::Duration(TimeUnit::Microsecond))?)
        }
        DataType::Interval(_) => intervals(py, array),
        DataType::Dictionary(_, inner) => values(py, &converted(py, array, inner)?),
        DataType::RunEndEncoded(_, inner) => values(py, &converted(py, array, inner.data_type())?),
        DataType::List(_) => each(py, array, |row| elements(py, &array.as_list::<i32>().value(row))),
        DataType::LargeList(_) => each(py, array, |row| elements(py, &array.as_list::<i64>().value(row))),
        DataType::ListView(_) => each(py, array, |row| elements(py, &array.as_list_view::<i32>().value(row))),
        DataType::LargeListView(_) => {
            each(py, array, |row| elements(py, &array.as_list_view::<i64>().value(row)))
        }
        DataType::FixedSizeList(..) => {
            each(py, array, |row| elements(py, &array.as_fixed_size_list().value(row)))
        }
        DataType::Struct(_) => structs(py, array),
        DataType::Map(..) => {
            let map = array.as_map();
            each(py, array, |row| {
                let entries = map.value(row);
                let pairs = values(py, entries.column(0))?.into_iter().zip(values(py, entries.column(1))?);
                let dictionary = PyDict::new(py);
                for (key, value) in pairs {
                    dictionary.set_item(key, value)?;
                }
                Ok(dictionary.into_any())
            })
        }
        DataType::Union(..) => shown(py, array),
    }
}

/// Applies `value` to the rows that are not NULL; the others become `None`.
fn each<'py>(
    py: Python<'py>,
    array: &dyn Array,
    value: impl Fn(usize) -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Values<'py>> {
    let value = |row| if array.is_null(row) { Ok(py.None().into_bound(py)) } else { value(row) };
    (0..array.len()).map(value).collect()
}

fn numbers<'py, T>(py: Python<'py>, array: &dyn Array) -> PyResult<Values<'py>>
where
    T: ArrowPrimitiveType,
    T::Native: IntoPyObject<'py>,
    PyErr: From<<T::Native as IntoPyObject<'py>>::Error>,
{
    let array = array.as_primitive::<T>();
    each(py, array, |row| {
        Ok(array.value(row).into_pyobject(py).map_err(PyErr::from)?.into_any().into_bound())
    })
}

fn texts<'a, 'py>(py: Python<'py>, texts: impl Iterator<Item = Option<&'a str>>) -> PyResult<Values<'py>> {
    Ok(texts
        .map(|text| text.map_or_else(|| py.None().into_bound(py), |text| PyString::new(py, text).into_any()))
        .collect())
}

fn bytes<'a, 'py>(py: Python<'py>, values: impl Iterator<Item = Option<&'a [u8]>>) -> PyResult<Values<'py>> {
    Ok(values
        .map(|value| {
            value.map_or_else(|| py.None().into_bound(py), |value| PyBytes::new(py, value).into_any())
        })
        .collect())
}

fn decimals<'py>(
    py: Python<'py>,
    array: &dyn Array,
    text: impl Fn(usize) -> String,
) -> PyResult<Values<'py>> {
    let class = DECIMAL.import(py, "decimal", "Decimal")?;
    each(py, array, |row| class.call1((text(row),)))
}

fn times<'py, T, V>(
    py: Python<'py>,
    array: &dyn Array,
    value: impl Fn(T::Native) -> Option<V>,
) -> PyResult<Values<'py>>
where
    T: ArrowPrimitiveType,
    T::Native: Display,
    V: IntoPyObject<'py>,
    PyErr: From<V::Error>,
{
    let array = array.as_primitive::<T>();
    each(py, array, |row| {
        let value = value(array.value(row)).ok_or_else(|| beyond(py, array, row))?;
        match value.into_pyobject(py).map_err(PyErr::from) {
            Ok(value) => Ok(value.into_any().into_bound()),
            // Python supports the years 1 to 9999.
            Err(_) => Err(beyond(py, array, row)),
        }
    })
}

/// Converts timestamps with a time zone, which is a name or an offset.
fn instants<'py>(py: Python<'py>, array: &dyn Array, zone: &str) -> PyResult<Values<'py>> {
    let utc = PyTzInfo::utc(py)?;
    let zone = match zone {
        "UTC" | "+00:00" | "Z" => None,
        name => Some(zone_named(py, name)?),
    };
    let values = times::<TimestampMicrosecondType, _>(py, array, timestamp_us_to_datetime)?;
    let with_zone = values.into_iter().map(|value| {
        if value.is_none() {
            return Ok(value);
        }
        let arguments = PyDict::new(py);
        arguments.set_item("tzinfo", utc)?;
        let value = value.call_method("replace", (), Some(&arguments))?;
        match &zone {
            Some(zone) => value.call_method1("astimezone", (zone,)),
            None => Ok(value),
        }
    });
    with_zone.collect()
}

fn zone_named<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    let Some((hours, minutes)) = name.get(1..).and_then(|rest| rest.split_once(':')) else {
        return ZONE.import(py, "zoneinfo", "ZoneInfo")?.call1((name,));
    };
    let seconds = hours.parse::<i32>()? * 3600 + minutes.parse::<i32>()? * 60;
    let seconds = if name.starts_with('-') { -seconds } else { seconds };
    Ok(PyTzInfo::fixed_offset(py, PyDelta::new(py, 0, seconds, 0, true)?)?.into_any())
}

fn delta(py: Python<'_>, days: i32, microseconds: i64) -> PyResult<Bound<'_, PyAny>> {
    let day = 86_400_000_000;
    let more_days = i32::try_from(microseconds.div_euclid(day))?;
    let rest = microseconds.rem_euclid(day);
    let (seconds, rest) = ((rest / 1_000_000) as i32, (rest % 1_000_000) as i32);
    Ok(PyDelta::new(py, days + more_days, seconds, rest, true)?.into_any())
}

/// Converts intervals without months to `timedelta` objects, and others, for which Python has no type, to strings.
fn intervals<'py>(py: Python<'py>, array: &dyn Array) -> PyResult<Values<'py>> {
    use arrow::datatypes::IntervalUnit;
    if !matches!(array.data_type(), DataType::Interval(IntervalUnit::MonthDayNano)) {
        return shown(py, array);
    }
    let intervals = array.as_primitive::<IntervalMonthDayNanoType>();
    let texts = shown(py, array)?;
    each(py, array, |row| {
        let interval = intervals.value(row);
        match interval.months {
            0 => delta(py, interval.days, interval.nanoseconds / 1000),
            _ => Ok(texts[row].clone()),
        }
    })
}

fn elements<'py>(py: Python<'py>, array: &dyn Array) -> PyResult<Bound<'py, PyAny>> {
    Ok(PyList::new(py, values(py, array)?)?.into_any())
}

fn structs<'py>(py: Python<'py>, array: &dyn Array) -> PyResult<Values<'py>> {
    let fields = array.as_struct();
    let columns = fields.columns().iter().map(|column| values(py, column)).collect::<PyResult<Vec<_>>>()?;
    each(py, array, |row| {
        let dictionary = PyDict::new(py);
        for (field, column) in fields.fields().iter().zip(&columns) {
            dictionary.set_item(field.name(), &column[row])?;
        }
        Ok(dictionary.into_any())
    })
}

/// Converts values to strings, as Arrow displays them.
fn shown<'py>(py: Python<'py>, array: &dyn Array) -> PyResult<Values<'py>> {
    let options = FormatOptions::default();
    let formatter = ArrayFormatter::try_new(array, &options).map_err(|error| failed(py, &error))?;
    each(py, array, |row| Ok(PyString::new(py, &formatter.value(row).to_string()).into_any()))
}

fn converted(py: Python<'_>, array: &dyn Array, to: &DataType) -> PyResult<arrow::array::ArrayRef> {
    cast(array, to).map_err(|error| failed(py, &error))
}

fn beyond(py: Python<'_>, array: &dyn Array, row: usize) -> PyErr {
    let options = FormatOptions::default();
    let shown = ArrayFormatter::try_new(array, &options).map(|f| f.value(row).to_string());
    let what = format!("Python's times have no {}", shown.unwrap_or_default());
    let advice = "take the rows by arrow(), or cast the column to text in the statement";
    errors::raised(py, &Error::invalid(what).advise(advice))
}

fn failed(py: Python<'_>, error: &arrow::error::ArrowError) -> PyErr {
    errors::raised(py, &Error::internal(error.to_string()))
}
