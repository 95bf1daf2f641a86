//! Rewrites three forms of intervals that DataFusion 55.2 lacks: products and quotients of an interval and a number, if
//! one side is written as an interval; the opposite of an interval; and interval strings with a time of day, such as `'1 day 04:05:06'`, whose
//! hours, minutes and seconds it does not read.

use super::call;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, DataType, Expr, UnaryOperator, Value, ValueWithSpan,
};

pub(super) fn apply(expr: &mut Expr) {
    match expr {
        Expr::Interval(interval) => write_out_clock(&mut interval.value),
        Expr::Cast { expr, data_type: DataType::Interval { .. }, .. } => write_out_clock(expr),
        // The engine would put the sign in front of the text, where it is that of the first part only.
        Expr::UnaryOp { op: UnaryOperator::Minus, expr: inner }
            if is_interval(inner) && !is_computed(inner) =>
        {
            let minus = Expr::value(Value::Number("-1".into(), false));
            *expr = call("multiply_interval", vec![(**inner).clone(), minus]);
        }
        Expr::BinaryOp { left, op, right } => {
            if let Some(made) = scaled(left, op, right) {
                *expr = made;
            }
        }
        _ => {}
    }
}

/// If the operation multiplies or divides an interval by a number, returns the function call that does so; otherwise
/// `None`.
fn scaled(left: &Expr, op: &BinaryOperator, right: &Expr) -> Option<Expr> {
    let (function, interval, number) = match (op, is_interval(left), is_interval(right)) {
        (BinaryOperator::Multiply, true, false) => ("multiply_interval", left, right),
        (BinaryOperator::Multiply, false, true) => ("multiply_interval", right, left),
        (BinaryOperator::Divide, true, false) => ("divide_interval", left, right),
        _ => return None,
    };
    Some(call(function, vec![interval.clone(), number.clone()]))
}

fn is_interval(expr: &Expr) -> bool {
    match expr {
        Expr::Interval(_) => true,
        Expr::Nested(inner) => is_interval(inner),
        Expr::Cast { kind: CastKind::Cast | CastKind::DoubleColon, data_type, .. } => {
            matches!(data_type, DataType::Interval { .. })
        }
        Expr::Function(function) => ["multiply_interval", "divide_interval"]
            .iter()
            .any(|name| super::headers::is_called(function, name)),
        _ => false,
    }
}

/// Returns whether an interval is written as a computation with texts, `interval '5' - '1' year` of MySQL, which the engine
/// reads with the sign.
fn is_computed(expr: &Expr) -> bool {
    matches!(expr, Expr::Interval(interval) if matches!(*interval.value, Expr::BinaryOp { .. }))
}

/// Writes out the time of day in an interval string: `1 day 04:05:06` becomes `1 day 04 hours 05 minutes 06 seconds`.
fn write_out_clock(value: &mut Expr) {
    let Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text), .. }) = value else { return };
    if !text.contains(':') {
        return;
    }
    let words: Option<Vec<String>> = text
        .split_whitespace()
        .map(|word| if word.contains(':') { clock(word) } else { Some(word.to_string()) })
        .collect();
    if let Some(words) = words {
        *text = words.join(" ");
    }
}

fn clock(word: &str) -> Option<String> {
    let (sign, digits) = match word.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", word.strip_prefix('+').unwrap_or(word)),
    };
    let parts: Vec<&str> = digits.split(':').collect();
    let is_number = |part: &str, point| {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit() || (point && b == b'.'))
    };
    match parts.as_slice() {
        [hours, minutes] if is_number(hours, false) && is_number(minutes, false) => {
            Some(format!("{sign}{hours} hours {sign}{minutes} minutes"))
        }
        [hours, minutes, seconds]
            if is_number(hours, false) && is_number(minutes, false) && is_number(seconds, true) =>
        {
            Some(format!("{sign}{hours} hours {sign}{minutes} minutes {sign}{seconds} seconds"))
        }
        _ => None,
    }
}
