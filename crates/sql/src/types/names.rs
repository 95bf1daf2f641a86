//! Types by the names of DuckDB and PostgreSQL, which `typeof` shows as well. DataFusion 55.2 knows some of them. Its
//! `timestamp` counts nanoseconds, which end in the year 2262; here it counts microseconds, as in PostgreSQL and
//! DuckDB.

use crate::zones::UTC;
use arrow_schema::{DataType, Field, FieldRef, TimeUnit};
use datafusion::error::Result;
use datafusion::logical_expr::planner::TypePlanner;
use datafusion::sql::sqlparser::ast::{DataType as SqlType, TimezoneInfo};
use std::sync::Arc;

/// Plans types by these names; leaves other names to the engine.
#[derive(Debug)]
pub struct NamedTypes;

impl TypePlanner for NamedTypes {
    fn plan_type_field(&self, sql_type: &SqlType) -> Result<Option<FieldRef>> {
        let planned = match sql_type {
            SqlType::Timestamp(precision, zone) => unit(*precision).map(|unit| {
                let is_instant = matches!(zone, TimezoneInfo::Tz | TimezoneInfo::WithTimeZone);
                DataType::Timestamp(unit, is_instant.then(|| UTC.into()))
            }),
            SqlType::Time(precision, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => {
                precision.is_none_or(|digits| digits <= 6).then_some(DataType::Time64(TimeUnit::Microsecond))
            }
            SqlType::UTinyInt => Some(DataType::UInt8),
            SqlType::USmallInt => Some(DataType::UInt16),
            SqlType::UBigInt => Some(DataType::UInt64),
            SqlType::HugeInt | SqlType::UHugeInt => Some(DataType::Decimal128(38, 0)),
            SqlType::Uuid | SqlType::JSON | SqlType::JSONB => Some(DataType::Utf8),
            SqlType::Custom(name, arguments) if arguments.is_empty() => named(&name.to_string()),
            _ => None,
        };
        Ok(planned.map(|data_type| Arc::new(Field::new("", data_type, true)) as FieldRef))
    }
}

fn unit(precision: Option<u64>) -> Option<TimeUnit> {
    match precision {
        Some(0) => Some(TimeUnit::Second),
        Some(3) => Some(TimeUnit::Millisecond),
        None | Some(6) => Some(TimeUnit::Microsecond),
        Some(9) => Some(TimeUnit::Nanosecond),
        Some(_) => None,
    }
}

fn named(name: &str) -> Option<DataType> {
    let timestamp = |unit| DataType::Timestamp(unit, None);
    Some(match name.to_lowercase().as_str() {
        "uinteger" => DataType::UInt32,
        "uint8" | "utinyint" => DataType::UInt8,
        "uint16" | "usmallint" => DataType::UInt16,
        "uint32" => DataType::UInt32,
        "uint64" | "ubigint" | "ulong" => DataType::UInt64,
        "int1" => DataType::Int8,
        "short" => DataType::Int16,
        "signed" => DataType::Int32,
        "long" => DataType::Int64,
        "hugeint" | "uhugeint" => DataType::Decimal128(38, 0),
        "bpchar" | "string" => DataType::Utf8,
        "logical" => DataType::Boolean,
        "timestamp_s" => timestamp(TimeUnit::Second),
        "timestamp_ms" => timestamp(TimeUnit::Millisecond),
        "timestamp_us" => timestamp(TimeUnit::Microsecond),
        "timestamp_ns" => timestamp(TimeUnit::Nanosecond),
        _ => return None,
    })
}
