//! Limits the nesting depth of statements. The parser, the planner and the operators traverse syntax trees recursively,
//! on a stack of limited size. `1 + 1 + 1` is a tree as deep as it has operators, although the parser builds it in a
//! loop.
//!
//! Invariant: a text that passes [`check_text`] is parsed to trees of at most [`limits::SQL_DEPTH_MAX`] levels, and
//! [`check`] ensures that rewriting rules have not made them deeper.

use super::Grammar;
use super::walk::Look;
use crate::error;
use datafusion::common::Result;
use datafusion::sql::sqlparser::ast::{Expr, Visit, Visitor};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};
use farpool_model::{Error, limits};
use std::ops::ControlFlow;

/// Refuses a text whose syntax tree would be too deep, before it is parsed.
///
/// # Errors
/// `OverLimit` if it is too deep.
pub(super) fn check_text(text: &str) -> Result<()> {
    // An operator takes at least one character, so that short texts cannot be too deep and are not examined.
    if text.len() <= limits::SQL_DEPTH_MAX {
        return Ok(());
    }
    // A text that has invalid tokens is passed on, because the parser reports the error.
    let Ok(tokens) = Tokenizer::new(&Grammar, text).tokenize() else { return Ok(()) };
    let mut levels = Levels::default();
    for token in &tokens {
        levels.take(token);
        within(levels.depth)?;
    }
    Ok(())
}

/// Refuses a part of a statement whose syntax tree is too deep or too large.
///
/// # Errors
/// `OverLimit` if it is.
pub(super) fn check(node: &impl Visit) -> Result<()> {
    let mut measure = Measure::default();
    let visited = node.look(&mut measure);
    debug_assert!(visited.is_continue(), "the visitor never breaks");
    within(measure.deepest)?;
    match measure.nodes <= limits::SQL_NODES_MAX {
        true => Ok(()),
        false => {
            let what = format!("expressions written out have more than {} parts", limits::SQL_NODES_MAX);
            Err(error::wrap(Error::over_limit(what).advise("compute parts of them in a subquery")))
        }
    }
}

/// Returns the number of nodes in a syntax tree of expressions.
pub(super) fn parts(node: &impl Visit) -> usize {
    let mut measure = Measure::default();
    let visited = node.look(&mut measure);
    debug_assert!(visited.is_continue(), "the visitor never breaks");
    measure.nodes
}

fn within(depth: usize) -> Result<()> {
    match depth <= limits::SQL_DEPTH_MAX {
        true => Ok(()),
        false => {
            let what = format!(
                "the statement is nested more than {} levels deep, counting operators in a row",
                limits::SQL_DEPTH_MAX
            );
            let advice = "use IN (…) for many values, a list with array_sum or unnest, or several statements";
            Err(error::wrap(Error::over_limit(what).advise(advice)))
        }
    }
}

/// Counts the levels at the current token: the open brackets, including CASE … END, and the operators within them.
///
/// A keyword may also be a name, if an operand is expected: `1 + where + 1`. Therefore a clause keyword ends an
/// expression only after a token that is certainly an operand. Otherwise counting continues, so that the depth may be
/// overestimated but not underestimated.
#[derive(Default)]
struct Levels {
    open: Vec<Level>,
    here: Level,
    /// Depth at the current token: the sum of the depths of all open levels.
    depth: usize,
    /// Whether the last token was an operand or the end of one.
    is_operand: bool,
}

#[derive(Clone, Copy, Default)]
struct Level {
    is_case: bool,
    /// Number of operators since the beginning of the current expression.
    operators: usize,
    /// Queries and joins nested in each other; they end with the bracket.
    queries: usize,
}

impl Levels {
    fn take(&mut self, token: &Token) {
        let was_operand = std::mem::take(&mut self.is_operand);
        match token {
            Token::Whitespace(_) => self.is_operand = was_operand,
            Token::LParen | Token::LBracket | Token::LBrace => self.open(false),
            Token::RParen | Token::RBracket | Token::RBrace => {
                while self.here.is_case {
                    self.close();
                }
                self.close();
                self.is_operand = true;
            }
            Token::Comma | Token::SemiColon if !self.here.is_case => self.end_expression(),
            Token::Word(word) => match (word.quote_style, word.keyword) {
                (Some(_), _)
                | (None, Keyword::NoKeyword | Keyword::NULL | Keyword::TRUE | Keyword::FALSE) => {
                    self.is_operand = true;
                }
                (None, keyword) => self.word(keyword, was_operand),
            },
            Token::Number(..) | Token::SingleQuotedString(_) => self.is_operand = true,
            Token::Period | Token::EOF => {}
            _ => self.operator(),
        }
    }

    fn word(&mut self, keyword: Keyword, was_operand: bool) {
        match keyword {
            Keyword::UNION | Keyword::EXCEPT | Keyword::INTERSECT | Keyword::JOIN => {
                if was_operand {
                    self.end_expression();
                }
                self.here.queries += 1;
                self.depth += 1;
            }
            Keyword::FROM
            | Keyword::WHERE
            | Keyword::ON
            | Keyword::GROUP
            | Keyword::HAVING
            | Keyword::ORDER
            | Keyword::THEN
            | Keyword::ELSE
                if was_operand =>
            {
                self.end_expression();
            }
            // WHEN after an operand ends the expression of the previous branch; the first WHEN of a CASE does not.
            Keyword::WHEN if was_operand && self.here.is_case => self.end_expression(),
            Keyword::CASE if !was_operand => self.open(true),
            Keyword::END if self.here.is_case && was_operand => {
                self.close();
                self.is_operand = true;
            }
            Keyword::AND
            | Keyword::OR
            | Keyword::NOT
            | Keyword::IS
            | Keyword::LIKE
            | Keyword::ILIKE
            | Keyword::RLIKE
            | Keyword::REGEXP
            | Keyword::SIMILAR
            | Keyword::IN
            | Keyword::BETWEEN
            | Keyword::COLLATE
            | Keyword::AT
            | Keyword::DIV
            | Keyword::XOR => self.operator(),
            _ => {}
        }
    }

    fn open(&mut self, is_case: bool) {
        self.operator();
        self.open.push(std::mem::replace(&mut self.here, Level { is_case, ..Level::default() }));
    }

    fn close(&mut self) {
        self.end_expression();
        self.depth -= self.here.queries;
        self.here = self.open.pop().unwrap_or_default();
    }

    fn operator(&mut self) {
        self.here.operators += 1;
        self.depth += 1;
    }

    fn end_expression(&mut self) {
        self.depth -= std::mem::take(&mut self.here.operators);
    }
}

#[derive(Default)]
struct Measure {
    here: usize,
    deepest: usize,
    nodes: usize,
}

impl Visitor for Measure {
    type Break = ();

    fn pre_visit_expr(&mut self, _: &Expr) -> ControlFlow<()> {
        self.here += 1;
        self.nodes += 1;
        self.deepest = self.deepest.max(self.here);
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, _: &Expr) -> ControlFlow<()> {
        self.here -= 1;
        ControlFlow::Continue(())
    }
}
