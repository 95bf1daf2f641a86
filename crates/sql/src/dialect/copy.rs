//! Parses COPY in the syntax of PostgreSQL and DuckDB: `COPY (query) TO 'file' (FORMAT csv, HEADER)`, `COPY table TO
//! STDOUT` and `COPY table FROM 'file' (…)`. DataFusion's own `STORED AS … OPTIONS (…)` is accepted as well.
//!
//! COPY FROM becomes `INSERT INTO table SELECT * FROM read_csv('file', …)`, or uses the file reader of another format.

use super::{Grammar, exclusions, readers, refusal};
use crate::error;
use datafusion::common::Result;
use datafusion::sql::parser::{CopyToSource, CopyToStatement, Statement};
use datafusion::sql::sqlparser::ast::{Expr, Query, Value};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::Token;
use farpool_model::{FileFormat, OptionValue, ReadOptions, brief};

/// The target path that stands for standard output, in `COPY … TO STDOUT`.
pub const STDOUT: &str = "/dev/stdout";

/// The source path that stands for standard input, in `COPY … FROM STDIN`; it can be read only once.
pub const STDIN: &str = "/dev/stdin";

/// If `text` is a COPY statement, parses it; otherwise returns `None`.
pub(super) fn statement(text: &str, recursion_limit: usize) -> Result<Option<Statement>> {
    let parser = Parser::new(&Grammar).with_recursion_limit(recursion_limit);
    let mut parser = match exclusions::marked(text) {
        Some(tokens) => parser.with_tokens_with_locations(tokens),
        None => match parser.try_with_sql(text) {
            Ok(parser) => parser,
            Err(_) => return Ok(None),
        },
    };
    if !parser.parse_keyword(Keyword::COPY) {
        return Ok(None);
    }
    let source = source(&mut parser)?;
    let copied = if parser.parse_keyword(Keyword::TO) {
        // Options for partitioned output: the statement is left to the engine's own parser and writer.
        let Some(copy) = copy_to(&mut parser, source)? else { return Ok(None) };
        Statement::CopyTo(copy)
    } else {
        parser.expect_keyword(Keyword::FROM)?;
        copy_from(&mut parser, source, recursion_limit)?
    };
    let _ = parser.consume_token(&Token::SemiColon);
    match parser.peek_token().token {
        Token::EOF => Ok(Some(copied)),
        _ => Ok(parser.expected("the end of the statement", parser.peek_token()).map(Some)?),
    }
}

/// Source of the rows of COPY … TO.
enum Source {
    Query(Box<Query>),
    /// The table, and its list of columns, as written.
    Table(String, String),
}

fn source(parser: &mut Parser<'_>) -> Result<Source> {
    if parser.consume_token(&Token::LParen) {
        let query = parser.parse_query()?;
        parser.expect_token(&Token::RParen)?;
        return Ok(Source::Query(query));
    }
    let table = parser.parse_object_name(false)?.to_string();
    let columns = match parser.consume_token(&Token::LParen) {
        true => {
            let columns = parser.parse_comma_separated(Parser::parse_identifier)?;
            parser.expect_token(&Token::RParen)?;
            columns.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
        }
        false => String::new(),
    };
    Ok(Source::Table(table, columns))
}

fn copy_to(parser: &mut Parser<'_>, source: Source) -> Result<Option<CopyToStatement>> {
    let target = match parser.parse_keyword(Keyword::STDOUT) {
        true => STDOUT.to_string(),
        false => path(parser, "COPY … TO STDOUT")?,
    };
    let (mut stored_as, mut options) = (None, Vec::new());
    loop {
        if parser.parse_keyword(Keyword::PARTITIONED) {
            return Ok(None);
        } else if parser.parse_keywords(&[Keyword::STORED, Keyword::AS]) {
            stored_as = Some(parser.parse_identifier()?.value);
        } else if parser.parse_keyword(Keyword::OPTIONS)
            || parser.parse_keyword(Keyword::WITH)
            || parser.peek_token_ref().token == Token::LParen
        {
            options.extend(self::options(parser)?);
        } else {
            break;
        }
    }
    let query = match source {
        Source::Query(query) => query,
        Source::Table(table, columns) => {
            let columns = if columns.is_empty() { "*" } else { &columns };
            let text = format!("SELECT {columns} FROM {table}");
            Parser::new(&Grammar).try_with_sql(&text)?.parse_query()?
        }
    };
    let written = |(name, value): (String, OptionValue)| (name, Value::SingleQuotedString(plain(&value)));
    Ok(Some(CopyToStatement {
        source: CopyToSource::Query(query),
        target,
        partitioned_by: Vec::new(),
        stored_as,
        options: options.into_iter().map(written).collect(),
    }))
}

