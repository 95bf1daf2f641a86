//! Replaces calls of functions whose results may be large by calls of the wrapping functions, which reserve (charge)
//! memory for the results. This is done twice: before constant folding, which evaluates functions; and again before a
//! plan is run, because other optimizer rules create calls of their own.

use super::concat::{concatenation, constant};
use super::function::{BoundedFunction, LONG};
use super::windows;
use crate::checked;
use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator};
use datafusion::optimizer::AnalyzerRule;
use std::sync::Arc;

/// Functions that are not wrapped: they return an argument, a part of it, or its type, and DataFusion recognizes them
/// by their Rust types.
const SMALLER: [&str; 24] = [
    "array_element",
    "arrow_cast",
    "arrow_field",
    "arrow_metadata",
    "arrow_try_cast",
    "arrow_typeof",
    "cast_to_type",
    "coalesce",
    "get_field",
    "greatest",
    "ifnull",
    "input_file_name",
    "least",
    "named_struct",
    "nullif",
    "nvl",
    "nvl2",
    "row",
    "struct",
    "try_cast_to_type",
    "typeof",
    "union_extract",
    "union_tag",
    "with_metadata",
];

/// Functions that are wrapped only before the plan is run: optimizer rules recognize them by their Rust types, since
/// they become conditions of programs.
const KNOWN: [&str; 5] = ["date_part", "left", "regexp_like", "starts_with", "substr"];

/// The analyzer rule that wraps calls before constant folding.
#[derive(Debug)]
pub struct BoundedFunctions;

impl AnalyzerRule for BoundedFunctions {
    fn name(&self) -> &'static str {
        "bounded_functions"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        replaced(plan, &|call| !KNOWN.contains(&call.func.name()))
    }
}

/// Wraps all calls in a plan that no other rule changes any more, and the long constants that are copied for each row.
pub fn bounded(plan: LogicalPlan) -> Result<LogicalPlan> {
    let plan = replaced(plan, &|_| true)?;
    plan.transform_up_with_subqueries(|plan| {
        let is_scan = matches!(plan, LogicalPlan::TableScan(_));
        if !is_scan && any(&plan, &is_long)? {
            let has_columns = matches!(plan, LogicalPlan::Projection(_) | LogicalPlan::Aggregate(_));
            let copied = mapped(plan, |expr| {
                let copied = expr.transform_up(|expr| Ok(with_copies(expr)))?;
                Ok(if has_columns { copied.transform_data(|expr| Ok(charged(expr)))? } else { copied })
            })?;
            return copied.transform_data(over_windows);
        }
        over_windows(plan)
    })
    .map(|plan| plan.data)
}

/// Replaces the window functions of a window operator by charging ones.
fn over_windows(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Window(window) = &plan else { return Ok(Transformed::no(plan)) };
    let columns = Arc::clone(window.input.schema());
    mapped(plan, |expr| {
        let data_type = expr.get_type(&*columns)?;
        Ok(windows::charged(expr, &data_type))
    })
}

/// Returns the operator with its expressions changed by `change`; its columns keep their names.
fn mapped(
    plan: LogicalPlan,
    mut change: impl FnMut(Expr) -> Result<Transformed<Expr>>,
) -> Result<Transformed<LogicalPlan>> {
    let names = NamePreserver::new(&plan);
    plan.map_expressions(|expr| {
        let name = names.save(&expr);
        Ok(change(expr)?.update_data(|expr| name.restore(expr)))
    })
}

fn is_long(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(scalar, _) if scalar.size() > LONG)
}

/// Wraps long constants at positions where an expression copies them for each row.
fn with_copies(expr: Expr) -> Transformed<Expr> {
    let mut expr = expr;
    let mut is_changed = false;
    let mut charge = |part: &mut Expr| {
        let charged = charged(std::mem::take(part));
        is_changed |= charged.transformed;
        *part = charged.data;
    };
    match &mut expr {
        Expr::Case(case) => {
            let results = case.when_then_expr.iter_mut().map(|(_, then)| then);
            results.chain(&mut case.expr).chain(&mut case.else_expr).for_each(|part| charge(part));
        }
        Expr::ScalarFunction(call) if SMALLER.contains(&call.func.name()) => {
            call.args.iter_mut().for_each(charge);
        }
        // The other arguments are options of the function, which must stay constants.
        Expr::AggregateFunction(call) => call.params.args.iter_mut().take(1).for_each(charge),
        Expr::WindowFunction(call) => call.params.args.iter_mut().take(1).for_each(charge),
        _ => {}
    }
    Transformed::new_transformed(expr, is_changed)
}

/// Wraps the constant if it is long.
fn charged(expr: Expr) -> Transformed<Expr> {
    match expr {
        Expr::Alias(mut alias) if is_long(&alias.expr) => {
            alias.expr = Box::new(charged(*alias.expr).data);
            Transformed::yes(Expr::Alias(alias))
        }
        expr if is_long(&expr) => {
            let func = Arc::new(BoundedFunction::over(constant()));
            Transformed::yes(Expr::ScalarFunction(ScalarFunction { func, args: vec![expr] }))
        }
        expr => Transformed::no(expr),
    }
}

/// Returns the plan with those calls wrapped for which `takes` is true. Columns keep their names.
fn replaced(plan: LogicalPlan, takes: &dyn Fn(&ScalarFunction) -> bool) -> Result<LogicalPlan> {
    let replaced = plan.transform_up_with_subqueries(|plan| {
        // Scans are left as they are: a table that has agreed to evaluate a filter must recognize the filter when it is
        // scanned.
        if matches!(plan, LogicalPlan::TableScan(_)) || !any(&plan, &|expr| is_replaced(expr, takes))? {
            return Ok(Transformed::no(plan));
        }
        mapped(plan, |expr| in_expr(expr, takes))
    });
    replaced.map(|plan| plan.data)
}

/// Returns whether an expression of the operator contains one for which `is_it` is true.
fn any(plan: &LogicalPlan, is_it: &dyn Fn(&Expr) -> bool) -> Result<bool> {
    let mut found = false;
    plan.apply_expressions(|expr| {
        found |= expr.exists(|expr| Ok(is_it(expr)))?;
        Ok(datafusion::common::tree_node::TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}

/// Wraps the calls in an expression to which a function was simplified.
pub(super) fn bounded_expr(expr: Expr) -> Result<Transformed<Expr>> {
    in_expr(expr, &|call| !KNOWN.contains(&call.func.name()))
}

fn in_expr(expr: Expr, takes: &dyn Fn(&ScalarFunction) -> bool) -> Result<Transformed<Expr>> {
    expr.transform_up(|expr| {
        if !is_replaced(&expr, takes) {
            return Ok(Transformed::no(expr));
        }
        let (func, args) = match expr {
            Expr::ScalarFunction(call) => (call.func, call.args),
            Expr::BinaryExpr(BinaryExpr { left, right, .. }) => (concatenation(), vec![*left, *right]),
            other => return Ok(Transformed::no(other)),
        };
        let func = Arc::new(BoundedFunction::over(func));
        Ok(Transformed::yes(Expr::ScalarFunction(ScalarFunction { func, args })))
    })
}

fn is_replaced(expr: &Expr, takes: &dyn Fn(&ScalarFunction) -> bool) -> bool {
    match expr {
        Expr::ScalarFunction(call) => {
            let is_own = call.func.inner().is::<BoundedFunction>() || checked::operation(call).is_some();
            !is_own && !call.args.is_empty() && !SMALLER.contains(&call.func.name()) && takes(call)
        }
        Expr::BinaryExpr(binary) => binary.op == Operator::StringConcat,
        _ => false,
    }
}
