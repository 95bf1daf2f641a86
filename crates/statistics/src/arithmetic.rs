//! Checked arithmetic on columns: a result that does not fit its type is an error whose message shows the values. The
//! pool and the engine use it where the bounds of the operands do not rule overflow out.
//!
//! Arrow's kernels detect results that do not fit the bits of a type, but leave it to their caller to check the number
//! of digits of a decimal. That check is done here.

use arrow_arith::numeric;
use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type};
use arrow_array::{Array, ArrayRef, Datum, new_empty_array};
use arrow_cast::display::array_value_to_string;
use arrow_schema::{ArrowError, DataType};
use farpool_model::{ArithmeticOp, Error, Result, arithmetic_type};

/// Computes `left op right`, row by row. The operands must be two numbers of one type, or two decimals. The result is
/// NULL where one of the operands is.
///
/// # Errors
/// `Invalid` if a result does not fit its type, for a division by zero, and for types without such an operation.
pub fn arithmetic(op: ArithmeticOp, left: &dyn Datum, right: &dyn Datum) -> Result<ArrayRef> {
    computed(op, left, right).map_err(|error| explained(error, op, left, right))
}

/// Negates signed numbers, row by row.
///
/// # Errors
/// `Invalid` when a result does not fit, and for types that cannot be negated.
pub fn negative(values: &dyn Array) -> Result<ArrayRef> {
    numeric::neg(values).map_err(|error| match error {
        ArrowError::ArithmeticOverflow(_) => {
            let fails = |row: &usize| numeric::neg(&values.slice(*row, 1)).is_err();
            let shown = (0..values.len()).find(fails).map(|row| format!("-({})", text(values, row)));
            out_of_range(values.data_type(), shown)
        }
        other => invalid(other),
    })
}

fn computed(op: ArithmeticOp, left: &dyn Datum, right: &dyn Datum) -> Result<ArrayRef, ArrowError> {
    let kernel = match op {
        ArithmeticOp::Add => numeric::add,
        ArithmeticOp::Subtract => numeric::sub,
        ArithmeticOp::Multiply => numeric::mul,
        ArithmeticOp::Divide => numeric::div,
        ArithmeticOp::Modulo => numeric::rem,
    };
    let result = kernel(left, right)?;
    check_digits(&result)?;
    Ok(result)
}

/// Checks that decimals have no more digits than their type.
fn check_digits(array: &ArrayRef) -> Result<(), ArrowError> {
    match array.data_type() {
        DataType::Decimal32(digits, _) => {
            array.as_primitive::<Decimal32Type>().validate_decimal_precision(*digits)
        }
        DataType::Decimal64(digits, _) => {
            array.as_primitive::<Decimal64Type>().validate_decimal_precision(*digits)
        }
        DataType::Decimal128(digits, _) => {
            let decimals = array.as_primitive::<Decimal128Type>();
            let most = 10_i128.pow(u32::from(*digits)) - 1;
            // The loop has no branch per row. NULLs, whose values are arbitrary, are excluded afterwards, and only if
            // a value exceeds the digits.
            let beyond = decimals.values().iter().fold(false, |any, v| any | (*v > most) | (*v < -most));
            if beyond { decimals.validate_decimal_precision(*digits) } else { Ok(()) }
        }
        DataType::Decimal256(digits, _) => {
            array.as_primitive::<Decimal256Type>().validate_decimal_precision(*digits)
        }
        _ => Ok(()),
    }
}

fn explained(error: ArrowError, op: ArithmeticOp, left: &dyn Datum, right: &dyn Datum) -> Error {
    if matches!(error, ArrowError::DivideByZero) {
        return invalid(error);
    }
    let ((left, left_is_one), (right, right_is_one)) = (left.get(), right.get());
    let none = |side: &dyn Array| new_empty_array(side.data_type());
    if computed(op, &none(left), &none(right)).is_err() {
        // These errors mean that the types are wrong, not the values.
        return invalid(error);
    }
    let rows = if left_is_one { right.len() } else { left.len() };
    let place = |row: usize, is_one: bool| if is_one { 0 } else { row };
    let fails = |row: &usize| {
        let (l, r) = (left.slice(place(*row, left_is_one), 1), right.slice(place(*row, right_is_one), 1));
        computed(op, &l, &r).is_err()
    };
    let shown = (0..rows).find(fails).map(|row| {
        let (l, r) = (place(row, left_is_one), place(row, right_is_one));
        format!("{} {} {}", text(left, l), op.symbol(), operand(&text(right, r)))
    });
    let result = arithmetic_type(op, left.data_type(), right.data_type());
    out_of_range(&result.unwrap_or_else(|_| left.data_type().clone()), shown)
}

/// Returns the error for a result that does not fit `data_type`. `shown` is the computation that failed, as text.
fn out_of_range(data_type: &DataType, shown: Option<String>) -> Error {
    let advice = match data_type {
        DataType::Int64 | DataType::UInt64 => "cast one side to a wider type, e.g. DECIMAL(38,0)",
        integer if integer.is_integer() => "cast one side to a wider type, e.g. BIGINT",
        _ => "cast one side to a decimal of fewer digits, or to DOUBLE",
    };
    let shown = shown.map(|shown| format!(": {shown}")).unwrap_or_default();
    Error::invalid(format!("{} out of range{shown}", name(data_type))).advise(advice)
}

/// Returns the name of a type in SQL.
fn name(data_type: &DataType) -> String {
    match data_type {
        DataType::Int8 => "tinyint".to_string(),
        DataType::Int16 => "smallint".to_string(),
        DataType::Int32 => "integer".to_string(),
        DataType::Int64 => "bigint".to_string(),
        DataType::UInt8 => "tinyint unsigned".to_string(),
        DataType::UInt16 => "smallint unsigned".to_string(),
        DataType::UInt32 => "integer unsigned".to_string(),
        DataType::UInt64 => "bigint unsigned".to_string(),
        DataType::Decimal32(digits, scale)
        | DataType::Decimal64(digits, scale)
        | DataType::Decimal128(digits, scale)
        | DataType::Decimal256(digits, scale) => format!("decimal({digits},{scale})"),
        other => other.to_string(),
    }
}

fn text(array: &dyn Array, row: usize) -> String {
    array_value_to_string(array, row).unwrap_or_else(|_| "?".to_string())
}

/// Puts parentheses around a right operand that begins with a sign.
fn operand(text: &str) -> String {
    if text.starts_with('-') { format!("({text})") } else { text.to_string() }
}

fn invalid(error: ArrowError) -> Error {
    Error::invalid(match error {
        ArrowError::DivideByZero => "division by zero".to_string(),
        ArrowError::ComputeError(message)
        | ArrowError::ArithmeticOverflow(message)
        | ArrowError::InvalidArgumentError(message) => message,
        other => other.to_string(),
    })
}

#[cfg(test)]
mod tests;
