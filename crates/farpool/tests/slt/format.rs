//! Formats results as DataFusion's test files do: the types of columns, and each value as text.
//!
//! Source: the format of the files in the package `datafusion-sqllogictest`. Floats have at most 12 decimal places,
//! decimals those of their type; trailing zeros are cut. The empty string is `(empty)`, NULL is `NULL`. A last value
//! with line breaks becomes separate numbered lines.

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float32Type, Float64Type, Schema};
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, DurationFormat, FormatOptions};
use bigdecimal::BigDecimal;
use sqllogictest::ColumnType;

/// Maximal number of decimal places of a float.
const FLOAT_PLACES: i64 = 12;

/// The type letter that the test files use for a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    Boolean,
    DateTime,
    Integer,
    Timestamp,
    Real,
    Text,
    Other,
}

impl ColumnType for Kind {
    fn from_char(value: char) -> Option<Self> {
        Some(match value {
            'B' => Kind::Boolean,
            'D' => Kind::DateTime,
            'I' => Kind::Integer,
            'P' => Kind::Timestamp,
            'R' => Kind::Real,
            'T' => Kind::Text,
            _ => Kind::Other,
        })
    }

    fn to_char(&self) -> char {
        match self {
            Kind::Boolean => 'B',
            Kind::DateTime => 'D',
            Kind::Integer => 'I',
            Kind::Timestamp => 'P',
            Kind::Real => 'R',
            Kind::Text => 'T',
            Kind::Other => '?',
        }
    }
}

/// Returns the type letters of a result's columns.
pub fn kinds(schema: &Schema) -> Vec<Kind> {
    schema.fields().iter().map(|field| kind(field.data_type())).collect()
}

fn kind(data_type: &DataType) -> Kind {
    use DataType::*;
    match data_type {
        Boolean => Kind::Boolean,
        t if t.is_integer() => Kind::Integer,
        t if t.is_floating() || is_decimal(t) => Kind::Real,
        Utf8 | LargeUtf8 | Utf8View => Kind::Text,
        Date32 | Date64 | Time32(_) | Time64(_) => Kind::DateTime,
        Timestamp(..) => Kind::Timestamp,
        Dictionary(_, values) if matches!(**values, Utf8 | LargeUtf8 | Utf8View) => Kind::Text,
        _ => Kind::Other,
    }
}

fn is_decimal(data_type: &DataType) -> bool {
    use DataType::*;
    matches!(data_type, Decimal32(..) | Decimal64(..) | Decimal128(..) | Decimal256(..))
}

/// Converts the rows of a result to texts.
pub fn rows(batches: &[RecordBatch]) -> Result<Vec<Vec<String>>, ArrowError> {
    let mut rows = Vec::new();
    for batch in batches {
        let columns = batch.columns().iter().map(column_texts).collect::<Result<Vec<_>, _>>()?;
        for row in 0..batch.num_rows() {
            expand(columns.iter().map(|column| column[row].clone()).collect(), &mut rows);
        }
    }
    Ok(rows)
}

/// Appends a row. Line breaks in its last value split it: each line becomes a row of one numbered value.
fn expand(mut row: Vec<String>, rows: &mut Vec<Vec<String>>) {
    let Some(last) = row.last().filter(|last| last.contains('\n')).cloned() else {
        return rows.push(row);
    };
    row.pop();
    rows.push(row);
    for (number, line) in last.split('\n').enumerate() {
        let text = line.trim_start();
        let indent = "-".repeat(line.len() - text.len());
        rows.push(vec![format!("{:02}){indent}{text}", number + 1)]);
    }
}

fn column_texts(column: &ArrayRef) -> Result<Vec<String>, ArrowError> {
    let each = |text: &dyn Fn(usize) -> String| -> Vec<String> {
        let rows = 0..column.len();
        rows.map(|row| if column.is_null(row) { "NULL".to_string() } else { text(row) }).collect()
    };
    Ok(match column.data_type() {
        DataType::Null => vec!["NULL".to_string(); column.len()],
        DataType::Float16 | DataType::Float32 => {
            let values = cast(column, &DataType::Float32)?;
            let values = values.as_primitive::<Float32Type>();
            each(&|row| float(f64::from(values.value(row)), &values.value(row).to_string()))
        }
        DataType::Float64 => {
            let values = column.as_primitive::<Float64Type>();
            each(&|row| float(values.value(row), &values.value(row).to_string()))
        }
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
            let values = cast(column, &DataType::LargeUtf8)?;
            let values = values.as_string::<i64>();
            each(&|row| string(values.value(row)))
        }
        DataType::Dictionary(_, values) => return column_texts(&cast(column, values)?),
        data_type => {
            let decimal = is_decimal(data_type);
            let options =
                FormatOptions::default().with_null("NULL").with_duration_format(DurationFormat::Pretty);
            let formatter = ArrayFormatter::try_new(column, &options)?;
            each(&|row| {
                let text = formatter.value(row).to_string();
                if decimal { plain(&text, i64::MAX) } else { text }
            })
        }
    })
}

fn string(value: &str) -> String {
    match value {
        "" => "(empty)".to_string(),
        _ => value.trim_end_matches('\n').replace('\0', "\\0"),
    }
}

fn float(value: f64, digits: &str) -> String {
    match value {
        v if v.is_nan() => "NaN".to_string(),
        f64::INFINITY => "Infinity".to_string(),
        f64::NEG_INFINITY => "-Infinity".to_string(),
        _ => plain(digits, FLOAT_PLACES),
    }
}

/// Formats a number without exponent and trailing zeros, rounded to `places`.
fn plain(digits: &str, places: i64) -> String {
    match digits.parse::<BigDecimal>() {
        Ok(number) if number.fractional_digit_count() > places => {
            number.round(places).normalized().to_plain_string()
        }
        Ok(number) => number.normalized().to_plain_string(),
        Err(_) => digits.to_string(),
    }
}
