//! Converts errors between DataFusion and the model. The user sees the innermost message, with its position in the
//! statement if that is known.
//!
//! Invariant: an error of the pool that passes through DataFusion comes out unchanged.

use crate::messages;
use arrow_schema::Schema;
use datafusion::arrow::error::ArrowError;
use datafusion::common::{Column, Diagnostic, SchemaError};
use datafusion::error::DataFusionError;
use datafusion::sql::sqlparser::parser::ParserError;
use farpool_model::quoted;
use farpool_model::{Error, ErrorKind, schema};
use std::fmt::Write;
use std::io;

/// Wraps an error of the model, so that it passes through DataFusion unchanged.
pub fn wrap(error: Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// Converts an error for the user. Adds its position in `text`, a statement that starts at the line number `line` of
/// its source.
pub fn in_statement(error: DataFusionError, text: &str, line: u64) -> Error {
    let position = position(&error).or_else(|| ends_early(&error).then(|| end_of(text)));
    let error = unwrap(error);
    let (Some((at_line, column)), ErrorKind::Invalid | ErrorKind::NotFound) = (position, error.kind) else {
        return error;
    };
    let Some(source) = usize::try_from(at_line - 1).ok().and_then(|n| text.lines().nth(n)) else {
        return error;
    };
    let error = text_in_double_quotes(error, source, column);
    let mut message = error.message.clone();
    let _ = write!(message, " (line {}, column {column})", at_line - 1 + line);
    let before: String = source.chars().take(usize::try_from(column - 1).unwrap_or(0)).collect();
    // Tabs are kept, so that the caret stands below its character even if a tab is wider than one column.
    let blank: String = before.chars().map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
    let _ = write!(message, "\n  {source}\n  {blank}^");
    Error { message, ..error }
}

/// Takes the position out of the message of an error that [`in_statement`] has made for `text`, a statement that starts
/// at line 1. Returns the message before it, and the number of the character, counted from 1; `None` if the error has no
/// position.
pub fn located(error: &Error, text: &str) -> Option<(String, usize)> {
    let (message, position) = error.message.split_once("\n  ")?.0.rsplit_once(" (line ")?;
    let (line, column) = position.strip_suffix(')')?.split_once(", column ")?;
    let (line, column) = (line.parse::<usize>().ok()?, column.parse::<usize>().ok()?);
    let before = text.split_inclusive('\n').take(line.checked_sub(1)?).map(|line| line.chars().count());
    Some((message.to_string(), before.sum::<usize>() + column))
}

/// If a name in double quotes does not exist and may have been meant as a string, advises single quotes.
fn text_in_double_quotes(error: Error, source: &str, column: u64) -> Error {
    let before = usize::try_from(column - 1).unwrap_or(usize::MAX);
    let mut from_there = source.chars().skip(before).peekable();
    let is_alike = error.advice.as_ref().is_some_and(|advice| !advice.starts_with("there are"));
    if error.kind != ErrorKind::NotFound || is_alike || from_there.next_if_eq(&'"').is_none() {
        return error;
    }
    let text: String = from_there.take_while(|c| *c != '"').collect();
    Error { advice: None, ..error }.advise(format!("a text stands in single quotes: '{text}'"))
}

/// Removes DataFusion's wrappers from an error, and returns it as an error of the model.
pub fn unwrap(error: DataFusionError) -> Error {
    match error {
        DataFusionError::External(inner) => match inner.downcast::<Error>() {
            Ok(error) => *error,
            Err(inner) => match inner.downcast::<DataFusionError>() {
                Ok(inner) => unwrap(*inner),
                Err(inner) => Error::invalid(inner.to_string()),
            },
        },
        // DataFusion lost a column of the plan when it turned a subquery into a join.
        DataFusionError::Context(rule, inner)
            if rule.starts_with("Optimizer rule")
                && rule.contains("subquery")
                && matches!(*inner, DataFusionError::SchemaError(..)) =>
        {
            let what = "a subquery names a column of the query around it where this is not done";
            Error::invalid(what)
                .advise("name it in the WHERE of the subquery, without GROUP BY or a join in that; or join")
        }
        DataFusionError::Context(_, inner) => unwrap(*inner),
        DataFusionError::Diagnostic(diagnostic, inner) => explained(&diagnostic, unwrap(*inner)),
        DataFusionError::Shared(inner) => shared(&inner),
        DataFusionError::Collection(mut errors) if !errors.is_empty() => unwrap(errors.swap_remove(0)),
        DataFusionError::ArrowError(inner, _) => from_arrow(*inner),
        DataFusionError::SQL(inner, _) => Error::invalid(syntax(&inner)),
        DataFusionError::SchemaError(inner, _) => from_schema(&inner),
        DataFusionError::Plan(message) => plan(message),
        DataFusionError::NotImplemented(message) => {
            let error = messages::told(ErrorKind::Invalid, &message);
            if messages::in_our_words(&message).is_some() {
                return error;
            }
            Error { message: format!("not supported: {}", error.message), ..error }
        }
        DataFusionError::Execution(message) | DataFusionError::Configuration(message) => plan(message),
        DataFusionError::ResourcesExhausted(message) => exhausted(message),
        DataFusionError::IoError(error) => of_file(&error),
        DataFusionError::Internal(message) => messages::told(ErrorKind::Internal, &message),
        DataFusionError::ExecutionJoin(error) if error.is_cancelled() => Error::cancelled(),
        other => messages::told(ErrorKind::Internal, &other.strip_backtrace()),
    }
}

/// Returns whether the error says that something on which planning relied, such as a table version, has changed since.
pub fn is_stale(error: &DataFusionError) -> bool {
    shared(error).kind == ErrorKind::Stale
}

/// Returns whether the error says that a limit was exceeded.
pub fn is_over_limit(error: &DataFusionError) -> bool {
    shared(error).kind == ErrorKind::OverLimit
}

/// Returns whether the error says that a table version or a prepared program is gone, so that planning again may help.
pub fn is_gone(error: &Error) -> bool {
    matches!(error.kind, ErrorKind::Stale | ErrorKind::NotFound)
}

/// Converts an error after which the statement is not planned again: `Stale` becomes `Unavailable`, because callers
/// would take `Stale` for a hint to plan again.
pub fn lasting(error: Error) -> Error {
    match error.kind {
        ErrorKind::Stale => {
            let message = format!("a table was changed while the statement ran: {}", error.message);
            Error::unavailable(message).advise("run the statement again")
        }
        _ => error,
    }
}

/// Checks that a statement that was planned again still has the columns that its caller knows.
///
/// # Errors
/// Fails if they differ.
pub fn same_columns(before: &Schema, now: &Schema) -> farpool_model::Result<()> {
    match before.fields() == now.fields() {
        true => Ok(()),
        false => {
            let what =
                schema::difference(before, now).unwrap_or_else(|| "others of the same names".to_string());
            let message = format!("the result has other columns since a table was replaced: {what}");
            Err(Error::invalid(message).advise("run the statement again"))
        }
    }
}

/// Copies an error that several tasks share. Errors of kinds that cannot be cloned become text.
fn shared(error: &DataFusionError) -> Error {
    let innermost = error.find_root();
    if let DataFusionError::External(inner) = innermost
        && let Some(error) = inner.downcast_ref::<Error>()
    {
        return error.clone();
    }
    match innermost {
        DataFusionError::ArrowError(inner, _) => match &**inner {
            ArrowError::ExternalError(inner) => match inner.downcast_ref::<Error>() {
                Some(error) => error.clone(),
                None => Error::invalid(inner.to_string()),
            },
            other => of_kernel(other),
        },
        DataFusionError::ResourcesExhausted(message) => exhausted(message.clone()),
        DataFusionError::Internal(message) => Error::internal(message.clone()),
        DataFusionError::Execution(message) => Error::invalid(message.clone()),
        other => Error::invalid(other.strip_backtrace()),
    }
}

fn exhausted(message: String) -> Error {
    Error::over_limit(messages::without_operators(&message))
        .advise("give joins, sorts and groups more memory (--work-memory), or ask for less in one statement")
}

fn from_arrow(error: ArrowError) -> Error {
    match error {
        ArrowError::ExternalError(inner) => match inner.downcast::<DataFusionError>() {
            Ok(inner) => unwrap(*inner),
            Err(inner) => match inner.downcast::<Error>() {
                Ok(error) => *error,
                Err(inner) => Error::invalid(inner.to_string()),
            },
        },
        ArrowError::IoError(_, error) => of_file(&error),
        other => of_kernel(&other),
    }
}

/// Converts an I/O error, which may contain an error of the model.
fn of_file(error: &io::Error) -> Error {
    let ours = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    ours.cloned().unwrap_or_else(|| Error::invalid(error.to_string()))
}

/// Converts an error of Arrow's compute kernels, or of a function that reports errors in the same form.
fn of_kernel(error: &ArrowError) -> Error {
    let message = arrow_message(error);
    if let Some(error) = messages::in_our_words(&message) {
        return error;
    }
    // The messages name Arrow's array types; users know the SQL types.
    let types = [("Int8", "tinyint"), ("Int16", "smallint"), ("Int32", "integer"), ("Int64", "bigint")];
    let found = types.iter().find_map(|(array, name)| {
        let what = message.strip_prefix(array)?.strip_prefix("Array overflow on ")?;
        Some(format!("{name} out of range: {what}"))
    });
    if let Some(message) = found {
        return Error::invalid(message).advise("cast it to a wider type, e.g. DECIMAL(38,0)");
    }
    match message.strip_prefix("Overflow happened on: ") {
        Some(what) => Error::invalid(format!("a value is out of range: {what}")),
        None => Error::invalid(message),
    }
}

/// Returns the message without the error kind that Arrow puts in front.
fn arrow_message(error: &ArrowError) -> String {
    match error {
        ArrowError::DivideByZero => "division by zero".to_string(),
        ArrowError::ComputeError(m)
        | ArrowError::CastError(m)
        | ArrowError::ParseError(m)
        | ArrowError::InvalidArgumentError(m)
        | ArrowError::ArithmeticOverflow(m)
        | ArrowError::NotYetImplemented(m)
        | ArrowError::SchemaError(m) => messages::sql_types(m),
        other => messages::sql_types(&other.to_string()),
    }
}

fn syntax(error: &ParserError) -> String {
    let text = match error {
        ParserError::TokenizerError(text) | ParserError::ParserError(text) => text.as_str(),
        ParserError::RecursionLimitExceeded => return "the statement is nested too deeply".to_string(),
    };
    let text = text.split(" at Line: ").next().unwrap_or(text);
    format!("syntax error: {}", lower_first(text).replace("found: EOF", "found the end"))
}

fn from_schema(error: &SchemaError) -> Error {
    match error {
        SchemaError::FieldNotFound { field, valid_fields } => {
            let wanted = field.flat_name();
            let error = Error::new(ErrorKind::NotFound, format!("there is no column {wanted}"));
            // If the missing name is qualified, it is compared with qualified names.
            let name = |c: &Column| if field.relation.is_some() { c.flat_name() } else { c.name.clone() };
            let names: Vec<String> = valid_fields.iter().map(name).collect();
            // There is a name that differs only in the case of its letters; a name with upper-case letters needs
            // quotes.
            if let Some(same) = names.iter().find(|name| name.to_lowercase() == wanted && **name != wanted) {
                let advice =
                    format!("write {same:?} in double quotes, without which a name is read in lower case");
                return error.advise(advice);
            }
            let names: Vec<String> = match field.relation {
                Some(_) => names,
                None => names.iter().map(|name| quoted(name)).collect(),
            };
            crate::names::advise(error, &wanted, &names.iter().map(String::as_str).collect::<Vec<_>>())
        }
        SchemaError::AmbiguousReference { field } => {
            Error::invalid(format!("the column {} is ambiguous", field.name))
                .advise("put the name of the table in front of it")
        }
        other => {
            let message = other.to_string();
            messages::in_our_words(&message).unwrap_or_else(|| Error::invalid(message))
        }
    }
}

/// If `error` reports that a table does not exist, returns the table's name; otherwise `None`.
pub fn missing_table(error: &DataFusionError) -> Option<&str> {
    match error {
        DataFusionError::Plan(message) => table_not_found(message),
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => missing_table(inner),
        DataFusionError::Shared(inner) => missing_table(inner),
        DataFusionError::Collection(errors) => missing_table(errors.first()?),
        _ => None,
    }
}

/// Returns whether the error reports two columns with the same name in a SELECT list or another list of expressions.
pub fn is_of_equal_names(error: &DataFusionError) -> bool {
    match error.find_root() {
        DataFusionError::SchemaError(inner, _) => matches!(
            **inner,
            SchemaError::AmbiguousReference { .. }
                | SchemaError::DuplicateQualifiedField { .. }
                | SchemaError::DuplicateUnqualifiedField { .. }
        ),
        DataFusionError::Plan(message) => message.contains("require unique expression names"),
        _ => false,
    }
}

/// Extracts the table's name from DataFusion's message that it does not exist; `None` for other messages. Only the
/// message distinguishes this error from others.
fn table_not_found(message: &str) -> Option<&str> {
    let named = |before: &str, after: &str| message.strip_prefix(before)?.strip_suffix(after);
    let name = named("table '", "' not found").or_else(|| named("Table '", "' doesn't exist."))?;
    // Names without a qualifier are reported with the session's own catalog (`session.`).
    let name = name.strip_prefix("session.").unwrap_or(name);
    Some(name.strip_prefix("public.").unwrap_or(name))
}

fn plan(message: String) -> Error {
    if let Some(name) = table_not_found(&message) {
        return Error::not_found(format!("there is no table {name}"));
    }
    let message = message.replace("While expanding wildcard, ", "");
    let message = message.split(", currently only").next().unwrap_or(&message);
    match message.split_once("\nDid you mean ") {
        _ if message.starts_with("Invalid function") => messages::told(ErrorKind::Invalid, message),
        Some((what, which)) => {
            Error::invalid(what.trim_end_matches('.')).advise(format!("did you mean {which}"))
        }
        None => messages::told(ErrorKind::Invalid, message),
    }
}

/// Adds the diagnostic's help as advice, unless the error has advice.
fn explained(diagnostic: &Diagnostic, error: Error) -> Error {
    let help = diagnostic.helps.iter().map(|h| h.message.as_str()).next();
    match (help, &error.advice) {
        (Some(help), None) => error.advise(lower_first(&messages::sql_types(help))),
        _ => error,
    }
}

fn lower_first(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |first| first.to_lowercase().chain(chars).collect())
}

