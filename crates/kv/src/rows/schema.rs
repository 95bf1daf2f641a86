//! Schemas of named spaces (namespaces of keys) whose values are rows: the names and types of the columns.

use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use farpool_model::{Error, Result, limits, schema};
use std::sync::Arc;

/// The type of a column of a space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnType {
    /// `true` or `false`.
    Bool,
    /// Signed integer with this many bytes.
    Int(usize),
    /// Unsigned integer with this many bytes.
    UInt(usize),
    /// Float of 32 bits.
    F32,
    /// Float of 64 bits.
    F64,
    /// UTF-8 text.
    Utf8,
    /// A string of arbitrary bytes.
    Binary,
    /// A date, stored as days since 1970-01-01.
    Date,
    /// A timestamp without a time zone, stored as microseconds since 1970.
    Timestamp,
}

use ColumnType::{Binary, Bool, Date, F32, F64, Int, Timestamp, UInt, Utf8};

/// Names of types; the first name of each type is the canonical one.
const NAMES: &[(&str, ColumnType)] = &[
    ("bool", Bool),
    ("boolean", Bool),
    ("i8", Int(1)),
    ("tinyint", Int(1)),
    ("i16", Int(2)),
    ("smallint", Int(2)),
    ("i32", Int(4)),
    ("int", Int(4)),
    ("integer", Int(4)),
    ("i64", Int(8)),
    ("bigint", Int(8)),
    ("u8", UInt(1)),
    ("u16", UInt(2)),
    ("u32", UInt(4)),
    ("u64", UInt(8)),
    ("f32", F32),
    ("real", F32),
    ("f64", F64),
    ("double", F64),
    ("utf8", Utf8),
    ("text", Utf8),
    ("varchar", Utf8),
    ("string", Utf8),
    ("binary", Binary),
    ("blob", Binary),
    ("date", Date),
    ("timestamp", Timestamp),
];

impl ColumnType {
    fn parse(name: &str) -> Option<ColumnType> {
        NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, kind)| *kind)
    }

    /// Returns the canonical name of the type.
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }

    /// Returns the bytes of a value of this type in a row; `None` for types of variable width.
    pub fn width(self) -> Option<usize> {
        match self {
            Bool => Some(1),
            Int(width) | UInt(width) => Some(width),
            F32 | Date => Some(4),
            F64 | Timestamp => Some(8),
            Utf8 | Binary => None,
        }
    }

    /// Returns the Arrow type of the column when the space is read as a table.
    pub fn data_type(self) -> DataType {
        match self {
            Bool => DataType::Boolean,
            Int(1) => DataType::Int8,
            Int(2) => DataType::Int16,
            Int(4) => DataType::Int32,
            Int(_) => DataType::Int64,
            UInt(1) => DataType::UInt8,
            UInt(2) => DataType::UInt16,
            UInt(4) => DataType::UInt32,
            UInt(_) => DataType::UInt64,
            F32 => DataType::Float32,
            F64 => DataType::Float64,
            Utf8 => DataType::Utf8View,
            Binary => DataType::BinaryView,
            Date => DataType::Date32,
            Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
        }
    }
}

/// A column of the rows of a space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Name of the column.
    pub name: String,
    /// Type of the column.
    pub kind: ColumnType,
}

/// The schema of a space: its first column is in the key; the other columns, the fields, are in the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowSchema {
    columns: Vec<Column>,
    /// By field, its offset in a row and the index of the previous field of variable width, if there is one.
    places: Vec<(usize, Option<usize>)>,
    fixed_bytes: usize,
}

impl RowSchema {
    /// Parses a schema such as `id u64, name utf8, age u32`.
    ///
    /// # Errors
    /// `Invalid` for a malformed schema; `OverLimit` for more columns than a table may have.
    pub fn parse(text: &str) -> Result<RowSchema> {
        let columns: Vec<Column> = text.split(',').map(column).collect::<Result<_>>()?;
        if columns.len() < 2 {
            let message =
                "a space needs two columns at least: the first is in the key, the others in the value";
            return Err(Error::invalid(message).advise("write them as \"id u64, name utf8\""));
        }
        if let Some(twice) = columns.iter().enumerate().find_map(|(at, column)| {
            columns[..at].iter().find(|other| other.name.eq_ignore_ascii_case(&column.name))
        }) {
            return Err(Error::invalid(format!("two columns are named {:?}", twice.name)));
        }
        let validity_bytes = (columns.len() - 1).div_ceil(8);
        let (mut offset, mut previous, mut places) = (validity_bytes, None, Vec::new());
        for (at, field) in columns[1..].iter().enumerate() {
            places.push((offset, previous));
            offset += field.kind.width().unwrap_or(size_of::<u32>());
            if field.kind.width().is_none() {
                previous = Some(at);
            }
        }
        let schema = RowSchema { columns, places, fixed_bytes: offset };
        schema::canonical_schema(&schema.to_arrow())?;
        Ok(schema)
    }

    /// Returns the schema as the text that [`RowSchema::parse`] reads.
    pub fn text(&self) -> String {
        let columns = self.columns.iter().map(|column| format!("{} {}", column.name, column.kind.name()));
        columns.collect::<Vec<_>>().join(", ")
    }

    /// Returns the Arrow schema of the space as a table.
    pub fn to_arrow(&self) -> SchemaRef {
        let field =
            |(at, column): (usize, &Column)| Field::new(&column.name, column.kind.data_type(), at > 0);
        Arc::new(Schema::new(self.columns.iter().enumerate().map(field).collect::<Vec<_>>()))
    }

    /// Returns the first column, which is in the key.
    pub fn key(&self) -> &Column {
        &self.columns[0]
    }

    /// Returns the column with this index.
    pub(crate) fn column(&self, at: usize) -> &Column {
        &self.columns[at]
    }

    /// Returns the fields, that is, the columns that are in the value.
    pub fn fields(&self) -> &[Column] {
        &self.columns[1..]
    }

    /// Returns the index of the field with this name among the fields; `None` if there is none.
    pub fn position(&self, field: &[u8]) -> Option<usize> {
        self.fields().iter().position(|column| column.name.as_bytes() == field)
    }

    /// Returns the offset in a row of the field with index `at`; for a field of variable width, of the number that is
    /// its end offset.
    pub(crate) fn offset(&self, at: usize) -> usize {
        self.places[at].0
    }

    pub(super) fn previous_of_no_width(&self, at: usize) -> Option<usize> {
        self.places[at].1
    }

    /// Returns the number of bytes of a row before the bytes of fields of variable width.
    pub fn fixed_bytes(&self) -> usize {
        self.fixed_bytes
    }
}

fn column(text: &str) -> Result<Column> {
    let hint = "write columns as \"id u64, name utf8\"";
    let words: Vec<&str> = text.split_whitespace().collect();
    let &[name, kind] = &words[..] else {
        let shown = text.trim().chars().take(64).collect::<String>();
        return Err(Error::invalid(format!("{shown:?} is not a name and a type")).advise(hint));
    };
    if name.len() > limits::NAME_BYTES_MAX {
        let most = limits::NAME_BYTES_MAX;
        return Err(Error::over_limit(format!("the name of a column may have {most} bytes")));
    }
    let Some(kind) = ColumnType::parse(kind) else {
        let shown = kind.chars().take(64).collect::<String>();
        let known = "bool, i8 to i64, u8 to u64, f32, f64, utf8, binary, date and timestamp";
        return Err(Error::invalid(format!("there is no type {shown:?}")).advise(format!("use {known}")));
    };
    Ok(Column { name: name.to_string(), kind })
}
