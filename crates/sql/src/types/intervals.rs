//! Compares intervals by their length, with months of 30 days and days of 24 hours, as in PostgreSQL. DataFusion 55.2
//! compares the months, then the days, then the rest. Group keys, sort keys, join keys and keys of windows are
//! converted to a normal form, whose parts all have the same sign and are as large as possible. In this form the
//! engine's order is that of the lengths, and intervals of equal length are equal. This module is obsolete once
//! upstream compares lengths.
//!
//! If parts of the difference of two timestamps are extracted, the difference has days of 24 hours and a remainder of
//! less than a day, as in PostgreSQL and DuckDB.

use arrow_array::cast::AsArray;
use arrow_array::types::{IntervalMonthDayNano, IntervalMonthDayNanoType};
use arrow_array::{ArrayRef, Decimal128Array, Float64Array, Int32Array, PrimitiveArray};
use arrow_schema::{DataType, IntervalUnit, TimeUnit};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result, ScalarValue, internal_err};
use datafusion::logical_expr::expr::{AggregateFunction, ScalarFunction, WindowFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{
    Aggregate, BinaryExpr, ColumnarValue, Distinct, Expr, ExprSchemable, LogicalPlan, Projection,
    ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::sync::Arc;

const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);
const LENGTH: DataType = DataType::Decimal128(38, 0);
const NANOS_OF_DAY: i128 = 86_400_000_000_000;
const NANOS_OF_MONTH: i128 = 30 * NANOS_OF_DAY;

/// Target of the conversion of an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Form {
    /// The normal form; see the documentation of this module.
    Normal,
    /// Days of 24 hours, and a remainder of less than a day.
    Days,
    /// The length in nanoseconds, as a number. Needed for the frames of windows, because the engine has none over
    /// intervals.
    Length,
    /// For `extract(milliseconds …)` and microseconds: the seconds of the minute in this unit. DataFusion 55.2 leaves
    /// out the fraction of the second.
    Millis,
    Micros,
    /// For `extract(epoch …)`: the length in seconds, with years of 365.25 days as in PostgreSQL and DuckDB. DataFusion
    /// 55.2 counts a year as 12 months.
    Epoch,
}

/// Converts an interval, or a number of units, to a [`Form`]. The function is not registered, so that SQL cannot call
/// it.
#[derive(Debug, PartialEq, Eq, Hash)]
struct InForm {
    form: Form,
    signature: Signature,
}

impl ScalarUDFImpl for InForm {
    fn name(&self) -> &str {
        match self.form {
            Form::Normal => "normal_interval",
            Form::Days => "interval_of_days",
            Form::Length => "interval_length",
            Form::Millis => "interval_milliseconds",
            Form::Micros => "interval_microseconds",
            Form::Epoch => "interval_epoch",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(match self.form {
            Form::Normal | Form::Days => INTERVAL,
            Form::Length => LENGTH,
            Form::Millis | Form::Micros => DataType::Int32,
            Form::Epoch => DataType::Float64,
        })
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match arguments.args.into_iter().next() {
            Some(ColumnarValue::Scalar(value)) => {
                let made = in_form(self.form, &value.to_array()?)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&made, 0)?))
            }
            Some(ColumnarValue::Array(values)) => Ok(ColumnarValue::Array(in_form(self.form, &values)?)),
            None => internal_err!("{} of nothing", self.name()),
        }
    }
}

fn in_form(form: Form, values: &ArrayRef) -> Result<ArrayRef> {
    let intervals = match values.data_type() {
        DataType::Duration(unit) => {
            let counts = arrow_cast::cast(values, &DataType::Int64)?;
            let counts = counts.as_primitive::<arrow_array::types::Int64Type>();
            let length = |count: i64| i128::from(count) * i128::from(nanos_of(*unit));
            counts.unary_opt::<_, IntervalMonthDayNanoType>(|count| of_days(length(count)))
        }
        _ => arrow_cast::cast(values, &INTERVAL)?.as_primitive::<IntervalMonthDayNanoType>().clone(),
    };
    let made: PrimitiveArray<IntervalMonthDayNanoType> = match form {
        Form::Normal => intervals.unary(normal),
        Form::Days => intervals,
        Form::Length => {
            let lengths: Decimal128Array = intervals.unary(length);
            return Ok(Arc::new(lengths.with_data_type(LENGTH)));
        }
        Form::Millis => return Ok(Arc::new(of_minute(&intervals, 1_000_000))),
        Form::Micros => return Ok(Arc::new(of_minute(&intervals, 1_000))),
        Form::Epoch => {
            let seconds: Float64Array = intervals.unary(epoch);
            return Ok(Arc::new(seconds));
        }
    };
    Ok(Arc::new(made))
}

