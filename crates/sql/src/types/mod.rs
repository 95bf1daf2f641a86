//! Rewrites operations for which the type coercion of DataFusion 55.2 has another meaning than that of PostgreSQL and
//! DuckDB, or loses digits. The rule runs before type coercion, on expressions as they were written. Each part is
//! obsolete once upstream coerces its types in this way.
//!
//! - Dates and times are neither compared nor unioned with numbers, nor cast to or from them ([`numbers`]).
//! - A number with a decimal point next to a decimal is a decimal; a rounded decimal has one type ([`exact`]).
//! - A string next to a time is a time, in any year ([`times`]).
//! - A date plus hours is a timestamp ([`times`]).
//! - Intervals are compared, sorted and grouped by their length ([`intervals`]).
//! - A text next to a list or to bytes is one, too ([`texts`]).
//! - An exclusive or with an operand that occurs twice is NULL where that is ([`xors`]).
//! - TRY_CAST is not unwrapped ([`try_casts`]).

mod exact;
mod intervals;
mod names;
mod numbers;
mod texts;
mod times;
mod try_casts;
mod xors;

pub use exact::FUNCTION as EXACT_NUMBER;
pub use names::NamedTypes;
pub use times::with_seconds;
pub use try_casts::{cast_function, is_cast_function};

use crate::checked::columns_below;
use crate::postgres;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result, plan_err};
use datafusion::execution::FunctionRegistry;
use datafusion::logical_expr::expr::{Between, InList, WindowFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Operator, WindowFrameBound,
    WindowFrameUnits,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::prelude::SessionContext;
use std::sync::Arc;

/// Registers the function that stands for exact numbers until the rule replaces it (see `exact.rs`), and the planner of
/// operations with constant texts.
pub fn register(context: &SessionContext) {
    exact::register(context);
    // It fails in no registry of the engine's.
    let planner = Arc::new(texts::ConstantTexts);
    drop(context.state_ref().write().register_expr_planner(planner));
}

/// The analyzer rule that rewrites operations depending on the types of their operands.
#[derive(Debug)]
pub struct OperandTypes;

impl AnalyzerRule for OperandTypes {
    fn name(&self) -> &'static str {
        "operand_types"
    }

    fn analyze(&self, plan: LogicalPlan, options: &ConfigOptions) -> Result<LogicalPlan> {
        let is_of_postgres = postgres::is_meant(options);
        let mut has_changed = false;
        let rewritten = plan.transform_up_with_subqueries(|plan| {
            // The types below may be others than those from which the node was made.
            let plan = if has_changed { plan.recompute_schema()? } else { plan };
            let node = node(plan, is_of_postgres)?;
            has_changed |= node.transformed;
            Ok(node)
        });
        rewritten.map(|plan| plan.data)
    }
}

/// Rewrites the expressions of a plan node. `is_of_postgres` tells whether they have PostgreSQL's meaning where it differs.
fn node(plan: LogicalPlan, is_of_postgres: bool) -> Result<Transformed<LogicalPlan>> {
    numbers::check(&plan)?;
    let keyed = intervals::keys(plan)?;
    let (was_changed, plan) = (keyed.transformed, keyed.data);
    let columns = columns_below(&plan)?;
    let names = NamePreserver::new(&plan);
    let changed = plan.map_expressions(|expr| {
        let name = names.save(&expr);
        let exact = match is_of_postgres {
            true => exact::as_decimals(expr)?,
            false => Transformed::no(expr),
        };
        let changed = exact
            .transform_data(|expr| expr.transform_up(|expr| expression(expr, &columns, is_of_postgres)))?;
        let changed = changed.transform_data(|expr| expr.transform_up(exact::as_double))?;
        Ok(changed.update_data(|expr| name.restore(expr)))
    })?;
    let mut changed = match changed.transformed {
        true => changed.map_data(|plan| match plan {
            LogicalPlan::Values(values) if is_of_postgres => {
                LogicalPlanBuilder::values(values.values)?.build()
            }
            other => other.recompute_schema(),
        })?,
        false => changed,
    };
    changed.transformed |= was_changed;
    if is_of_postgres && let Some(means) = postgres::means(&changed.data, &columns)? {
        return Ok(Transformed::yes(means));
    }
    Ok(changed)
}

