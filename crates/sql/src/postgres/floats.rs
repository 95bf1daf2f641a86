//! Functions of floats with PostgreSQL's errors: what is not defined, or does not fit the type, is an error there, where
//! IEEE 754 has NaN, an infinity or zero. Sums, differences and products stay the engine's, which a pool computes.

use super::call;
use super::function::{self, Kind};
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type};
use arrow_array::{Array, ArrayRef};
use arrow_schema::{ArrowError, DataType};
use datafusion::arrow::compute::cast as cast_array;
use datafusion::arrow::compute::kernels::arity::try_binary;
use datafusion::common::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, cast,
};
use std::sync::Arc;

/// An error of a row: PostgreSQL's text.
type Failed = &'static str;

const OVERFLOW: Failed = "value out of range: overflow";
const UNDERFLOW: Failed = "value out of range: underflow";
const INPUT: Failed = "input is out of range";
const NO_LOGARITHM_OF_ZERO: Failed = "cannot take logarithm of zero";
const NO_LOGARITHM: Failed = "cannot take logarithm of a negative number";

/// Tells what is wrong with a result of a function whose arguments are floats.
type Check = fn(arguments: &[f64], result: f64) -> Result<(), Failed>;

const CHECKS: &[(&str, Check)] = &[
    ("sqrt", |x, _| if x[0] < 0.0 { Err("cannot take square root of a negative number") } else { Ok(()) }),
    ("ln", |x, _| logarithm(x[0])),
    ("log10", |x, _| logarithm(x[0])),
    ("log2", |x, _| logarithm(x[0])),
    ("log", |x, _| x.iter().try_for_each(|x| logarithm(*x))),
    ("exp", |x, result| in_range(result, x[0].is_infinite(), x[0] == f64::NEG_INFINITY)),
    ("power", power),
    ("asin", |x, _| if x[0].abs() > 1.0 { Err(INPUT) } else { Ok(()) }),
    ("acos", |x, _| if x[0].abs() > 1.0 { Err(INPUT) } else { Ok(()) }),
    ("sin", |x, _| finite(x[0])),
    ("cos", |x, _| finite(x[0])),
    ("tan", |x, _| finite(x[0])),
    ("cot", |x, _| finite(x[0])),
    ("degrees", |x, result| in_range(result, x[0].is_infinite(), true)),
    ("radians", |x, result| in_range(result, x[0].is_infinite(), x[0] == 0.0)),
];

fn logarithm(x: f64) -> Result<(), Failed> {
    match x {
        0.0 => Err(NO_LOGARITHM_OF_ZERO),
        x if x < 0.0 => Err(NO_LOGARITHM),
        _ => Ok(()),
    }
}

fn finite(x: f64) -> Result<(), Failed> {
    if x.is_infinite() { Err(INPUT) } else { Ok(()) }
}

/// Refuses an infinity or a zero that comes from rounding.
fn in_range(result: f64, may_be_infinite: bool, may_be_zero: bool) -> Result<(), Failed> {
    match result {
        result if result.is_infinite() && !may_be_infinite => Err(OVERFLOW),
        0.0 if !may_be_zero => Err(UNDERFLOW),
        _ => Ok(()),
    }
}

/// The cases of `dpow`.
fn power(arguments: &[f64], result: f64) -> Result<(), Failed> {
    let &[base, exponent] = arguments else { return Ok(()) };
    if base.is_nan() || exponent.is_nan() {
        return Ok(());
    }
    if base == 0.0 && exponent < 0.0 {
        return Err("zero raised to a negative power is undefined");
    }
    // An infinity counts as a whole number.
    if base < 0.0 && exponent.floor() != exponent {
        return Err("a negative number raised to a non-integer power yields a complex result");
    }
    match base == 0.0 || base.is_infinite() || exponent.is_infinite() {
        true => Ok(()),
        false => in_range(result, false, false),
    }
}

/// Returns the function with PostgreSQL's errors, if it has some and an argument is a float.
pub(super) fn checked(function: &ScalarFunction, types: &[DataType]) -> Option<Expr> {
    let check = CHECKS.iter().position(|(name, _)| *name == function.func.name())?;
    if !types.iter().any(DataType::is_floating) || function.func.inner().is::<Checked>() {
        return None;
    }
    let checked = Checked { inner: Arc::clone(&function.func), check };
    Some(call(&Arc::new(ScalarUDF::from(checked)), function.args.clone()))
}

/// A function of the engine's that checks its results. It has the same name, so that it is told as the other one.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Checked {
    inner: Arc<ScalarUDF>,
    /// Place in [`CHECKS`].
    check: usize,
}

