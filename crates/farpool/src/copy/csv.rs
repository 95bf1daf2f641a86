//! CSV output of batches: writes the same as `arrow::csv::Writer`, but appends values of frequent column types to the
//! output directly, without formatting a string for each, and quotes a value that would be read as NULL, as PostgreSQL
//! and DuckDB do.

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Decimal128Array, GenericStringArray, PrimitiveArray, RecordBatch,
    StringViewArray,
};
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Decimal128Type, Int8Type, Int16Type, Int32Type, Int64Type,
    Schema, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use farpool_model::cast;
use std::sync::Arc;

/// Estimated bytes per field, for the initial capacity of the output buffer.
const FIELD_BYTES: usize = 8;

/// Days from the beginning of year 0 to that of 1970, and the days of all four-digit years, counted from year 0.
const DAYS_TO_1970: i64 = 719_528;
const DAYS_OF_FOUR_DIGITS: std::ops::Range<i64> = 0..3_652_425;

/// The CSV syntax: separators, quotes and the text for NULL.
#[derive(Clone, Debug)]
pub(super) struct Form {
    pub delimiter: u8,
    pub quote: u8,
    /// The character before a quote in a quoted field; `None` if it is another quote.
    pub escape: Option<u8>,
    pub null: String,
}

/// The values of a column.
enum Values<'a> {
    Integers(Box<dyn Fn(usize) -> i64 + 'a>),
    Unsigned(&'a PrimitiveArray<UInt64Type>),
    Decimals(&'a Decimal128Array, usize),
    Dates(&'a PrimitiveArray<Date32Type>),
    Booleans(&'a BooleanArray),
    Views(&'a StringViewArray),
    Texts(&'a GenericStringArray<i32>),
    Others(ArrayFormatter<'a>),
}

/// Returns the CSV lines of `batch`, without a header and with nothing for NULL.
///
/// # Errors
/// Fails if a value has no text.
pub fn csv_lines(delimiter: u8, batch: &RecordBatch) -> Result<Vec<u8>, ArrowError> {
    rows(&Form { delimiter, quote: b'"', escape: None, null: String::new() }, batch)
}

/// Returns the line with the names of the columns.
///
/// # Errors
/// Fails only on a bug.
pub fn csv_header(delimiter: u8, schema: &Schema) -> Result<Vec<u8>, ArrowError> {
    header(&Form { delimiter, quote: b'"', escape: None, null: String::new() }, schema)
}

/// Returns the header line in this syntax.
pub(super) fn header(form: &Form, schema: &Schema) -> Result<Vec<u8>, ArrowError> {
    if schema.fields().is_empty() {
        return Ok(Vec::new());
    }
    let name = |name: &String| -> ArrayRef { Arc::new(StringViewArray::from(vec![Some(name.as_str())])) };
    let names = schema.fields().iter().enumerate().map(|(i, field)| (i.to_string(), name(field.name())));
    rows(form, &RecordBatch::try_from_iter(names)?)
}

/// Returns the CSV lines of `batch`, without a header.
///
/// # Errors
/// Fails if a value has no text.
pub(super) fn rows(form: &Form, batch: &RecordBatch) -> Result<Vec<u8>, ArrowError> {
    let options = FormatOptions::default().with_null(&form.null);
    // A column of untyped NULLs has no validity mask.
    let nulls: Vec<_> = batch.columns().iter().map(|column| column.logical_nulls()).collect();
    let is_null = |place: usize, row: usize| nulls[place].as_ref().is_some_and(|nulls| nulls.is_null(row));
    let columns = batch.columns().iter().map(|column| Values::of(column, &options));
    let columns = columns.collect::<Result<Vec<_>, ArrowError>>()?;
    let mut out = Vec::with_capacity(batch.num_rows() * columns.len() * FIELD_BYTES);
    for row in 0..batch.num_rows() {
        for (place, values) in columns.iter().enumerate() {
            if place > 0 {
                out.push(form.delimiter);
            }
            match is_null(place, row) {
                true => out.extend_from_slice(form.null.as_bytes()),
                false => form.value(values, row, &mut out)?,
            }
        }
        // Other programs skip an empty line, or read it as NULL.
        if columns.len() == 1 && matches!(out.last(), None | Some(b'\n')) && !is_null(0, row) {
            out.extend([form.quote, form.quote]);
        }
        out.push(b'\n');
    }
    Ok(out)
}

impl<'a> Values<'a> {
    fn of(column: &'a ArrayRef, options: &FormatOptions<'a>) -> Result<Self, ArrowError> {
        fn integers<T: ArrowPrimitiveType>(column: &ArrayRef) -> Values<'_>
        where
            i64: From<T::Native>,
        {
            let values = column.as_primitive::<T>().values();
            Values::Integers(Box::new(move |row| i64::from(values[row])))
        }
        Ok(match column.data_type() {
            DataType::Int8 => integers::<Int8Type>(column),
            DataType::Int16 => integers::<Int16Type>(column),
            DataType::Int32 => integers::<Int32Type>(column),
            DataType::Int64 => integers::<Int64Type>(column),
            DataType::UInt8 => integers::<UInt8Type>(column),
            DataType::UInt16 => integers::<UInt16Type>(column),
            DataType::UInt32 => integers::<UInt32Type>(column),
            DataType::UInt64 => Values::Unsigned(column.as_primitive()),
            DataType::Decimal128(_, scale) if *scale >= 0 => {
                Values::Decimals(column.as_primitive::<Decimal128Type>(), usize::from(scale.unsigned_abs()))
            }
            DataType::Date32 => Values::Dates(column.as_primitive()),
            DataType::Boolean => Values::Booleans(column.as_boolean()),
            DataType::Utf8View => Values::Views(column.as_string_view()),
            DataType::Utf8 => Values::Texts(column.as_string()),
            _ => Values::Others(ArrayFormatter::try_new(column.as_ref(), options)?),
        })
    }
}

impl Form {
    fn value(&self, values: &Values<'_>, row: usize, out: &mut Vec<u8>) -> Result<(), ArrowError> {
        let start = out.len();
        match values {
            Values::Integers(value) => {
                let value = value(row);
                digits(value < 0, u128::from(value.unsigned_abs()), 0, out);
            }
            Values::Unsigned(values) => digits(false, u128::from(values.value(row)), 0, out),
            Values::Decimals(values, scale) => {
                let value = values.value(row);
                digits(value < 0, value.unsigned_abs(), *scale, out);
            }
            Values::Dates(values) => {
                let days = i64::from(values.value(row)) + DAYS_TO_1970;
                if DAYS_OF_FOUR_DIGITS.contains(&days) {
                    date(days, out);
                } else {
                    let array = values.slice(row, 1);
                    let formatter = ArrayFormatter::try_new(&array, &FormatOptions::default())?;
                    out.extend(formatter.value(0).try_to_string()?.as_bytes());
                }
            }
            Values::Booleans(values) => {
                out.extend(if values.value(row) { &b"true"[..] } else { &b"false"[..] });
            }
            Values::Views(values) => {
                self.text(values.value(row).as_bytes(), out);
                return Ok(());
            }
            Values::Texts(values) => {
                self.text(values.value(row).as_bytes(), out);
                return Ok(());
            }
            Values::Others(formatter) => {
                self.text(formatter.value(row).try_to_string()?.as_bytes(), out);
                return Ok(());
            }
        }
        if self.may_meet_numbers() || out[start..] == *self.null.as_bytes() {
            let field = out.split_off(start);
            self.text(&field, out);
        }
        Ok(())
    }

    /// Returns whether the text of a number, date or boolean may contain a character that must be quoted in this
    /// syntax.
    fn may_meet_numbers(&self) -> bool {
        let is_met = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.' || byte == b'+';
        is_met(self.delimiter) || is_met(self.quote) || self.escape.is_some_and(is_met)
    }

    /// Returns whether a text would need quotes. The text for NULL must not, because NULL is written without quotes.
    pub(super) fn is_special(&self, text: &str) -> bool {
        text.bytes().any(|byte| self.is_special_byte(byte))
    }

    fn is_special_byte(&self, byte: u8) -> bool {
        byte == self.delimiter
            || byte == self.quote
            || byte == b'\n'
            || byte == b'\r'
            || Some(byte) == self.escape
    }

    /// Appends a field, in quotes if it needs them or would otherwise be read as NULL.
    fn text(&self, field: &[u8], out: &mut Vec<u8>) {
        if field != self.null.as_bytes() && !field.iter().any(|byte| self.is_special_byte(*byte)) {
            out.extend_from_slice(field);
            return;
        }
        out.push(self.quote);
        for byte in field {
            match self.escape {
                Some(escape) if *byte == self.quote || *byte == escape => out.push(escape),
                None if *byte == self.quote => out.push(self.quote),
                Some(_) | None => {}
            }
            out.push(*byte);
        }
        out.push(self.quote);
    }
}

/// Appends a decimal number, with `scale` digits after the point and at least one before it.
fn digits(is_negative: bool, magnitude: u128, scale: usize, out: &mut Vec<u8>) {
    // Enough for 39 digits and a point.
    let mut text = [b'0'; 48];
    let (mut at, mut place) = (text.len(), 0);
    let mut put = |digit: u64| {
        if place == scale && scale > 0 {
            at -= 1;
            text[at] = b'.';
        }
        at -= 1;
        text[at] = digit_of(digit);
        place += 1;
        (at, place)
    };
    let mut wide = magnitude;
    let mut narrow = loop {
        match u64::try_from(wide) {
            Ok(narrow) => break narrow,
            Err(_) => {
                put(u64::try_from(wide % 10).unwrap_or(0));
                wide /= 10;
            }
        }
    };
    let start = loop {
        let (at, place) = put(narrow % 10);
        narrow /= 10;
        if narrow == 0 && place > scale {
            break at;
        }
    };
    if is_negative {
        out.push(b'-');
    }
    out.extend_from_slice(&text[start..]);
}

/// Appends a date of a four-digit year, given in days since the beginning of year 0 (Howard Hinnant's
/// `civil_from_days`, whose years begin in March).
fn date(days: i64, out: &mut Vec<u8>) {
    let shifted = days - 60;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    let digit = |value: i64| digit_of((value % 10).unsigned_abs());
    out.extend([digit(year / 1000), digit(year / 100), digit(year / 10), digit(year), b'-']);
    out.extend([digit(month / 10), digit(month), b'-', digit(day / 10), digit(day)]);
}

/// Returns the last decimal digit of `value`.
fn digit_of(value: u64) -> u8 {
    b"0123456789"[cast::usize_saturating(value % 10)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{
        BooleanArray, Date32Array, Decimal128Array, Float64Array, Int8Array, Int64Array, StringArray,
        TimestampMicrosecondArray, UInt64Array,
    };

    fn plain(form: &Form, batch: &RecordBatch) -> String {
        let mut builder = arrow::csv::WriterBuilder::new()
            .with_header(false)
            .with_delimiter(form.delimiter)
            .with_quote(form.quote)
            .with_null(form.null.clone());
        if let Some(escape) = form.escape {
            builder = builder.with_escape(escape).with_double_quote(false);
        }
        let mut writer = builder.build(Vec::new());
        writer.write(batch).unwrap();
        String::from_utf8(writer.into_inner()).unwrap()
    }

    fn columns() -> Vec<ArrayRef> {
        let texts =
            [Some("a"), None, Some("e"), Some("b,\"c\""), Some("\u{e9}\n;"), Some("\\x\r"), Some("-1;'")];
        let micros = [Some(0), None, Some(-1), Some(1_700_000_000_123_456), Some(5), Some(6), Some(7)];
        let decimals = |scale: i8| -> ArrayRef {
            let values = [Some(0), None, Some(-5), Some(45), Some(-12345), Some(10_i128.pow(37)), Some(1)];
            Arc::new(Decimal128Array::from(values.to_vec()).with_precision_and_scale(38, scale).unwrap())
        };
        vec![
            Arc::new(StringArray::from(texts.to_vec())),
            Arc::new(StringViewArray::from(texts.to_vec())),
            Arc::new(Int8Array::from(vec![Some(-128), None, Some(0), Some(127), Some(1), Some(2), Some(9)])),
            Arc::new(Int64Array::from(vec![i64::MIN, i64::MAX, 0, -1, 10, 99, 100])),
            Arc::new(UInt64Array::from(vec![0, u64::MAX, 1, 9, 10, 19, 20])),
            decimals(0),
            decimals(2),
            decimals(38),
            decimals(-3),
            Arc::new(Date32Array::from(vec![0, -1, -719_528, -719_529, 2_932_896, 2_932_897, 11_016])),
            Arc::new(BooleanArray::from(vec![Some(true), None, Some(false), None, None, None, None])),
            Arc::new(Float64Array::from(vec![0.1, -0.0, f64::NAN, 1e300, f64::INFINITY, 5.0, 1e-7])),
            Arc::new(TimestampMicrosecondArray::from(micros.to_vec())),
        ]
    }

    #[test]
    fn fields_are_those_of_the_plain_writer() {
        let form =
            |delimiter, quote, escape, null: &str| Form { delimiter, quote, escape, null: null.to_string() };
        let forms = [
            form(b',', b'"', None, ""),
            form(b';', b'\'', None, "NA"),
            form(b'\t', b'"', Some(b'\\'), "N/A"),
            form(b'1', b'-', None, "NA"),
        ];
        let columns = columns();
        let named = |columns: &[ArrayRef]| {
            let named = columns.iter().enumerate().map(|(i, column)| (i.to_string(), column.clone()));
            RecordBatch::try_from_iter(named).unwrap()
        };
        for form in &forms {
            let whole = named(&columns);
            let got = |batch: &RecordBatch| String::from_utf8(rows(form, batch).unwrap()).unwrap();
            let plain = |batch: &RecordBatch| match form.escape {
                // Arrow's writer does not escape the escape character, so that a reader takes it for the escape of the
                // next character.
                Some(_) => plain(form, batch).replace("\\x", "\\\\x"),
                None => plain(form, batch),
            };
            assert_eq!(got(&whole), plain(&whole), "{form:?}");
            for column in &columns {
                // Arrow's writer puts quotes into an empty line, so that it is read as an empty text.
                if form.null.is_empty() && column.null_count() > 0 {
                    continue;
                }
                let alone = named(std::slice::from_ref(column));
                assert_eq!(got(&alone), plain(&alone), "{form:?} {}", column.data_type());
            }
        }
    }

    /// Expected lines are those of DuckDB 2.0.1 (`COPY … (NULL '…')`), except for the last, which it does not quote.
    #[test]
    fn a_value_that_looks_like_null_is_in_quotes() {
        let texts: ArrayRef =
            Arc::new(StringArray::from(vec![Some("NULL"), None, Some(""), Some("5"), Some("x")]));
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(5), Some(6), None, Some(0), Some(5)]));
        let flags: ArrayRef = Arc::new(BooleanArray::from(vec![Some(true), None, Some(false), None, None]));
        let batch = RecordBatch::try_from_iter([("a", texts.clone()), ("b", numbers), ("c", flags)]).unwrap();
        let written = |null: &str, batch: &RecordBatch| {
            let form = Form { delimiter: b',', quote: b'"', escape: None, null: null.to_string() };
            String::from_utf8(rows(&form, batch).unwrap()).unwrap()
        };
        assert_eq!(
            written("NULL", &batch),
            "\"NULL\",5,true\nNULL,6,NULL\n,NULL,false\n5,0,NULL\nx,5,NULL\n"
        );
        assert_eq!(written("", &batch), "NULL,5,true\n,6,\n\"\",,false\n5,0,\nx,5,\n");
        assert_eq!(written("5", &batch), "NULL,\"5\",true\n5,6,5\n,5,false\n\"5\",0,5\nx,\"5\",5\n");
        assert_eq!(written("true", &batch).lines().next(), Some("NULL,5,\"true\""));
        let alone = RecordBatch::try_from_iter([("a", texts.slice(1, 2))]).unwrap();
        assert_eq!(written("", &alone), "\n\"\"\n");
        assert_eq!(written("NULL", &alone), "NULL\n\"\"\n");
    }

    #[test]
    fn days_of_four_centuries_are_those_of_a_calendar() {
        let days: Vec<i32> = (-719_528..=2_932_896).step_by(53).collect();
        let batch =
            RecordBatch::try_from_iter([("d", Arc::new(Date32Array::from(days)) as ArrayRef)]).unwrap();
        let form = Form { delimiter: b',', quote: b'"', escape: None, null: String::new() };
        assert_eq!(String::from_utf8(rows(&form, &batch).unwrap()).unwrap(), plain(&form, &batch));
    }
}
