//! From text to a statement that DataFusion plans as users of PostgreSQL and DuckDB mean it.
//!
//! [`grammar`] says how text is read, [`copy`] what COPY is. Then each rule, a file each, looks at the parsed statement once: what the engine
//! has no form for becomes one that it has ([`from_first`], [`fetch`], [`numbers`], [`patterns`], [`readers`],
//! [`show`]), and what it would
//! read and leave undone is refused ([`undone`]).

mod copy;
mod fetch;
mod from_first;
mod grammar;
mod numbers;
mod patterns;
mod readers;
mod show;
#[cfg(test)]
mod tests;
mod undone;

pub(crate) use copy::STDOUT;
pub(crate) use grammar::Grammar;
pub(crate) use readers::{files, is_call};

use crate::error;
use datafusion::common::config::Dialect;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::SessionState;
use datafusion::sql::parser::{CopyToSource, DFParserBuilder, Statement};
use datafusion::sql::sqlparser::ast::{
    Expr, Query, Select, Statement as SqlStatement, TableFactor, ValueWithSpan, VisitMut, VisitorMut,
};
use farpool_model::Error;
use std::ops::ControlFlow;

/// The one statement that `text` is.
///
/// # Errors
/// The parser's, and for what is refused here. Also when there is none, or several.
pub(crate) fn parse(state: &SessionState, text: &str) -> Result<Statement> {
    let options = &state.config_options().sql_parser;
    let mut statement = match options.dialect {
        Dialect::Generic => {
            if let Some(mut copy) = copy::statement(text, options.recursion_limit.get())? {
                apply(&mut copy, text)?;
                return Ok(copy);
            }
            let parser = DFParserBuilder::new(text).with_dialect(&Grammar);
            let mut statements =
                parser.with_recursion_limit(options.recursion_limit.get()).build()?.parse_statements()?;
            match (statements.pop_front(), statements.is_empty()) {
                (Some(statement), true) => statement,
                (Some(_), false) => {
                    return Err(refusal("these are several statements", "give them one by one"));
                }
                (None, _) => return Err(error::wrap(Error::invalid("there is no SQL statement"))),
            }
        }
        // Asked for by name, with SET: its own grammar.
        _ => state.sql_to_statement(text, &options.dialect)?,
    };
    apply(&mut statement, text)?;
    Ok(statement)
}

/// Applies the rules to a statement that `text` was parsed to.
fn apply(statement: &mut Statement, text: &str) -> Result<()> {
    let mut rules = Rules { text };
    let broken = match statement {
        Statement::Statement(statement) => statement.visit(&mut rules),
        Statement::CopyTo(copy) => match &mut copy.source {
            CopyToSource::Query(query) => query.visit(&mut rules),
            CopyToSource::Relation(_) => ControlFlow::Continue(()),
        },
        Statement::Explain(explain) => return apply(&mut explain.statement, text),
        Statement::CreateExternalTable(_) | Statement::Reset(_) => ControlFlow::Continue(()),
    };
    match broken {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// What is not done, and what to do about it.
fn refusal(what: &str, advice: &str) -> DataFusionError {
    error::wrap(Error::invalid(what).advise(advice))
}

struct Rules<'a> {
    text: &'a str,
}

/// Goes on, or ends with the error.
fn flow(outcome: Result<()>) -> ControlFlow<DataFusionError> {
    match outcome {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => ControlFlow::Break(error),
    }
}

impl VisitorMut for Rules<'_> {
    type Break = DataFusionError;

    fn pre_visit_statement(&mut self, statement: &mut SqlStatement) -> ControlFlow<DataFusionError> {
        show::apply(statement);
        flow(undone::statement(statement))
    }

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<DataFusionError> {
        flow(undone::query(query).and_then(|()| fetch::apply(query)))
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<DataFusionError> {
        from_first::apply(select);
        flow(undone::select(select))
    }

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<DataFusionError> {
        flow(undone::table(table).and_then(|()| readers::apply(table)))
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<DataFusionError> {
        flow(patterns::apply(expr))
    }

    fn pre_visit_value(&mut self, value: &mut ValueWithSpan) -> ControlFlow<DataFusionError> {
        flow(numbers::apply(value, self.text))
    }
}