impl ScalarUDFImpl for Checked {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(types)
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(types)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = arguments.number_rows;
        let operands = arguments.args.clone();
        let results = self.inner.invoke_with_args(arguments)?;
        let checked = match &results {
            ColumnarValue::Scalar(one) => one.to_array()?,
            ColumnarValue::Array(many) => Arc::clone(many),
        };
        let rows = if matches!(results, ColumnarValue::Scalar(_)) { 1 } else { rows };
        let operands =
            operands.iter().map(|operand| floats(&operand.to_array(rows)?)).collect::<Result<Vec<_>>>()?;
        let operands: Vec<_> = operands.iter().map(|operand| operand.as_primitive::<Float64Type>()).collect();
        let of_results = floats(&checked)?;
        let (_, check) = CHECKS[self.check];
        let mut values = Vec::with_capacity(operands.len());
        for (row, result) in of_results.as_primitive::<Float64Type>().iter().enumerate() {
            let Some(result) = result.filter(|_| operands.iter().all(|operand| operand.is_valid(row))) else {
                continue;
            };
            values.clear();
            values.extend(operands.iter().map(|operand| operand.value(row)));
            check(&values, result).map_err(failed)?;
        }
        Ok(results)
    }
}

fn floats(array: &ArrayRef) -> Result<ArrayRef> {
    Ok(cast_array(array, &DataType::Float64)?)
}

fn failed(text: Failed) -> ArrowError {
    ArrowError::ComputeError(text.into())
}

/// Returns a quotient of floats, or of a float and another number.
pub(super) fn quotient(binary: BinaryExpr, left: &DataType, right: &DataType) -> Expr {
    let single = [left, right].into_iter().all(|operand| *operand == DataType::Float32);
    let to = if single { DataType::Float32 } else { DataType::Float64 };
    function::call(Kind::FloatQuotient, vec![cast(*binary.left, to.clone()), cast(*binary.right, to)])
}

/// Divides floats of one type.
pub(super) fn quotients(left: &ArrayRef, right: &ArrayRef) -> Result<ArrayRef> {
    Ok(match left.as_primitive_opt::<Float32Type>() {
        Some(left) => {
            let right = right.as_primitive::<Float32Type>();
            Arc::new(try_binary::<_, _, _, Float32Type>(left, right, |left, right| {
                let quotient = left / right;
                divided(left.into(), right.into(), quotient.into()).map(|()| quotient)
            })?)
        }
        None => {
            let (left, right) = (left.as_primitive::<Float64Type>(), right.as_primitive::<Float64Type>());
            Arc::new(try_binary::<_, _, _, Float64Type>(left, right, |left, right| {
                let quotient = left / right;
                divided(left, right, quotient).map(|()| quotient)
            })?)
        }
    })
}

/// Makes single floats of doubles, with an error where one does not fit.
pub(super) fn singles(doubles: &ArrayRef) -> Result<ArrayRef> {
    let singles =
        doubles.as_primitive::<Float64Type>().try_unary::<_, Float32Type, ArrowError>(|double| {
            #[expect(clippy::cast_possible_truncation, reason = "the cast rounds, and its range is checked")]
            let single = double as f32;
            in_range(single.into(), double.is_infinite(), double == 0.0).map_err(failed)?;
            Ok(single)
        })?;
    Ok(Arc::new(singles))
}

/// The cases of `float8_div`.
fn divided(left: f64, right: f64, quotient: f64) -> Result<(), ArrowError> {
    if right == 0.0 && !left.is_nan() {
        return Err(ArrowError::DivideByZero);
    }
    in_range(quotient, left.is_infinite(), left == 0.0 || right.is_infinite()).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, arguments: &[f64], result: f64) -> Result<(), Failed> {
        let (_, check) = CHECKS.iter().find(|(known, _)| *known == name).unwrap();
        check(arguments, result)
    }

    #[test]
    fn what_is_not_defined_is_an_error() {
        assert_eq!(check("ln", &[0.0], f64::NEG_INFINITY), Err(NO_LOGARITHM_OF_ZERO));
        assert_eq!(check("log10", &[-1.0], f64::NAN), Err(NO_LOGARITHM));
        assert_eq!(check("exp", &[1000.0], f64::INFINITY), Err(OVERFLOW));
        assert_eq!(check("exp", &[-1000.0], 0.0), Err(UNDERFLOW));
        assert_eq!(check("exp", &[f64::NEG_INFINITY], 0.0), Ok(()));
        assert_eq!(check("power", &[f64::INFINITY, 2.0], f64::INFINITY), Ok(()));
        assert_eq!(check("power", &[10.0, 400.0], f64::INFINITY), Err(OVERFLOW));
        assert!(check("power", &[-8.0, 0.5], f64::NAN).is_err());
        assert!(check("power", &[f64::NEG_INFINITY, 0.5], f64::INFINITY).is_err());
        assert_eq!(check("power", &[-2.0, f64::NEG_INFINITY], 0.0), Ok(()));
        assert_eq!(check("power", &[0.0, 2.0], 0.0), Ok(()));
        assert!(check("power", &[0.0, f64::NEG_INFINITY], f64::INFINITY).is_err());
        assert_eq!(check("sin", &[f64::INFINITY], f64::NAN), Err(INPUT));
        assert_eq!(check("sqrt", &[f64::NAN], f64::NAN), Ok(()));
        assert!(divided(1.0, 0.0, f64::INFINITY).is_err());
        assert!(divided(f64::NAN, 0.0, f64::NAN).is_ok());
        assert!(divided(1e300, 1e-300, f64::INFINITY).is_err());
        assert!(divided(1.0, f64::INFINITY, 0.0).is_ok());
    }
}
