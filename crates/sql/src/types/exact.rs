//! Numbers with a decimal point, and integers of more than 64 bits. By itself, such a number is a double, as DataFusion
//! 55.2 reads it; as an operand next to a decimal it is a decimal with all the digits that are written. This module is
//! obsolete once upstream types such constants by their context.
//!
//! Until the types are known, such a number is the call of a function. Invariant: after the analyzer no call of the
//! function remains.

use super::numbers::CHOICES;
use arrow_schema::{DECIMAL128_MAX_PRECISION, DataType};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result, ScalarValue, internal_err};
use datafusion::logical_expr::expr::{Case, Cast, ScalarFunction};
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility, lit,
};
use datafusion::prelude::SessionContext;

/// Name of the function that stands for a number whose type is not known yet. Its argument is the number as it was
/// written.
pub const FUNCTION: &str = "exact_number";

/// Registers the function in `context`.
pub(super) fn register(context: &SessionContext) {
    let signature = Signature::any(1, Volatility::Immutable);
    context.register_udf(ScalarUDF::from(ExactNumber { signature }));
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ExactNumber {
    signature: Signature,
}

impl ScalarUDFImpl for ExactNumber {
    fn name(&self) -> &str {
        FUNCTION
    }

    /// Returns the name that the double would have, so that the function does not appear in column names.
    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        Ok(double(arguments).map_or_else(|| FUNCTION.to_string(), |double| double.schema_name().to_string()))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Float64)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match arguments.args.as_slice() {
            [ColumnarValue::Scalar(text)] => Ok(ColumnarValue::Scalar(text.cast_to(&DataType::Float64)?)),
            _ => internal_err!("{FUNCTION} of other than a constant"),
        }
    }
}

/// Returns the number as it was written if the expression is a call of the function; otherwise `None`.
fn written(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::ScalarFunction(call) if call.func.inner().is::<ExactNumber>() => text(&call.args),
        _ => None,
    }
}

fn text(arguments: &[Expr]) -> Option<&str> {
    match arguments {
        [Expr::Literal(ScalarValue::Utf8(Some(text)), _)] => Some(text),
        _ => None,
    }
}

fn double(arguments: &[Expr]) -> Option<Expr> {
    text(arguments)?.parse::<f64>().ok().map(lit)
}

/// Returns the decimal with these digits; `None` if a decimal cannot have as many.
fn decimal(text: &str) -> Option<ScalarValue> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits: String = [whole.trim_start_matches('0'), fraction].concat();
    if digits.len() > usize::from(DECIMAL128_MAX_PRECISION) || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let value = if digits.is_empty() { 0 } else { digits.parse().ok()? };
    let precision = u8::try_from(digits.len().max(1)).ok()?;
    Some(ScalarValue::Decimal128(Some(value), precision, i8::try_from(fraction.len()).ok()?))
}

/// Replaces a call of the function that is not next to a decimal by a double.
pub(super) fn as_double(expr: Expr) -> Result<Transformed<Expr>> {
    match &expr {
        Expr::ScalarFunction(call) if call.func.inner().is::<ExactNumber>() => match double(&call.args) {
            Some(double) => Ok(Transformed::yes(double)),
            None => internal_err!("{expr} is no number"),
        },
        _ => Ok(Transformed::no(expr)),
    }
}

/// Returns whether an expression consists only of constant numbers, at least one of which is a call of the function.
fn is_constant(expr: &Expr) -> bool {
    let mut has_exact = false;
    let parts = expr.exists(|part| {
        has_exact |= written(part).is_some();
        let is_number = match part {
            Expr::Literal(value, _) => value.data_type().is_integer() || is_text_of_number(value),
            Expr::Negative(_) => true,
            Expr::BinaryExpr(binary) => is_exact(binary.op),
            other => written(other).is_some(),
        };
        Ok(!is_number)
    });
    !parts.unwrap_or(true) && has_exact
}

/// Returns whether a constant is a string such as the argument of a call, which a visitor of expressions reaches as
/// well.
fn is_text_of_number(value: &ScalarValue) -> bool {
    matches!(value, ScalarValue::Utf8(Some(text)) if decimal(text).is_some())
}

