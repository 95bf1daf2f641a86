//! A statement with its parameters and tables; and the splitting of text into statements.
//!
//! Invariant: statements keep their text as it was written. Semicolons in strings, quoted names, comments and
//! dollar-quoted text do not separate statements.

use crate::dialect::Grammar;
use crate::parameters::Parameters;
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use datafusion::sql::sqlparser::tokenizer::{Location, Token, Tokenizer};
use farpool_model::{Error, Result};

/// One SQL statement, its position in its source, and the values and tables that were passed with it.
#[derive(Clone, Debug, PartialEq)]
pub struct Statement {
    /// The text as it was written, without the semicolon.
    pub text: String,
    /// The line number, counted from 1, at which the statement begins in the text that it was split from.
    pub line: u64,
    /// The byte at which the statement begins in the text that it was split from.
    pub start: usize,
    /// The values of `$1`, `$name` and `?`.
    pub parameters: Parameters,
    /// Tables that are visible to this statement only.
    pub tables: Vec<GivenTable>,
}

/// Rows that the caller passes with a statement, which can name them like a table.
#[derive(Clone, Debug, PartialEq)]
pub struct GivenTable {
    /// The name, without a schema.
    pub name: String,
    /// The columns.
    pub schema: SchemaRef,
    /// The rows, in batches of these columns.
    pub batches: Vec<RecordBatch>,
    /// Whether the rows come behind those of the table of a pool with this name, rather than in place of it.
    pub adds: bool,
}

impl From<&str> for Statement {
    fn from(text: &str) -> Self {
        Statement::new(text.to_string(), (0, 1))
    }
}

impl Statement {
    fn new(text: String, (start, line): (usize, u64)) -> Self {
        Statement { text, line, start, parameters: Parameters::default(), tables: Vec::new() }
    }

    /// Sets the values of the statement's parameters.
    #[must_use]
    pub fn with_parameters(self, parameters: Parameters) -> Self {
        Statement { parameters, ..self }
    }

    /// Adds a table that only this statement can name, with the rows `batches` of this schema. It takes precedence over
    /// tables of pools with the same name.
    #[must_use]
    pub fn with_table(mut self, name: &str, schema: SchemaRef, batches: Vec<RecordBatch>) -> Self {
        self.tables.push(GivenTable { name: name.to_string(), schema, batches, adds: false });
        self
    }

    /// Adds rows that only this statement sees behind those of the table `name` in the schema `public` of a pool, which
    /// has this schema.
    #[must_use]
    pub fn with_rows_behind(mut self, name: &str, schema: SchemaRef, batches: Vec<RecordBatch>) -> Self {
        self.tables.push(GivenTable { name: name.to_string(), schema, batches, adds: true });
        self
    }
}

/// Splits `text` into statements at semicolons. Skips statements without any token.
///
/// # Errors
/// `Invalid`, with the position, if `text` does not consist of SQL tokens.
pub fn split_statements(text: &str) -> Result<Vec<Statement>> {
    let tokens = Tokenizer::new(&Grammar, text)
        .tokenize_with_location()
        .map_err(|e| untokenized(e.message, e.location, text))?;
    let mut walk = Walk::new(text);
    let mut statements = Vec::new();
    // The byte offset and the line at which the current statement begins.
    let mut begun: Option<(usize, u64)> = None;
    let mut cut = |(start, line): (usize, u64), end: usize| {
        let text = text.get(start..end).unwrap_or_default().trim_end().to_string();
        statements.push(Statement::new(text, (start, line)));
    };
    for token in tokens {
        match token.token {
            Token::SemiColon => {
                if let Some(start) = begun.take() {
                    cut(start, walk.to(token.span.start));
                }
            }
            Token::Whitespace(_) | Token::EOF => {}
            _ if begun.is_none() => {
                begun = Some((walk.to(token.span.start), token.span.start.line));
            }
            _ => {}
        }
    }
    if let Some(start) = begun {
        cut(start, text.len());
    }
    Ok(statements)
}

fn untokenized(message: String, at: Location, text: &str) -> Error {
    let parser = datafusion::sql::sqlparser::parser::ParserError::TokenizerError(format!(
        "{message} at Line: {}, Column: {}",
        at.line, at.column
    ));
    crate::error::in_statement(datafusion::error::DataFusionError::SQL(Box::new(parser), None), text, 1)
}

/// Converts lines and columns to byte offsets as [`Offsets`] does, in one pass over the text. Positions must be passed
/// in ascending order. Reason: for a text of a megabyte in one line, [`Offsets`] would read the line again for each of
/// its statements.
pub struct Walk<'a> {
    rest: std::str::CharIndices<'a>,
    at: Location,
}

impl<'a> Walk<'a> {
    pub fn new(text: &'a str) -> Self {
        Walk { rest: text.char_indices(), at: Location { line: 1, column: 1 } }
    }

    /// Returns the byte offset of a position.
    pub fn to(&mut self, place: Location) -> usize {
        while (self.at.line, self.at.column) < (place.line, place.column) {
            match self.rest.next() {
                Some((_, '\n')) => self.at = Location { line: self.at.line + 1, column: 1 },
                Some(_) => self.at.column += 1,
                None => break,
            }
        }
        self.rest.offset()
    }
}

/// Converts positions (line and column, which sqlparser counts in characters) to byte offsets in a text.
pub struct Offsets<'a> {
    text: &'a str,
    lines: Vec<usize>,
}

impl<'a> Offsets<'a> {
    pub fn new(text: &'a str) -> Self {
        let lines = std::iter::once(0).chain(text.match_indices('\n').map(|(i, _)| i + 1)).collect();
        Offsets { text, lines }
    }

    pub fn of(&self, at: Location) -> usize {
        let index = |n: u64| usize::try_from(n.saturating_sub(1)).unwrap_or(usize::MAX);
        let Some(&line) = self.lines.get(index(at.line)) else { return self.text.len() };
        let rest = &self.text[line..];
        line + rest.char_indices().nth(index(at.column)).map_or(rest.len(), |(i, _)| i)
    }
}
