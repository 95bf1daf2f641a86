//! Dates and timestamps next to strings, intervals and one another.
//!
//! DataFusion 55.2 compares timestamps in the finer unit, and converts a string to the unit of the column that it is
//! compared with. Years before 1677 and after 2262 do not fit nanoseconds (apache/datafusion#1359), and make the
//! statement fail. Here, a time that is out of range for the column's unit is before or after all the column's values.
//! This module is obsolete once upstream compares timestamps without overflow.

use arrow_array::timezone::Tz;
use arrow_array::types::TimestampMicrosecondType;
use arrow_cast::parse::string_to_datetime;
use arrow_schema::{DataType, IntervalUnit, TimeUnit};
use chrono::{DateTime, Utc};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::functions_nested::length::array_length_udf;
use datafusion::logical_expr::expr::Cast;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, Operator, cast as cast_to, lit, when};
use std::str::FromStr;

const DAY_SECONDS: i64 = 86_400;

/// If a string ends with hours and minutes, possibly followed by a time zone, returns it with seconds; otherwise
/// `None`.
pub fn with_seconds(text: &str) -> Option<String> {
    let at = text.trim_start().find(['T', ' '])? + (text.len() - text.trim_start().len()) + 1;
    let (date, time) = text.split_at_checked(at)?;
    let zone = time.find(|c: char| !c.is_ascii_digit() && c != ':' && c != '.').unwrap_or(time.len());
    let (clock, zone) = time.split_at(zone);
    let (hours, minutes) = clock.split_once(':')?;
    let is_two = |digits: &str| digits.len() == 2 && digits.bytes().all(|b| b.is_ascii_digit());
    (is_two(hours) && is_two(minutes)).then(|| format!("{date}{clock}:00{zone}"))
}

/// Appends seconds to a constant string that is cast to a timestamp, if it has none.
pub(super) fn cast(mut cast: Cast) -> Result<Transformed<Cast>> {
    if let (DataType::Timestamp(..), Some(whole)) =
        (cast.field.data_type(), constant_text(&cast.expr).and_then(with_seconds))
    {
        cast.expr = Box::new(lit(whole));
        return Ok(Transformed::yes(cast));
    }
    Ok(Transformed::no(cast))
}

/// Returns the text that a constant has.
pub(super) fn constant_text(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Literal(value, _) => value.try_as_str().flatten(),
        _ => None,
    }
}

/// Returns the time if the expression is a constant without a time zone; otherwise `None`.
fn constant(expr: &Expr) -> Option<DateTime<Utc>> {
    match expr {
        Expr::Cast(cast) if matches!(cast.field.data_type(), DataType::Timestamp(_, None)) => {
            match constant_text(&cast.expr) {
                Some(text) => time_of(text),
                None => midnight(&cast.expr),
            }
        }
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            let Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(interval)), _) = &**right else {
                return None;
            };
            let (micros, zone) = (constant(left)?.timestamp_micros(), Tz::from_str("+00:00").ok()?);
            let micros = match op {
                Operator::Plus => TimestampMicrosecondType::add_month_day_nano(micros, *interval, zone),
                Operator::Minus => TimestampMicrosecondType::subtract_month_day_nano(micros, *interval, zone),
                _ => None,
            };
            DateTime::from_timestamp_micros(micros?)
        }
        Expr::Literal(ScalarValue::TimestampMicrosecond(Some(micros), None), _) => {
            DateTime::from_timestamp_micros(*micros)
        }
        Expr::Literal(ScalarValue::TimestampMillisecond(Some(millis), None), _) => {
            DateTime::from_timestamp_millis(*millis)
        }
        Expr::Literal(ScalarValue::TimestampSecond(Some(seconds), None), _) => {
            DateTime::from_timestamp(*seconds, 0)
        }
        other => time_of(constant_text(other)?),
    }
}