fn is_exact(op: Operator) -> bool {
    matches!(op, Operator::Plus | Operator::Minus | Operator::Multiply | Operator::Modulo)
}

/// Converts the numbers of a constant expression to decimals; returns any other expression unchanged.
fn as_decimal(expr: Expr) -> Result<Transformed<Expr>> {
    if !is_constant(&expr) {
        return Ok(Transformed::no(expr));
    }
    expr.transform_up(|part| match written(&part).and_then(decimal) {
        Some(decimal) => Ok(Transformed::yes(lit(decimal))),
        None => Ok(Transformed::no(part)),
    })
}

/// Converts all numbers of an expression to decimals, as PostgreSQL reads them, but for the parts of quantiles, which are
/// doubles there, too.
pub(super) fn as_decimals(expr: Expr) -> Result<Transformed<Expr>> {
    let of_quantiles = expr.transform_down(|part| match &part {
        Expr::AggregateFunction(call)
            if ["percentile", "quantile"].iter().any(|name| call.func.name().contains(name)) =>
        {
            part.map_children(|argument| argument.transform_up(as_double))
        }
        _ => Ok(Transformed::no(part)),
    })?;
    of_quantiles.transform_data(|expr| expr.transform_up(as_decimal))
}

fn is_decimal(expr: &Expr, columns: &DFSchema) -> bool {
    expr.get_type(columns).is_ok_and(|found| found.is_decimal())
}

/// Converts an operand to a decimal if the other one is a decimal; for comparisons.
pub(super) fn operands(binary: BinaryExpr, columns: &DFSchema) -> Result<Transformed<BinaryExpr>> {
    let BinaryExpr { left, op, right } = binary;
    let (left, right) = match (is_decimal(&left, columns), is_decimal(&right, columns)) {
        (true, false) => (Transformed::no(*left), as_decimal(*right)?),
        (false, true) => (as_decimal(*left)?, Transformed::no(*right)),
        (true, true) | (false, false) => (Transformed::no(*left), Transformed::no(*right)),
    };
    let is_changed = left.transformed || right.transformed;
    let binary = BinaryExpr::new(Box::new(left.data), op, Box::new(right.data));
    Ok(Transformed::new_transformed(binary, is_changed))
}

/// Converts operands of sums, differences, products and remainders to decimals if the other one is a decimal. Divisions
/// are not converted: the quotient with a double is a double.
pub(super) fn arithmetic(binary: BinaryExpr, columns: &DFSchema) -> Result<Transformed<Expr>> {
    match is_exact(binary.op) {
        true => operands(binary, columns)?.map_data(|binary| Ok(Expr::BinaryExpr(binary))),
        false => Ok(Transformed::no(Expr::BinaryExpr(binary))),
    }
}

/// Converts a cast of a call of the function to a decimal, so that the written digits are cast instead of the double.
pub(super) fn cast(cast: Cast) -> Result<Transformed<Expr>> {
    match cast.field.data_type().is_decimal() {
        true => as_decimal(*cast.expr)?
            .map_data(|expr| Ok(Expr::Cast(Cast::new_from_field(Box::new(expr), cast.field)))),
        false => Ok(Transformed::no(Expr::Cast(cast))),
    }
}

/// For a function that returns one of its arguments, converts the numbers among its arguments to decimals if another
/// argument is a decimal.
pub(super) fn function(mut call: ScalarFunction, columns: &DFSchema) -> Result<Transformed<Expr>> {
    let meets = CHOICES.contains(&call.func.name()) && call.args.iter().any(|arg| is_decimal(arg, columns));
    let is_changed = if meets { all_as_decimals(call.args.iter_mut())? } else { false };
    Ok(Transformed::new_transformed(Expr::ScalarFunction(call), is_changed))
}

/// Converts a constant number of decimal places, an argument of `round`, to 32 bits, the type of the function's
/// parameter. Reason: the type of a rounded decimal depends on this constant. As long as the engine's own cast has not
/// been folded, the result would have another type than afterwards.
pub(super) fn places(expr: Expr) -> Transformed<Expr> {
    let Expr::ScalarFunction(mut call) = expr else { return Transformed::no(expr) };
    let places = match call.args.as_slice() {
        [_, places] if call.func.name() == "round" => {
            whole(places).and_then(|places| i32::try_from(places).ok())
        }
        _ => None,
    };
    if let Some(places) = places {
        call.args[1] = lit(places);
    }
    Transformed::new_transformed(Expr::ScalarFunction(call), places.is_some())
}