/// Returns the seconds of the minute as a number of units; a unit has `unit` nanoseconds.
fn of_minute(intervals: &PrimitiveArray<IntervalMonthDayNanoType>, unit: i64) -> Int32Array {
    intervals
        .unary(|interval| i32::try_from(interval.nanoseconds % 60_000_000_000 / unit).unwrap_or_default())
}

/// Returns the length in seconds, with years of 365.25 days.
fn epoch(interval: IntervalMonthDayNano) -> f64 {
    let (years, months) = (interval.months / 12, interval.months % 12);
    f64::from(years) * 31_557_600.0
        + f64::from(months) * 2_592_000.0
        + f64::from(interval.days) * 86_400.0
        + interval.nanoseconds as f64 / 1e9
}

fn nanos_of(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1_000_000_000,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1_000,
        TimeUnit::Nanosecond => 1,
    }
}

fn of_days(nanos: i128) -> Option<IntervalMonthDayNano> {
    let days = i32::try_from(nanos / NANOS_OF_DAY).ok()?;
    Some(IntervalMonthDayNano::new(0, days, i64::try_from(nanos % NANOS_OF_DAY).ok()?))
}

/// Returns the normal form. Months beyond 32 bits stay as days, and days beyond 32 bits stay in the remainder, which
/// always fits because the parts of the given interval did.
fn normal(interval: IntervalMonthDayNano) -> IntervalMonthDayNano {
    let (months, nanos) = divided(length(interval), NANOS_OF_MONTH);
    let (days, nanos) = divided(nanos, NANOS_OF_DAY);
    let most = if nanos < 0 { i64::MIN } else { i64::MAX };
    IntervalMonthDayNano::new(months, days, i64::try_from(nanos).unwrap_or(most))
}

/// Returns the length in nanoseconds.
fn length(interval: IntervalMonthDayNano) -> i128 {
    i128::from(interval.months) * NANOS_OF_MONTH
        + i128::from(interval.days) * NANOS_OF_DAY
        + i128::from(interval.nanoseconds)
}

/// Returns the quotient, limited to 32 bits, and the remainder.
fn divided(nanos: i128, unit: i128) -> (i32, i128) {
    let most = if nanos < 0 { i32::MIN } else { i32::MAX };
    let count = i32::try_from(nanos / unit).unwrap_or(most);
    (count, nanos - i128::from(count) * unit)
}

fn is_interval(expr: &Expr, columns: &DFSchema) -> bool {
    matches!(expr.get_type(columns), Ok(DataType::Interval(_)))
}

fn is_duration(expr: &Expr, columns: &DFSchema) -> bool {
    matches!(expr.get_type(columns), Ok(DataType::Duration(_)))
}

fn call(form: Form, expr: Expr) -> Expr {
    let signature = Signature::any(1, Volatility::Immutable);
    let function = Arc::new(ScalarUDF::from(InForm { form, signature }));
    Expr::ScalarFunction(ScalarFunction::new_udf(function, vec![expr]))
}

fn wrap(expr: &mut Expr) {
    let is_normal = matches!(expr, Expr::ScalarFunction(call) if call.func.inner().is::<InForm>());
    if !is_normal {
        *expr = call(Form::Normal, std::mem::take(expr));
    }
}

/// Converts those of the expressions that are intervals to normal form; returns whether there are any.
fn wrap_intervals<'a>(exprs: impl Iterator<Item = &'a mut Expr>, columns: &DFSchema) -> bool {
    let mut found = false;
    for expr in exprs.filter(|expr| is_interval(expr, columns)) {
        wrap(expr);
        found = true;
    }
    found
}

