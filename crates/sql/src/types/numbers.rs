//! Refuses operations of dates and times with numbers. If one is compared with a number, DataFusion 55.2 takes the
//! number for days or smaller units (apache/datafusion#12291), so that `day > 20240101` is true for no row. In
//! PostgreSQL and DuckDB it is an error. The check is obsolete once upstream refuses such operations.

use arrow_schema::DataType;
use datafusion::common::{DFSchema, DataFusionError, Result};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};
use farpool_model::{Error, sql_name};

/// Refuses a plan node that puts numbers and times into one column (UNION), or joins on them.
pub(super) fn check(plan: &LogicalPlan) -> Result<()> {
    match plan {
        LogicalPlan::Union(union) => {
            for (i, first) in union.inputs.iter().take(1).flat_map(|i| i.schema().fields()).enumerate() {
                for other in union.inputs.iter().skip(1).filter_map(|input| input.schema().fields().get(i)) {
                    distinct(first.data_type(), other.data_type(), "become one column with")?;
                }
            }
            Ok(())
        }
        LogicalPlan::Join(join) => {
            for (left, right) in &join.on {
                if let (Ok(l), Ok(r)) =
                    (left.get_type(join.left.schema()), right.get_type(join.right.schema()))
                {
                    distinct(&l, &r, COMPARED)?;
                }
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

const COMPARED: &str = "be compared with";

/// Refuses an expression that combines a number and a time.
pub(super) fn check_expression(expr: &Expr, columns: &DFSchema) -> Result<()> {
    let all = |parts: &[&Expr], what: &str| {
        // A part whose type is not known is a parameter, or an error that is reported elsewhere.
        let types: Vec<DataType> = parts.iter().filter_map(|part| part.get_type(columns).ok()).collect();
        let times = types.iter().find(|found| is_time(found));
        times.map_or(Ok(()), |time| types.iter().try_for_each(|other| distinct(time, other, what)))
    };
    match expr {
        Expr::BinaryExpr(binary) if super::is_comparison(binary.op) => {
            all(&[&binary.left, &binary.right], COMPARED)
        }
        Expr::Between(between) => all(&[&between.expr, &between.low, &between.high], COMPARED),
        Expr::InList(list) => {
            all(&std::iter::once(&*list.expr).chain(&list.list).collect::<Vec<_>>(), COMPARED)
        }
        Expr::InSubquery(subquery) => {
            let Some(column) = subquery.subquery.subquery.schema().fields().first() else { return Ok(()) };
            match subquery.expr.get_type(columns) {
                Ok(value) => distinct(&value, column.data_type(), COMPARED),
                Err(_) => Ok(()),
            }
        }
        Expr::Case(case) => {
            let whens = case.when_then_expr.iter();
            if let Some(operand) = &case.expr {
                let compared = whens.clone().map(|(when, _)| &**when).chain([&**operand]);
                all(&compared.collect::<Vec<_>>(), COMPARED)?;
            }
            let values = whens.map(|(_, then)| &**then).chain(case.else_expr.as_deref());
            all(&values.collect::<Vec<_>>(), "be a value of the same CASE as")
        }
        Expr::ScalarFunction(call) if CHOICES.contains(&call.func.name()) => {
            all(&call.args.iter().collect::<Vec<_>>(), "be an argument beside")
        }
        Expr::Cast(cast) => match cast.expr.get_type(columns) {
            Ok(from) => is_cast(&from, cast.field.data_type()),
            Err(_) => Ok(()),
        },
        Expr::TryCast(cast) => match cast.expr.get_type(columns) {
            Ok(from) => is_cast(&from, cast.field.data_type()),
            Err(_) => Ok(()),
        },
        _ => Ok(()),
    }
}

/// Functions that return one of their arguments, or compare their arguments.
pub(super) const CHOICES: &[&str] = &["coalesce", "nullif", "nvl", "ifnull", "nvl2", "greatest", "least"];

fn is_time(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Date32
            | DataType::Date64
            | DataType::Timestamp(..)
            | DataType::Time32(_)
            | DataType::Time64(_)
    )
}

fn distinct(one: &DataType, other: &DataType, what: &str) -> Result<()> {
    match (is_time(one) && other.is_numeric(), is_time(other) && one.is_numeric()) {
        (true, _) => Err(refused(one, other, what)),
        (_, true) => Err(refused(other, one, what)),
        (false, false) => Ok(()),
    }
}

fn refused(time: &DataType, number: &DataType, what: &str) -> DataFusionError {
    let message = format!("a {} cannot {what} a number ({})", sql_name(time), sql_name(number));
    let advice =
        "write DATE '2024-01-01' or TIMESTAMP '2024-01-01 12:00:00', or compare what extract(…) returns";
    crate::error::wrap(Error::invalid(message).advise(advice))
}

/// Refuses casts between dates and numbers. Casts of timestamps are allowed: they count units, and functions of epochs
/// use them.
fn is_cast(from: &DataType, to: &DataType) -> Result<()> {
    let is_date = |found: &DataType| matches!(found, DataType::Date32 | DataType::Date64);
    if !(is_date(from) && to.is_numeric() || is_date(to) && from.is_numeric()) {
        return Ok(());
    }
    let message = format!("a {} cannot be cast to {}", sql_name(from), sql_name(to));
    let advice = "the days between two dates are d - DATE '1970-01-01'; add days to a date for the reverse";
    Err(crate::error::wrap(Error::invalid(message).advise(advice)))
}
