//! The columns of a record batch as rows of values: `DataRow` messages and rows of COPY.
//!
//! Each column is converted once per batch to one of few array types ([`normal`]), so that a row costs a match per value.

use super::binary;
use super::calendar::{self, DAY_US, EPOCH_DAYS, EPOCH_US, Zone};
use super::text;
use crate::messages::Format;
use crate::output::Output;
use crate::types::{PostgresType, QUOTIENT, array_of};
use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Date64Type, Decimal128Type, Decimal256Type, DurationMicrosecondType, DurationMillisecondType,
    DurationNanosecondType, DurationSecondType, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
    IntervalDayTimeType, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalYearMonthType,
    Time32MillisecondType, Time32SecondType, Time64MicrosecondType, Time64NanosecondType,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
};
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType, PrimitiveArray, RecordBatch};
use arrow_cast::cast;
use arrow_schema::{ArrowError, DataType, IntervalUnit, TimeUnit};
use bytes::{BufMut, BytesMut};
use farpool_model::{Error, Result, sql_name};
use std::sync::Arc;

/// The style in which a session wants values to be written.
#[derive(Clone, Debug, Default)]
pub struct Style {
    /// The zone in which times with a zone are written as text.
    pub zone: Zone,
}

/// The columns of a batch, ready to be written row by row.
pub struct Columns {
    columns: Vec<Column>,
    style: Style,
    rows: usize,
}

struct Column {
    array: ArrayRef,
    kind: Kind,
    format: Format,
}

/// The type of a normalized column, which tells how its values are written.
#[derive(Clone, Copy)]
enum Kind {
    Null,
    Bool,
    Int2,
    Int4,
    Int8,
    Float4,
    Float8,
    Numeric(i8),
    /// A decimal with zeros behind its digits ([`QUOTIENT`]).
    Quotient(i8),
    /// A decimal of 256 bits, which is written as text and parsed for the binary form.
    WideNumeric(i8),
    Text,
    Bytes,
    Date,
    Time,
    Timestamp {
        has_zone: bool,
    },
    Interval,
    /// A list of values with this object id.
    List(u32),
}

impl Columns {
    /// Prepares the columns of `batch`, to be written in these formats ([`crate::messages::format_at`]). Columns of types
    /// that clients get as JSON must be texts of it already ([`crate::types::is_json`]).
    ///
    /// # Errors
    /// `Invalid` if a time is out of the range of PostgreSQL.
    pub fn new(batch: &RecordBatch, formats: impl Fn(usize) -> Format, style: Style) -> Result<Self> {
        let columns = batch.columns().iter().enumerate().map(|(place, array)| {
            let mut column = Column::new(array, formats(place))?;
            if let Kind::Numeric(scale) = column.kind
                && batch.schema_ref().field(place).metadata().contains_key(QUOTIENT)
            {
                column.kind = Kind::Quotient(scale);
            }
            Ok(column)
        });
        Ok(Columns { columns: columns.collect::<Result<_>>()?, style, rows: batch.num_rows() })
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the number of columns.
    pub fn count(&self) -> usize {
        self.columns.len()
    }

    /// Appends a row as a message.
    ///
    /// # Errors
    /// `Invalid` if a value has no representation. The message is then not complete, and is taken back.
    pub fn put_row(&self, row: usize, out: &mut Output) -> Result<()> {
        let before = out.len();
        out.bytes.put_u8(b'D');
        let start = out.len();
        out.bytes.put_u32(0);
        // There are at most 65,535 columns, which was checked when the columns were described.
        out.bytes.put_u16(u16::try_from(self.columns.len()).unwrap_or(u16::MAX));
        for column in &self.columns {
            if let Err(error) = put_sized(&mut out.bytes, column, row, &self.style) {
                out.bytes.truncate(before);
                return Err(error);
            }
        }
        out.end_message(start);
        Ok(())
    }

    /// Appends a value without its length; returns false, and appends nothing, if it is NULL.
    ///
    /// # Errors
    /// Errors of [`Columns::put_row`].
    pub fn put_value(&self, (row, column): (usize, usize), out: &mut BytesMut) -> Result<bool> {
        let column = &self.columns[column];
        if column.is_null(row) {
            return Ok(false);
        }
        column.put(row, out, &self.style)?;
        Ok(true)
    }
}

/// Appends a value with its length in front, which is -1 for NULL.
fn put_sized(out: &mut BytesMut, column: &Column, row: usize, style: &Style) -> Result<()> {
    if column.is_null(row) {
        out.put_i32(-1);
        return Ok(());
    }
    let start = out.len();
    out.put_u32(0);
    column.put(row, out, style)?;
    let length = out.len() - start - 4;
    let length = u32::try_from(length).map_err(|_| Error::over_limit("a value of more than 4 GiB"))?;
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
    Ok(())
}

impl Column {
    fn new(array: &ArrayRef, format: Format) -> Result<Self> {
        let (array, kind) = normal(array)?;
        Ok(Column { array, kind, format })
    }

