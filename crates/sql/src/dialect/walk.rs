//! Walks over the syntax trees of parsed statements.
//!
//! The parser crate generates its walk anew for each type of visitor: about a thousand functions. For all the rules
//! here, that took most of the time in which this crate is compiled. The walks here call their visitors through a table
//! of methods (dynamic dispatch), so that one walk is generated for all.

use datafusion::sql::sqlparser::ast::{
    Expr, ObjectName, Query, Select, Statement, TableFactor, ValueWithSpan, Visit, VisitMut, Visitor,
    VisitorMut,
};
use std::ops::ControlFlow;

/// A part of a statement that a visitor changes.
pub(super) trait Walk: VisitMut {
    /// Calls `visitor` for each part, in the order in which the parser's own walk does.
    fn walk<B>(&mut self, visitor: &mut dyn VisitorMut<Break = B>) -> ControlFlow<B> {
        self.visit(&mut Shared(visitor))
    }

    /// Calls `change` for each expression, after its parts.
    fn each_expr_mut<B>(&mut self, change: &mut dyn FnMut(&mut Expr) -> ControlFlow<B>) -> ControlFlow<B> {
        self.walk(&mut ExprsMut(change))
    }
}

impl<N: VisitMut> Walk for N {}

/// A part of a statement that a visitor only reads.
pub(super) trait Look: Visit {
    /// Calls `visitor` for each part, in the order in which the parser's own walk does.
    fn look<B>(&self, visitor: &mut dyn Visitor<Break = B>) -> ControlFlow<B> {
        self.visit(&mut Shared(visitor))
    }

    /// Calls `read` for each expression, before its parts.
    fn each_expr<B>(&self, read: &mut dyn FnMut(&Expr) -> ControlFlow<B>) -> ControlFlow<B> {
        self.look(&mut Exprs(read))
    }
}

impl<N: Visit> Look for N {}

struct Shared<'a, V: ?Sized>(&'a mut V);

struct Exprs<'a, B>(&'a mut dyn FnMut(&Expr) -> ControlFlow<B>);

struct ExprsMut<'a, B>(&'a mut dyn FnMut(&mut Expr) -> ControlFlow<B>);

impl<B> VisitorMut for ExprsMut<'_, B> {
    type Break = B;

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<B> {
        (self.0)(expr)
    }
}

impl<B> Visitor for Exprs<'_, B> {
    type Break = B;

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<B> {
        (self.0)(expr)
    }
}

/// Implements a visitor's methods, one for each type of syntax node, by calling those of the visitor within.
macro_rules! forwarded {
    ($($method:ident: $part:ty,)*) => {
        $(fn $method(&mut self, part: $part) -> ControlFlow<B> {
            self.0.$method(part)
        })*
    };
}

impl<B> Visitor for Shared<'_, dyn Visitor<Break = B> + '_> {
    type Break = B;

    forwarded! {
        pre_visit_query: &Query,
        post_visit_query: &Query,
        pre_visit_select: &Select,
        post_visit_select: &Select,
        pre_visit_relation: &ObjectName,
        post_visit_relation: &ObjectName,
        pre_visit_table_factor: &TableFactor,
        post_visit_table_factor: &TableFactor,
        pre_visit_expr: &Expr,
        post_visit_expr: &Expr,
        pre_visit_statement: &Statement,
        post_visit_statement: &Statement,
        pre_visit_value: &ValueWithSpan,
        post_visit_value: &ValueWithSpan,
    }
}

impl<B> VisitorMut for Shared<'_, dyn VisitorMut<Break = B> + '_> {
    type Break = B;

    forwarded! {
        pre_visit_query: &mut Query,
        post_visit_query: &mut Query,
        pre_visit_select: &mut Select,
        post_visit_select: &mut Select,
        pre_visit_relation: &mut ObjectName,
        post_visit_relation: &mut ObjectName,
        pre_visit_table_factor: &mut TableFactor,
        post_visit_table_factor: &mut TableFactor,
        pre_visit_expr: &mut Expr,
        post_visit_expr: &mut Expr,
        pre_visit_statement: &mut Statement,
        post_visit_statement: &mut Statement,
        pre_visit_value: &mut ValueWithSpan,
        post_visit_value: &mut ValueWithSpan,
    }
}