/// Rewrites a comparison of intervals, or of an interval with the difference of two timestamps.
pub(super) fn operands(mut binary: BinaryExpr, columns: &DFSchema) -> Result<Transformed<Expr>> {
    let has = is_interval(&binary.left, columns) || is_interval(&binary.right, columns);
    if has {
        for side in [&mut binary.left, &mut binary.right] {
            let is_text =
                matches!(&**side, Expr::Literal(value, _) if value.try_as_str().flatten().is_some());
            if is_text {
                **side = datafusion::logical_expr::cast(std::mem::take(&mut **side), INTERVAL);
            }
            if is_text || is_interval(side, columns) || is_duration(side, columns) {
                wrap(side);
            }
        }
    }
    Ok(Transformed::new_transformed(Expr::BinaryExpr(binary), has))
}

/// Rewrites functions that compare intervals; also `date_part` of an interval and of the difference of two timestamps.
pub(super) fn function(expr: Expr, columns: &DFSchema) -> Result<Transformed<Expr>> {
    let Expr::ScalarFunction(mut made) = expr else { return Ok(Transformed::no(expr)) };
    let is_changed = match made.func.name() {
        "nullif" | "greatest" | "least" => wrap_intervals(made.args.iter_mut(), columns),
        "date_part" => match made.args.as_mut_slice() {
            [part, value] if is_duration(value, columns) || is_interval(value, columns) => {
                let part = match part {
                    Expr::Literal(part, _) => part.try_as_str().flatten().map(str::to_ascii_lowercase),
                    _ => None,
                };
                let form = match part.as_deref() {
                    Some("millisecond" | "milliseconds") => Form::Millis,
                    Some("microsecond" | "microseconds") => Form::Micros,
                    Some("epoch") => Form::Epoch,
                    _ if is_duration(value, columns) => Form::Days,
                    _ => return Ok(Transformed::no(Expr::ScalarFunction(made))),
                };
                if form != Form::Days {
                    return Ok(Transformed::yes(call(form, std::mem::take(value))));
                }
                *value = call(Form::Days, std::mem::take(value));
                true
            }
            _ => false,
        },
        _ => false,
    };
    Ok(Transformed::new_transformed(Expr::ScalarFunction(made), is_changed))
}

/// Rewrites `CASE i WHEN …` with an interval `i`.
pub(super) fn case(expr: Expr, columns: &DFSchema) -> Result<Transformed<Expr>> {
    let Expr::Case(mut made) = expr else { return Ok(Transformed::no(expr)) };
    let is_changed = made.expr.as_deref().is_some_and(|operand| is_interval(operand, columns));
    if is_changed {
        let whens = made.when_then_expr.iter_mut().map(|(when, _)| &mut **when);
        wrap_intervals(made.expr.as_deref_mut().into_iter().chain(whens), columns);
    }
    Ok(Transformed::new_transformed(Expr::Case(made), is_changed))
}

/// Rewrites aggregates that compare intervals.
pub(super) fn aggregate(mut made: AggregateFunction, columns: &DFSchema) -> Result<Transformed<Expr>> {
    let compares = made.params.distinct || matches!(made.func.name(), "min" | "max");
    let mut is_changed = compares && wrap_intervals(made.params.args.iter_mut(), columns);
    is_changed |= wrap_intervals(made.params.order_by.iter_mut().map(|key| &mut key.expr), columns);
    Ok(Transformed::new_transformed(Expr::AggregateFunction(made), is_changed))
}

/// Rewrites the keys of window functions, and arguments that the functions compare.
pub(super) fn window(mut made: Box<WindowFunction>, columns: &DFSchema) -> Result<Transformed<Expr>> {
    let compares = made.params.distinct || matches!(made.fun.name(), "min" | "max");
    let mut is_changed = compares && wrap_intervals(made.params.args.iter_mut(), columns);
    is_changed |= wrap_intervals(made.params.partition_by.iter_mut(), columns);
    for key in made.params.order_by.iter_mut().filter(|key| is_interval(&key.expr, columns)) {
        key.expr = call(Form::Length, std::mem::take(&mut key.expr));
        is_changed = true;
    }
    Ok(Transformed::new_transformed(Expr::WindowFunction(made), is_changed))
}