    fn is_null(&self, row: usize) -> bool {
        matches!(self.kind, Kind::Null) || self.array.is_null(row)
    }

    fn put(&self, row: usize, out: &mut BytesMut, style: &Style) -> Result<()> {
        match self.format {
            Format::Text => self.put_text(row, out, style),
            Format::Binary => self.put_binary(row, out, style),
        }
    }

    fn put_text(&self, row: usize, out: &mut BytesMut, style: &Style) -> Result<()> {
        match self.kind {
            Kind::Null => {}
            Kind::Bool => out.put_u8(if self.array.as_boolean().value(row) { b't' } else { b'f' }),
            Kind::Int2 => calendar::put_integer(out, self.value::<Int16Type>(row).into()),
            Kind::Int4 => calendar::put_integer(out, self.value::<Int32Type>(row).into()),
            Kind::Int8 => calendar::put_integer(out, self.value::<Int64Type>(row)),
            Kind::Float4 => text::put_single(out, self.value::<Float32Type>(row)),
            Kind::Float8 => text::put_double(out, self.value::<Float64Type>(row)),
            Kind::Numeric(scale) => text::put_decimal(out, self.value::<Decimal128Type>(row), scale),
            Kind::Quotient(scale) => {
                let (value, scale) = shown(self.value::<Decimal128Type>(row), scale);
                text::put_decimal(out, value, scale);
            }
            Kind::WideNumeric(_) => out.put_slice(self.wide(row).as_bytes()),
            Kind::Text => out.put_slice(self.array.as_string_view().value(row).as_bytes()),
            Kind::Bytes => text::put_bytes(out, self.array.as_binary_view().value(row)),
            Kind::Date => {
                calendar::put_date(out, calendar::checked_day(self.value::<Date32Type>(row))?);
            }
            Kind::Time => calendar::put_time(out, self.value::<Time64MicrosecondType>(row)),
            Kind::Timestamp { has_zone } => {
                let time = calendar::checked_time(self.value::<TimestampMicrosecondType>(row))?;
                calendar::put_timestamp(out, time, has_zone.then_some(&style.zone));
            }
            Kind::Interval => {
                let IntervalMonthDayNano { months, days, nanoseconds } =
                    self.value::<IntervalMonthDayNanoType>(row);
                calendar::put_interval(out, months, days, nanoseconds / 1000);
            }
            Kind::List(_) => self.put_list_text(row, out, style)?,
        }
        Ok(())
    }