/// Rewrites an expression depending on the types of its operands. The operands have been rewritten already.
fn expression(expr: Expr, columns: &DFSchema, is_of_postgres: bool) -> Result<Transformed<Expr>> {
    numbers::check_expression(&expr, columns)?;
    match expr {
        Expr::BinaryExpr(binary) if is_comparison(binary.op) => compared(binary, columns),
        Expr::BinaryExpr(binary) if is_of_postgres && binary.op == Operator::Divide => {
            postgres::quotient(binary, columns)
        }
        Expr::BinaryExpr(binary) if binary.op == Operator::BitwiseXor => Ok(xors::repeated(binary)),
        Expr::BinaryExpr(binary) if is_of_postgres && postgres::is_time_between(&binary, columns)? => {
            postgres::time_between(binary, columns)
        }
        Expr::BinaryExpr(binary) => exact::arithmetic(binary, columns)?.transform_data(|expr| match expr {
            Expr::BinaryExpr(binary) => times::arithmetic(binary, columns, is_of_postgres),
            other => Ok(Transformed::no(other)),
        }),
        Expr::Between(between) => between_bounds(between, columns),
        Expr::InList(list) => in_list(list, columns),
        Expr::Cast(cast) => {
            let timed = times::cast(cast)?;
            let mut exact = exact::cast(timed.data)?;
            exact.transformed |= timed.transformed;
            exact.transform_data(|expr| match expr {
                Expr::Cast(cast) => texts::cast(cast, columns)?.transform_data(|expr| match expr {
                    Expr::Cast(cast) if is_of_postgres => postgres::cast(cast, columns),
                    other => Ok(Transformed::no(other)),
                }),
                other => Ok(Transformed::no(other)),
            })
        }
        Expr::TryCast(cast) => try_casts::function(cast, columns),
        Expr::Case(case) => exact::case(case, columns)?.transform_data(|expr| intervals::case(expr, columns)),
        Expr::ScalarFunction(call) => exact::function(call, columns)?
            .transform_data(|expr| intervals::function(expr, columns))?
            .transform_data(|expr| times::length_of_list(expr, columns))?
            .transform_data(|expr| times::truncated_date(expr, columns))?
            .transform_data(|expr| times::many_years(expr, columns))?
            .transform_data(|expr| exact::next_whole(expr, columns))?
            .transform_data(|expr| Ok(exact::places(expr)))?
            .transform_data(|expr| match expr {
                Expr::ScalarFunction(call) if is_of_postgres => postgres::checked(call, columns),
                other => Ok(Transformed::no(other)),
            }),
        Expr::AggregateFunction(call) => intervals::aggregate(call, columns),
        Expr::WindowFunction(call) => {
            check_range(&call, columns)?;
            intervals::window(call, columns)
        }
        other => Ok(Transformed::no(other)),
    }
}

/// Refuses RANGE with an offset if the sort key has a type from which the engine subtracts nothing: it would compare
/// the keys as they are.
fn check_range(call: &WindowFunction, columns: &DFSchema) -> Result<()> {
    use WindowFrameBound::{CurrentRow, Following, Preceding};
    let frame = &call.params.window_frame;
    let is_offset = |bound: &WindowFrameBound| match bound {
        Preceding(offset) | Following(offset) => !offset.is_null(),
        CurrentRow => false,
    };
    let has_offset = is_offset(&frame.start_bound) || is_offset(&frame.end_bound);
    let [key] = call.params.order_by.as_slice() else { return Ok(()) };
    if frame.units != WindowFrameUnits::Range || !has_offset {
        return Ok(());
    }
    let data_type = key.expr.get_type(columns)?;
    if data_type.is_numeric() || data_type.is_temporal() || data_type.is_null() {
        return Ok(());
    }
    plan_err!("RANGE with an offset takes numbers or times in ORDER BY, not {data_type}")
}

fn is_comparison(op: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
}

/// Rewrites a comparison depending on the types of its sides.
fn compared(binary: BinaryExpr, columns: &DFSchema) -> Result<Transformed<Expr>> {
    let read = texts::operands(binary, columns)?;
    let exact = exact::operands(read.data, columns)?;
    let mut timed = times::operands(exact.data, columns)?;
    timed.transformed |= exact.transformed || read.transformed;
    timed.transform_data(|expr| match expr {
        Expr::BinaryExpr(binary) => intervals::operands(binary, columns),
        other => Ok(Transformed::no(other)),
    })
}

/// Rewrites BETWEEN to two comparisons, if at least one of them has to be rewritten.
fn between_bounds(between: Between, columns: &DFSchema) -> Result<Transformed<Expr>> {
    let bound = |op, bound: &Expr| {
        compared(BinaryExpr::new(between.expr.clone(), op, Box::new(bound.clone())), columns)
    };
    let (low, high) = (bound(Operator::GtEq, &between.low)?, bound(Operator::LtEq, &between.high)?);
    if !low.transformed && !high.transformed {
        return Ok(Transformed::no(Expr::Between(between)));
    }
    // Other rules recognize BETWEEN, so that it is kept if no comparison has changed.
    if let (Expr::BinaryExpr(low), Expr::BinaryExpr(high)) = (&low.data, &high.data)
        && (low.op, high.op) == (Operator::GtEq, Operator::LtEq)
        && low.left == high.left
    {
        let (low, high) = (low.clone(), high.right.clone());
        return Ok(Transformed::yes(Expr::Between(Between::new(low.left, between.negated, low.right, high))));
    }
    let inside = low.data.and(high.data);
    Ok(Transformed::yes(if between.negated { Expr::Not(Box::new(inside)) } else { inside }))
}

/// Rewrites the members of an IN list. A member that cannot equal any value of the type becomes a separate comparison.
fn in_list(list: InList, columns: &DFSchema) -> Result<Transformed<Expr>> {
    let InList { expr, list, negated } = list;
    let (mut members, mut others, mut left, mut is_changed) = (Vec::new(), Vec::new(), None, false);
    for member in list {
        let one = compared(BinaryExpr::new(expr.clone(), Operator::Eq, Box::new(member)), columns)?;
        is_changed |= one.transformed;
        match one.data {
            Expr::BinaryExpr(BinaryExpr { left: value, op: Operator::Eq, right })
                if left.as_ref().is_none_or(|left| *left == value) =>
            {
                left = Some(value);
                members.push(*right);
            }
            other => others.push(other),
        }
    }
    if others.is_empty() {
        let expr = left.unwrap_or(expr);
        return Ok(Transformed::new_transformed(
            Expr::InList(InList { expr, list: members, negated }),
            is_changed,
        ));
    }
    let listed = left.filter(|_| !members.is_empty());
    let listed = listed.map(|expr| Expr::InList(InList { expr, list: members, negated: false }));
    let any = listed.into_iter().chain(others).reduce(Expr::or).unwrap_or_default();
    Ok(Transformed::yes(if negated { Expr::Not(Box::new(any)) } else { any }))
}
