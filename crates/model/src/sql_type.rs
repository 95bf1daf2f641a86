//! SQL names of types, and quoted SQL identifiers.

use arrow_schema::{DataType, Field, IntervalUnit};

/// Returns the SQL name of a type, as in DuckDB.
pub fn sql_name(data_type: &DataType) -> String {
    let list = |field: &Field| format!("{}[]", sql_name(field.data_type()));
    match data_type {
        DataType::Null => "NULL".to_string(),
        DataType::Boolean => "BOOLEAN".to_string(),
        DataType::Int8 => "TINYINT".to_string(),
        DataType::Int16 => "SMALLINT".to_string(),
        DataType::Int32 => "INTEGER".to_string(),
        DataType::Int64 => "BIGINT".to_string(),
        DataType::UInt8 => "UTINYINT".to_string(),
        DataType::UInt16 => "USMALLINT".to_string(),
        DataType::UInt32 => "UINTEGER".to_string(),
        DataType::UInt64 => "UBIGINT".to_string(),
        DataType::Float16 => "FLOAT16".to_string(),
        DataType::Float32 => "FLOAT".to_string(),
        DataType::Float64 => "DOUBLE".to_string(),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "VARCHAR".to_string(),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            "BLOB".to_string()
        }
        DataType::Date32 | DataType::Date64 => "DATE".to_string(),
        DataType::Time32(_) | DataType::Time64(_) => "TIME".to_string(),
        DataType::Timestamp(_, None) => "TIMESTAMP".to_string(),
        DataType::Timestamp(_, Some(_)) => "TIMESTAMP WITH TIME ZONE".to_string(),
        DataType::Duration(_)
        | DataType::Interval(IntervalUnit::YearMonth | IntervalUnit::DayTime | IntervalUnit::MonthDayNano) => {
            "INTERVAL".to_string()
        }
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => format!("DECIMAL({precision},{scale})"),
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::ListView(field)
        | DataType::LargeListView(field) => list(field),
        DataType::FixedSizeList(field, size) => format!("{}[{size}]", sql_name(field.data_type())),
        DataType::Struct(fields) => {
            let field = |field: &Field| format!("{} {}", quoted(field.name()), sql_name(field.data_type()));
            format!("STRUCT({})", fields.iter().map(|f| field(f)).collect::<Vec<_>>().join(", "))
        }
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(fields) => {
                let types: Vec<String> = fields.iter().map(|field| sql_name(field.data_type())).collect();
                format!("MAP({})", types.join(", "))
            }
            other => sql_name(other),
        },
        DataType::Union(fields, _) => {
            let types: Vec<String> = fields.iter().map(|(_, field)| sql_name(field.data_type())).collect();
            format!("UNION({})", types.join(", "))
        }
        DataType::Dictionary(_, values) => sql_name(values),
        DataType::RunEndEncoded(_, values) => sql_name(values.data_type()),
    }
}

/// Returns a name as an SQL identifier, in quotes if it would mean something else without.
pub fn quoted(name: &str) -> String {
    let is_plain = name
        .chars()
        .enumerate()
        .all(|(place, c)| c == '_' || c.is_ascii_lowercase() || (place > 0 && c.is_ascii_digit()));
    match is_plain && !name.is_empty() {
        true => name.to_string(),
        false => format!("\"{}\"", name.replace('"', "\"\"")),
    }
}
