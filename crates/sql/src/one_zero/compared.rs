//! Rewrites expressions for which DataFusion 55.2 compares floats by their bits, unlike `=`, which compares by value:
//! `nullif`, `CASE x WHEN …` and `IN` with a list.
//!
//! Invariant: a float operand is wrapped once, unless it is a constant; a constant -0.0 becomes 0.0. If all other
//! operands are constants other than zero, nothing changes.

use super::wrap_float;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::utils::normalize_float_zero_scalar;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::functions::core::nullif::NullIfFunc;
use datafusion::logical_expr::expr::{Case, InList, ScalarFunction};
use datafusion::logical_expr::{Expr, ExprSchemable, lit, when};

/// The IN lists that are rewritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lists {
    /// Only lists that a computed value is compared with. Reason: a short list for a column becomes comparisons later,
    /// which may be pushed down.
    OfComputed,
    /// All lists.
    All,
}

/// Rewrites `expr` so that floats in it are compared by value.
pub(super) fn compared(expr: Expr, lists: Lists, columns: &DFSchema) -> Result<Transformed<Expr>> {
    expr.transform_up(|expr| {
        Ok(match expr {
            Expr::InList(list) if lists == Lists::All || !matches!(*list.expr, Expr::Column(_)) => {
                in_list(list, columns)?
            }
            Expr::Case(case) if case.expr.is_some() => case_of(case, columns)?,
            Expr::ScalarFunction(call) if call.func.inner().is::<NullIfFunc>() && call.args.len() == 2 => {
                match is_float(&call.args[0], columns)? && may_be_zero(&call.args[1]) {
                    true => null_if(call, columns)?,
                    false => Transformed::no(Expr::ScalarFunction(call)),
                }
            }
            other => Transformed::no(other),
        })
    })
}

fn is_float(expr: &Expr, columns: &DFSchema) -> Result<bool> {
    Ok(expr.get_type(columns)?.is_floating())
}

fn may_be_zero(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(ScalarValue::Float64(value), _) => *value == Some(0.0),
        Expr::Literal(ScalarValue::Float32(value), _) => *value == Some(0.0),
        Expr::Literal(scalar, _) => !scalar.is_null(),
        _ => true,
    }
}

/// Wraps a float expression, or removes the sign of a constant zero; returns whether anything changed.
fn wrap(expr: &mut Expr, columns: &DFSchema) -> Result<bool> {
    let Expr::Literal(scalar, _) = expr else { return wrap_float(expr, columns) };
    let without_sign = normalize_float_zero_scalar(scalar.clone());
    Ok(without_sign != std::mem::replace(scalar, without_sign.clone()))
}

fn in_list(mut list: InList, columns: &DFSchema) -> Result<Transformed<Expr>> {
    let mut is_changed = false;
    if is_float(&list.expr, columns)? && list.list.iter().any(may_be_zero) {
        is_changed |= wrap(&mut list.expr, columns)?;
        for item in &mut list.list {
            is_changed |= wrap(item, columns)?;
        }
    }
    Ok(Transformed::new_transformed(Expr::InList(list), is_changed))
}

fn case_of(mut case: Case, columns: &DFSchema) -> Result<Transformed<Expr>> {
    let mut is_changed = false;
    if let Some(operand) = &mut case.expr
        && is_float(operand, columns)?
        && case.when_then_expr.iter().any(|(when, _)| may_be_zero(when))
    {
        is_changed |= wrap(operand, columns)?;
        for (when, _) in &mut case.when_then_expr {
            is_changed |= wrap(when, columns)?;
        }
    }
    Ok(Transformed::new_transformed(Expr::Case(case), is_changed))
}

/// Rewrites `nullif` of a column to a comparison, which may be pushed down. One of a computed value is not rewritten to
/// that, because the value would be evaluated twice.
fn null_if(mut call: ScalarFunction, columns: &DFSchema) -> Result<Transformed<Expr>> {
    if let [value @ Expr::Column(_), than] = &call.args[..] {
        let null = ScalarValue::try_new_null(&value.get_type(columns)?)?;
        let is_equal = value.clone().eq(than.clone());
        return when(is_equal, lit(null)).otherwise(value.clone()).map(Transformed::yes);
    }
    let mut is_changed = false;
    for arg in &mut call.args {
        is_changed |= wrap(arg, columns)?;
    }
    Ok(Transformed::new_transformed(Expr::ScalarFunction(call), is_changed))
}
