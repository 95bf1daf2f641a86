//! Gives columns distinct names. DataFusion 55.2 names an expression by its text, without casts and with its columns
//! resolved, and refuses a SELECT list with two equal names: `sum(id), sum(id::double)`, `id + 1, (id) + 1`, `sum(id),
//! sum(emp.id)`. Whether a query is accepted should not depend on such names. After this error, columns are named by
//! their text as written; if that is not enough, casts become part of the names ([`crate::written`]). This rule is
//! obsolete once upstream accepts equal names.
//!
//! A column of a subquery can also be referred to by its text: `"max(id)"` is resolved after the engine has failed to
//! find it.

use super::headers::{self, calls, text};
use super::{call, visit};
use crate::written;
use datafusion::common::{DataFusionError, Result, SchemaError};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Cte, Expr, Ident, Query, Select, SelectItem, TableFactor, Value, VisitorMut,
};
use std::collections::HashSet;
use std::ops::ControlFlow;

/// Names each column of every SELECT by its text in the statement.
pub(super) fn of_columns(statement: &mut Statement, lowers: bool) -> Result<()> {
    visit(statement, &mut Columns { lowers })
}

/// Makes the casts in expressions part of their column names, by calls of [`crate::written`]'s function.
pub(super) fn of_casts(statement: &mut Statement) -> Result<()> {
    visit(statement, &mut Casts)
}

/// If the column that `error` reports as missing is a column of a subquery, named by its text, gives the subquery's
/// columns these names. Returns whether that is so.
pub(super) fn of_subqueries(
    statement: &mut Statement,
    error: &DataFusionError,
    lowers: bool,
) -> Result<bool> {
    let DataFusionError::SchemaError(inner, _) = error.find_root() else { return Ok(false) };
    let SchemaError::FieldNotFound { field, .. } = &**inner else { return Ok(false) };
    let mut subqueries = Subqueries { wanted: &field.name, lowers, found: false };
    visit(statement, &mut subqueries)?;
    Ok(subqueries.found)
}

struct Columns {
    lowers: bool,
}

impl VisitorMut for Columns {
    type Break = DataFusionError;

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<DataFusionError> {
        let mut taken = HashSet::new();
        for item in &select.projection {
            match item {
                SelectItem::UnnamedExpr(expr @ (Expr::Identifier(_) | Expr::CompoundIdentifier(_))) => {
                    taken.insert(text(expr, self.lowers));
                }
                SelectItem::ExprWithAlias { alias, .. } => {
                    taken.insert(headers::normal(alias, self.lowers));
                }
                _ => {}
            }
        }
        for item in &mut select.projection {
            let SelectItem::UnnamedExpr(expr) = item else { continue };
            if matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_)) || calls(expr, &["unnest"]) {
                continue;
            }
            let name = text(expr, self.lowers);
            let numbered = (1_u32..).map(|n| format!("{name}_{n}"));
            let Some(free) = [name.clone()].into_iter().chain(numbered).find(|name| !taken.contains(name))
            else {
                continue;
            };
            taken.insert(free.clone());
            *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias: Ident::with_quote('"', free) };
        }
        ControlFlow::Continue(())
    }
}

struct Casts;

impl VisitorMut for Casts {
    type Break = DataFusionError;

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<DataFusionError> {
        if matches!(expr, Expr::Cast { .. } | Expr::TypedString(_)) {
            let name = Expr::value(Value::SingleQuotedString(expr.to_string()));
            *expr = call(written::FUNCTION, vec![expr.clone(), name]);
        }
        ControlFlow::Continue(())
    }
}

struct Subqueries<'a> {
    wanted: &'a str,
    lowers: bool,
    found: bool,
}

impl Subqueries<'_> {
    fn name(&mut self, query: &mut Query) {
        let Some(select) = headers::leftmost(query) else { return };
        let is_wanted = |item: &SelectItem| match item {
            SelectItem::UnnamedExpr(expr) => text(expr, self.lowers).eq_ignore_ascii_case(self.wanted),
            _ => false,
        };
        if !select.projection.iter().any(is_wanted) {
            return;
        }
        self.found = true;
        headers::name_columns(query, headers::Naming::by_text(self.lowers));
        if let Some(select) = headers::leftmost_mut(query) {
            for item in &mut select.projection {
                if let SelectItem::ExprWithAlias { alias, .. } = item
                    && alias.value.eq_ignore_ascii_case(self.wanted)
                {
                    alias.value = self.wanted.to_string();
                }
            }
        }
    }
}

impl VisitorMut for Subqueries<'_> {
    type Break = DataFusionError;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<DataFusionError> {
        for Cte { query, alias, .. } in query.with.iter_mut().flat_map(|with| &mut with.cte_tables) {
            if alias.columns.is_empty() {
                self.name(query);
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<DataFusionError> {
        if let TableFactor::Derived { subquery, alias, .. } = table
            && alias.as_ref().is_none_or(|alias| alias.columns.is_empty())
        {
            self.name(subquery);
        }
        ControlFlow::Continue(())
    }
}
