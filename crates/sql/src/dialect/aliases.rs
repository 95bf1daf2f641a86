//! Reuse of column aliases: `select a + 1 as b, b * 2 as c … where c > 4`, as in DuckDB. DataFusion 55.2 does not
//! resolve an alias in its own SELECT. If a table has a column of that name, the column takes precedence. Only the
//! planner knows the columns. Therefore an alias is replaced by its expression only after planning has failed because
//! the name is no column.

use super::depth;
use super::headers::normal;
use super::refusal;
use super::walk::{Look, Walk};
use crate::error;
use datafusion::common::{DataFusionError, Result, SchemaError};
use datafusion::execution::SessionState;
use datafusion::logical_expr::Volatility;
use datafusion::sql::sqlparser::ast::{Expr, Query, Select, SelectItem, Visit, VisitorMut};
use datafusion::sql::sqlparser::tokenizer::Location;
use std::ops::ControlFlow;

/// A name that the planner did not find as a column, and its position.
pub(super) struct Missing {
    name: String,
    at: Location,
}

impl Missing {
    /// If `error` reports a name that is no column, with its position, returns that name; otherwise `None`.
    pub(super) fn of(error: &DataFusionError) -> Option<Self> {
        let DataFusionError::SchemaError(inner, _) = error.find_root() else { return None };
        let SchemaError::FieldNotFound { field, .. } = &**inner else { return None };
        let (line, column) = error::position(error)?;
        (field.relation.is_none())
            .then(|| Missing { name: field.name.clone(), at: Location { line, column } })
    }

    fn is(&self, expr: &Expr, lowers: bool) -> bool {
        matches!(expr, Expr::Identifier(name) if normal(name, lowers) == self.name)
    }

    fn is_here(&self, expr: &Expr) -> bool {
        matches!(expr, Expr::Identifier(name) if name.value.eq_ignore_ascii_case(&self.name)
            && name.span.start == self.at)
    }
}

/// In the SELECT that contains the missing name, replaces the uses of the alias by its expression.
pub(super) struct Reuse<'a> {
    pub missing: Missing,
    pub state: &'a SessionState,
    pub lowers: bool,
    /// Whether anything was replaced.
    pub done: bool,
}

impl VisitorMut for Reuse<'_> {
    type Break = DataFusionError;

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<DataFusionError> {
        if self.done {
            return ControlFlow::Continue(());
        }
        match self.replace(select) {
            Ok(done) => {
                self.done = done;
                ControlFlow::Continue(())
            }
            Err(error) => ControlFlow::Break(error),
        }
    }
}

impl Reuse<'_> {
    fn replace(&self, select: &mut Select) -> Result<bool> {
        let is_here = |expr: &Expr| self.missing.is_here(expr);
        if !has(&*select, is_here) {
            return Ok(false);
        }
        // Clauses after the SELECT list (WHERE, …) may use all its aliases; an item of the list only those before it.
        let user =
            select.projection.iter().position(|item| has(item, is_here)).unwrap_or(select.projection.len());
        let is_meant = |item: &SelectItem| {
            matches!(item, SelectItem::ExprWithAlias { alias, .. }
                if normal(alias, self.lowers) == self.missing.name)
        };
        let Some(place) = select.projection[..user].iter().position(is_meant) else { return Ok(false) };
        let SelectItem::ExprWithAlias { expr, .. } = select.projection[place].clone() else {
            return Ok(false);
        };
        if has(&expr, |inner| self.missing.is(inner, self.lowers)) {
            return Ok(false);
        }
        self.check(&expr)?;
        let put = Put { reuse: self, expr: &Expr::Nested(Box::new(expr)), within: 0 };
        put.behind(select, place);
        depth::check(&*select)?;
        Ok(true)
    }

    /// Refuses an expression that may have a different value each time it is evaluated, because the alias stands for a
    /// single value.
    fn check(&self, expr: &Expr) -> Result<()> {
        match is_volatile(self.state, expr) {
            true => Err(refusal(
                &format!(
                    "{} would be computed anew where it is used again, and be another value",
                    self.missing.name
                ),
                "compute it in a subquery",
            )),
            false => Ok(()),
        }
    }
}

/// Returns whether the expression may have a different value each time it is evaluated.
pub(super) fn is_volatile(state: &SessionState, expr: &Expr) -> bool {
    has(expr, |expr| match expr {
        Expr::Function(function) => {
            let known = state.scalar_functions().get(&function.name.to_string().to_lowercase());
            known.is_some_and(|known| known.signature().volatility == Volatility::Volatile)
        }
        _ => false,
    })
}

/// Returns whether `node` contains an expression for which `is_meant` is true.
fn has(node: &impl Visit, is_meant: impl Fn(&Expr) -> bool) -> bool {
    node.each_expr(&mut |expr| match is_meant(expr) {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    })
    .is_break()
}

/// Replaces the name by `expr`. Within nested queries, replaces only the use that the planner reported: another use may
/// be a column of the nested query.
struct Put<'a> {
    reuse: &'a Reuse<'a>,
    expr: &'a Expr,
    within: usize,
}

impl Put<'_> {
    /// Replaces the name wherever the alias of the SELECT item at index `place` may be used.
    fn behind(mut self, select: &mut Select, place: usize) {
        let items = select.projection.iter_mut().skip(place + 1);
        let broken = items.map(|item| item.walk(&mut self)).any(|visited| visited.is_break());
        let clauses = [&mut select.selection, &mut select.having, &mut select.qualify];
        let broken = broken || clauses.into_iter().any(|clause| clause.walk(&mut self).is_break());
        let broken = broken || select.group_by.walk(&mut self).is_break();
        debug_assert!(!broken, "the visitor never breaks");
    }
}

impl VisitorMut for Put<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.within += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.within -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let missing = &self.reuse.missing;
        if missing.is_here(expr) || (self.within == 0 && missing.is(expr, self.reuse.lowers)) {
            *expr = self.expr.clone();
        }
        ControlFlow::Continue(())
    }
}