    fn put_binary(&self, row: usize, out: &mut BytesMut, style: &Style) -> Result<()> {
        match self.kind {
            Kind::Bool => out.put_u8(u8::from(self.array.as_boolean().value(row))),
            Kind::Int2 => out.put_i16(self.value::<Int16Type>(row)),
            Kind::Int4 => out.put_i32(self.value::<Int32Type>(row)),
            Kind::Int8 => out.put_i64(self.value::<Int64Type>(row)),
            Kind::Float4 => out.put_f32(self.value::<Float32Type>(row)),
            Kind::Float8 => out.put_f64(self.value::<Float64Type>(row)),
            Kind::Numeric(scale) => binary::put_decimal(out, self.value::<Decimal128Type>(row), scale),
            Kind::Quotient(scale) => {
                let (value, scale) = shown(self.value::<Decimal128Type>(row), scale);
                binary::put_decimal(out, value, scale);
            }
            Kind::WideNumeric(scale) => binary::put_text(out, &self.wide(row), scale),
            Kind::Bytes => out.put_slice(self.array.as_binary_view().value(row)),
            Kind::Date => {
                // The range that PostgreSQL holds does not overflow by this.
                out.put_i32(calendar::checked_day(self.value::<Date32Type>(row))? - EPOCH_DAYS);
            }
            Kind::Time => out.put_i64(self.value::<Time64MicrosecondType>(row)),
            Kind::Timestamp { .. } => {
                out.put_i64(calendar::checked_time(self.value::<TimestampMicrosecondType>(row))? - EPOCH_US);
            }
            Kind::Interval => {
                let IntervalMonthDayNano { months, days, nanoseconds } =
                    self.value::<IntervalMonthDayNanoType>(row);
                out.put_i64(nanoseconds / 1000);
                out.put_i32(days);
                out.put_i32(months);
            }
            Kind::List(element) => self.put_list_binary(row, element, out, style)?,
            Kind::Null | Kind::Text => return self.put_text(row, out, style),
        }
        Ok(())
    }

    fn value<T: ArrowPrimitiveType>(&self, row: usize) -> T::Native {
        self.array.as_primitive::<T>().value(row)
    }

    /// Returns a decimal of 256 bits as text.
    fn wide(&self, row: usize) -> String {
        self.array.as_primitive::<Decimal256Type>().value_as_string(row)
    }

    /// Returns the values of a list as a column.
    fn elements(&self, row: usize) -> Result<Column> {
        let values = self.array.as_list::<i64>().value(row);
        let (array, kind) = normal(&values)?;
        Ok(Column { array, kind, format: self.format })
    }

    fn put_list_text(&self, row: usize, out: &mut BytesMut, style: &Style) -> Result<()> {
        let elements = self.elements(row)?;
        let mut element = BytesMut::new();
        out.put_u8(b'{');
        for place in 0..elements.array.len() {
            if place > 0 {
                out.put_u8(b',');
            }
            if elements.is_null(place) {
                out.put_slice(b"NULL");
                continue;
            }
            element.clear();
            elements.put_text(place, &mut element, style)?;
            text::put_element(out, &element);
        }
        out.put_u8(b'}');
        Ok(())
    }

