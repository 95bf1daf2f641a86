//! Translates `LIKE … ESCAPE 'c'` to a pattern with the engine's escape character (by a function if the pattern is
//! computed), and `SIMILAR TO` to the equivalent regular expression (SQL:2016, 8.6). DataFusion 55.2 takes the pattern
//! of SIMILAR TO itself for a regular expression, which may match anywhere in the string.

use super::{call, refusal};
use datafusion::common::Result;
use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, UnaryOperator, Value, ValueWithSpan};

/// The engine's escape character in LIKE patterns without `ESCAPE`.
const ESCAPE: char = '\\';

pub(super) fn apply(expr: &mut Expr) -> Result<()> {
    match expr {
        Expr::Like { pattern, escape_char, .. } | Expr::ILike { pattern, escape_char, .. } => {
            let Some(escape) = escape_char.take() else { return Ok(()) };
            let escape = character(&escape)?;
            // A pattern with the engine's own escape character needs no translation, and need not be constant.
            match &mut **pattern {
                _ if escape == Some(ESCAPE) => {}
                Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text), .. }) => {
                    *text = escaped_anew(text, escape)?;
                }
                computed => {
                    let escape = escape.map(String::from).unwrap_or_default();
                    let escape = Expr::value(Value::SingleQuotedString(escape));
                    *computed = call("like_pattern", vec![computed.clone(), escape]);
                }
            }
            Ok(())
        }
        Expr::SimilarTo { negated, expr: value, pattern, escape_char } => {
            let escape = escape_char.as_ref().map_or(Ok(Some(ESCAPE)), character)?;
            if !matches!(**pattern, Expr::Value(ValueWithSpan { value: Value::Null, .. })) {
                let text = text(pattern, "SIMILAR TO")?;
                *text = regex_of(text, escape)?;
            }
            let matches = Expr::BinaryOp {
                left: value.clone(),
                op: BinaryOperator::PGRegexMatch,
                right: pattern.clone(),
            };
            let matches = Expr::Nested(Box::new(matches));
            *expr = match *negated {
                true => Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(matches) },
                false => matches,
            };
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Returns the escape character; `None` for the empty string, which means that there is no escape character.
fn character(value: &ValueWithSpan) -> Result<Option<char>> {
    let mut characters = match &value.value {
        Value::SingleQuotedString(text) => text.chars(),
        _ => return Err(refusal("ESCAPE of something else than a string", "write ESCAPE '!'")),
    };
    match (characters.next(), characters.next()) {
        (first, None) => Ok(first),
        _ => Err(refusal("ESCAPE of more than one character", "write ESCAPE '!'")),
    }
}

fn text<'a>(pattern: &'a mut Expr, what: &str) -> Result<&'a mut String> {
    match pattern {
        Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text), .. }) => Ok(text),
        _ => Err(refusal(
            &format!("{what} takes a pattern that is a constant"),
            "use regexp_like for patterns that are computed",
        )),
    }
}

/// Returns the LIKE pattern with the engine's escape character in place of `escape`.
pub fn escaped_anew(pattern: &str, escape: Option<char>) -> Result<String> {
    let mut made = String::with_capacity(pattern.len() + 1);
    let mut characters = pattern.chars();
    while let Some(c) = characters.next() {
        if Some(c) == escape {
            let escaped = characters.next().ok_or_else(nothing_escaped)?;
            made.extend([ESCAPE, escaped]);
        } else if c == ESCAPE {
            made.extend([ESCAPE, ESCAPE]);
        } else {
            made.push(c);
        }
    }
    Ok(made)
}

fn nothing_escaped() -> datafusion::error::DataFusionError {
    refusal("nothing follows the escape character at the end of the pattern", "write it twice to mean itself")
}

/// Returns the regular expression that matches exactly the strings that the SIMILAR TO pattern matches.
fn regex_of(pattern: &str, escape: Option<char>) -> Result<String> {
    // `.` matches every character, including a line break.
    let mut made = String::from("(?s)^(?:");
    let mut in_brackets = false;
    let mut characters = pattern.chars();
    while let Some(c) = characters.next() {
        if Some(c) == escape {
            let escaped = characters.next().ok_or_else(nothing_escaped)?;
            push_literally(&mut made, escaped);
            continue;
        }
        match c {
            '^' | '-' | ':' if in_brackets => made.push(c),
            '%' if !in_brackets => made.push_str(".*"),
            '_' if !in_brackets => made.push('.'),
            '|' | '*' | '+' | '?' | '(' | ')' | '{' | '}' if !in_brackets => made.push(c),
            '[' | ']' if in_brackets == (c == ']') => {
                in_brackets = !in_brackets;
                made.push(c);
            }
            _ => push_literally(&mut made, c),
        }
    }
    made.push_str(")$");
    Ok(made)
}

/// Appends a literal character; with a backslash if the character has a meaning in regular expressions.
fn push_literally(made: &mut String, c: char) {
    if r"\.+*?()|[]{}^$#&-~".contains(c) {
        made.push('\\');
    }
    made.push(c);
}
