//! Parts of statements from text: what rules put in the place of what was written.

use super::Grammar;
use datafusion::common::{DataFusionError, Result};
use datafusion::sql::sqlparser::ast::{Expr, Query, VisitMut, VisitorMut};
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use std::ops::ControlFlow;

/// How deep brackets may be in it: as in the statement that it becomes a part of, which was bounded, and some more.
const RECURSION: usize = 100;

fn parsed<T>(text: &str, parse: impl FnOnce(&mut Parser<'_>) -> Result<T, ParserError>) -> Result<T> {
    let parser = Parser::new(&Grammar).with_recursion_limit(RECURSION).try_with_sql(text);
    let parsed = parser.and_then(|mut parser| parse(&mut parser));
    parsed.map_err(|error| DataFusionError::SQL(Box::new(error), None))
}

/// The expression that `text` is.
///
/// # Errors
/// The parser's: only for a text made wrongly.
pub(super) fn expr(text: &str) -> Result<Expr> {
    parsed(text, |parser| parser.parse_expr())
}

/// The query that `text` is.
///
/// # Errors
/// The parser's: only for a text made wrongly.
pub(super) fn query(text: &str) -> Result<Box<Query>> {
    parsed(text, |parser| parser.parse_query())
}

/// The expression that `text` is, with these in the places of names.
///
/// # Errors
/// The parser's: only for a text made wrongly.
pub(super) fn expr_with(text: &str, named: &[(&str, Expr)]) -> Result<Expr> {
    let mut made = expr(text)?;
    put(&mut made, named);
    Ok(made)
}

/// Puts these in the places of names. They are not looked at themselves.
pub(super) fn put(made: &mut Expr, named: &[(&str, Expr)]) {
    let visited = made.visit(&mut Put { named });
    debug_assert!(visited.is_continue(), "the visitor never breaks");
}

struct Put<'a> {
    named: &'a [(&'a str, Expr)],
}

impl VisitorMut for Put<'_> {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Identifier(name) = expr
            && let Some((_, value)) = self.named.iter().find(|(wanted, _)| *wanted == name.value)
        {
            *expr = value.clone();
        }
        ControlFlow::Continue(())
    }
}
