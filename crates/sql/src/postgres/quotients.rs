//! Quotients as PostgreSQL computes them: of decimals with at least 16 significant digits, and of floats with an error where
//! they are not defined.

use super::{call, floats};
use arrow_array::cast::AsArray;
use arrow_array::types::Decimal128Type;
use arrow_buffer::i256;
use arrow_schema::{ArrowError, DECIMAL128_MAX_PRECISION, DataType, Field, FieldRef};
use datafusion::arrow::compute::kernels::arity::try_binary;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility, cast,
};
use farpool_postgres::types::QUOTIENT;
use std::sync::Arc;

/// Least and greatest number of digits behind the point in the type of a quotient, if no operand has more. PostgreSQL
/// computes at least 16 significant digits (`NUMERIC_MIN_SIG_DIGITS`): those of a quotient that is smaller than 1 are further
/// behind the point.
const LEAST_SCALE: i8 = 16;
const MOST_SCALE: i8 = 20;
/// Significant digits that PostgreSQL computes at least.
const SIGNIFICANT: i32 = 16;
/// Decimal digits in a digit of PostgreSQL's decimals (`DEC_DIGITS`).
const DIGITS: i32 = 4;

/// Rewrites a quotient to one with PostgreSQL's digits and errors. Quotients of integers are the engine's.
pub(crate) fn quotient(binary: BinaryExpr, columns: &DFSchema) -> Result<Transformed<Expr>> {
    let (left, right) = (binary.left.get_type(columns)?, binary.right.get_type(columns)?);
    if left.is_floating() && right.is_numeric() || right.is_floating() && left.is_numeric() {
        return Ok(Transformed::yes(floats::quotient(binary, &left, &right)));
    }
    let (Some(whole), Some(other)) = (exact(&left), exact(&right)) else {
        return Ok(Transformed::no(Expr::BinaryExpr(binary)));
    };
    if !left.is_decimal() && !right.is_decimal() {
        return Ok(Transformed::no(Expr::BinaryExpr(binary)));
    }
    // A divisor of one unit in its last place gives the most digits before the point.
    let before = digits_before(&whole) + scale(&other);
    Ok(Transformed::yes(of(before, cast(*binary.left, whole), cast(*binary.right, other))))
}

/// Returns a quotient of two decimals that has at most `before` digits before the point.
pub(super) fn of(before: i8, left: Expr, right: Expr) -> Expr {
    let signature = Signature::any(2, Volatility::Immutable);
    call(&Arc::new(ScalarUDF::from(Quotient { before, signature })), vec![left, right])
}

/// Returns the type of decimals that holds all values of a type; `None` for floats and what is not a number.
pub(super) fn exact(data_type: &DataType) -> Option<DataType> {
    Some(match data_type {
        DataType::Decimal128(..) => data_type.clone(),
        DataType::Int8 | DataType::UInt8 => DataType::Decimal128(3, 0),
        DataType::Int16 | DataType::UInt16 => DataType::Decimal128(5, 0),
        DataType::Int32 | DataType::UInt32 => DataType::Decimal128(10, 0),
        DataType::Int64 => DataType::Decimal128(19, 0),
        DataType::UInt64 => DataType::Decimal128(20, 0),
        _ => return None,
    })
}

/// Returns how many digits a decimal type has before the point.
pub(super) fn digits_before(data_type: &DataType) -> i8 {
    match data_type {
        DataType::Decimal128(precision, scale) => i8::try_from(*precision).unwrap_or(i8::MAX) - scale,
        _ => 0,
    }
}

/// Returns how many digits a decimal type has behind the point.
pub(super) fn scale(data_type: &DataType) -> i8 {
    match data_type {
        DataType::Decimal128(_, scale) => *scale,
        _ => 0,
    }
}

/// Returns the type of a quotient with at most `before` digits before the point, if the operands have `scales`.
pub(super) fn result(before: i8, scales: impl IntoIterator<Item = i8>) -> DataType {
    let most = i8::try_from(DECIMAL128_MAX_PRECISION).unwrap_or(i8::MAX);
    let scale = most.saturating_sub(before).clamp(LEAST_SCALE, MOST_SCALE);
    DataType::Decimal128(DECIMAL128_MAX_PRECISION, scales.into_iter().fold(scale, i8::max))
}

/// Returns the field of a quotient of such a type, as whose text only PostgreSQL's digits are written.
pub(super) fn field(name: &str, data_type: DataType) -> FieldRef {
    let metadata = [(QUOTIENT.to_string(), String::new())];
    Arc::new(Field::new(name, data_type, true).with_metadata(metadata.into()))
}

/// The function that divides decimals.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Quotient {
    /// The most digits that a result has before the point.
    before: i8,
    signature: Signature,
}

impl ScalarUDFImpl for Quotient {
    fn name(&self) -> &str {
        "postgres_quotient"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(result(self.before, types.iter().map(scale)))
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs) -> Result<FieldRef> {
        let types: Vec<DataType> =
            arguments.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        Ok(field(self.name(), self.return_type(&types)?))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&arguments.args)?;
        let to = scale(arguments.return_field.data_type());
        let scales = [scale(arrays[0].data_type()), scale(arrays[1].data_type())];
        let (left, right) =
            (arrays[0].as_primitive::<Decimal128Type>(), arrays[1].as_primitive::<Decimal128Type>());
        let quotients = try_binary::<_, _, _, Decimal128Type>(left, right, |left, right| {
            let [left, right] = [(left, scales[0]), (right, scales[1])]
                .map(|(value, scale)| Number::new(value.into(), scale));
            left.divided_by(&right, to)?.with_scale(to)
        })?;
        let quotients = quotients.with_precision_and_scale(DECIMAL128_MAX_PRECISION, to)?;
        Ok(ColumnarValue::Array(Arc::new(quotients)))
    }
}

