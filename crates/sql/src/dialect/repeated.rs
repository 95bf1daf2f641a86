//! Columns with equal names: `select wind, wind`, `select 1, 1`, `select price, price::int`. DataFusion 55.2 requires
//! distinct names. In the plan, the second column is named `wind_1`, as in DuckDB, and it has this name if the query is
//! a subquery. A result shows the names that were written ([`super::headers`]).

use super::headers::{normal, text};
use super::walk::Walk;
use datafusion::sql::sqlparser::ast::{Expr, Ident, OrderByKind, Query, Select, SelectItem, SetExpr};
use std::collections::HashSet;
use std::ops::ControlFlow;

/// Renames those columns of the query whose names an earlier column has already.
pub(super) fn apply(query: &mut Query, lowers: bool) {
    let order = query.order_by.as_ref().map(ToString::to_string).unwrap_or_default();
    in_selects(&mut query.body, &mut |select| rename(select, &order, lowers));
}

fn in_selects(body: &mut SetExpr, f: &mut impl FnMut(&mut Select)) {
    match body {
        SetExpr::Select(select) => f(select),
        SetExpr::SetOperation { left, right, .. } => {
            in_selects(left, f);
            in_selects(right, f);
        }
        // Nested queries are visited separately.
        SetExpr::Query(_)
        | SetExpr::Values(_)
        | SetExpr::Insert(_)
        | SetExpr::Update(_)
        | SetExpr::Delete(_)
        | SetExpr::Merge(_)
        | SetExpr::Table(_) => {}
    }
}

fn rename(select: &mut Select, order: &str, lowers: bool) {
    let (mut taken, mut qualified) = (HashSet::new(), HashSet::new());
    let mut repeats = |item: &SelectItem| {
        let Some(key) = key(item, lowers) else { return false };
        // `t.a` may be the same column as `a`, but differs from `u.a`.
        let is_taken = match path_end(item, lowers) {
            Some(end) => !qualified.insert(end.clone()) && taken.contains(&key) || taken.contains(&end),
            None => qualified.contains(&key),
        };
        !taken.insert(key) || is_taken
    };
    let is_repeated: Vec<bool> = select.projection.iter().map(&mut repeats).collect();
    if !is_repeated.contains(&true) {
        return;
    }
    for (item, _) in select.projection.iter_mut().zip(is_repeated).filter(|(_, is_repeated)| *is_repeated) {
        let Some((expr, name)) = named(item, lowers) else { continue };
        let is_free = |name: &String| !taken.contains(name) && !order.contains(name);
        let Some(name) = (1_u32..).map(|n| format!("{name}_{n}")).find(is_free) else { continue };
        taken.insert(name.clone());
        *item = SelectItem::ExprWithAlias { expr, alias: Ident::with_quote('"', name) };
    }
}

/// If the SELECT list has a wildcard and other columns, gives the other columns names that no column of a table has,
/// such as `upper(city)` in `select *, upper(city) as city`; ORDER BY still refers to the same columns. Returns whether
/// there was such a wildcard.
pub(super) fn beside_wildcard(query: &mut Query, lowers: bool) -> bool {
    let SetExpr::Select(select) = &mut *query.body else { return false };
    let is_wildcard =
        |item: &SelectItem| matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..));
    if !select.projection.iter().any(is_wildcard) {
        return false;
    }
    let mut renamed = Vec::new();
    for (place, item) in select.projection.iter_mut().enumerate() {
        let Some((expr, name)) = named(item, lowers) else { continue };
        let alias = Ident::with_quote('"', format!("{name}:{}", place + 1));
        if matches!(item, SelectItem::ExprWithAlias { .. }) {
            renamed.push((name, alias.clone()));
        }
        *item = SelectItem::ExprWithAlias { expr, alias };
    }
    let Some(OrderByKind::Expressions(order)) = query.order_by.as_mut().map(|order| &mut order.kind) else {
        return true;
    };
    for by in order {
        let Expr::Identifier(name) = &by.expr else { continue };
        if let Some((_, alias)) = renamed.iter().find(|(old, _)| *old == normal(name, lowers)) {
            by.expr = Expr::Identifier(alias.clone());
        }
    }
    true
}

/// Returns the expression of a SELECT item and its name in the result; `None` for a wildcard.
fn named(item: &SelectItem, lowers: bool) -> Option<(Expr, String)> {
    match item {
        SelectItem::UnnamedExpr(expr) => Some((expr.clone(), text(expr, lowers))),
        SelectItem::ExprWithAlias { expr, alias } => Some((expr.clone(), normal(alias, lowers))),
        SelectItem::ExprWithAliases { .. } | SelectItem::QualifiedWildcard(..) | SelectItem::Wildcard(_) => {
            None
        }
    }
}

/// Returns a key that is equal for two columns which get the same name in the engine: its names leave out casts and the
/// text of subqueries. `None` for a wildcard.
fn key(item: &SelectItem, lowers: bool) -> Option<String> {
    match item {
        SelectItem::UnnamedExpr(expr) => Some(without_casts(&without_subqueries(expr), lowers)),
        SelectItem::ExprWithAlias { alias, .. } => Some(normal(alias, lowers)),
        SelectItem::ExprWithAliases { .. } | SelectItem::QualifiedWildcard(..) | SelectItem::Wildcard(_) => {
            None
        }
    }
}

/// Returns the last part of a column's qualified name (`a` of `t.a`); `None` for other items.
fn path_end(item: &SelectItem, lowers: bool) -> Option<String> {
    match item {
        SelectItem::UnnamedExpr(Expr::CompoundIdentifier(path)) => Some(normal(path.last()?, lowers)),
        _ => None,
    }
}

fn without_subqueries(expr: &Expr) -> Expr {
    let mut expr = expr.clone();
    let _: ControlFlow<()> = expr.each_expr_mut(&mut |expr| {
        if matches!(expr, Expr::Subquery(_)) {
            *expr = Expr::Identifier(Ident::new("(<subquery>)"));
        }
        ControlFlow::Continue(())
    });
    expr
}

fn without_casts(expr: &Expr, lowers: bool) -> String {
    match expr {
        Expr::Identifier(name) => normal(name, lowers),
        Expr::CompoundIdentifier(path) => {
            path.iter().map(|name| normal(name, lowers)).collect::<Vec<_>>().join(".")
        }
        Expr::Nested(inner) | Expr::Cast { expr: inner, .. } => without_casts(inner, lowers),
        Expr::TypedString(typed) => typed.value.to_string().to_lowercase(),
        other => other.to_string().to_lowercase(),
    }
}