/// Returns the beginning of the day if the expression is a constant date.
fn midnight(date: &Expr) -> Option<DateTime<Utc>> {
    let days = match date {
        Expr::Cast(cast) if *cast.field.data_type() == DataType::Date32 => {
            time_of(constant_text(&cast.expr)?)?.timestamp().div_euclid(DAY_SECONDS)
        }
        Expr::Literal(ScalarValue::Date32(Some(days)), _) => i64::from(*days),
        _ => return None,
    };
    DateTime::from_timestamp(days * DAY_SECONDS, 0)
}

fn time_of(text: &str) -> Option<DateTime<Utc>> {
    let whole = with_seconds(text);
    string_to_datetime(&Utc, whole.as_deref().unwrap_or(text)).ok()
}

/// Rewrites a comparison with a timestamp.
pub(super) fn operands(binary: BinaryExpr, columns: &DFSchema) -> Result<Transformed<Expr>> {
    let BinaryExpr { left, op, right } = binary;
    let (left_type, right_type) = (left.get_type(columns).ok(), right.get_type(columns).ok());
    if let Some(made) = left_type.as_ref().and_then(|found| beside_constant(&left, found, op, &right)) {
        return Ok(Transformed::yes(made));
    }
    if let (Some(found), Some(swapped)) = (&right_type, op.swap())
        && let Some(made) = beside_constant(&right, found, swapped, &left)
    {
        return Ok(Transformed::yes(made));
    }
    let left = beside(*left, left_type.as_ref(), right_type.as_ref());
    let right = beside(*right, right_type.as_ref(), left_type.as_ref());
    let is_changed = left.transformed || right.transformed;
    let made = Expr::BinaryExpr(BinaryExpr::new(Box::new(left.data), op, Box::new(right.data)));
    Ok(Transformed::new_transformed(made, is_changed))
}

/// Rewrites a comparison of a timestamp without a time zone with a constant; returns `None` if the engine can evaluate
/// the comparison as it is.
fn beside_constant(value: &Expr, found: &DataType, op: Operator, other: &Expr) -> Option<Expr> {
    if *found == DataType::Date32 {
        return date_beside_constant(value, op, other);
    }
    let DataType::Timestamp(unit, None) = found else { return None };
    let time = constant(other)?;
    let compare =
        |op, with| Expr::BinaryExpr(BinaryExpr::new(Box::new(value.clone()), op, Box::new(lit(with))));
    if let Some(count) = count(time, *unit) {
        return Some(compare(op, scalar(count, *unit)));
    }
    // The constant is out of range for the column's type: it is after or before all values.
    let (end, inside, outside) = match time.timestamp() > 0 {
        true => (i64::MAX, Operator::LtEq, Operator::Gt),
        false => (i64::MIN, Operator::GtEq, Operator::Lt),
    };
    let is_late = time.timestamp() > 0;
    Some(match op {
        Operator::Lt | Operator::LtEq if is_late => compare(inside, scalar(end, *unit)),
        Operator::Gt | Operator::GtEq if !is_late => compare(inside, scalar(end, *unit)),
        Operator::NotEq => compare(inside, scalar(end, *unit)),
        Operator::IsDistinctFrom => lit(true),
        Operator::IsNotDistinctFrom => lit(false),
        _ => compare(outside, scalar(end, *unit)),
    })
}

/// Rewrites a comparison of a date with a constant timestamp to one with a date, which a pool finds in packed data. The
/// engine would convert the dates of all rows.
fn date_beside_constant(value: &Expr, op: Operator, other: &Expr) -> Option<Expr> {
    // A text next to a date is a date.
    let time = if constant_text(other).is_some() { None } else { constant(other) }?;
    let day = time.timestamp().div_euclid(DAY_SECONDS);
    let is_midnight = time.timestamp().rem_euclid(DAY_SECONDS) == 0 && time.timestamp_subsec_nanos() == 0;
    let day = i32::try_from(day).ok()?;
    let compare = |op, day| {
        let day = lit(ScalarValue::Date32(Some(day)));
        Expr::BinaryExpr(BinaryExpr::new(Box::new(value.clone()), op, Box::new(day)))
    };
    Some(match op {
        _ if is_midnight => compare(op, day),
        Operator::Lt | Operator::LtEq => compare(Operator::LtEq, day),
        Operator::Gt | Operator::GtEq => compare(Operator::Gt, day),
        // No date is equal, and the result is NULL for none.
        Operator::Eq => compare(Operator::Gt, i32::MAX),
        Operator::NotEq => compare(Operator::LtEq, i32::MAX),
        Operator::IsDistinctFrom => lit(true),
        Operator::IsNotDistinctFrom => lit(false),
        _ => return None,
    })
}

