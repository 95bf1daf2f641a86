//! The language of conditions on the entries of a space: `age > 30 and name like 'A%'`.
//!
//! ```text
//! condition  = condition "and" condition | condition "or" condition | "not" condition | "(" condition ")"
//!            | operand ("=" | "!=" | "<>" | "<" | "<=" | ">" | ">=") operand
//!            | operand ["not"] "in" "(" constant {"," constant} ")"
//!            | operand ["not"] "between" constant "and" constant
//!            | column ["not"] ("like" | "ilike") string | column ["!"] ("~" | "~*") string
//!            | column "is" ["not"] "null" | column | "true" | "false"
//! operand    = column | constant | type "@" offset | "bytes" "[" from ":" to "]"
//! constant   = ["-"] number | string | "x" string | "true" | "false" | "null"
//! type       = "u8" | "u16" | "u32" | "u64" | "i8" | "i16" | "i32" | "i64" | "f32" | "f64"
//! ```
//! Conditions on columns become an [`Expr`], as those of SQL do. A space without a schema has the columns of
//! [`plain_schema`], and its conditions may also refer to bytes at offsets of the value, as Caribou's do (section 4.3):
//! numbers are little-endian there, and the first byte is at offset 0.
//!
//! Invariant: a condition is true, false or unknown, as in SQL, and entries pass only where it is true. On bytes beyond
//! the end of a value it is unknown, and so is its negation. Negations never stand above a condition on bytes, so that
//! such a condition may report unknown as false. Example: `not u8@4 = 0` is parsed as `u8@4 <> 0`; on a value of two
//! bytes both are false. Negating the result of `u8@4 = 0` instead would let that value pass.

mod bytes;
mod constant;
mod lexer;
mod parser;
#[cfg(test)]
mod tests;
mod typed;

pub use bytes::ByteCondition;
pub(crate) use bytes::{NumberRange, NumberType};

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use farpool_model::limits::KV_PREDICATE_BYTES_MAX;
use farpool_model::{Expr, brief};
use std::fmt;
use std::sync::{Arc, LazyLock};

/// A parsed condition on an entry.
#[derive(Clone, Debug, PartialEq)]
pub enum Predicate {
    /// A boolean expression over the columns of the space.
    Columns(Expr),
    /// A condition on bytes of the value.
    Bytes(ByteCondition),
    /// AND of two or more conditions; conditions on bytes come first.
    All(Vec<Predicate>),
    /// OR of two or more conditions.
    Any(Vec<Predicate>),
}

impl Predicate {
    /// Returns the condition as an expression if it is about columns only.
    pub fn as_expr(&self) -> Option<&Expr> {
        match self {
            Predicate::Columns(expr) => Some(expr),
            Predicate::Bytes(_) | Predicate::All(_) | Predicate::Any(_) => None,
        }
    }

    /// Returns whether the condition is true for an entry with this value; `columns` evaluates conditions on columns.
    /// Does not allocate.
    pub fn matches(&self, value: &[u8], columns: &mut dyn FnMut(&Expr) -> bool) -> bool {
        match self {
            Predicate::Columns(expr) => columns(expr),
            Predicate::Bytes(condition) => condition.matches(value),
            Predicate::All(parts) => parts.iter().all(|part| part.matches(value, columns)),
            Predicate::Any(parts) => parts.iter().any(|part| part.matches(value, columns)),
        }
    }

    /// Joins conditions by AND if `all`, otherwise by OR.
    fn combine(parts: Vec<Predicate>, all: bool) -> Predicate {
        let flat = parts.into_iter().flat_map(|part| match part {
            Predicate::All(parts) if all => parts,
            Predicate::Any(parts) if !all => parts,
            other => vec![other],
        });
        let (mut exprs, mut parts) = (Vec::new(), Vec::new());
        for part in flat {
            match part {
                Predicate::Columns(Expr::And(parts)) if all => exprs.extend(parts),
                Predicate::Columns(Expr::Or(parts)) if !all => exprs.extend(parts),
                Predicate::Columns(expr) => exprs.push(expr),
                other => parts.push(other),
            }
        }
        let expr = match exprs.len() {
            0 | 1 => exprs.pop(),
            _ if all => Some(Expr::And(exprs)),
            _ => Some(Expr::Or(exprs)),
        };
        parts.extend(expr.map(Predicate::Columns));
        match (parts.len(), all) {
            (1, _) => parts.swap_remove(0),
            (_, true) => Predicate::All(parts),
            (_, false) => Predicate::Any(parts),
        }
    }
}

/// An error in the text of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PredicateError {
    /// Position of the error in characters; the first is 1.
    pub character: usize,
    /// Description of the error.
    pub message: String,
    /// Suggested correction.
    pub hint: Option<String>,
}

impl fmt::Display for PredicateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at character {}: {}", self.character, self.message)?;
        self.hint.iter().try_for_each(|hint| write!(f, " ({hint})"))
    }
}

impl std::error::Error for PredicateError {}

impl From<PredicateError> for crate::Refusal {
    fn from(error: PredicateError) -> Self {
        crate::Refusal(format!("ERR predicate, {error}").into())
    }
}

/// An error at a byte offset of the text.
struct ParseError {
    at: usize,
    message: String,
    hint: Option<String>,
}

impl ParseError {
    fn new(at: usize, message: impl Into<String>) -> Self {
        ParseError { at, message: message.into(), hint: None }
    }

    fn hint(self, hint: impl Into<String>) -> Self {
        ParseError { hint: Some(hint.into()), ..self }
    }
}

type Parsed<T> = Result<T, ParseError>;

/// Returns the columns of a space without a schema, of text or of bytes: `key`; `value`, which is NULL for a hash; and
/// `ttl` in seconds, as `TTL` reports it, which is NULL for an entry without an expiry.
pub fn plain_schema(is_binary: bool) -> &'static SchemaRef {
    static PLAIN: LazyLock<[SchemaRef; 2]> = LazyLock::new(|| {
        [DataType::Utf8View, DataType::BinaryView].map(|bytes| {
            Arc::new(Schema::new(vec![
                Field::new("key", bytes.clone(), false),
                Field::new("value", bytes, true),
                Field::new("ttl", DataType::Int64, true),
            ]))
        })
    });
    &PLAIN[usize::from(is_binary)]
}

/// Parses a condition on the entries of a space with this canonical schema. `is_plain` says that the space has no
/// schema of its own, but that of [`plain_schema`].
///
/// # Errors
/// When the text is not a condition, or exceeds the limits `KV_PREDICATE_*`.
pub fn parse(text: &[u8], schema: &Schema, is_plain: bool) -> Result<Predicate, PredicateError> {
    if text.len() > KV_PREDICATE_BYTES_MAX {
        let message =
            format!("a condition may have {KV_PREDICATE_BYTES_MAX} bytes, this one has {}", text.len());
        return Err(PredicateError { character: 1, message, hint: None });
    }
    let (valid, rest) = match std::str::from_utf8(text) {
        Ok(text) => (text, None),
        Err(error) => (std::str::from_utf8(&text[..error.valid_up_to()]).unwrap_or_default(), Some(())),
    };
    let parsed = match rest {
        None => parser::parse(valid, schema, is_plain),
        Some(()) => Err(ParseError::new(valid.len(), "the text is not UTF-8")
            .hint("write bytes as x'00ff', in hexadecimal digits")),
    };
    parsed.map_err(|wrong| PredicateError {
        character: valid.get(..wrong.at).unwrap_or(valid).chars().count() + 1,
        message: brief(wrong.message),
        hint: wrong.hint.map(brief),
    })
}