/// Casts the argument of `ceil` and `floor` to a decimal with one more digit, because the next whole number may need
/// it: that of 9.9 is 10. The engine keeps the type of the argument.
pub(super) fn next_whole(expr: Expr, columns: &DFSchema) -> Result<Transformed<Expr>> {
    let Expr::ScalarFunction(mut call) = expr else { return Ok(Transformed::no(expr)) };
    let wider = match call.args.as_slice() {
        [value] if matches!(call.func.name(), "ceil" | "floor") => match value.get_type(columns)? {
            DataType::Decimal128(digits, places) if digits < DECIMAL128_MAX_PRECISION && places > 0 => {
                // If the plan has been analyzed before, the argument has the additional digit already.
                let narrower = DataType::Decimal128(digits - 1, places);
                let has_it = matches!(value, Expr::Cast(cast) if cast.expr.get_type(columns)? == narrower);
                (!has_it).then_some(DataType::Decimal128(digits + 1, places))
            }
            _ => None,
        },
        _ => None,
    };
    let is_wider = wider.is_some();
    if let Some(wider) = wider {
        call.args[0] = datafusion::logical_expr::cast(std::mem::take(&mut call.args[0]), wider);
    }
    Ok(Transformed::new_transformed(Expr::ScalarFunction(call), is_wider))
}

/// Returns the value of a constant integer; `None` for any other expression.
fn whole(expr: &Expr) -> Option<i64> {
    match expr {
        Expr::Literal(ScalarValue::Int64(value), _) => *value,
        Expr::Negative(value) => whole(value)?.checked_neg(),
        _ => None,
    }
}

/// Converts the result values of a CASE to decimals if one of them is a decimal; also the operand of the CASE, and the
/// values that it is compared with, if one of those is.
pub(super) fn case(mut case: Case, columns: &DFSchema) -> Result<Transformed<Expr>> {
    let mut is_changed = false;
    let (whens, thens) = (case.when_then_expr.iter(), case.when_then_expr.iter());
    let mut compared = whens.map(|(when, _)| when).chain(&case.expr);
    let compares = case.expr.is_some() && compared.any(|expr| is_decimal(expr, columns));
    let mut returned = thens.map(|(_, then)| then).chain(&case.else_expr);
    let returns = returned.any(|expr| is_decimal(expr, columns));
    if compares {
        let whens = case.when_then_expr.iter_mut().map(|(when, _)| &mut **when);
        is_changed |= all_as_decimals(whens.chain(case.expr.as_deref_mut()))?;
    }
    if returns {
        let thens = case.when_then_expr.iter_mut().map(|(_, then)| &mut **then);
        is_changed |= all_as_decimals(thens.chain(case.else_expr.as_deref_mut()))?;
    }
    Ok(Transformed::new_transformed(Expr::Case(case), is_changed))
}

fn all_as_decimals<'a>(exprs: impl Iterator<Item = &'a mut Expr>) -> Result<bool> {
    let mut is_changed = false;
    for expr in exprs {
        let made = as_decimal(std::mem::take(expr))?;
        is_changed |= made.transformed;
        *expr = made.data;
    }
    Ok(is_changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_have_the_digits_that_are_written() {
        for (text, expected) in [
            ("0.1", Some((1, 1, 1))),
            ("00012.340", Some((12340, 5, 3))),
            (".5", Some((5, 1, 1))),
            ("7.", Some((7, 1, 0))),
            ("0.0", Some((0, 1, 1))),
            ("123456789012345678.12", Some((12_345_678_901_234_567_812, 20, 2))),
            ("123456789012345678901234567890123456789", None),
        ] {
            let found = decimal(text);
            let expected = expected
                .map(|(value, precision, scale)| ScalarValue::Decimal128(Some(value), precision, scale));
            assert_eq!(found, expected, "{text}");
        }
    }
}
