//! `date_trunc` for times in any year. DataFusion 55.2 counts nanoseconds in its function, which cover only the years
//! from 1677 to 2262 (compare apache/datafusion#1359). Its function can be used as it is once upstream truncates in the
//! unit of the type.
//!
//! The Gregorian calendar repeats every 400 years, including weekdays. Therefore a time outside this range is moved
//! into it by a multiple of 400 years, and the engine's result is moved back.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowTimestampType, TimestampMicrosecondType, TimestampMillisecondType, TimestampSecondType,
};
use arrow_array::{Array, ArrayRef, PrimitiveArray};
use arrow_schema::{DataType, FieldRef, TimeUnit};
use datafusion::common::{Result, exec_datafusion_err};
use datafusion::functions::datetime::date_trunc;
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};
use datafusion::prelude::SessionContext;
use std::sync::Arc;

/// Length in seconds of 400 years, the period of the calendar.
const ERA: i64 = 146_097 * 86_400;

/// Start of the 400 years to which times are moved: the year 1800, in seconds from 1970.
const FIRST: i64 = -5_364_662_400;

/// Times, in seconds from 1970, whose nanoseconds fit 64 bits. A year is left out at both ends, because the truncated
/// time may be earlier.
const INSIDE: std::ops::Range<i64> = (-9_223_372_036 + 366 * 86_400)..(9_223_372_036 - 366 * 86_400);

/// Times, in seconds from 1970, that are moved: millions of years. For any others, the engine reports that they are out
/// of range.
const MOVED: std::ops::Range<i64> = -(1 << 48)..1 << 48;

/// Registers this `date_trunc` in place of the engine's.
pub(super) fn register(context: &SessionContext) {
    context.register_udf(ScalarUDF::from(DateTrunc { inner: date_trunc() }));
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct DateTrunc {
    inner: Arc<ScalarUDF>,
}

impl DateTrunc {
    /// Truncates times some of which are out of the engine's range; returns `None` if none is.
    fn far<T: ArrowTimestampType>(
        &self,
        args: &ScalarFunctionArgs,
        times: &ArrayRef,
    ) -> Result<Option<ColumnarValue>> {
        let units = match T::UNIT {
            TimeUnit::Second => 1,
            TimeUnit::Millisecond => 1_000,
            _ => 1_000_000,
        };
        let times = times.as_primitive::<T>();
        let seconds = || times.iter().flatten().map(|time| time.div_euclid(units));
        if seconds().all(|seconds| INSIDE.contains(&seconds))
            || !seconds().all(|seconds| MOVED.contains(&seconds))
        {
            return Ok(None);
        }
        let shift = |time: i64| match INSIDE.contains(&time.div_euclid(units)) {
            true => 0,
            false => (time.div_euclid(units) - FIRST).div_euclid(ERA) * ERA * units,
        };
        let near: PrimitiveArray<T> = times.unary(|time| time - shift(time));
        let near = near.with_data_type(times.data_type().clone());
        let mut args = args.clone();
        args.args[1] = ColumnarValue::Array(Arc::new(near));
        let rows = times.len();
        args.number_rows = rows;
        let truncated = self.inner.invoke_with_args(args)?.into_array(rows)?;
        let truncated = truncated.as_primitive_opt::<T>();
        let truncated =
            truncated.ok_or_else(|| exec_datafusion_err!("date_trunc changed the unit of a time"))?;
        let back = |(made, time): (Option<i64>, Option<i64>)| match made.zip(time) {
            Some((made, time)) => made
                .checked_add(shift(time))
                .map(Some)
                .ok_or_else(|| exec_datafusion_err!("a time is out of range once it is truncated")),
            None => Ok(None),
        };
        let back = truncated.iter().zip(times).map(back).collect::<Result<Vec<_>>>()?;
        let back = PrimitiveArray::<T>::from_iter(back);
        Ok(Some(ColumnarValue::Array(Arc::new(back.with_data_type(times.data_type().clone())))))
    }
}

/// Returns whether the time zone has a constant offset from UTC, so that its times may be moved by 400 years.
fn is_even(zone: Option<&Arc<str>>) -> bool {
    zone.is_none_or(|zone| matches!(&**zone, "UTC" | "Etc/UTC" | "Z" | "+00:00"))
}

impl ScalarUDFImpl for DateTrunc {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.inner.return_field_from_args(args)
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn output_ordering(&self, inputs: &[ExprProperties]) -> Result<SortProperties> {
        self.inner.output_ordering(inputs)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let Some(time) = args.args.get(1) else { return self.inner.invoke_with_args(args) };
        let is_one = matches!(time, ColumnarValue::Scalar(_));
        let far = match time.data_type() {
            DataType::Timestamp(unit, zone) if unit != TimeUnit::Nanosecond && is_even(zone.as_ref()) => {
                let times = time.to_array(if is_one { 1 } else { args.number_rows })?;
                match unit {
                    TimeUnit::Second => self.far::<TimestampSecondType>(&args, &times)?,
                    TimeUnit::Millisecond => self.far::<TimestampMillisecondType>(&args, &times)?,
                    _ => self.far::<TimestampMicrosecondType>(&args, &times)?,
                }
            }
            _ => None,
        };
        match far {
            Some(ColumnarValue::Array(made)) if is_one => {
                Ok(ColumnarValue::Scalar(datafusion::common::ScalarValue::try_from_array(&made, 0)?))
            }
            Some(made) => Ok(made),
            None => self.inner.invoke_with_args(args),
        }
    }
}
