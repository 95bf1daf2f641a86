//! Rewrites `~x`, the complement of an integer's bits, to an exclusive OR with -1: DataFusion 55.2 has no operator `~`.

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, UnaryOperator, Value};

pub(super) fn apply(expr: &mut Expr) {
    let Expr::UnaryOp { op: UnaryOperator::BitwiseNot, expr: bits } = expr else {
        return;
    };
    let minus_one = Expr::UnaryOp {
        op: UnaryOperator::Minus,
        expr: Box::new(Expr::value(Value::Number("1".into(), false))),
    };
    let complement = Expr::BinaryOp {
        left: Box::new((**bits).clone()),
        op: BinaryOperator::PGBitwiseXor,
        right: Box::new(minus_one),
    };
    *expr = Expr::Nested(Box::new(complement));
}