/// Rewrites group keys, sort keys, join keys and DISTINCT. Column names do not change.
pub(super) fn keys(mut plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    match &mut plan {
        LogicalPlan::Sort(sort) => {
            let columns = Arc::clone(sort.input.schema());
            let is_changed = wrap_intervals(sort.expr.iter_mut().map(|key| &mut key.expr), &columns);
            Ok(Transformed::new_transformed(plan, is_changed))
        }
        LogicalPlan::Join(join) => {
            let (left, right) = (Arc::clone(join.left.schema()), Arc::clone(join.right.schema()));
            let mut is_changed = false;
            for (l, r) in &mut join.on {
                if is_interval(l, &left) && is_interval(r, &right) {
                    wrap(l);
                    wrap(r);
                    is_changed = true;
                }
            }
            Ok(Transformed::new_transformed(plan, is_changed))
        }
        LogicalPlan::Distinct(Distinct::All(input)) => match normal_columns(input)? {
            Some(normal) => Ok(Transformed::yes(LogicalPlan::Distinct(Distinct::All(Arc::new(normal))))),
            None => Ok(Transformed::no(plan)),
        },
        LogicalPlan::Aggregate(aggregate) => {
            let columns = Arc::clone(aggregate.input.schema());
            if !aggregate.group_expr.iter().any(|key| is_interval(key, &columns)) {
                return Ok(Transformed::no(plan));
            }
            let names = NamePreserver::new_for_projection();
            let mut keys = aggregate.group_expr.clone();
            for key in keys.iter_mut().filter(|key| is_interval(key, &columns)) {
                let name = names.save(key);
                wrap(key);
                *key = name.restore(std::mem::take(key));
            }
            let (input, aggregates) = (Arc::clone(&aggregate.input), aggregate.aggr_expr.clone());
            Ok(Transformed::yes(LogicalPlan::Aggregate(Aggregate::try_new(input, keys, aggregates)?)))
        }
        _ => Ok(Transformed::no(plan)),
    }
}

/// Returns the plan with its interval columns in normal form; `None` if it has no interval columns.
fn normal_columns(input: &Arc<LogicalPlan>) -> Result<Option<LogicalPlan>> {
    let schema = input.schema();
    if !schema.fields().iter().any(|field| matches!(field.data_type(), DataType::Interval(_))) {
        return Ok(None);
    }
    let columns = schema.columns().into_iter().map(|column| {
        let (relation, name) = (column.relation.clone(), column.name.clone());
        let mut expr = Expr::Column(column);
        match is_interval(&expr, schema) {
            true => {
                wrap(&mut expr);
                expr.alias_qualified(relation, name)
            }
            false => expr,
        }
    });
    Ok(Some(LogicalPlan::Projection(Projection::try_new(columns.collect(), Arc::clone(input))?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_of_equal_length_have_one_form() {
        let of = |months, days, hours: i64| {
            normal(IntervalMonthDayNano::new(months, days, hours * 3_600_000_000_000))
        };
        assert_eq!(of(0, 0, 24), of(0, 1, 0));
        assert_eq!(of(0, 30, 0), of(1, 0, 0));
        assert_eq!(of(1, -30, 1), of(0, 0, 1));
        assert_eq!(of(-1, 0, 0), of(0, -29, -24));
        assert!(of(0, 29, 23) < of(1, 0, 0));
        assert!(of(-1, 0, 0) < of(0, -29, -23));
        assert!(of(0, -1, 0) < of(0, 0, 1));
        let greatest = normal(IntervalMonthDayNano::new(i32::MAX, i32::MAX, i64::MAX));
        assert!(greatest > of(i32::MAX, 0, 0));
        let least = normal(IntervalMonthDayNano::new(i32::MIN, 0, 0));
        assert!(least < of(-i32::MAX, 0, 0));
    }
}