/// A decimal: `value * 10^-scale`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Number {
    pub(super) value: i256,
    pub(super) scale: i8,
}

impl Number {
    pub(super) fn new(value: i256, scale: i8) -> Number {
        Number { value, scale }
    }

    /// Divides as PostgreSQL does (`numeric_div`): the quotient is rounded to the digits of `select_div_scale`, but at most
    /// to `most` digits behind the point.
    ///
    /// # Errors
    /// Fails if the divisor is zero, or if an intermediate result has more than 76 digits.
    pub(super) fn divided_by(&self, other: &Number, most: i8) -> Result<Number, ArrowError> {
        if other.value == i256::ZERO {
            return Err(ArrowError::DivideByZero);
        }
        let ((left, left_digit), (right, right_digit)) = (self.leading(), other.leading());
        let weight = left - right - i32::from(left_digit <= right_digit);
        let least = self.scale.max(other.scale).max(0);
        let scale = i8::try_from(SIGNIFICANT - weight * DIGITS).unwrap_or(most).max(least).min(most);
        let shift = i32::from(scale) - i32::from(self.scale) + i32::from(other.scale);
        let value = power(shift).and_then(|power| self.value.checked_mul(power));
        let value = value.and_then(|value| rounded(value, other.value)).ok_or_else(out_of_range)?;
        Ok(Number { value, scale })
    }

    /// Returns the weight of the first digit to the base of 10,000, and that digit; zeros have neither.
    fn leading(&self) -> (i32, u32) {
        let value = self.value.wrapping_abs();
        if value == i256::ZERO {
            return (0, 0);
        }
        let count = match value.to_i128() {
            Some(value) => value.unsigned_abs().ilog10() + 1,
            None => u32::try_from(value.to_string().len()).unwrap_or(u32::MAX),
        };
        let scale = i32::from(self.scale);
        let weight = (count.cast_signed() - 1 - scale).div_euclid(DIGITS);
        let shift = weight * DIGITS + scale;
        let digit = match shift < 0 {
            true => power(-shift).and_then(|power| value.checked_mul(power)),
            false => power(shift).and_then(|power| value.checked_div(power)),
        };
        (weight, digit.and_then(i256::to_i128).and_then(|digit| digit.try_into().ok()).unwrap_or(0))
    }

    /// Returns the value with `scale` digits behind the point, which are not fewer than there are, as a decimal of 38 digits.
    ///
    /// # Errors
    /// Fails if it has more digits.
    pub(super) fn with_scale(&self, scale: i8) -> Result<i128, ArrowError> {
        power(i32::from(scale) - i32::from(self.scale))
            .and_then(|power| self.value.checked_mul(power))
            .and_then(i256::to_i128)
            .filter(|value| value.unsigned_abs() < 10_u128.pow(DECIMAL128_MAX_PRECISION.into()))
            .ok_or_else(out_of_range)
    }
}

pub(super) fn out_of_range() -> ArrowError {
    ArrowError::ComputeError("numeric field overflow: a quotient is out of range".into())
}

pub(super) fn power(exponent: i32) -> Option<i256> {
    i256::from_i128(10).checked_pow(exponent.try_into().ok()?)
}

/// Returns a quotient, rounded half away from zero.
fn rounded(left: i256, right: i256) -> Option<i256> {
    let (quotient, rest) = (left.checked_div(right)?, left.checked_rem(right)?);
    let twice = rest.wrapping_abs().checked_mul(i256::from_i128(2))?;
    let away = if left.is_negative() == right.is_negative() { i256::ONE } else { i256::MINUS_ONE };
    if twice >= right.wrapping_abs() { quotient.checked_add(away) } else { Some(quotient) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotients_are_rounded() {
        let quotient =
            |left, right| rounded(i256::from_i128(left), i256::from_i128(right)).unwrap().to_i128();
        assert_eq!((quotient(7, 2), quotient(-7, 2), quotient(7, -3)), (Some(4), Some(-4), Some(-2)));
        assert_eq!((quotient(1, 3), quotient(-2, 3), quotient(0, 5)), (Some(0), Some(-1), Some(0)));
    }

    /// The expected digits are PostgreSQL 15's.
    #[test]
    fn quotients_have_the_digits_of_postgresql() {
        for (left, right, expected) in [
            ((1, 0), (3, 0), (33_333_333_333_333_333_333, 20)),
            ((100, 2), (300, 2), (33_333_333_333_333_333_333, 20)),
            ((2, 0), (1, 0), (20_000_000_000_000_000, 16)),
            ((100_000, 0), (3, 0), (33_333_333_333_333_333, 12)),
            ((20_000, 0), (3, 0), (66_666_666_666_666_666_667, 16)),
            ((0, 0), (3, 0), (0, 20)),
            ((70_000_000_000, 0), (1, 0), (7_000_000_000_000_000_000, 8)),
        ] {
            let number = |(value, scale): (i128, i8)| Number::new(i256::from_i128(value), scale);
            let (expected, of) = (number(expected), (left, right));
            assert_eq!(number(left).divided_by(&number(right), MOST_SCALE).unwrap(), expected, "{of:?}");
        }
    }
}