/// Returns the time as a number of units from 1970; `None` if it does not fit 64 bits.
fn count(time: DateTime<Utc>, unit: TimeUnit) -> Option<i64> {
    match unit {
        TimeUnit::Second => Some(time.timestamp()),
        TimeUnit::Millisecond => Some(time.timestamp_millis()),
        TimeUnit::Microsecond => Some(time.timestamp_micros()),
        TimeUnit::Nanosecond => time.timestamp_nanos_opt(),
    }
}

fn scalar(count: i64, unit: TimeUnit) -> ScalarValue {
    match unit {
        TimeUnit::Second => ScalarValue::TimestampSecond(Some(count), None),
        TimeUnit::Millisecond => ScalarValue::TimestampMillisecond(Some(count), None),
        TimeUnit::Microsecond => ScalarValue::TimestampMicrosecond(Some(count), None),
        TimeUnit::Nanosecond => ScalarValue::TimestampNanosecond(Some(count), None),
    }
}

/// Returns the unit of a type of times of day; `None` for other types.
fn clock_unit(data_type: &DataType) -> Option<TimeUnit> {
    match data_type {
        DataType::Time32(unit) | DataType::Time64(unit) => Some(*unit),
        _ => None,
    }
}

/// Appends seconds to a string next to a timestamp, if it has none. Casts an expression that depends on no row, such as
/// `now()`, to the unit of the column next to it, because nanoseconds cannot hold all the column's values.
fn beside(expr: Expr, found: Option<&DataType>, other: Option<&DataType>) -> Transformed<Expr> {
    if let (Some(from), Some(to)) = (found.and_then(clock_unit), other.and_then(clock_unit))
        && from < to
        && to >= TimeUnit::Microsecond
    {
        return Transformed::yes(cast_to(expr, DataType::Time64(to)));
    }
    let Some(DataType::Timestamp(unit, zone_of_other)) = other else { return Transformed::no(expr) };
    if let Some(whole) = constant_text(&expr).and_then(with_seconds) {
        return Transformed::yes(lit(whole));
    }
    match found {
        // Nanoseconds cannot hold all dates.
        Some(DataType::Date32) if *unit == TimeUnit::Microsecond && zone_of_other.is_none() => {
            Transformed::yes(cast_to(expr, DataType::Timestamp(*unit, None)))
        }
        Some(DataType::Timestamp(TimeUnit::Nanosecond, zone))
            if *unit == TimeUnit::Microsecond && !expr.any_column_refs() && !expr.contains_outer() =>
        {
            Transformed::yes(cast_to(expr, DataType::Timestamp(*unit, zone.clone())))
        }
        _ => Transformed::no(expr),
    }
}

