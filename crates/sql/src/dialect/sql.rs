//! Parses text to parts of statements, which rules insert as replacements.

use super::Grammar;
use super::walk::Walk;
use datafusion::common::{DataFusionError, Result};
use datafusion::sql::sqlparser::ast::{Expr, Query, VisitorMut};
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use std::ops::ControlFlow;

/// Maximum depth of nested brackets in the text of a replacement. A small limit is enough, because the text is inserted
/// into a statement whose depth is limited already.
const RECURSION: usize = 100;

fn parsed<T>(text: &str, parse: impl FnOnce(&mut Parser<'_>) -> Result<T, ParserError>) -> Result<T> {
    let parser = Parser::new(&Grammar).with_recursion_limit(RECURSION).try_with_sql(text);
    let parsed = parser.and_then(|mut parser| parse(&mut parser));
    parsed.map_err(|error| DataFusionError::SQL(Box::new(error), None))
}

/// Parses an expression.
///
/// # Errors
/// The parser's error, only for a text that a rule has built incorrectly.
pub(super) fn expr(text: &str) -> Result<Expr> {
    parsed(text, |parser| parser.parse_expr())
}

/// Parses a query.
///
/// # Errors
/// The parser's error, only for a text that a rule has built incorrectly.
pub(super) fn query(text: &str) -> Result<Box<Query>> {
    parsed(text, |parser| parser.parse_query())
}

/// Parses an expression and substitutes the `named` expressions for names in it.
///
/// # Errors
/// The parser's error, only for a text that a rule has built incorrectly.
pub(super) fn expr_with(text: &str, named: &[(&str, Expr)]) -> Result<Expr> {
    let mut made = expr(text)?;
    put(&mut made, named);
    Ok(made)
}

/// Substitutes expressions for names. The inserted expressions are not visited themselves.
pub(super) fn put(made: &mut Expr, named: &[(&str, Expr)]) {
    let visited = made.walk(&mut Put { named });
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
