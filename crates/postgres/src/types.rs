//! The types of PostgreSQL that stand for Arrow's, with their object ids (`pg_type.dat` of PostgreSQL 15).

use arrow_schema::{DataType, Field, IntervalUnit, TimeUnit};
use std::sync::Arc;

/// A type as a client is told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PostgresType {
    /// The object id.
    pub oid: u32,
    /// The bytes of a value; negative if they vary.
    pub size: i16,
    /// The type modifier, such as precision and scale; -1 for none.
    pub modifier: i32,
}

/// Object ids of types, by the names of the types.
#[expect(missing_docs, reason = "the names say what the ids are")]
pub mod oid {
    pub const BOOL: u32 = 16;
    pub const BYTEA: u32 = 17;
    pub const CHAR: u32 = 18;
    pub const NAME: u32 = 19;
    pub const INT8: u32 = 20;
    pub const INT2: u32 = 21;
    pub const INT4: u32 = 23;
    pub const REGPROC: u32 = 24;
    pub const TEXT: u32 = 25;
    pub const OID: u32 = 26;
    pub const JSON: u32 = 114;
    pub const FLOAT4: u32 = 700;
    pub const FLOAT8: u32 = 701;
    pub const UNKNOWN: u32 = 705;
    pub const BPCHAR: u32 = 1042;
    pub const VARCHAR: u32 = 1043;
    pub const DATE: u32 = 1082;
    pub const TIME: u32 = 1083;
    pub const TIMESTAMP: u32 = 1114;
    pub const TIMESTAMPTZ: u32 = 1184;
    pub const INTERVAL: u32 = 1186;
    pub const NUMERIC: u32 = 1700;
    pub const UUID: u32 = 2950;
    pub const JSONB: u32 = 3802;
}

/// The types whose values can stand in an array, with the object id of the array.
const ARRAYS: &[(u32, u32)] = &[
    (oid::BOOL, 1000),
    (oid::BYTEA, 1001),
    (oid::INT2, 1005),
    (oid::INT4, 1007),
    (oid::TEXT, 1009),
    (oid::INT8, 1016),
    (oid::FLOAT4, 1021),
    (oid::FLOAT8, 1022),
    (oid::TIMESTAMP, 1115),
    (oid::DATE, 1182),
    (oid::TIME, 1183),
    (oid::TIMESTAMPTZ, 1185),
    (oid::INTERVAL, 1187),
    (oid::NUMERIC, 1231),
];

/// Key of the metadata of a field whose decimals are quotients. Behind PostgreSQL's digits they have zeros up to the scale of
/// the field, which are not written.
pub const QUOTIENT: &str = "postgres.quotient";

/// Added to the precision and scale of a type modifier (`VARHDRSZ` of PostgreSQL).
const MODIFIER_OFFSET: i32 = 4;

impl PostgresType {
    /// Returns the type that stands for an Arrow type. Structs, maps and lists of lists are JSON.
    pub fn of(data_type: &DataType) -> Self {
        let (oid, size) = match data_type {
            DataType::Boolean => (oid::BOOL, 1),
            DataType::Int8 | DataType::UInt8 | DataType::Int16 => (oid::INT2, 2),
            DataType::UInt16 | DataType::Int32 => (oid::INT4, 4),
            DataType::UInt32 | DataType::Int64 => (oid::INT8, 8),
            DataType::UInt64
            | DataType::Decimal32(..)
            | DataType::Decimal64(..)
            | DataType::Decimal128(..)
            | DataType::Decimal256(..) => (oid::NUMERIC, -1),
            DataType::Float16 | DataType::Float32 => (oid::FLOAT4, 4),
            DataType::Float64 => (oid::FLOAT8, 8),
            DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
            | DataType::FixedSizeBinary(_) => (oid::BYTEA, -1),
            DataType::Date32 | DataType::Date64 => (oid::DATE, 4),
            DataType::Time32(_) | DataType::Time64(_) => (oid::TIME, 8),
            DataType::Timestamp(_, None) => (oid::TIMESTAMP, 8),
            DataType::Timestamp(_, Some(_)) => (oid::TIMESTAMPTZ, 8),
            DataType::Interval(_) | DataType::Duration(_) => (oid::INTERVAL, 16),
            DataType::Dictionary(_, values) => return PostgresType::of(values),
            DataType::RunEndEncoded(_, values) => return PostgresType::of(values.data_type()),
            DataType::List(field) | DataType::LargeList(field) | DataType::FixedSizeList(field, _) => {
                (array_of(PostgresType::of(field.data_type()).oid).unwrap_or(oid::JSON), -1)
            }
            DataType::Struct(_)
            | DataType::Map(..)
            | DataType::Union(..)
            | DataType::ListView(_)
            | DataType::LargeListView(_) => (oid::JSON, -1),
            DataType::Null | DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => (oid::TEXT, -1),
        };
        let modifier = match data_type {
            DataType::Decimal32(precision, scale)
            | DataType::Decimal64(precision, scale)
            | DataType::Decimal128(precision, scale)
            | DataType::Decimal256(precision, scale) => {
                // PostgreSQL 15 allows a negative scale, in the low 11 bits.
                ((i32::from(*precision) << 16) | (i32::from(*scale) & 0x7ff)) + MODIFIER_OFFSET
            }
            _ => -1,
        };
        PostgresType { oid, size, modifier }
    }
}

