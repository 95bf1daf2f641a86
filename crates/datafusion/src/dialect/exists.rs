//! EXISTS as a value: `select exists (select …)`. The engine supports it as a condition only. If the query is
//! just FROM and WHERE, an analyzer rule turns EXISTS into a join (`crate::exists`); otherwise it becomes
//! `count(*) > 0` here.

use super::sql;
use datafusion::common::{DataFusionError, Result};
use datafusion::sql::sqlparser::ast::{
    Expr, GroupByExpr, Ident, LimitClause, Query, Select, SelectItem, SetExpr, Value, VisitMut, VisitorMut,
    visit_expressions,
};
use std::ops::ControlFlow;

/// Rewrites EXISTS in the columns of the SELECT. They get their text as an alias: the engine names every
/// EXISTS the same.
pub(super) fn apply(select: &mut Select) -> Result<()> {
    for item in &mut select.projection {
        if let SelectItem::UnnamedExpr(expr) = item
            && has_exists(expr)
        {
            let alias = Ident::with_quote('"', expr.to_string());
            *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
        }
    }
    match select.projection.visit(&mut Rewrite { within: 0 }) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

fn has_exists(expr: &Expr) -> bool {
    let found = visit_expressions(expr, |expr| match expr {
        Expr::Exists { .. } => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    found.is_break()
}

struct Rewrite {
    /// Depth of nested queries at this position: their own columns are rewritten separately.
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
            if takes_some(subquery) {
                subquery.limit_clause = None;
            }
            let is_whole = subquery.limit_clause.is_none() && subquery.fetch.is_none();
            if matches!(&*subquery.body, SetExpr::Select(select) if is_whole && is_plain(select)) {
                return ControlFlow::Continue(());
            }
            match has_rows(subquery, *negated) {
                Ok(made) => *expr = made,
                Err(error) => return ControlFlow::Break(error),
            }
        }
        ControlFlow::Continue(())
    }
}

/// Whether the query has a LIMIT that does not remove all rows.
fn takes_some(query: &Query) -> bool {
    let Some(LimitClause::LimitOffset { limit: Some(Expr::Value(limit)), offset: None, limit_by }) =
        &query.limit_clause
    else {
        return false;
    };
    let rows = match &limit.value {
        Value::Number(rows, _) => rows.to_string().parse::<u64>().unwrap_or(0),
        _ => 0,
    };
    limit_by.is_empty() && rows > 0
}

/// Returns the condition that the number of the query's rows is positive, or zero if `negated`.
fn has_rows(query: &Query, negated: bool) -> Result<Expr> {
    let than = if negated { "= 0" } else { "> 0" };
    sql::expr(&format!("((SELECT count(*) FROM ({query}) AS counted) {than})"))
}

/// Whether the SELECT has exactly the rows of its FROM and WHERE, so that it may refer to outer columns.
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