    fn put_list_binary(&self, row: usize, oid: u32, out: &mut BytesMut, style: &Style) -> Result<()> {
        let elements = self.elements(row)?;
        let count = elements.array.len();
        let has_nulls = (0..count).any(|place| elements.is_null(place));
        out.put_i32(i32::from(count > 0));
        out.put_i32(i32::from(has_nulls));
        out.put_u32(oid);
        if count > 0 {
            let count = i32::try_from(count).map_err(|_| Error::over_limit("a list of 2^31 values"))?;
            out.put_i32(count);
            // The number of the first element.
            out.put_i32(1);
        }
        (0..count).try_for_each(|place| put_sized(out, &elements, place, style))
    }
}

/// Returns a quotient without the zeros behind the digits that PostgreSQL computes: 16, counted from the first group of four
/// digits that is not zero (`select_div_scale`).
fn shown(mut value: i128, mut scale: i8) -> (i128, i8) {
    let digits = value.unsigned_abs().checked_ilog10().map_or(1, |digits| digits.cast_signed() + 1);
    let weight = (digits - 1 - i32::from(scale)).div_euclid(4);
    let least = i8::try_from(16 - 4 * if value == 0 { -1 } else { weight }).unwrap_or(scale).max(0);
    while scale > least && value % 10 == 0 {
        (value, scale) = (value / 10, scale - 1);
    }
    (value, scale)
}

/// Converts an array to one of the types that values are written from.
fn normal(array: &ArrayRef) -> Result<(ArrayRef, Kind)> {
    let microseconds = DataType::Time64(TimeUnit::Microsecond);
    let (wanted, kind) = match array.data_type() {
        DataType::Null => return Ok((Arc::clone(array), Kind::Null)),
        DataType::Boolean => (DataType::Boolean, Kind::Bool),
        DataType::Int8 | DataType::UInt8 | DataType::Int16 => (DataType::Int16, Kind::Int2),
        DataType::UInt16 | DataType::Int32 => (DataType::Int32, Kind::Int4),
        DataType::UInt32 | DataType::Int64 => (DataType::Int64, Kind::Int8),
        DataType::UInt64 => (DataType::Decimal128(20, 0), Kind::Numeric(0)),
        DataType::Float16 | DataType::Float32 => (DataType::Float32, Kind::Float4),
        DataType::Float64 => (DataType::Float64, Kind::Float8),
        DataType::Decimal32(p, s) | DataType::Decimal64(p, s) | DataType::Decimal128(p, s) => {
            (DataType::Decimal128(*p, *s), Kind::Numeric(*s))
        }
        DataType::Decimal256(p, s) => (DataType::Decimal256(*p, *s), Kind::WideNumeric(*s)),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => (DataType::Utf8View, Kind::Text),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            (DataType::BinaryView, Kind::Bytes)
        }
        DataType::Date32 => (DataType::Date32, Kind::Date),
        DataType::Date64 => return days(array).map(|days| (days, Kind::Date)),
        DataType::Time32(TimeUnit::Second) => {
            let scaled =
                scaled::<Time32SecondType, Time64MicrosecondType>(array, |n| i64::from(n) * 1_000_000);
            return Ok((scaled, Kind::Time));
        }
        DataType::Time32(_) => {
            let scaled =
                scaled::<Time32MillisecondType, Time64MicrosecondType>(array, |n| i64::from(n) * 1000);
            return Ok((scaled, Kind::Time));
        }
        DataType::Time64(TimeUnit::Nanosecond) => {
            return Ok((
                scaled::<Time64NanosecondType, Time64MicrosecondType>(array, |n| n / 1000),
                Kind::Time,
            ));
        }
        DataType::Time64(_) => (microseconds, Kind::Time),
        DataType::Timestamp(unit, zone) => {
            return Ok((timestamps(array, *unit)?, Kind::Timestamp { has_zone: zone.is_some() }));
        }
        DataType::Interval(unit) => return Ok((intervals(array, *unit), Kind::Interval)),
        DataType::Duration(unit) => return Ok((durations(array, *unit)?, Kind::Interval)),
        DataType::Dictionary(_, values) => {
            let values = cast(array, values).map_err(unconverted)?;
            return normal(&values);
        }
        DataType::RunEndEncoded(_, values) => {
            let values = cast(array, values.data_type()).map_err(unconverted)?;
            return normal(&values);
        }
        DataType::List(field) | DataType::LargeList(field) | DataType::FixedSizeList(field, _) => {
            let element = PostgresType::of(field.data_type()).oid;
            match array_of(element) {
                Some(_) => (DataType::LargeList(Arc::clone(field)), Kind::List(element)),
                None => return Err(unwritten(array.data_type())),
            }
        }
        other => return Err(unwritten(other)),
    };
    if *array.data_type() == wanted {
        return Ok((Arc::clone(array), kind));
    }
    Ok((cast(array, &wanted).map_err(unconverted)?, kind))
}

