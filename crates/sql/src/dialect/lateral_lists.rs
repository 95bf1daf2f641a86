//! Lists in FROM that depend on the row of a preceding table (lateral joins): `t, unnest(array[t.a, t.b]) u(x)`, `t,
//! LATERAL unnest(t.l)`, `t, generate_series(1, t.n) g(i)`. DataFusion 55.2 allows columns of other tables only in
//! UNNEST, and not in an `ARRAY[…]` within it.

use super::call;
use super::headers::normal;
use super::walk::{Look, Walk};
use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, Ident, ObjectName, TableAlias, TableAliasColumnDef, TableFactor,
    VisitorMut,
};
use std::ops::ControlFlow;

/// Table functions that also exist as functions which return lists. They are also the names of the functions' columns.
const SERIES: &[&str] = &["generate_series", "range"];
const COLUMN: &str = "value";

pub(super) fn apply(table: &mut TableFactor) {
    if let Some(unnest) = unnested(table) {
        *table = unnest;
    }
    if let TableFactor::UNNEST { array_exprs, .. } = table {
        let visited = array_exprs.walk(&mut Lists);
        debug_assert!(visited.is_continue(), "the visitor never breaks");
    }
}

/// Returns the UNNEST that is equivalent to a call of a table function in [`SERIES`]; `None` for any other table.
fn unnested(table: &TableFactor) -> Option<TableFactor> {
    let (name, args, alias) = match table {
        TableFactor::Function { name, args, alias, with_ordinality: false, .. } => (name, args, alias),
        TableFactor::Table { name, args: Some(args), alias, with_ordinality: false, .. } => {
            (name, &args.args, alias)
        }
        _ => return None,
    };
    let name = single(name)?;
    let values = args.iter().map(|arg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => Some(value.clone()),
        _ => None,
    });
    let values = values.collect::<Option<Vec<Expr>>>()?;
    if name == "unnest" {
        return Some(of(values, alias.clone()));
    }
    if !SERIES.contains(&&*name) || !values.iter().any(has_column) {
        return None;
    }
    let mut alias = alias.clone().unwrap_or_else(|| named(&name));
    if alias.columns.is_empty() {
        alias.columns.push(TableAliasColumnDef { name: Ident::new(COLUMN), data_type: None });
    }
    Some(of(vec![call(&name, values)], Some(alias)))
}

fn of(array_exprs: Vec<Expr>, alias: Option<TableAlias>) -> TableFactor {
    TableFactor::UNNEST {
        alias,
        array_exprs,
        with_offset: false,
        with_offset_alias: None,
        with_ordinality: false,
    }
}

fn named(name: &str) -> TableAlias {
    TableAlias { explicit: true, name: Ident::new(name), columns: Vec::new(), at: None }
}

fn single(name: &ObjectName) -> Option<String> {
    match name.0.as_slice() {
        [part] => part.as_ident().map(|ident| normal(ident, true)),
        _ => None,
    }
}

/// Returns whether an expression reads a column.
fn has_column(expr: &Expr) -> bool {
    let found = expr.each_expr(&mut |expr| match expr {
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    found.is_break()
}

/// Rewrites array literals (`ARRAY[…]`) to function calls.
struct Lists;

impl VisitorMut for Lists {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Array(array) = expr
            && !array.elem.is_empty()
        {
            *expr = call("make_array", std::mem::take(&mut array.elem));
        }
        ControlFlow::Continue(())
    }
}
