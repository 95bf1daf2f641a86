//! Names result columns that contain EXISTS or a comparison with a subquery by their text in the statement, because
//! DataFusion 55.2 gives every EXISTS the same name.

use super::walk::Look;
use datafusion::sql::sqlparser::ast::{Expr, Ident, Select, SelectItem};
use std::ops::ControlFlow;

/// Gives those items of the SELECT list an alias that contain EXISTS, IN, ANY or ALL with a subquery.
pub(super) fn apply(select: &mut Select) {
    for item in &mut select.projection {
        if let SelectItem::UnnamedExpr(expr) = item
            && has_comparison(expr)
        {
            let alias = Ident::with_quote('"', expr.to_string());
            *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
        }
    }
}

fn has_comparison(expr: &Expr) -> bool {
    let found = expr.each_expr(&mut |expr| match expr {
        Expr::Exists { .. } | Expr::InSubquery { .. } | Expr::AnyOp { .. } | Expr::AllOp { .. } => {
            ControlFlow::Break(())
        }
        _ => ControlFlow::Continue(()),
    });
    found.is_break()
}
