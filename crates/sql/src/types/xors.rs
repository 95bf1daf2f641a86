//! `x # y # x`: the engine leaves out operands that occur twice, also where they are NULL (DataFusion 55.2). This module is
//! obsolete once upstream does so only where they cannot be NULL.

use crate::in_lists::of_each_row;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};
use std::collections::HashSet;

/// Rewrites an exclusive or in which an operand occurs on both sides, so that the engine does not find it there.
pub(super) fn repeated(mut binary: BinaryExpr) -> Transformed<Expr> {
    let (mut left, mut occurs_twice) = (HashSet::new(), false);
    each_operand(&binary.left, &mut |operand| {
        left.insert(operand);
    });
    each_operand(&binary.right, &mut |operand| occurs_twice |= left.contains(operand));
    if occurs_twice {
        binary.right = Box::new(of_each_row(*binary.right));
    }
    Transformed::new_transformed(Expr::BinaryExpr(binary), occurs_twice)
}

/// Calls `visit` with the operands of a chain of exclusive ors.
fn each_operand<'a>(expr: &'a Expr, visit: &mut impl FnMut(&'a Expr)) {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::BitwiseXor, right }) => {
            each_operand(left, visit);
            each_operand(right, visit);
        }
        other => visit(other),
    }
}
