//! Converts the text of a statement to one that DataFusion plans with the meaning that the text has in PostgreSQL and
//! DuckDB.
//!
//! `grammar` defines how text is parsed; `copy` parses COPY. Statements that are too deep for the stack are refused
//! (`depth`). Then each rule, one file each, visits the parsed statement once: forms that the engine lacks are
//! rewritten to equivalent ones, and forms that it parses but ignores are refused (`undone`). The names of the result's
//! columns are kept separately (`headers`).
//!
//! Some rules need to know which names are columns (`aliases`, `order_all`, `repeated`). They run after planning has
//! failed ([`plan`]), and the statement is then planned again.

mod aliases;
mod complements;
mod copy;
mod depth;
mod distinct_names;
mod exact_numbers;
mod exclusions;
mod exists;
mod expansions;
mod fetch;
mod formats;
mod forms;
mod from_first;
mod functions;
mod grammar;
mod headers;
mod intervals;
mod joins;
mod json;
mod lateral_lists;
mod materialized;
mod mended;
mod merged_keys;
mod numbers;
mod order_all;
mod ordinals;
mod outer_names;
mod parameters;
mod patterns;
mod pivot;
mod postgres_forms;
mod postgres_names;
mod powers;
mod qualified;
mod readers;
mod repeated;
mod rows;
mod same_names;
mod scopes;
mod semi_joins;
mod set_all;
mod sets;
mod show;
mod sql;
mod templates;
mod timestamps;
mod tuples;
mod undone;
mod walk;
mod windows;
mod zones;

pub use self::functions::function_names;
pub use copy::{STDOUT, without_prefix};
pub use grammar::Grammar;
pub use headers::Headers;
pub use parameters::{fill_in_arguments, fill_in_lists, types_of_casts, with_types};
pub use patterns::escaped_anew;
pub use readers::{files, is_call};

use crate::error;
use crate::interrupt::{sizes, steps};
use crate::postgres;
use datafusion::common::config::Dialect;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::{CopyToSource, DFParserBuilder, ParserInput, ResetStatement, Statement};
use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments, Ident, ObjectName,
    OrderByKind, Query, Select, Statement as SqlStatement, TableFactor, ValueWithSpan, VisitorMut,
};
use farpool_model::{Error, limits};
use functions::Functions;
use headers::Naming;
use mended::Mended;
use std::ops::ControlFlow;
use walk::Walk;

/// A statement that has been parsed and rewritten by the rules, and the names of its result's columns.
pub struct Parsed {
    /// The statement as DataFusion plans it.
    pub statement: Statement,
    /// The names of the result's columns as they were written.
    pub headers: Headers,
}

/// Parses `text`, which must be a single statement, and applies the rules to it.
///
/// # Errors
/// The parser's errors; fails also for forms that are refused, and if the text contains no statement or several.
pub fn parse(state: &SessionState, text: &str) -> Result<Parsed> {
    depth::check_text(text)?;
    let blanked = materialized::blanked(text);
    let text = &*blanked;
    let options = &state.config_options().sql_parser;
    let parsed = || match options.dialect {
        Dialect::Generic => match copy::statement(text, options.recursion_limit.get())? {
            Some(copy) => Ok(copy),
            None => only(text, options.recursion_limit.get()),
        },
        // If another dialect was selected with SET, that dialect's grammar is used.
        _ => state.sql_to_statement(text, &options.dialect),
    };
    let mut statement = steps::bounded(text.len(), parsed)?;
    let naming = Naming {
        lowers: options.enable_ident_normalization,
        is_of_postgres: postgres::is_meant(state.config_options()),
    };
    let headers = match &statement {
        Statement::Statement(statement) => Headers::of(statement, naming),
        _ => Headers::default(),
    };
    apply(state, &mut statement, text, naming)?;
    Ok(Parsed { statement, headers })
}

/// Parses `text`, a single statement, with this grammar.
fn only(text: &str, recursion_limit: usize) -> Result<Statement> {
    let input = exclusions::marked(text).map_or(ParserInput::Sql(text), ParserInput::Tokens);
    let parser = DFParserBuilder::new(input).with_dialect(&Grammar).with_recursion_limit(recursion_limit);
    let mut statements = parser.build()?.parse_statements().map_err(undone::asof_join)?;
    match (statements.pop_front(), statements.is_empty()) {
        (Some(statement), true) => Ok(statement),
        (Some(_), false) => Err(refusal("these are several statements", "give them one by one")),
        (None, _) => Err(error::wrap(Error::invalid("there is no SQL statement"))),
    }
}

/// Plans a statement. If planning fails, rewrites the statement by the rules that need to know the columns, and plans
/// it again.
///
/// # Errors
/// Fails if the statement is invalid.
pub async fn plan(state: &SessionState, statement: Statement) -> Result<LogicalPlan> {
    let plan = planned(state, statement).await?;
    sizes::check_operators(&plan)?;
    Ok(plan)
}

