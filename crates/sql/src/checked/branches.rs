//! Protects boolean CASE expressions with parts that may fail. DataFusion 55.2 rewrites a CASE with few branches to AND
//! and OR, which are evaluated also on rows that do not reach a branch: `CASE WHEN x <> 0 THEN 1 / x > 2 END` would
//! divide by zero. This module is obsolete once upstream leaves such a CASE as it is.
//!
//! Invariant: from the analyzer until physical operators are made, such a CASE is written `CASE true WHEN …`, which has
//! the same meaning and is not rewritten.

use arrow_schema::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::Case;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, lit};

/// Rewrites a boolean CASE with a branch that may fail to `CASE true WHEN …`; also a `coalesce`, which DataFusion turns
/// into a CASE.
pub(super) fn kept(expr: Expr, input: &DFSchema) -> Result<Transformed<Expr>> {
    let is_boolean = |expr: &Expr| expr.get_type(input).map(|data_type| data_type == DataType::Boolean);
    match expr {
        Expr::Case(mut case) if case.expr.is_none() && has_branch_that_may_fail(&case) => {
            let is_boolean = case.when_then_expr.first().map_or(Ok(false), |(_, then)| is_boolean(then))?;
            case.expr = is_boolean.then(|| Box::new(lit(true)));
            Ok(Transformed::new_transformed(Expr::Case(case), is_boolean))
        }
        Expr::ScalarFunction(mut call)
            if call.func.name() == "coalesce"
                && call.args.iter().skip(1).any(may_fail)
                && call.args.first().map_or(Ok(false), is_boolean)? =>
        {
            let last = call.args.pop().map(Box::new);
            let branches =
                call.args.into_iter().map(|arg| (Box::new(arg.clone().is_not_null()), Box::new(arg)));
            Ok(Transformed::yes(Expr::Case(Case::new(Some(Box::new(lit(true))), branches.collect(), last))))
        }
        other => Ok(Transformed::no(other)),
    }
}

/// Undoes the rewriting: turns each `CASE true WHEN …` of this module back into the original CASE.
pub fn given_back(plan: LogicalPlan) -> Result<LogicalPlan> {
    let given_back = plan.transform_up_with_subqueries(|plan| {
        let mut found = false;
        plan.apply_expressions(|expr| {
            found |= expr.exists(|expr| Ok(matches!(expr, Expr::Case(case) if is_kept(case))))?;
            Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })?;
        if !found {
            return Ok(Transformed::no(plan));
        }
        let names = NamePreserver::new(&plan);
        plan.map_expressions(|expr| {
            let name = names.save(&expr);
            let plain = expr.transform_up(|expr| match expr {
                Expr::Case(case) if is_kept(&case) => {
                    Ok(Transformed::yes(Expr::Case(Case { expr: None, ..case })))
                }
                other => Ok(Transformed::no(other)),
            })?;
            Ok(plain.update_data(|expr| name.restore(expr)))
        })
    })?;
    Ok(given_back.data)
}

fn is_kept(case: &Case) -> bool {
    case.expr.as_deref().is_some_and(|operand| *operand == lit(true))
}

/// Returns whether a part other than the first condition may fail. The first condition is evaluated on all rows in any
/// case.
fn has_branch_that_may_fail(case: &Case) -> bool {
    let branches = case.when_then_expr.iter().enumerate();
    let fails = branches.map(|(i, (when, then))| (i > 0 && may_fail(when)) || may_fail(then));
    fails.chain(case.else_expr.iter().map(|otherwise| may_fail(otherwise))).any(|fails| fails)
}

/// Returns whether an expression has a part that may fail: anything but comparisons and logic.
fn may_fail(expr: &Expr) -> bool {
    let fails = expr.exists(|part| {
        let never = match part {
            Expr::BinaryExpr(BinaryExpr { op, .. }) => op.supports_propagation() || op.is_logic_operator(),
            Expr::Column(_) | Expr::OuterReferenceColumn(..) | Expr::Literal(..) | Expr::Alias(_) => true,
            Expr::Not(_) | Expr::IsNull(_) | Expr::IsNotNull(_) | Expr::IsTrue(_) | Expr::IsNotTrue(_) => {
                true
            }
            Expr::IsFalse(_) | Expr::IsNotFalse(_) | Expr::IsUnknown(_) | Expr::IsNotUnknown(_) => true,
            Expr::Like(_) | Expr::Between(_) | Expr::InList(_) | Expr::Case(_) | Expr::TryCast(_) => true,
            _ => false,
        };
        Ok(!never)
    });
    fails.unwrap_or(true)
}
