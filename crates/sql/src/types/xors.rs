//! `x # y # x`: the engine leaves out operands that occur twice, also where they are NULL (DataFusion 55.2). This module is
//! obsolete once upstream does so only where they cannot be NULL.

use datafusion::common::Result;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator, when};
use datafusion::scalar::ScalarValue;

/// Rewrites an exclusive or in which an operand occurs twice: the result is NULL where the operand is.
pub(super) fn repeated(binary: BinaryExpr) -> Result<Transformed<Expr>> {
    let (mut left, mut right) = (Vec::new(), Vec::new());
    operands(&binary.left, &mut left);
    operands(&binary.right, &mut right);
    let twice: Vec<Expr> =
        left.iter().filter(|operand| right.contains(operand)).map(|expr| (*expr).clone()).collect();
    let is_null = twice.into_iter().map(Expr::is_null).reduce(Expr::or);
    let expr = Expr::BinaryExpr(binary);
    match is_null {
        Some(is_null) => {
            Ok(Transformed::yes(when(is_null, Expr::Literal(ScalarValue::Null, None)).otherwise(expr)?))
        }
        None => Ok(Transformed::no(expr)),
    }
}

/// Collects the operands of a chain of exclusive ors.
fn operands<'a>(expr: &'a Expr, found: &mut Vec<&'a Expr>) {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::BitwiseXor, right }) => {
            operands(left, found);
            operands(right, found);
        }
        other => found.push(other),
    }
}