async fn planned(state: &SessionState, mut statement: Statement) -> Result<LogicalPlan> {
    if let Some(columns) = columns_to_order_by(state, &statement).await? {
        outermost(&mut statement).into_iter().for_each(|query| order_all::write_out_open(query, columns));
    }
    let mut mended = Mended::default();
    let joins = merged_keys::marked(&mut statement)?;
    for _ in 0..limits::SQL_NAMES_REUSED_MAX + joins {
        let error = match state.statement_to_plan(statement.clone()).await {
            Err(error) => error,
            Ok(plan) => {
                sizes::check_operators(&plan)?;
                match outer_names::error_in(&plan)? {
                    Some(error) => error,
                    None => return finished(plan, mended.casts),
                }
            }
        };
        match mended.mend(state, &mut statement, &error) {
            Ok(true) => mended.keep(error),
            Ok(false) => return Err(mended.told(error)),
            Err(error) => return Err(error),
        };
    }
    finished(state.statement_to_plan(statement).await?, mended.casts)
}

/// Replaces the markers that rules have left in the plan. `has_casts` tells whether casts are part of column names.
fn finished(plan: LogicalPlan, has_casts: bool) -> Result<LogicalPlan> {
    let plan = if has_casts { crate::written::planned(plan)? } else { plan };
    crate::set_all::planned(plan)
}

/// If the statement has an ORDER BY ALL over columns that are not all listed (a wildcard), returns the number of
/// columns; otherwise `None`.
async fn columns_to_order_by(state: &SessionState, statement: &Statement) -> Result<Option<usize>> {
    let mut unordered = statement.clone();
    match outermost(&mut unordered) {
        Some(query) if order_all::is_open(query) => query.order_by = None,
        Some(_) | None => return Ok(None),
    }
    Ok(Some(Box::pin(plan(state, unordered)).await?.schema().fields().len()))
}

/// Returns the query of a statement: the statement itself, or what it explains; `None` if there is none.
fn outermost(statement: &mut Statement) -> Option<&mut Query> {
    match statement {
        Statement::Statement(statement) => match &mut **statement {
            SqlStatement::Query(query) => Some(query),
            _ => None,
        },
        Statement::Explain(explain) => outermost(&mut explain.statement),
        Statement::CopyTo(_) | Statement::CreateExternalTable(_) | Statement::Reset(_) => None,
    }
}

/// Applies the rules to a statement that has been parsed from `text`.
fn apply(state: &SessionState, statement: &mut Statement, text: &str, naming: Naming) -> Result<()> {
    let lowers = naming.lowers;
    match statement {
        Statement::Statement(statement) => {
            match &mut **statement {
                SqlStatement::CreateView(create) => headers::name_columns(&mut create.query, naming),
                // There are neither sequences nor foreign keys, which these would be about.
                SqlStatement::Truncate(truncate) => (truncate.identity, truncate.cascade) = (None, None),
                SqlStatement::CreateTable(create) => {
                    if let Some(query) = &mut create.query {
                        headers::name_columns(query, naming);
                    }
                }
                _ => {}
            }
            scopes::apply(statement, lowers);
        }
        Statement::CopyTo(copy) => {
            if let CopyToSource::Query(query) = &mut copy.source {
                headers::name_columns(query, naming);
            }
        }
        Statement::Reset(ResetStatement::Variable(name)) => zones::reset(&name.to_string())?,
        Statement::CreateExternalTable(_) => {
            // The engine's own file readers would give columns other types than farpool's do.
            let advice = "name the file in FROM, or CREATE VIEW t AS SELECT * FROM 'x.parquet'";
            return Err(refusal("CREATE EXTERNAL TABLE is not done", advice));
        }
        Statement::Explain(_) => {}
    }
    check_expansions(statement)?;
    visit(statement, &mut same_names::Scopes::new(lowers))?;
    parameters::number(statement)?;
    let functions = Functions { state, copied: 0 };
    let database = postgres::database(state.config_options());
    visit(statement, &mut Rules { text, lowers, database, functions })?;
    // With this option, DataFusion keeps the digits of numbers itself.
    let keeps_digits = state.config_options().sql_parser.parse_float_as_decimal;
    match !keeps_digits && has_exact_numbers(statement) {
        true => visit(statement, &mut exact_numbers::ExactNumbers),
        false => Ok(()),
    }
}

/// Refuses a statement whose expanded WITH queries would read too many tables.
fn check_expansions(statement: &Statement) -> Result<()> {
    match statement {
        Statement::Statement(statement) => expansions::check(&**statement),
        Statement::Explain(explain) => check_expansions(&explain.statement),
        Statement::CopyTo(copy) => match &copy.source {
            CopyToSource::Query(query) => expansions::check(&**query),
            CopyToSource::Relation(_) => Ok(()),
        },
        Statement::CreateExternalTable(_) | Statement::Reset(_) => Ok(()),
    }
}

