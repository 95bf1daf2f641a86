//! The time between two timestamps, which has days in PostgreSQL.

use super::function::{self, Kind};
use arrow_array::builder::PrimitiveBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::{IntervalMonthDayNano, IntervalMonthDayNanoType, TimestampMicrosecondType};
use arrow_array::{Array, ArrayRef};
use arrow_schema::{ArrowError, DataType, TimeUnit};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, Operator, cast};
use std::sync::Arc;

const DAY_MICROS: i64 = 86_400_000_000;

/// Returns whether an expression is the difference of two timestamps, or of a date and a timestamp.
pub(crate) fn is_time_between(binary: &BinaryExpr, columns: &DFSchema) -> Result<bool> {
    if binary.op != Operator::Minus {
        return Ok(false);
    }
    let types = [binary.left.get_type(columns)?, binary.right.get_type(columns)?];
    let is_timestamp = |operand: &DataType| matches!(operand, DataType::Timestamp(..));
    let is_time = |operand: &DataType| is_timestamp(operand) || *operand == DataType::Date32;
    Ok(types.iter().all(is_time) && types.iter().any(is_timestamp))
}

/// Rewrites the difference of two timestamps.
pub(crate) fn time_between(binary: BinaryExpr, columns: &DFSchema) -> Result<Transformed<Expr>> {
    // Beside a time with a zone, one without is a time of the session's zone.
    let mut zone = None;
    for operand in [&binary.left, &binary.right] {
        if let DataType::Timestamp(_, Some(found)) = operand.get_type(columns)? {
            zone = Some(found);
        }
    }
    let to = DataType::Timestamp(TimeUnit::Microsecond, zone);
    Ok(Transformed::yes(function::call(
        Kind::TimeBetween,
        vec![cast(*binary.left, to.clone()), cast(*binary.right, to)],
    )))
}

/// Returns the days and the time between timestamps (`timestamp_mi`).
pub(super) fn between(left: &ArrayRef, right: &ArrayRef) -> Result<ArrayRef> {
    let times = [left, right].map(|times| times.as_primitive::<TimestampMicrosecondType>());
    let mut between = PrimitiveBuilder::<IntervalMonthDayNanoType>::with_capacity(left.len());
    for (left, right) in times[0].iter().zip(times[1]) {
        between.append_option(left.zip(right).map(|(left, right)| interval(left, right)).transpose()?);
    }
    Ok(Arc::new(between.finish()))
}

/// Returns the days and the rest from `right` to `left`, in microseconds from 1970. Both have the same sign.
fn interval(left: i64, right: i64) -> Result<IntervalMonthDayNano, ArrowError> {
    let micros = left.checked_sub(right);
    let parts =
        micros.and_then(|micros| Some((i32::try_from(micros / DAY_MICROS).ok()?, micros % DAY_MICROS)));
    let (days, micros) = parts
        .ok_or_else(|| ArrowError::ComputeError("the time between two timestamps is out of range".into()))?;
    Ok(IntervalMonthDayNano::new(0, days, micros * 1000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_the_rest_have_one_sign() {
        let of =
            |left, right| interval(left, right).map(|between| (between.days, between.nanoseconds)).unwrap();
        assert_eq!(of(3 * DAY_MICROS / 2, 0), (1, DAY_MICROS * 500));
        assert_eq!(of(0, 3 * DAY_MICROS / 2), (-1, -DAY_MICROS * 500));
        assert_eq!(of(5, 5), (0, 0));
        assert!(interval(i64::MAX, -1).is_err());
    }
}
