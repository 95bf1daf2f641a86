//! EXISTS as a value: `select exists (select …)`. The engine has it as a condition only; as a value it is that the query
//! has more than no rows.

use super::sql;
use datafusion::common::{DataFusionError, Result};
use datafusion::sql::sqlparser::ast::{
    Expr, GroupByExpr, Query, Select, SelectItem, SetExpr, VisitMut, VisitorMut,
};
use std::ops::ControlFlow;

/// In the columns of the SELECT.
pub(super) fn apply(select: &mut Select) -> Result<()> {
    match select.projection.visit(&mut Rewrite { within: 0 }) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

struct Rewrite {
    /// Queries around the place: their own columns are their own matter.
    within: usize,
}

impl VisitorMut for Rewrite {
    type Break = DataFusionError;

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<DataFusionError> {
        self.within += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<DataFusionError> {
        self.within -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<DataFusionError> {
        if let (Expr::Exists { subquery, negated }, 0) = (&mut *expr, self.within) {
            match has_rows(subquery, *negated) {
                Ok(made) => *expr = made,
                Err(error) => return ControlFlow::Break(error),
            }
        }
        ControlFlow::Continue(())
    }
}

/// Whether the query has rows, by their number.
fn has_rows(query: &Query, negated: bool) -> Result<Expr> {
    let than = if negated { "= 0" } else { "> 0" };
    let is_whole = query.limit_clause.is_none() && query.fetch.is_none();
    match &*query.body {
        SetExpr::Select(select) if is_whole && is_plain(select) => {
            let counts = SelectItem::UnnamedExpr(sql::expr("count(*)")?);
            let select = Select { projection: vec![counts], ..Select::clone(select) };
            let body = Box::new(SetExpr::Select(Box::new(select)));
            let counted = Query { order_by: None, body, ..query.clone() };
            sql::expr_with(&format!("(x {than})"), &[("x", Expr::Subquery(Box::new(counted)))])
        }
        _ => sql::expr(&format!("((SELECT count(*) FROM ({query}) AS counted) {than})")),
    }
}

/// Whether it has the rows that its FROM and WHERE have, which a subquery may share columns with.
fn is_plain(select: &Select) -> bool {
    let is_plain = |item: &SelectItem| match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
            matches!(expr, Expr::Value(_) | Expr::Identifier(_) | Expr::CompoundIdentifier(_))
        }
        SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..) => true,
        SelectItem::ExprWithAliases { .. } => false,
    };
    let is_grouped = !matches!(&select.group_by, GroupByExpr::Expressions(by, with)
        if by.is_empty() && with.is_empty());
    let is_more = is_grouped || select.distinct.is_some() || select.top.is_some();
    select.projection.iter().all(is_plain) && !is_more && select.having.is_none() && select.qualify.is_none()
}
