//! Guards conditions of filters and joins whose arithmetic may fail.
//!
//! Invariant: where a condition decides whether a row passes, a part that may fail is evaluated only on rows
//! that the parts which cannot fail leave undecided, as in the pool. DataFusion evaluates both sides of AND
//! and OR on all rows of a batch unless the first side decides nearly all of them.

use super::operation;
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::expr::Case;
use datafusion::logical_expr::{BinaryExpr, Expr as Logical, LogicalPlan, Operator, lit};

/// Returns the plan with guarded conditions. This is the last step before physical operators are made,
/// because other rules need to recognize AND.
pub(crate) fn guarded(plan: LogicalPlan) -> Result<LogicalPlan> {
    let guarded = plan.transform_up_with_subqueries(|mut plan| {
        let condition = match &mut plan {
            LogicalPlan::Filter(filter) => Some(&mut filter.predicate),
            // A null-aware join (NOT IN) distinguishes NULL from false.
            LogicalPlan::Join(join) if !join.null_aware => join.filter.as_mut(),
            _ => None,
        };
        let Some(condition) = condition else { return Ok(Transformed::no(plan)) };
        let found = may_fail(condition)?;
        if found {
            let before = std::mem::replace(condition, lit(true));
            *condition = guarded_condition(before)?;
        }
        Ok(Transformed::new_transformed(plan, found))
    })?;
    Ok(guarded.data)
}

fn may_fail(expr: &Logical) -> Result<bool> {
    expr.exists(|expr| Ok(matches!(expr, Logical::ScalarFunction(call) if operation(call).is_some())))
}

/// Guards a condition that only matters as true or not true.
fn guarded_condition(expr: Logical) -> Result<Logical> {
    let op = match &expr {
        Logical::BinaryExpr(BinaryExpr { op: op @ (Operator::And | Operator::Or), .. }) => *op,
        _ => return Ok(expr),
    };
    let (mut safe, mut risky) = (Vec::new(), Vec::new());
    for part in operands(expr, op) {
        if may_fail(&part)? { risky.push(guarded_condition(part)?) } else { safe.push(part) }
    }
    let join = |parts: Vec<Logical>| {
        parts.into_iter().reduce(|l, r| Logical::BinaryExpr(BinaryExpr::new(Box::new(l), op, Box::new(r))))
    };
    let (safe, risky) = match (join(safe), join(risky)) {
        (Some(safe), Some(risky)) => (safe, risky),
        (Some(all), None) | (None, Some(all)) => return Ok(all),
        (None, None) => return Ok(lit(op == Operator::And)),
    };
    let (then, otherwise) = match op {
        Operator::And => (risky, lit(false)),
        _ => (lit(true), risky),
    };
    let branches = vec![(Box::new(safe), Box::new(then))];
    Ok(Logical::Case(Case::new(None, branches, Some(Box::new(otherwise)))))
}

/// The operands of a chain of one operator, left to right, without recursion: chains may be long.
fn operands(expr: Logical, op: Operator) -> Vec<Logical> {
    let (mut operands, mut stack) = (Vec::new(), vec![expr]);
    while let Some(next) = stack.pop() {
        match next {
            Logical::BinaryExpr(binary) if binary.op == op => {
                stack.push(*binary.right);
                stack.push(*binary.left);
            }
            other => operands.push(other),
        }
    }
    operands
}
