//! Keeps all digits of numbers with a decimal point, and of integers of more than 64 bits. DataFusion 55.2 reads them
//! as doubles, or, with an option, as decimals in every context. [`crate::types`] decides which of them become
//! decimals, when the types of columns are known.

use super::call;
use crate::types::EXACT_NUMBER;
use datafusion::common::DataFusionError;
use datafusion::sql::sqlparser::ast::{
    Expr, Function, Value, ValueWithSpan, VisitorMut, WindowFrameBound, WindowType,
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

/// If the expression stands for a number whose digits are kept, returns the number as it was written; otherwise `None`.
fn written(expr: &Expr) -> Option<String> {
    let Expr::Function(function) = expr else { return None };
    if !super::headers::is_called(function, EXACT_NUMBER) {
        return None;
    }
    let text = function.args.to_string();
    Some(text.trim_matches(|c| "()'".contains(c)).to_string())
}
