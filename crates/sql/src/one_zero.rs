//! Makes 0.0 and -0.0 one value, as in SQL. Some operators of DataFusion 55.2 compare floats by their bits: keys of a
//! window (`PARTITION BY`, `ORDER BY`), aggregates of distinct values, and `nullif`, `CASE x WHEN …` and `IN` with a
//! list (`compared.rs`). Groups, joins, DISTINCT and `=` compare by value already. This module is obsolete once all of
//! them do.
//!
//! The optimizer rule runs last. By then an aggregation of a single column's distinct values has become a grouping by
//! this column, which can be pushed down; the other aggregations run in the engine.
//!
//! Invariant: each of these floats is wrapped once, as `x + 0.0`, which maps -0.0 to 0.0 and keeps all other values.
//! Column names do not change.

mod compared;

use crate::checked::columns_below;
use compared::{Lists, compared};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, Operator, lit};
use datafusion::optimizer::AnalyzerRule;
use datafusion::optimizer::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

/// The optimizer rule, which runs last.
#[derive(Debug)]
pub struct OneZero;

impl OptimizerRule for OneZero {
    fn name(&self) -> &'static str {
        "one_zero"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let has_calls = matches!(plan, LogicalPlan::Window(_) | LogicalPlan::Aggregate(_));
        with_floats(plan, |expr, columns| {
            let compared = compared(expr, Lists::All, columns)?;
            match has_calls {
                true => compared.transform_data(|expr| expr.transform_up(|expr| in_call(expr, columns))),
                false => Ok(compared),
            }
        })
    }
}

/// The analyzer rule. It is needed for constant expressions, which are folded before the optimizer's last rule.
#[derive(Debug)]
pub struct OneZeroOfConstants;

impl AnalyzerRule for OneZeroOfConstants {
    fn name(&self) -> &'static str {
        "one_zero_of_constants"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let change = |plan| with_floats(plan, |expr, columns| compared(expr, Lists::OfComputed, columns));
        plan.transform_up_with_subqueries(change).map(|plan| plan.data)
    }
}

/// Applies `change` to the expressions of the plan; columns keep their names.
fn with_floats(
    plan: LogicalPlan,
    change: impl Fn(Expr, &DFSchema) -> Result<Transformed<Expr>>,
) -> Result<Transformed<LogicalPlan>> {
    let columns = columns_below(&plan)?;
    let names = NamePreserver::new(&plan);
    let changed = plan.map_expressions(|expr| {
        let name = names.save(&expr);
        Ok(change(expr, &columns)?.update_data(|expr| name.restore(expr)))
    })?;
    match changed.transformed {
        true => changed.map_data(LogicalPlan::recompute_schema),
        false => Ok(changed),
    }
}

/// Wraps the keys or arguments of a window function or an aggregate; returns any other expression unchanged.
fn in_call(mut expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let mut is_changed = false;
    let mut wrap = |float: &mut Expr| -> Result<()> {
        is_changed |= wrap_float(float, schema)?;
        Ok(())
    };
    match &mut expr {
        Expr::WindowFunction(call) => {
            call.params.partition_by.iter_mut().try_for_each(&mut wrap)?;
            call.params.order_by.iter_mut().try_for_each(|key| wrap(&mut key.expr))?;
            if call.params.distinct {
                call.params.args.iter_mut().try_for_each(&mut wrap)?;
            }
        }
        Expr::AggregateFunction(call) if call.params.distinct => {
            call.params.args.iter_mut().try_for_each(&mut wrap)?;
            // An aggregate with DISTINCT requires that its sort keys are among its arguments, so that both are wrapped
            // in the same way.
            call.params.order_by.iter_mut().try_for_each(|key| wrap(&mut key.expr))?;
        }
        _ => {}
    }
    Ok(if is_changed { Transformed::yes(expr) } else { Transformed::no(expr) })
}

/// Wraps an expression if it is a float that has not been wrapped yet; returns whether it was wrapped.
fn wrap_float(expr: &mut Expr, schema: &DFSchema) -> Result<bool> {
    let data_type = expr.get_type(schema)?;
    if !data_type.is_floating() || matches!(expr, Expr::Literal(..)) {
        return Ok(false);
    }
    let zero = lit(ScalarValue::from(0.0).cast_to(&data_type)?);
    if matches!(expr, Expr::BinaryExpr(sum) if sum.op == Operator::Plus && *sum.right == zero) {
        return Ok(false);
    }
    *expr = std::mem::take(expr) + zero;
    Ok(true)
}