/// Returns the line and the column of an error, both counted from 1; `None` if the error has no position.
pub fn position(error: &DataFusionError) -> Option<(u64, u64)> {
    match error {
        DataFusionError::Diagnostic(diagnostic, inner) => match diagnostic.span {
            Some(span) if span.start.line > 0 => Some((span.start.line, span.start.column.max(1))),
            _ => position(inner),
        },
        DataFusionError::Context(_, inner) => position(inner),
        DataFusionError::Shared(inner) => position(inner),
        DataFusionError::Collection(errors) => errors.first().and_then(position),
        DataFusionError::SQL(inner, _) => match &**inner {
            ParserError::TokenizerError(text) | ParserError::ParserError(text) => written_position(text),
            ParserError::RecursionLimitExceeded => None,
        },
        _ => None,
    }
}

/// Returns whether the error reports that the statement ends unexpectedly; this error has no position.
fn ends_early(error: &DataFusionError) -> bool {
    match error {
        DataFusionError::SQL(inner, _) => inner.to_string().contains("found: EOF"),
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => ends_early(inner),
        _ => false,
    }
}

fn end_of(text: &str) -> (u64, u64) {
    let text = text.trim_end();
    let last = text.rsplit('\n').next().unwrap_or_default();
    let count = |n: usize| farpool_model::cast::u64_from(n);
    (count(text.matches('\n').count()) + 1, count(last.chars().count()) + 1)
}

/// Parses the position at the end of a message of sqlparser: `… at Line: 1, Column: 8`.
fn written_position(text: &str) -> Option<(u64, u64)> {
    let (line, column) = text.rsplit_once(" at Line: ")?.1.split_once(", Column: ")?;
    let (line, column) = (line.trim().parse().ok()?, column.trim().parse::<u64>().ok()?);
    (line > 0).then_some((line, column.max(1)))
}
