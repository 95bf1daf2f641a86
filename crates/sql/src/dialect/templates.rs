//! Rewrites string formatting with a constant template to a concatenation of strings: DuckDB's `format('{} of {}', x,
//! y)`, PostgreSQL's `format('%s of %s', x, y)`, and `printf('%s', x)`.
//!
//! A NULL argument makes the result NULL in DuckDB's functions, and is an empty string in PostgreSQL's `format`.

use super::headers::is_called;
use super::{call, refusal, sql};
use datafusion::common::Result;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, DataType, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Value,
    ValueWithSpan,
};

/// A part of a template.
#[derive(Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    /// A value, by its index among the arguments.
    Value(usize),
    /// A value as a name in a statement.
    Name(usize),
    /// A value as a constant in a statement.
    Constant(usize),
}

pub(super) fn apply(expr: &mut Expr) -> Result<()> {
    let Expr::Function(function) = &*expr else { return Ok(()) };
    let is_printf = is_called(function, "printf");
    if !is_printf && !is_called(function, "format") {
        return Ok(());
    }
    let FunctionArguments::List(list) = &function.args else { return Ok(()) };
    let arguments = list.args.iter().map(|argument| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Ok(expr),
        other => Err(refusal(&format!("{other} is no argument of a template"), "write values")),
    });
    let arguments = arguments.collect::<Result<Vec<_>>>()?;
    let Some((Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(template), .. }), values)) =
        arguments.split_first()
    else {
        return Err(refusal("a template is a constant text here", "put texts together with ||"));
    };
    let is_of_braces = !is_printf && template.contains('{');
    let parts = if is_of_braces { braces(template) } else { percents(template) };
    let parts = parts.ok_or_else(|| {
        refusal(
            &format!("'{template}' has more than values to put in"),
            "write {}, {0} or %s; for digits and widths there are round, lpad and to_char",
        )
    })?;
    let mut texts = Vec::with_capacity(parts.len());
    let value = |place: usize| {
        let value = values.get(place).copied().ok_or_else(|| {
            refusal(&format!("'{template}' wants more than {} values", values.len()), "give one for each")
        });
        value.map(as_text)
    };
    for part in parts {
        texts.push(match part {
            Part::Text(text) => Expr::value(Value::SingleQuotedString(text)),
            Part::Value(place) => value(place)?,
            Part::Name(place) => call("quote_ident", vec![value(place)?]),
            Part::Constant(place) => {
                sql::expr_with("'''' || replace(x, '''', '''''') || ''''", &[("x", value(place)?)])?
            }
        });
    }
    *expr = match is_printf || is_of_braces {
        true => chained(texts),
        false => call("concat", texts),
    };
    Ok(())
}

fn as_text(expr: &Expr) -> Expr {
    let (expr, data_type) = (Box::new(expr.clone()), DataType::Varchar(None));
    Expr::Cast { kind: CastKind::Cast, expr, data_type, array: false, format: None }
}

/// Concatenates string expressions with `||`.
fn chained(texts: Vec<Expr>) -> Expr {
    let empty = Expr::value(Value::SingleQuotedString(String::new()));
    let chain = texts.into_iter().fold(empty, |left, right| Expr::BinaryOp {
        left: Box::new(left),
        op: BinaryOperator::StringConcat,
        right: Box::new(right),
    });
    Expr::Nested(Box::new(chain))
}

/// Parses a template such as `{} and {0}`; `{{` and `}}` are one brace each. Returns `None` if braces contain anything
/// else.
fn braces(template: &str) -> Option<Vec<Part>> {
    let (mut parts, mut text, mut next) = (Vec::new(), String::new(), 0);
    let mut rest = template.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '{' | '}' if rest.next_if_eq(&c).is_some() => text.push(c),
            '{' => {
                let place: String = std::iter::from_fn(|| rest.next_if(char::is_ascii_digit)).collect();
                rest.next_if_eq(&'}')?;
                parts.extend([
                    Part::Text(std::mem::take(&mut text)),
                    Part::Value(place_or(&place, &mut next)?),
                ]);
            }
            '}' => return None,
            _ => text.push(c),
        }
    }
    parts.push(Part::Text(text));
    Some(parts)
}

/// Parses a template such as `%s and %1$s`; `%%` is a percent sign. Returns `None` if there is any other conversion.
fn percents(template: &str) -> Option<Vec<Part>> {
    let (mut parts, mut text, mut next) = (Vec::new(), String::new(), 0);
    let mut rest = template.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '%' if rest.next_if_eq(&'%').is_some() => text.push('%'),
            '%' => {
                let place: String = std::iter::from_fn(|| rest.next_if(char::is_ascii_digit)).collect();
                let place = match place.is_empty() {
                    true => place_or("", &mut next)?,
                    // Positions in the template are counted from 1.
                    false => rest.next_if_eq(&'$').and(place.parse::<usize>().ok()?.checked_sub(1))?,
                };
                let part = match rest.next_if(|c| matches!(c, 's' | 'd' | 'i' | 'I' | 'L'))? {
                    'I' => Part::Name(place),
                    'L' => Part::Constant(place),
                    _ => Part::Value(place),
                };
                parts.extend([Part::Text(std::mem::take(&mut text)), part]);
            }
            _ => text.push(c),
        }
    }
    parts.push(Part::Text(text));
    Some(parts)
}

/// Returns the index of the value: the written position if there is one, otherwise the next index.
fn place_or(written: &str, next: &mut usize) -> Option<usize> {
    if !written.is_empty() {
        return written.parse().ok();
    }
    *next += 1;
    Some(*next - 1)
}

#[cfg(test)]
mod tests {
    use super::{Part, braces, percents};

    fn shown(parts: Option<Vec<Part>>) -> Option<String> {
        let part = |part: &Part| match part {
            Part::Text(text) => text.clone(),
            Part::Value(place) => format!("<{place}>"),
            Part::Name(place) => format!("<name {place}>"),
            Part::Constant(place) => format!("<constant {place}>"),
        };
        parts.map(|parts| parts.iter().map(part).collect())
    }

    #[test]
    fn templates_are_read_in_parts() {
        assert_eq!(shown(braces("{} of {}, {{{0}}}")).as_deref(), Some("<0> of <1>, {<0>}"));
        assert_eq!(shown(braces("{:d}")), None);
        assert_eq!(shown(braces("a}")), None);
        assert_eq!(shown(percents("%s is %d %%, %1$s")).as_deref(), Some("<0> is <1> %, <0>"));
        assert_eq!(shown(percents("%I.%2$L")).as_deref(), Some("<name 0>.<constant 1>"));
        assert_eq!(shown(percents("%5d")), None);
        assert_eq!(shown(percents("%0$s")), None);
        assert_eq!(shown(percents("%")), None);
    }
}
