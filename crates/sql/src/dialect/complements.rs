//! Rewrites `~x`, the complement of an integer's bits, which the engine lacks, to an exclusive OR with -1.

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