fn copy_from(parser: &mut Parser<'_>, source: Source, recursion_limit: usize) -> Result<Statement> {
    let Source::Table(table, columns) = source else {
        return Err(refusal("COPY FROM fills a table, not a query", "write COPY table FROM 'file'"));
    };
    let is_stdin = parser.parse_keyword(Keyword::STDIN);
    let path = if is_stdin { STDIN.to_string() } else { path(parser, "COPY … FROM 'file'")? };
    let _ = parser.parse_keyword(Keyword::WITH);
    let mut options = match parser.peek_token_ref().token {
        Token::LParen => self::options(parser)?,
        _ => Vec::new(),
    };
    if is_stdin && !options.iter().any(|(name, _)| name == "format") {
        // The path has no extension from which the format follows, so that it is CSV.
        options.push(("format".to_string(), OptionValue::Text("csv".to_string())));
    }
    let from = reader(&path, options)?;
    let columns = if columns.is_empty() { columns } else { format!("({columns})") };
    let text = format!("INSERT INTO {table} {columns} SELECT * FROM {from}");
    let parser = Parser::new(&Grammar).with_recursion_limit(recursion_limit);
    let insert = parser.try_with_sql(&text)?.parse_statement()?;
    Ok(Statement::Statement(Box::new(insert)))
}

/// Returns the call of the file reader for `path`, as SQL text.
fn reader(path: &str, options: Vec<(String, OptionValue)>) -> Result<String> {
    let (formats, options): (Vec<_>, Vec<_>) = options.into_iter().partition(|(name, _)| name == "format");
    let format = match formats.first().map(|(_, value)| plain(value)) {
        Some(name) => FileFormat::of_function(&format!("read_{name}")).ok_or_else(|| {
            refusal(&format!("COPY FROM of {name} is not done"), "it reads csv, json and parquet")
        })?,
        None if options.is_empty() => return Ok(quoted_name(path)),
        None => [(".parquet", FileFormat::Parquet), (".json", FileFormat::Json)]
            .iter()
            .find(|(ending, _)| path.contains(ending))
            .map_or(FileFormat::Csv, |(_, format)| *format),
    };
    let mut known = ReadOptions::for_format(format);
    let mut call = format!("{}({}", format.function(), quoted(path));
    for (name, value) in options {
        let name = without_prefix(&name);
        known.set(name, &value).map_err(error::wrap)?;
        // The keyword NULL cannot be the name of a reader's argument.
        let name = if name == "null" { "nullstr" } else { name };
        call.push_str(&format!(", {name} = {}", literal(&value)));
    }
    Ok(call + ")")
}

fn path(parser: &mut Parser<'_>, otherwise: &str) -> Result<String> {
    match parser.next_token().token {
        Token::SingleQuotedString(path) => Ok(path),
        Token::Word(word) if word.keyword == Keyword::PROGRAM => {
            Err(refusal("COPY with PROGRAM is not done", "use a pipe of the shell"))
        }
        other => {
            let what = format!("{} is no file", brief(other));
            Err(refusal(&what, &format!("write its path in single quotes, or {otherwise}")))
        }
    }
}

/// Parses a list of options, `(name value, name, …)`. Names are converted to lower case; an option without a value is
/// true.
fn options(parser: &mut Parser<'_>) -> Result<Vec<(String, OptionValue)>> {
    let mut options = Vec::new();
    parser.expect_token(&Token::LParen)?;
    while !parser.consume_token(&Token::RParen) {
        let mut name = parser.parse_identifier()?.value.to_ascii_lowercase();
        while parser.consume_token(&Token::Period) {
            name = format!("{name}.{}", parser.parse_identifier()?.value.to_ascii_lowercase());
        }
        let _ = parser.consume_token(&Token::Eq);
        let value = match parser.peek_token_ref().token {
            Token::Comma | Token::RParen => OptionValue::Flag(true),
            _ => value(&parser.parse_expr()?)?,
        };
        options.push((name, value));
        if !parser.consume_token(&Token::Comma) && parser.peek_token_ref().token != Token::RParen {
            return Ok(parser.expected(", or )", parser.peek_token())?);
        }
    }
    Ok(options)
}