/// Keeps the digits of all numbers in a query (see `exact_numbers`). [`parse`] does so for other statements than CREATE
/// VIEW, whose text is stored as it is.
///
/// # Errors
/// Fails only on a bug in this crate.
pub fn keep_digits(query: &mut Query) -> Result<()> {
    match query.walk(&mut exact_numbers::ExactNumbers) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// Returns whether the statement has numbers whose digits must be kept, because they may be used next to decimals. A
/// view is an exception: it is stored as text, and the digits are kept when that text is planned.
fn has_exact_numbers(statement: &Statement) -> bool {
    match statement {
        Statement::Statement(statement) => matches!(
            **statement,
            SqlStatement::Query(_)
                | SqlStatement::Insert(_)
                | SqlStatement::Update(_)
                | SqlStatement::Delete(_)
                | SqlStatement::CreateTable(_)
                | SqlStatement::Explain { .. }
        ),
        Statement::CopyTo(_) | Statement::Explain(_) => true,
        Statement::CreateExternalTable(_) | Statement::Reset(_) => false,
    }
}

fn visit(statement: &mut Statement, rules: &mut dyn VisitorMut<Break = DataFusionError>) -> Result<()> {
    let broken = match statement {
        Statement::Statement(statement) => statement.walk(rules),
        Statement::CopyTo(copy) => match &mut copy.source {
            CopyToSource::Query(query) => query.walk(rules),
            CopyToSource::Relation(_) => ControlFlow::Continue(()),
        },
        Statement::Explain(explain) => return visit(&mut explain.statement, rules),
        Statement::CreateExternalTable(_) | Statement::Reset(_) => ControlFlow::Continue(()),
    };
    match broken {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// Creates the error for an unsupported form, with advice.
fn refusal(what: &str, advice: &str) -> DataFusionError {
    error::wrap(Error::invalid(what).advise(advice))
}

/// Creates a function call.
fn call(name: &str, args: Vec<Expr>) -> Expr {
    let args = args.into_iter().map(|arg| FunctionArg::Unnamed(FunctionArgExpr::Expr(arg))).collect();
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new(name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args,
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

struct Rules<'a> {
    text: &'a str,
    /// Whether names without quotes are converted to lower case.
    lowers: bool,
    /// The name of the database, if forms that mean something else in PostgreSQL have that meaning.
    database: Option<&'a str>,
    functions: Functions<'a>,
}

/// Converts a result to the control flow of a visitor: an error ends the visit.
fn flow(outcome: Result<()>) -> ControlFlow<DataFusionError> {
    match outcome {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => ControlFlow::Break(error),
    }
}

impl VisitorMut for Rules<'_> {
    type Break = DataFusionError;

    fn pre_visit_statement(&mut self, statement: &mut SqlStatement) -> ControlFlow<DataFusionError> {
        flow(
            show::apply(statement)
                .and_then(|()| undone::statement(statement))
                .and_then(|()| zones::statement(statement)),
        )
    }

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<DataFusionError> {
        if let Some(OrderByKind::Expressions(keys)) = query.order_by.as_mut().map(|order| &mut order.kind) {
            keys.iter_mut().for_each(forms::order);
        }
        flow(undone::query(query).and_then(|()| fetch::apply(query)))
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<DataFusionError> {
        order_all::apply(query);
        repeated::apply(query, self.lowers);
        flow(windows::in_order(query, self.lowers).and_then(|()| set_all::apply(query)))
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<DataFusionError> {
        from_first::apply(select);
        semi_joins::apply(select);
        let checked =
            undone::select(select).and_then(|()| joins::apply(select)).and_then(|()| sets::check(select));
        let checked = checked.and_then(|()| same_names::check(select, self.lowers));
        flow(checked.and_then(|()| forms::grand_total(select)))
    }

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<DataFusionError> {
        exists::apply(select);
        flow(windows::apply(select, self.lowers).and_then(|()| ordinals::apply(select)))
    }

    fn post_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<DataFusionError> {
        if let Some(database) = self.database {
            qualified::without_database(table, database);
            postgres_forms::name_by_alias(table);
        }
        lateral_lists::apply(table);
        flow(pivot::apply(table))
    }

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<DataFusionError> {
        semi_joins::in_brackets(table);
        qualified::in_from(table);
        flow(
            lateral_lists::with_places(table)
                .and_then(|()| undone::table(table))
                .and_then(|()| joins::in_brackets(table))
                .and_then(|()| readers::apply(table)),
        )
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<DataFusionError> {
        flow(forms::lambdas(expr))
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<DataFusionError> {
        powers::apply(expr);
        complements::apply(expr);
        intervals::apply(expr);
        timestamps::apply(expr);
        zones::apply(expr);
        let of_postgres = if self.database.is_some() { postgres_forms::apply(expr) } else { Ok(()) };
        flow(
            of_postgres
                .and_then(|()| qualified::apply(expr))
                .and_then(|()| formats::apply(expr))
                .and_then(|()| forms::apply(expr))
                .and_then(|()| patterns::apply(expr))
                .and_then(|()| json::apply(expr))
                .and_then(|()| tuples::apply(expr))
                .and_then(|()| rows::apply(expr, &mut self.functions.copied))
                .and_then(|()| templates::apply(expr))
                .and_then(|()| self.functions.apply(expr)),
        )
    }

    fn pre_visit_value(&mut self, value: &mut ValueWithSpan) -> ControlFlow<DataFusionError> {
        flow(numbers::apply(value, self.text))
    }
}