/// Returns whether clients get values of a type as texts of JSON.
pub fn is_json(data_type: &DataType) -> bool {
    PostgresType::of(data_type).oid == oid::JSON
}

/// Returns the object id of arrays of this type; `None` if there are none.
pub fn array_of(element: u32) -> Option<u32> {
    ARRAYS.iter().find(|(of, _)| *of == element).map(|(_, array)| *array)
}

/// Returns the object id of the values of an array type; `None` if it is not an array type.
pub fn element_of(array: u32) -> Option<u32> {
    ARRAYS.iter().find(|(_, of)| *of == array).map(|(element, _)| *element)
}

/// Returns the Arrow type of the values of a PostgreSQL type; `None` if there is none.
pub fn arrow_type(oid: u32) -> Option<DataType> {
    Some(match oid {
        oid::BOOL => DataType::Boolean,
        oid::BYTEA => DataType::Binary,
        oid::INT2 => DataType::Int16,
        oid::INT4 => DataType::Int32,
        oid::INT8 | oid::OID => DataType::Int64,
        oid::FLOAT4 => DataType::Float32,
        oid::FLOAT8 => DataType::Float64,
        // The precision of a value is known only with the value.
        oid::NUMERIC => DataType::Decimal128(38, 10),
        oid::TEXT
        | oid::UNKNOWN
        | oid::VARCHAR
        | oid::BPCHAR
        | oid::CHAR
        | oid::NAME
        | oid::JSON
        | oid::JSONB
        | oid::UUID
        | oid::REGPROC => DataType::Utf8,
        oid::DATE => DataType::Date32,
        oid::TIME => DataType::Time64(TimeUnit::Microsecond),
        oid::TIMESTAMP => DataType::Timestamp(TimeUnit::Microsecond, None),
        oid::TIMESTAMPTZ => DataType::Timestamp(TimeUnit::Microsecond, Some("+00:00".into())),
        oid::INTERVAL => DataType::Interval(IntervalUnit::MonthDayNano),
        _ => {
            let element = arrow_type(element_of(oid)?)?;
            DataType::List(Arc::new(Field::new_list_field(element, true)))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_have_the_ids_of_postgresql() {
        let numeric = PostgresType::of(&DataType::Decimal128(12, 2));
        assert_eq!((numeric.oid, numeric.modifier), (oid::NUMERIC, (12 << 16 | 2) + 4));
        let list = DataType::List(Arc::new(Field::new_list_field(DataType::Int32, true)));
        assert_eq!(PostgresType::of(&list).oid, 1007);
        let lists = DataType::List(Arc::new(Field::new_list_field(list, true)));
        assert_eq!(PostgresType::of(&lists).oid, oid::JSON);
        assert_eq!(PostgresType::of(&DataType::Null).oid, oid::TEXT);
    }

    #[test]
    fn types_of_parameters_are_those_of_results() {
        for known in [
            oid::BOOL,
            oid::BYTEA,
            oid::INT2,
            oid::INT4,
            oid::INT8,
            oid::FLOAT4,
            oid::FLOAT8,
            oid::NUMERIC,
            oid::TEXT,
            oid::DATE,
            oid::TIME,
            oid::TIMESTAMP,
            oid::TIMESTAMPTZ,
            oid::INTERVAL,
            1007,
            1009,
        ] {
            assert_eq!(PostgresType::of(&arrow_type(known).unwrap()).oid, known);
        }
        assert_eq!(arrow_type(3904), None, "int4range");
    }
}