fn unwritten(data_type: &DataType) -> Error {
    Error::internal(format!("a column of type {} was not made JSON", sql_name(data_type)))
}

fn unconverted(error: ArrowError) -> Error {
    Error::internal(format!("a column cannot be converted for a client of PostgreSQL: {error}"))
}

fn scaled<F: ArrowPrimitiveType, T: ArrowPrimitiveType>(
    array: &ArrayRef,
    scale: impl Fn(F::Native) -> T::Native,
) -> ArrayRef {
    let scaled: PrimitiveArray<T> = array.as_primitive::<F>().unary(scale);
    Arc::new(scaled)
}

/// Returns the days of dates in milliseconds.
fn days(array: &ArrayRef) -> Result<ArrayRef> {
    let day = |milliseconds: i64| {
        i32::try_from(milliseconds.div_euclid(DAY_US / 1000)).map_err(|_| Error::invalid("date out of range"))
    };
    let days: PrimitiveArray<Date32Type> = array.as_primitive::<Date64Type>().try_unary(day)?;
    Ok(Arc::new(days))
}

/// Returns timestamps in microseconds, without a zone.
fn timestamps(array: &ArrayRef, unit: TimeUnit) -> Result<ArrayRef> {
    fn larger<T: ArrowPrimitiveType<Native = i64>>(
        array: &ArrayRef,
        factor: i64,
    ) -> Result<PrimitiveArray<TimestampMicrosecondType>> {
        let larger = |n: i64| n.checked_mul(factor).ok_or_else(calendar::out_of_range);
        array.as_primitive::<T>().try_unary(larger)
    }
    Ok(Arc::new(match unit {
        TimeUnit::Second => larger::<TimestampSecondType>(array, 1_000_000)?,
        TimeUnit::Millisecond => larger::<TimestampMillisecondType>(array, 1000)?,
        TimeUnit::Microsecond => return Ok(Arc::clone(array)),
        TimeUnit::Nanosecond => array.as_primitive::<TimestampNanosecondType>().unary(|n| n.div_euclid(1000)),
    }))
}

fn intervals(array: &ArrayRef, unit: IntervalUnit) -> ArrayRef {
    match unit {
        IntervalUnit::MonthDayNano => Arc::clone(array),
        IntervalUnit::YearMonth => {
            scaled::<IntervalYearMonthType, IntervalMonthDayNanoType>(array, |months| IntervalMonthDayNano {
                months,
                days: 0,
                nanoseconds: 0,
            })
        }
        IntervalUnit::DayTime => scaled::<IntervalDayTimeType, IntervalMonthDayNanoType>(array, |interval| {
            let nanoseconds = i64::from(interval.milliseconds) * 1_000_000;
            IntervalMonthDayNano { months: 0, days: interval.days, nanoseconds }
        }),
    }
}

fn durations(array: &ArrayRef, unit: TimeUnit) -> Result<ArrayRef> {
    fn made<T: ArrowPrimitiveType<Native = i64>>(
        array: &ArrayRef,
        factor: i64,
    ) -> Result<PrimitiveArray<IntervalMonthDayNanoType>> {
        array.as_primitive::<T>().try_unary(|n| {
            let nanoseconds = n.checked_mul(factor).ok_or_else(|| Error::invalid("interval out of range"))?;
            Ok(IntervalMonthDayNano { months: 0, days: 0, nanoseconds })
        })
    }
    Ok(Arc::new(match unit {
        TimeUnit::Second => made::<DurationSecondType>(array, 1_000_000_000)?,
        TimeUnit::Millisecond => made::<DurationMillisecondType>(array, 1_000_000)?,
        TimeUnit::Microsecond => made::<DurationMicrosecondType>(array, 1000)?,
        TimeUnit::Nanosecond => made::<DurationNanosecondType>(array, 1)?,
    }))
}

#[cfg(test)]
mod tests;