/// Converts a date to a timestamp if an interval with hours or smaller units is added or subtracted; in PostgreSQL's meaning
/// (`is_of_postgres`) any interval.
pub(super) fn arithmetic(
    binary: BinaryExpr,
    columns: &DFSchema,
    is_of_postgres: bool,
) -> Result<Transformed<Expr>> {
    let BinaryExpr { left, op, right } = binary;
    let is_date = |expr: &Expr| matches!(expr.get_type(columns), Ok(DataType::Date32 | DataType::Date64));
    let is_of_hours = |expr: &Expr| {
        matches!(expr.get_type(columns), Ok(DataType::Interval(_) | DataType::Duration(_)))
            && (is_of_postgres || !is_of_days(expr))
    };
    let time = DataType::Timestamp(TimeUnit::Microsecond, None);
    let (left, right) = match op {
        Operator::Plus | Operator::Minus if is_date(&left) && is_of_hours(&right) => {
            (Transformed::yes(cast_to(*left, time)), Transformed::no(*right))
        }
        Operator::Plus if is_of_hours(&left) && is_date(&right) => {
            (Transformed::no(*left), Transformed::yes(cast_to(*right, time)))
        }
        _ => (Transformed::no(*left), Transformed::no(*right)),
    };
    let is_changed = left.transformed || right.transformed;
    let made = Expr::BinaryExpr(BinaryExpr::new(Box::new(left.data), op, Box::new(right.data)));
    Ok(Transformed::new_transformed(made, is_changed))
}

/// Returns whether an interval is written with months and days only; it may be multiplied by a number.
fn is_of_days(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(interval)), _) => interval.nanoseconds == 0,
        Expr::Literal(ScalarValue::IntervalYearMonth(_), _) => true,
        Expr::Negative(inner) => is_of_days(inner),
        Expr::Alias(alias) => is_of_days(&alias.expr),
        Expr::ScalarFunction(call) if call.func.name() == "multiply_interval" => {
            call.args.first().is_some_and(is_of_days)
        }
        Expr::Cast(cast) => matches!(cast.field.data_type(), DataType::Interval(IntervalUnit::YearMonth)),
        _ => false,
    }
}

/// Casts a date that is truncated (`date_trunc`) to microseconds, which can hold all dates. The engine would cast it to
/// nanoseconds.
pub(super) fn truncated_date(expr: Expr, columns: &DFSchema) -> Result<Transformed<Expr>> {
    let Expr::ScalarFunction(mut call) = expr else { return Ok(Transformed::no(expr)) };
    let is_date = |expr: &Expr| matches!(expr.get_type(columns), Ok(DataType::Date32 | DataType::Date64));
    match call.args.as_mut_slice() {
        [_, date] if call.func.name() == "date_trunc" && is_date(date) => {
            *date = cast_to(std::mem::take(date), DataType::Timestamp(TimeUnit::Microsecond, None));
            Ok(Transformed::yes(Expr::ScalarFunction(call)))
        }
        _ => Ok(Transformed::no(Expr::ScalarFunction(call))),
    }
}

/// Rewrites `date_part` of a century, a decade or a millennium, which the engine lacks, to a computation with the year.
/// Centuries are counted as in PostgreSQL: the year 2000 is in the 20th century, and there is no century 0.
pub(super) fn many_years(expr: Expr, columns: &DFSchema) -> Result<Transformed<Expr>> {
    let Expr::ScalarFunction(mut call) = expr else { return Ok(Transformed::no(expr)) };
    let years = match call.args.as_slice() {
        [part, time] if call.func.name() == "date_part" => constant_text(part).and_then(|part| {
            let is_interval = matches!(time.get_type(columns), Ok(DataType::Interval(_)));
            match part.to_ascii_lowercase().as_str() {
                "decade" | "decades" => Some((10, is_interval, true)),
                "century" | "centuries" => Some((100, is_interval, false)),
                "millennium" | "millennia" => Some((1000, is_interval, false)),
                _ => None,
            }
        }),
        _ => None,
    };
    let Some((count, is_interval, is_decade)) = years else {
        return Ok(Transformed::no(Expr::ScalarFunction(call)));
    };
    call.args[0] = lit("year");
    let year = Expr::ScalarFunction(call);
    let whole = |of: Expr| binary(of, Operator::Divide, count);
    let made = match (is_interval, is_decade) {
        (true, _) => whole(year),
        // Division rounds towards zero, whereas years before Christ belong to the decade below.
        (false, true) => {
            when(year.clone().lt(lit(0)), whole(binary(year.clone(), Operator::Minus, count - 1)))
                .otherwise(whole(year))?
        }
        (false, false) => {
            when(year.clone().gt(lit(0)), whole(binary(year.clone(), Operator::Plus, count - 1)))
                .otherwise(binary(whole(year), Operator::Minus, 1))?
        }
    };
    Ok(Transformed::yes(made))
}

