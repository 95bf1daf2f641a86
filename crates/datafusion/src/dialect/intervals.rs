//! `n * interval '1 day'`: the engine cannot multiply intervals. Rewrites it to a call of farpool's function,
//! if one side is syntactically an interval.

use super::call;
use datafusion::sql::sqlparser::ast::{BinaryOperator, CastKind, DataType, Expr};

pub(super) fn apply(expr: &mut Expr) {
    let Expr::BinaryOp { left, op: BinaryOperator::Multiply, right } = expr else { return };
    let (interval, times) = match (is_interval(left), is_interval(right)) {
        (true, false) => (left, right),
        (false, true) => (right, left),
        (true, true) | (false, false) => return,
    };
    *expr = call("multiply_interval", vec![(**interval).clone(), (**times).clone()]);
}

fn is_interval(expr: &Expr) -> bool {
    match expr {
        Expr::Interval(_) => true,
        Expr::Nested(inner) => is_interval(inner),
        Expr::Cast { kind: CastKind::Cast | CastKind::DoubleColon, data_type, .. } => {
            matches!(data_type, DataType::Interval { .. })
        }
        _ => false,
    }
}
