//! `timestamptz` and `timestamp with time zone` as types: instants in UTC. The engine itself gives them no
//! zone unless a session has one, and then the results of its functions change, too.

use super::UTC;
use arrow_schema::{DataType, Field, FieldRef, TimeUnit};
use datafusion::error::Result;
use datafusion::logical_expr::planner::TypePlanner;
use datafusion::sql::sqlparser::ast::{DataType as SqlType, TimezoneInfo};
use std::sync::Arc;

/// Plans these types, and leaves others to the engine.
#[derive(Debug)]
pub(crate) struct InstantTypes;

impl TypePlanner for InstantTypes {
    fn plan_type_field(&self, sql_type: &SqlType) -> Result<Option<FieldRef>> {
        let SqlType::Timestamp(precision, TimezoneInfo::Tz | TimezoneInfo::WithTimeZone) = sql_type else {
            return Ok(None);
        };
        let unit = match precision {
            Some(0) => TimeUnit::Second,
            Some(3) => TimeUnit::Millisecond,
            Some(6) => TimeUnit::Microsecond,
            None | Some(9) => TimeUnit::Nanosecond,
            Some(_) => return Ok(None),
        };
        Ok(Some(Arc::new(Field::new("", DataType::Timestamp(unit, Some(UTC.into())), true))))
    }
}