fn binary(left: Expr, op: Operator, right: i32) -> Expr {
    Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(lit(right))))
}

/// Rewrites `length` of a list to its number of elements. The engine would return the length of the list as a string.
pub(super) fn length_of_list(expr: Expr, columns: &DFSchema) -> Result<Transformed<Expr>> {
    let Expr::ScalarFunction(mut call) = expr else { return Ok(Transformed::no(expr)) };
    let is_list = |expr: &Expr| {
        use DataType::{FixedSizeList, LargeList, List};
        matches!(expr.get_type(columns), Ok(List(_) | LargeList(_) | FixedSizeList(..)))
    };
    match call.args.as_slice() {
        [list] if call.func.name() == "character_length" && is_list(list) => {
            call.func = array_length_udf();
            Ok(Transformed::yes(cast_to(Expr::ScalarFunction(call), DataType::Int64)))
        }
        _ => Ok(Transformed::no(Expr::ScalarFunction(call))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_beyond_a_unit_are_before_or_after_all_of_its_values() {
        let column = datafusion::logical_expr::col("t");
        let nanoseconds = DataType::Timestamp(TimeUnit::Nanosecond, None);
        for (text, op, expected) in [
            ("9999-12-31", Operator::Lt, "t <= TimestampNanosecond(9223372036854775807, None)"),
            ("9999-12-31", Operator::Eq, "t > TimestampNanosecond(9223372036854775807, None)"),
            ("9999-12-31", Operator::GtEq, "t > TimestampNanosecond(9223372036854775807, None)"),
            ("9999-12-31", Operator::NotEq, "t <= TimestampNanosecond(9223372036854775807, None)"),
            ("1066-10-14", Operator::Gt, "t >= TimestampNanosecond(-9223372036854775808, None)"),
            ("1066-10-14", Operator::LtEq, "t < TimestampNanosecond(-9223372036854775808, None)"),
            ("1970-01-01 00:01", Operator::Lt, "t < TimestampNanosecond(60000000000, None)"),
        ] {
            let made = beside_constant(&column, &nanoseconds, op, &lit(text)).unwrap();
            assert_eq!(made.to_string(), expected, "{op} {text}");
        }
    }

    #[test]
    fn dates_are_compared_with_the_day_of_a_time() {
        let column = datafusion::logical_expr::col("d");
        let midnight = lit(ScalarValue::TimestampMicrosecond(Some(0), None));
        let noon = lit(ScalarValue::TimestampMicrosecond(Some(43_200_000_000), None));
        let before = lit(ScalarValue::TimestampMicrosecond(Some(-1), None));
        for (op, time, expected) in [
            (Operator::Lt, &midnight, "d < Date32(\"1970-01-01\")"),
            (Operator::Lt, &noon, "d <= Date32(\"1970-01-01\")"),
            (Operator::GtEq, &noon, "d > Date32(\"1970-01-01\")"),
            (Operator::LtEq, &before, "d <= Date32(\"1969-12-31\")"),
            (Operator::Eq, &midnight, "d = Date32(\"1970-01-01\")"),
        ] {
            let made = beside_constant(&column, &DataType::Date32, op, time).unwrap();
            assert_eq!(made.to_string(), expected, "{op} {time}");
        }
        assert!(beside_constant(&column, &DataType::Date32, Operator::Lt, &lit("1970-01-01")).is_none());
        let month = lit(ScalarValue::new_interval_mdn(1, 0, 0));
        let begins = cast_to(
            cast_to(lit("1970-01-31"), DataType::Date32),
            DataType::Timestamp(TimeUnit::Microsecond, None),
        );
        let made = beside_constant(&column, &DataType::Date32, Operator::Lt, &(begins + month)).unwrap();
        assert_eq!(made.to_string(), "d < Date32(\"1970-02-28\")");
    }
}
