//! Guards join conditions, parts of which may fail; those of filters are guarded later ([`super::conditions`]).
//!
//! Invariant: if a condition decides whether rows are joined, an operand of its AND or OR that may fail is evaluated
//! only on pairs of rows that less risky operands leave undecided. DataFusion 55.2 evaluates both sides of AND and OR
//! on all rows of a batch unless the first side decides nearly all of them. This module is obsolete once upstream
//! evaluates the second side on undecided rows only.

use super::{columns_below, operation};
use crate::types::cast_function;
use arrow_schema::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::Case;
use datafusion::logical_expr::{
    BinaryExpr, Expr as Logical, ExprSchemable, Filter, LogicalPlan, Operator, lit,
};
use std::sync::Arc;

/// Likelihood that an expression fails on some row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Risk {
    /// Never: comparisons, logic, and casts and arithmetic whose results always fit.
    None,
    /// Calls of functions: few of them fail on any value.
    Unlikely,
    /// Casts and arithmetic whose results may not fit.
    Likely,
}

/// Returns whether a cast may fail on some value.
pub(super) fn cast_may_fail(from: &DataType, to: &DataType) -> bool {
    use DataType::{Dictionary, Float32, Float64, LargeUtf8, Null, Utf8, Utf8View};
    let bits = |integer: &DataType| integer.primitive_width().unwrap_or(0);
    match (from, to) {
        (from, to) if from == to => false,
        (Null, _) | (_, Utf8 | LargeUtf8 | Utf8View) => false,
        (Dictionary(_, from), to) => cast_may_fail(from, to),
        (from, Float32 | Float64) if from.is_numeric() => false,
        (from, to) if from.is_signed_integer() && to.is_signed_integer() => bits(from) > bits(to),
        (from, to) if from.is_unsigned_integer() && to.is_unsigned_integer() => bits(from) > bits(to),
        (from, to) if from.is_unsigned_integer() && to.is_signed_integer() => bits(from) >= bits(to),
        _ => true,
    }
}

/// Returns the plan with guarded join conditions. This must be the last step before physical operators are made,
/// because other rules need to recognize AND.
pub fn guarded(plan: LogicalPlan) -> Result<LogicalPlan> {
    let guarded = plan.transform_up_with_subqueries(|plan| {
        let mut join = match plan {
            LogicalPlan::Join(join) => join,
            LogicalPlan::Filter(filter) => return casts_as_functions(filter),
            other => return Ok(Transformed::no(other)),
        };
        // The condition of a null-aware join (NOT IN) is left as it is, because such a join distinguishes NULL from
        // false.
        let Some(condition) = join.filter.take_if(|_| !join.null_aware) else {
            return Ok(Transformed::no(LogicalPlan::Join(join)));
        };
        let columns = columns_below(&LogicalPlan::Join(join.clone()))?;
        let found = risk(&condition, &columns)? != Risk::None;
        join.filter = Some(if found { guarded_condition(condition, &columns)? } else { condition });
        Ok(Transformed::new_transformed(LogicalPlan::Join(join), found))
    })?;
    Ok(guarded.data)
}

/// Replaces casts in a filter condition by function calls. Reason: from another part of the condition (which the pool
/// may have applied already), the engine derives the range of a column, and casts its bounds while it plans; such a
/// cast could fail. It does not do so with function calls.
fn casts_as_functions(mut filter: Filter) -> Result<Transformed<LogicalPlan>> {
    let columns = Arc::clone(filter.input.schema());
    if risk(&filter.predicate, &columns)? != Risk::Likely {
        return Ok(Transformed::no(LogicalPlan::Filter(filter)));
    }
    let made = filter.predicate.transform_up(|expr| match expr {
        Logical::Cast(cast) if cast_may_fail(&cast.expr.get_type(&*columns)?, cast.field.data_type()) => {
            Ok(Transformed::yes(cast_function(cast)))
        }
        other => Ok(Transformed::no(other)),
    })?;
    filter.predicate = made.data;
    Ok(Transformed::new_transformed(LogicalPlan::Filter(filter), made.transformed))
}

/// Returns how likely the expression is to fail on some row: the greatest `Risk` of all nodes of its tree.
fn risk(expr: &Logical, columns: &DFSchema) -> Result<Risk> {
    let mut greatest = Risk::None;
    expr.exists(|part| {
        let risk = match part {
            Logical::ScalarFunction(call) if operation(call).is_some() => Risk::Likely,
            Logical::ScalarFunction(_) => Risk::Unlikely,
            Logical::Cast(cast) => {
                let may_fail = cast_may_fail(&cast.expr.get_type(columns)?, cast.field.data_type());
                if may_fail { Risk::Likely } else { Risk::None }
            }
            _ => Risk::None,
        };
        greatest = greatest.max(risk);
        Ok(greatest == Risk::Likely)
    })?;
    Ok(greatest)
}

/// Guards a condition of which it only matters whether it is true: NULL and false are equivalent.
fn guarded_condition(expr: Logical, columns: &DFSchema) -> Result<Logical> {
    let op = match &expr {
        Logical::BinaryExpr(BinaryExpr { op: op @ (Operator::And | Operator::Or), .. }) => *op,
        _ => return Ok(expr),
    };
    let mut by_risk = [Vec::new(), Vec::new(), Vec::new()];
    for part in operands(expr, op) {
        let risk = risk(&part, columns)?;
        by_risk[risk as usize].push(if risk == Risk::None {
            part
        } else {
            guarded_condition(part, columns)?
        });
    }
    let join = |parts: Vec<Logical>| {
        parts.into_iter().reduce(|l, r| Logical::BinaryExpr(BinaryExpr::new(Box::new(l), op, Box::new(r))))
    };
    let guarded = by_risk.into_iter().filter_map(join).rev().reduce(|riskier, safer| {
        let (then, otherwise) = match op {
            Operator::And => (riskier, lit(false)),
            _ => (lit(true), riskier),
        };
        let branches = vec![(Box::new(safer), Box::new(then))];
        Logical::Case(Case::new(None, branches, Some(Box::new(otherwise))))
    });
    Ok(guarded.unwrap_or_else(|| lit(op == Operator::And)))
}

/// Returns the operands of a chain of one operator, left to right, without recursion: chains may be long.
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
