//! `typeof`, and multiplication and division of an interval by a number, to which `3 * interval '1 day'` and `interval
//! '1 day' / 2` are rewritten.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType};
use arrow_array::{ArrayRef, PrimitiveArray};
use arrow_schema::{ArrowError, DataType, IntervalUnit};
use datafusion::arrow::compute::kernels::arity::try_binary;
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};
use datafusion::prelude::SessionContext;
use farpool_model::sql_name;
use std::sync::Arc;

/// Registers the functions in `context`.
pub(super) fn register(context: &SessionContext) {
    let typeof_ =
        TypeOf { signature: Signature::any(1, Volatility::Immutable), aliases: vec!["pg_typeof".into()] };
    context.register_udf(ScalarUDF::from(typeof_));
    let of = |number| TypeSignature::Exact(vec![INTERVAL, number]);
    let numbers = vec![of(DataType::Int64), of(DataType::Float64)];
    let multiply = Signature::one_of(numbers, Volatility::Immutable);
    context.register_udf(ScalarUDF::from(MultiplyInterval { signature: multiply }));
    let divide = Signature::exact(vec![INTERVAL, DataType::Float64], Volatility::Immutable);
    context.register_udf(ScalarUDF::from(DivideInterval { signature: divide }));
}

const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

/// `typeof(x)`: the SQL name of the argument's type.
#[derive(Debug, PartialEq, Eq, Hash)]
struct TypeOf {
    signature: Signature,
    aliases: Vec<String>,
}

impl ScalarUDFImpl for TypeOf {
    fn name(&self) -> &str {
        "typeof"
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let name = sql_name(arguments.arg_fields[0].data_type());
        Ok(ColumnarValue::Scalar(ScalarValue::Utf8(Some(name))))
    }
}

/// The function that multiplies an interval by a number.
#[derive(Debug, PartialEq, Eq, Hash)]
struct MultiplyInterval {
    signature: Signature,
}

impl ScalarUDFImpl for MultiplyInterval {
    fn name(&self) -> &str {
        "multiply_interval"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(INTERVAL)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&arguments.args)?;
        let intervals = arrays[0].as_primitive::<IntervalMonthDayNanoType>();
        if *arrays[1].data_type() == DataType::Float64 {
            let product = scaled_by(intervals, arrays[1].as_primitive::<Float64Type>(), |times| times)?;
            return Ok(ColumnarValue::Array(product));
        }
        let times = arrays[1].as_primitive::<Int64Type>();
        let product =
            try_binary::<_, _, _, IntervalMonthDayNanoType>(intervals, times, |interval, times| {
                multiplied(interval, times).ok_or_else(|| {
                    ArrowError::ComputeError(format!("an interval does not hold {times} times its length"))
                })
            })?;
        Ok(ColumnarValue::Array(Arc::new(product)))
    }
}

/// Returns the product; `None` if a part of it overflows.
fn multiplied(interval: IntervalMonthDayNano, times: i64) -> Option<IntervalMonthDayNano> {
    let part = |part: i32| i32::try_from(i64::from(part).checked_mul(times)?).ok();
    let nanoseconds = interval.nanoseconds.checked_mul(times)?;
    Some(IntervalMonthDayNano::new(part(interval.months)?, part(interval.days)?, nanoseconds))
}

/// The function that divides an interval by a number.
#[derive(Debug, PartialEq, Eq, Hash)]
struct DivideInterval {
    signature: Signature,
}

impl ScalarUDFImpl for DivideInterval {
    fn name(&self) -> &str {
        "divide_interval"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(INTERVAL)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&arguments.args)?;
        let intervals = arrays[0].as_primitive::<IntervalMonthDayNanoType>();
        let parts = arrays[1].as_primitive::<Float64Type>();
        Ok(ColumnarValue::Array(scaled_by(intervals, parts, f64::recip)?))
    }
}

/// Multiplies each interval by the factor that `factor` computes from the number in the same row.
fn scaled_by(
    intervals: &PrimitiveArray<IntervalMonthDayNanoType>,
    numbers: &PrimitiveArray<Float64Type>,
    factor: impl Fn(f64) -> f64,
) -> Result<ArrayRef> {
    let made = try_binary::<_, _, _, IntervalMonthDayNanoType>(intervals, numbers, |interval, number| {
        scaled(interval, factor(number)).ok_or_else(|| {
            let message = format!("an interval cannot be multiplied with or divided by {number}");
            ArrowError::ComputeError(message)
        })
    })?;
    Ok(Arc::new(made))
}

/// Returns the product; `None` if it overflows. As in PostgreSQL, a fraction of a month becomes days (30 per month), a
/// fraction of a day becomes hours and smaller units, and the result is rounded to microseconds.
fn scaled(interval: IntervalMonthDayNano, factor: f64) -> Option<IntervalMonthDayNano> {
    let months = f64::from(interval.months) * factor;
    // Rounding removes the error of binary fractions, so that a third of three months is one month.
    let days = f64::from(interval.days) * factor + rounded((months - months.trunc()) * 30.0);
    let day_nanos = 86_400e9;
    let nanos = interval.nanoseconds as f64 * factor + rounded(days - days.trunc()) * day_nanos;
    let nanos = (nanos / 1e3).round() * 1e3;
    let is_in = |value: f64, most: f64| value.is_finite() && value.abs() < most;
    let part = |value: f64| is_in(value, f64::from(i32::MAX)).then_some(value.trunc() as i32);
    let nanos = is_in(nanos, 9.2e18).then_some(nanos as i64)?;
    Some(IntervalMonthDayNano::new(part(months)?, part(days)?, nanos))
}

/// Rounds a number of days to less than half a microsecond.
fn rounded(days: f64) -> f64 {
    (days * 1e11).round() / 1e11
}
