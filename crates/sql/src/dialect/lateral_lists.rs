//! Lists in FROM that depend on the row of a preceding table (lateral joins): `t, unnest(array[t.a, t.b]) u(x)`, `t,
//! LATERAL unnest(t.l)`, `t, generate_series(1, t.n) g(i)`. DataFusion 55.2 allows columns of other tables only in
//! UNNEST, and not in an `ARRAY[…]` within it.

use super::headers::normal;
use super::walk::{Look, Walk};
use super::{call, refusal};
use datafusion::common::Result;
use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectName, TableAlias,
    TableAliasColumnDef, TableFactor, Value, VisitorMut,
};
use std::ops::ControlFlow;

/// Table functions that also exist as functions which return lists. They are also the names of the functions' columns.
const SERIES: &[&str] = &["generate_series", "range"];
const COLUMN: &str = "value";
const UNNEST: &str = "unnest";

pub(super) fn apply(table: &mut TableFactor) {
    if let Some(unnest) = unnested(table) {
        *table = unnest;
    }
    if let TableFactor::UNNEST { array_exprs, .. } = table {
        let visited = array_exprs.walk(&mut Lists);
        debug_assert!(visited.is_continue(), "the visitor never breaks");
    }
}

/// Rewrites `unnest(list) WITH ORDINALITY u(x, n)`, or one of a series, to an UNNEST of the list and of the places in it.
///
/// # Errors
/// Fails if the list is that of a subquery: it is written twice, and so would be each within it.
pub(super) fn with_places(table: &mut TableFactor) -> Result<()> {
    let (name, mut lists, alias) = match table {
        TableFactor::UNNEST { array_exprs, alias, with_ordinality: true, .. } => {
            (UNNEST.to_string(), array_exprs.clone(), alias.clone())
        }
        _ => match called(table) {
            Some(Called { name, values, alias, with_ordinality: true }) => match name.as_str() {
                UNNEST => (name, values, alias.clone()),
                _ => (name.clone(), vec![call(&name, values)], alias.clone()),
            },
            _ => return Ok(()),
        },
    };
    if lists.iter().any(has_query) {
        let advice = "select the list in a subquery of FROM, and then unnest its column";
        return Err(refusal("WITH ORDINALITY of a subquery is not done", advice));
    }
    let mut alias = alias.unwrap_or_else(|| named(&name));
    for place in alias.columns.len()..=lists.len() {
        let name = match place {
            place if place == lists.len() => Ident::new("ordinality"),
            0 if lists.len() == 1 => alias.name.clone(),
            _ => Ident::new(&name),
        };
        alias.columns.push(TableAliasColumnDef { name, data_type: None });
    }
    let lengths = lists.iter().map(|list| call("array_length", vec![list.clone()])).collect();
    let first = Expr::value(Value::Number("1".into(), false));
    lists.push(call("generate_series", vec![first, call("greatest", lengths)]));
    *table = of(lists, Some(alias));
    Ok(())
}

/// Returns whether an expression contains a subquery.
fn has_query(expr: &Expr) -> bool {
    let found = expr.each_expr(&mut |expr| match expr {
        Expr::Subquery(_) | Expr::InSubquery { .. } | Expr::Exists { .. } => ControlFlow::Break(()),
        Expr::Function(function) if matches!(function.args, FunctionArguments::Subquery(_)) => {
            ControlFlow::Break(())
        }
        _ => ControlFlow::Continue(()),
    });
    found.is_break()
}

/// A call in FROM of a function that returns lists.
struct Called<'a> {
    name: String,
    values: Vec<Expr>,
    alias: &'a Option<TableAlias>,
    with_ordinality: bool,
}

/// Returns the call of UNNEST, or of a function in [`SERIES`]; `None` for any other table.
fn called(table: &TableFactor) -> Option<Called<'_>> {
    let (name, args, alias, with_ordinality) = match table {
        TableFactor::Function { name, args, alias, with_ordinality, .. } => {
            (name, args, alias, *with_ordinality)
        }
        TableFactor::Table { name, args: Some(args), alias, with_ordinality, .. } => {
            (name, &args.args, alias, *with_ordinality)
        }
        _ => return None,
    };
    let name = single(name)?;
    let values = args.iter().map(|arg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => Some(value.clone()),
        _ => None,
    });
    let values = values.collect::<Option<Vec<Expr>>>()?;
    let is_known = name == UNNEST || SERIES.contains(&&*name);
    is_known.then_some(Called { name, values, alias, with_ordinality })
}

/// Returns the UNNEST that is equivalent to a call in FROM; `None` for any other table, and for a series of constants.
fn unnested(table: &TableFactor) -> Option<TableFactor> {
    let Called { name, values, alias, .. } = called(table)?;
    if name == UNNEST {
        return Some(of(values, alias.clone()));
    }
    if !values.iter().any(has_column) {
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
