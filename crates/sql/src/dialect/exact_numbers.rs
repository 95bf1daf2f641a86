//! Keeps all digits of numbers with a decimal point, and of integers of more than 64 bits. DataFusion 55.2 reads them
//! as doubles, or, with an option, as decimals in every context. [`crate::types`] decides which of them become
//! decimals, when the types of columns are known.

use super::call;
use crate::types::EXACT_NUMBER;
use arrow_schema::DECIMAL128_MAX_PRECISION;
use datafusion::common::DataFusionError;
use datafusion::sql::sqlparser::ast::{
    DataType, ExactNumberInfo, Expr, Function, UnaryOperator, Value, ValueWithSpan, VisitorMut,
    WindowFrameBound, WindowType,
};
use std::ops::ControlFlow;

pub(super) struct ExactNumbers;

impl VisitorMut for ExactNumbers {
    type Break = DataFusionError;

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<DataFusionError> {
        match expr {
            Expr::Value(ValueWithSpan { value: Value::Number(text, _), .. }) if is_exact(text) => {
                let text = text.replace('_', "");
                *expr = call(EXACT_NUMBER, vec![Expr::value(Value::SingleQuotedString(text))]);
            }
            // A number has its own digits as a numeric, not as many as the engine gives one.
            Expr::Cast { expr: value, data_type, .. } if is_bare(data_type) => {
                if let Some((precision, scale)) = digits(value) {
                    *data_type = DataType::Decimal(ExactNumberInfo::PrecisionAndScale(precision, scale));
                }
            }
            // The engine requires the number of an interval to be a constant.
            Expr::Interval(interval) => {
                if let Some(text) = written(&interval.value) {
                    *interval.value = Expr::value(Value::Number(text, false));
                }
            }
            // The bounds of a window's frame must be constants, too.
            Expr::Function(Function { over: Some(WindowType::WindowSpec(window)), .. }) => {
                let Some(frame) = &mut window.window_frame else { return ControlFlow::Continue(()) };
                for bound in std::iter::once(&mut frame.start_bound).chain(&mut frame.end_bound) {
                    if let WindowFrameBound::Preceding(Some(offset))
                    | WindowFrameBound::Following(Some(offset)) = bound
                        && let Some(text) = written(offset)
                    {
                        **offset = Expr::value(Value::Number(text, false));
                    }
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// Returns whether a double may lose digits of the number. A number with an exponent is meant to be a double.
fn is_exact(text: &str) -> bool {
    let mut digits = text.bytes().filter(|b| *b != b'_');
    let is_plain = digits.all(|b| b.is_ascii_digit() || b == b'.');
    let is_large = || text.replace('_', "").parse::<u64>().is_err();
    is_plain && (text.contains('.') || is_large())
}

/// Returns whether a type is `numeric` without a precision.
fn is_bare(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Numeric(ExactNumberInfo::None)
            | DataType::Decimal(ExactNumberInfo::None)
            | DataType::Dec(ExactNumberInfo::None)
    )
}

/// Returns the precision and the scale of a constant number, which may be written as a text; `None` for another expression,
/// and for a number of more digits than a decimal has.
fn digits(expr: &Expr) -> Option<(u64, i64)> {
    let text = match expr {
        Expr::Nested(inner) | Expr::UnaryOp { op: UnaryOperator::Minus, expr: inner } => {
            return digits(inner);
        }
        Expr::Value(ValueWithSpan { value: Value::Number(text, _), .. }) => text.replace('_', ""),
        Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text), .. }) => text.trim().to_string(),
        other => written(other)?,
    };
    let text = text.strip_prefix(['-', '+']).unwrap_or(&text);
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let are_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let precision = (whole.trim_start_matches('0').len() + fraction.len()).max(1);
    if text.is_empty()
        || !are_digits(whole)
        || !are_digits(fraction)
        || precision > usize::from(DECIMAL128_MAX_PRECISION)
    {
        return None;
    }
    Some((u64::try_from(precision).ok()?, i64::try_from(fraction.len()).ok()?))
}

/// If the expression stands for a number whose digits are kept, returns the number as it was written; otherwise `None`.
fn written(expr: &Expr) -> Option<String> {
    let Expr::Function(function) = expr else { return None };
    if !super::headers::is_called(function, EXACT_NUMBER) {
        return None;
    }
    let text = function.args.to_string();
    Some(text.trim_matches(|c| "()'".contains(c)).to_string())
}