/// Returns the value of a constant expression; a bare word is a string.
fn value(expr: &Expr) -> Result<OptionValue> {
    match readers::value(expr)? {
        OptionValue::Text(text) if text.eq_ignore_ascii_case("on") => Ok(OptionValue::Flag(true)),
        OptionValue::Text(text) if text.eq_ignore_ascii_case("off") => Ok(OptionValue::Flag(false)),
        value => Ok(value),
    }
}

/// Removes the format from the name of an option, as DataFusion writes it: `format.delimiter` becomes `delimiter`.
pub fn without_prefix(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

/// Formats a value as the file writer expects it.
fn plain(value: &OptionValue) -> String {
    match value {
        OptionValue::Text(text) => text.clone(),
        OptionValue::Number(number) => number.to_string(),
        OptionValue::Flag(flag) => flag.to_string(),
        OptionValue::List(_) | OptionValue::Map(_) => literal(value),
    }
}

/// Formats a value as an SQL literal.
fn literal(value: &OptionValue) -> String {
    match value {
        OptionValue::Text(text) => quoted(text),
        OptionValue::Number(_) | OptionValue::Flag(_) => plain(value),
        OptionValue::List(values) => {
            format!("[{}]", values.iter().map(literal).collect::<Vec<_>>().join(", "))
        }
        OptionValue::Map(entries) => {
            let entry =
                |(name, value): &(String, OptionValue)| format!("{}: {}", quoted(name), literal(value));
            format!("{{{}}}", entries.iter().map(entry).collect::<Vec<_>>().join(", "))
        }
    }
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn quoted_name(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> String {
        statement(text, 50).unwrap().map_or("none".to_string(), |statement| statement.to_string())
    }

    #[test]
    fn each_form_is_read() {
        let cases = [
            ("select 1", "none"),
            (
                "copy (from 'w.csv') to stdout (format csv, header)",
                "COPY (FROM 'w.csv') TO /dev/stdout OPTIONS ('format' 'csv', 'header' 'true')",
            ),
            (
                "COPY t (a, \"B\") TO 'x.csv' WITH (HEADER off, DELIMITER ';')",
                "COPY (SELECT a, \"B\" FROM t) TO x.csv OPTIONS ('header' 'false', 'delimiter' ';')",
            ),
            (
                "COPY t TO 'x' STORED AS parquet OPTIONS ('format.compression' 'zstd')",
                "COPY (SELECT * FROM t) TO x STORED AS parquet OPTIONS ('format.compression' 'zstd')",
            ),
            ("COPY t FROM 'x.csv'", "INSERT INTO t SELECT * FROM \"x.csv\""),
            (
                "COPY t (a) FROM 'it''s.csv' (DELIMITER ';', nullstr ['NA', ''])",
                "INSERT INTO t (a) SELECT * FROM read_csv('it''s.csv', delimiter = ';', nullstr = ['NA', ''])",
            ),
            ("COPY t FROM STDIN", "INSERT INTO t SELECT * FROM read_csv('/dev/stdin')"),
            (
                "COPY t (a) FROM STDIN WITH (FORMAT json)",
                "INSERT INTO t (a) SELECT * FROM read_json('/dev/stdin')",
            ),
            ("COPY t FROM 'x' (FORMAT parquet)", "INSERT INTO t SELECT * FROM read_parquet('x')"),
            ("COPY t TO 'x' STORED AS csv PARTITIONED BY (a)", "none"),
        ];
        for (text, expected) in cases {
            assert_eq!(of(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_not_done_says_what_is() {
        let said = |text: &str| crate::error::unwrap(statement(text, 50).unwrap_err()).to_string();
        assert!(said("COPY t TO PROGRAM 'gzip'").contains("pipe"));
        assert!(said("COPY t TO x").contains("single quotes"));
        assert!(said("COPY t FROM 'x.csv' (DELIMITR ';')").contains("the options are"));
        assert!(said("COPY t FROM 'x.csv' (FORMAT avro)").contains("csv, json and parquet"));
        assert!(said("COPY t TO 'x' (HEADER) y").contains("end of the statement"));
    }
}
