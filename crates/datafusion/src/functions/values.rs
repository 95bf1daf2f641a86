//! `typeof`, and the product of an interval and a number, to which the SQL front rewrites
//! `3 * interval '1 day'`.

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType};
use arrow_schema::{ArrowError, DataType, IntervalUnit};
use datafusion::arrow::compute::kernels::arity::try_binary;
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::prelude::SessionContext;
use farpool_model::sql_name;
use std::sync::Arc;

/// Registers the functions in `context`.
pub(super) fn register(context: &SessionContext) {
    let typeof_ =
        TypeOf { signature: Signature::any(1, Volatility::Immutable), aliases: vec!["pg_typeof".into()] };
    context.register_udf(ScalarUDF::from(typeof_));
    let exact = Signature::exact(vec![INTERVAL, DataType::Int64], Volatility::Immutable);
    context.register_udf(ScalarUDF::from(MultiplyInterval { signature: exact }));
}

const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

/// Returns the SQL name of a value's type.
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

/// Multiplies an interval by an integer.
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
