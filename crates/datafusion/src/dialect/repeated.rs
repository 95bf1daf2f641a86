//! Columns that are given twice: `select wind, wind`, `select 1, 1`, `select price, price::int`. The engine takes no two
//! columns of one name. The second one is called `wind_1` in the plan, as in DuckDB, which is its name in a subquery;
//! a result has the names that were written ([`super::headers`]).

use super::headers::{normal, text};
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, OrderByKind, Query, Select, SelectItem, SetExpr, visit_expressions_mut,
};
use std::collections::HashSet;
use std::ops::ControlFlow;

/// Gives other names to columns of the query whose names are taken.
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
        // Queries within it are visited by themselves.
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
        // `t.a` may be the same column as `a`, and is another one than `u.a`.
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

/// Gives the columns beside a wildcard names that no column of a table has, as `upper(city)` in
/// `select *, upper(city) as city`. Whether there was a wildcard, and something beside it. ORDER BY goes on to mean
/// the same column.
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

/// The expression of one column, and what it is called.
fn named(item: &SelectItem, lowers: bool) -> Option<(Expr, String)> {
    match item {
        SelectItem::UnnamedExpr(expr) => Some((expr.clone(), text(expr, lowers))),
        SelectItem::ExprWithAlias { expr, alias } => Some((expr.clone(), normal(alias, lowers))),
        SelectItem::ExprWithAliases { .. } | SelectItem::QualifiedWildcard(..) | SelectItem::Wildcard(_) => {
            None
        }
    }
}

/// What two columns have in common whose names are the same for the engine: its names have no casts, and no texts of
/// subqueries.
fn key(item: &SelectItem, lowers: bool) -> Option<String> {
    match item {
        SelectItem::UnnamedExpr(expr) => Some(without_casts(&without_subqueries(expr), lowers)),
        SelectItem::ExprWithAlias { alias, .. } => Some(normal(alias, lowers)),
        SelectItem::ExprWithAliases { .. } | SelectItem::QualifiedWildcard(..) | SelectItem::Wildcard(_) => {
            None
        }
    }
}

/// The name of a column that stands behind that of its table.
fn path_end(item: &SelectItem, lowers: bool) -> Option<String> {
    match item {
        SelectItem::UnnamedExpr(Expr::CompoundIdentifier(path)) => Some(normal(path.last()?, lowers)),
        _ => None,
    }
}

fn without_subqueries(expr: &Expr) -> Expr {
    let mut expr = expr.clone();
    let _: ControlFlow<()> = visit_expressions_mut(&mut expr, |expr| {
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
