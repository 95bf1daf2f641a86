//! Limits the sizes of plans. A plan contains a shared part as often as the statement refers to it. If each subquery of
//! a chain reads the previous one twice, the plan is small in memory, but traversing it takes exponential time.
//! Expressions double in the same way when a predicate is pushed below the projection that computes its columns.

use crate::error;
use datafusion::common::Result;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::LogicalPlan;
use farpool_model::{Error, limits};
use std::collections::HashMap;

/// Refuses a plan that has too many operators if shared parts count as often as they occur. Takes time in proportion to
/// the plan's size in memory.
///
/// # Errors
/// `OverLimit` if there are too many.
pub fn check_operators(plan: &LogicalPlan) -> Result<()> {
    match operators(plan, &mut HashMap::new())? <= limits::PLAN_OPERATORS_MAX {
        true => Ok(()),
        false => {
            let most = limits::PLAN_OPERATORS_MAX;
            let message = format!(
                "the statement has more than {most} operators, with each subquery and view as often as it is named"
            );
            let advice = "keep a part of it as a table (CREATE TABLE … AS), and read that";
            Err(error::wrap(Error::over_limit(message).advise(advice)))
        }
    }
}

fn operators(plan: &LogicalPlan, known: &mut HashMap<*const LogicalPlan, usize>) -> Result<usize> {
    if let Some(count) = known.get(&std::ptr::from_ref(plan)) {
        return Ok(*count);
    }
    let mut count = 1_usize;
    for input in plan.inputs() {
        count = count.saturating_add(operators(input, known)?);
    }
    plan.apply_subqueries(|subquery| {
        if let LogicalPlan::Subquery(subquery) = subquery {
            count = count.saturating_add(operators(&subquery.subquery, known)?);
        }
        Ok(TreeNodeRecursion::Jump)
    })?;
    known.insert(plan, count);
    Ok(count)
}

/// Refuses an operator whose expressions have become too large.
///
/// # Errors
/// `OverLimit` if they are too large.
pub(super) fn check_expressions(plan: &LogicalPlan) -> Result<()> {
    let mut parts = 0;
    plan.apply_expressions(|expr| {
        expr.apply(|_| {
            parts += 1;
            Ok(match parts > limits::PLAN_EXPRESSION_PARTS_MAX {
                true => TreeNodeRecursion::Stop,
                false => TreeNodeRecursion::Continue,
            })
        })
    })?;
    match parts <= limits::PLAN_EXPRESSION_PARTS_MAX {
        true => Ok(()),
        false => {
            let most = limits::PLAN_EXPRESSION_PARTS_MAX;
            let message =
                format!("an expression has more than {most} parts, with columns of subqueries written out");
            let advice = "keep a part of it as a table (CREATE TABLE … AS), and read that";
            Err(error::wrap(Error::over_limit(message).advise(advice)))
        }
    }
}
