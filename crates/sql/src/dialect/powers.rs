//! Rewrites `2 ^ 10` to a power of floats, even for integers: the power of two integers is often not an integer, for
//! example with a negative exponent.

use super::call;
use datafusion::sql::sqlparser::ast::{BinaryOperator, CastKind, DataType, ExactNumberInfo, Expr};

pub(super) fn apply(expr: &mut Expr) {
    let Expr::BinaryOp { left, op: BinaryOperator::PGExp, right } = expr else { return };
    let double = |expr: &Expr| {
        let (expr, data_type) = (Box::new(expr.clone()), DataType::Double(ExactNumberInfo::None));
        Expr::Cast { kind: CastKind::Cast, expr, data_type, array: false, format: None }
    };
    *expr = call("power", vec![double(left), double(right)]);
}
