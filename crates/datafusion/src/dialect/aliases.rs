//! Names that SELECT gives, used again: `select a + 1 as b, b * 2 as c … where c > 4`, as in DuckDB. A column of the
//! tables goes before them, which only the planner knows: so the expression takes the place of a name once that is found
//! to be no column.

use super::depth;
use super::headers::normal;
use super::refusal;
use crate::error;
use datafusion::common::{DataFusionError, Result, SchemaError};
use datafusion::execution::SessionState;
use datafusion::logical_expr::Volatility;
use datafusion::sql::sqlparser::ast::{
    Expr, Query, Select, SelectItem, Visit, VisitMut, VisitorMut, visit_expressions,
};
use datafusion::sql::sqlparser::tokenizer::Location;
use std::ops::ControlFlow;

/// Where the planner found a name that is no column.
pub(super) struct Missing {
    name: String,
    at: Location,
}

impl Missing {
    /// The name that `error` is about, if that is the error and says where it stands.
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

/// Puts expressions in the place of their names, in the SELECT around the missing one.
pub(super) struct Reuse<'a> {
    pub missing: Missing,
    pub state: &'a SessionState,
    pub lowers: bool,
    /// Whether something was replaced.
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
        // What stands behind the list may use all of its names, an item those before it.
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

    /// That the expression is the same each time that it is computed.
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

/// Whether it may be another value each time that it is computed.
pub(super) fn is_volatile(state: &SessionState, expr: &Expr) -> bool {
    has(expr, |expr| match expr {
        Expr::Function(function) => {
            let known = state.scalar_functions().get(&function.name.to_string().to_lowercase());
            known.is_some_and(|known| known.signature().volatility == Volatility::Volatile)
        }
        _ => false,
    })
}

/// Whether an expression of this kind is part of it.
fn has(node: &impl Visit, is_meant: impl Fn(&Expr) -> bool) -> bool {
    visit_expressions(node, |expr| match is_meant(expr) {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    })
    .is_break()
}

/// Puts `expr` where the name stands. In queries within the SELECT only where it was found missing: it may be a column
/// of theirs elsewhere.
struct Put<'a> {
    reuse: &'a Reuse<'a>,
    expr: &'a Expr,
    within: usize,
}

impl Put<'_> {
    /// In what may use the name of the item at `place`.
    fn behind(mut self, select: &mut Select, place: usize) {
        let items = select.projection.iter_mut().skip(place + 1);
        let broken = items.map(|item| VisitMut::visit(item, &mut self)).any(|visited| visited.is_break());
        let clauses = [&mut select.selection, &mut select.having, &mut select.qualify];
        let broken =
            broken || clauses.into_iter().any(|clause| VisitMut::visit(clause, &mut self).is_break());
        let broken = broken || VisitMut::visit(&mut select.group_by, &mut self).is_break();
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
