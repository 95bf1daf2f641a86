//! Rewrites `t AT TIME ZONE zone` to a call of `timezone`. DataFusion 55.2 plans it as a cast, which keeps the instant
//! instead of converting it to local time. The session's own time zone is always UTC.
//!
//! Some functions that return instants have a type without a time zone in DataFusion. Their results are cast to
//! instants first.

use super::headers::is_called;
use super::{call, refusal};
use datafusion::common::{DataFusionError, Result};
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, DataType, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Set,
    Statement, TimezoneInfo, Value, ValueWithSpan,
};

/// Functions whose results are instants in PostgreSQL and DuckDB; here they are in UTC.
const INSTANTS: &[&str] = &["now", "current_timestamp", "to_timestamp", "transaction_timestamp"];

/// Functions of times whose result has the type of an argument.
const KEEPERS: &[&str] = &["date_trunc", "date_bin", "coalesce", "greatest", "least"];

pub(super) fn apply(expr: &mut Expr) {
    match expr {
        Expr::AtTimeZone { timestamp, time_zone } => {
            let time = as_instant((**timestamp).clone());
            *expr = call("timezone", vec![(**time_zone).clone(), time]);
        }
        Expr::Function(turned) if is_called(turned, "timezone") => {
            let FunctionArguments::List(list) = &mut turned.args else { return };
            if let [_, FunctionArg::Unnamed(FunctionArgExpr::Expr(time))] = &mut list.args[..] {
                *time = as_instant(time.clone());
            }
        }
        _ => {}
    }
}

fn as_instant(time: Expr) -> Expr {
    if !is_instant(&time) {
        return time;
    }
    Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(time),
        data_type: DataType::Timestamp(None, TimezoneInfo::Tz),
        array: false,
        format: None,
    }
}

/// Returns whether `time` is the result of a function that returns an instant, possibly truncated or with an interval
/// added.
fn is_instant(time: &Expr) -> bool {
    match time {
        Expr::Nested(inner) => is_instant(inner),
        Expr::BinaryOp { left, op: BinaryOperator::Plus | BinaryOperator::Minus, right } => {
            is_instant(left) || is_instant(right)
        }
        Expr::Function(function) if INSTANTS.iter().any(|name| is_called(function, name)) => true,
        Expr::Function(function) if KEEPERS.iter().any(|name| is_called(function, name)) => {
            let FunctionArguments::List(list) = &function.args else { return false };
            list.args.iter().any(
                |arg| matches!(arg, FunctionArg::Unnamed(FunctionArgExpr::Expr(time)) if is_instant(time)),
            )
        }
        _ => false,
    }
}

/// Refuses SET TIME ZONE with any time zone other than UTC.
pub(super) fn statement(statement: &Statement) -> Result<()> {
    let values: Vec<&Expr> = match statement {
        Statement::Set(Set::SetTimeZone { value, .. }) => vec![value],
        Statement::Set(Set::SingleAssignment { variable, values, .. })
            if is_time_zone(&variable.to_string()) =>
        {
            values.iter().collect()
        }
        _ => return Ok(()),
    };
    let is_utc = |value: &&Expr| match value {
        Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(zone), .. }) => is_utc(zone),
        Expr::Identifier(zone) => is_utc(&zone.value),
        _ => false,
    };
    match values.iter().all(is_utc) {
        true => Ok(()),
        false => Err(refused()),
    }
}

/// Refuses RESET of the time zone, since the time zone of a session is always UTC.
pub(super) fn reset(variable: &str) -> Result<()> {
    match is_time_zone(variable) {
        true => Err(refused()),
        false => Ok(()),
    }
}

fn refused() -> DataFusionError {
    refusal(
        "the time zone of a session is UTC",
        "write t AT TIME ZONE 'Europe/Berlin' where another is meant",
    )
}

/// Returns whether `variable` is a name of the time zone setting that the engine accepts.
fn is_time_zone(variable: &str) -> bool {
    let lower = variable.to_lowercase();
    matches!(lower.as_str(), "timezone" | "time.zone" | "time zone" | "datafusion.execution.time_zone")
}

fn is_utc(zone: &str) -> bool {
    matches!(zone.to_uppercase().as_str(), "UTC" | "ETC/UTC" | "+00:00" | "DEFAULT")
}
