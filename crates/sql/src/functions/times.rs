//! `age`, the time between two times in years, months and days as PostgreSQL counts them, and `time_bucket`, which is
//! rewritten to the engine's (DataFusion's) `date_bin`.

use arrow_array::PrimitiveArray;
use arrow_array::cast::AsArray;
use arrow_array::types::{IntervalMonthDayNano, IntervalMonthDayNanoType, TimestampMicrosecondType};
use arrow_schema::{ArrowError, DataType, IntervalUnit, TimeUnit};
use chrono::{DateTime, Datelike, NaiveDate, NaiveDateTime, Timelike};
use datafusion::common::{ScalarValue, plan_err};
use datafusion::error::Result;
use datafusion::functions::datetime::expr_fn::date_bin;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
    cast, lit,
};
use datafusion::prelude::SessionContext;
use std::sync::Arc;

const TIME: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);
const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

/// Registers the functions in `context`.
pub(super) fn register(context: &SessionContext) {
    context.register_udf(ScalarUDF::from(Age { signature: Signature::user_defined(Volatility::Stable) }));
    let signature =
        Signature::one_of(vec![TypeSignature::Any(2), TypeSignature::Any(3)], Volatility::Immutable);
    context.register_udf(ScalarUDF::from(TimeBucket { signature }));
}

/// `age(t, u)` is the time from `u` to `t`, and `age(t)` the time from `t` to the last midnight.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Age {
    signature: Signature,
}

impl ScalarUDFImpl for Age {
    fn name(&self) -> &str {
        "age"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(INTERVAL)
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        if !(1..=2).contains(&types.len()) {
            return plan_err!("age takes one time or two");
        }
        let coerced = types.iter().map(|found| match found {
            DataType::Timestamp(..) | DataType::Date32 | DataType::Null => Ok(TIME),
            DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8 => Ok(TIME),
            other => plan_err!("age takes times and dates, no {}", farpool_model::sql_name(other)),
        });
        coerced.collect()
    }

    /// Replaces "the last midnight" by a constant, which follows from the start time of the statement.
    fn simplify(&self, mut arguments: Vec<Expr>, context: &SimplifyContext) -> Result<ExprSimplifyResult> {
        let now = context.query_execution_start_time();
        let (Some(now), [_]) = (now, arguments.as_slice()) else {
            return Ok(ExprSimplifyResult::Original(arguments));
        };
        let midnight = now.date_naive().and_time(chrono::NaiveTime::MIN).and_utc().timestamp_micros();
        arguments.insert(0, lit(ScalarValue::TimestampMicrosecond(Some(midnight), None)));
        let function = Arc::new(ScalarUDF::from(Age { signature: self.signature.clone() }));
        Ok(ExprSimplifyResult::Simplified(function.call(arguments)))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&arguments.args)?;
        let [later, earlier] = arrays.as_slice() else {
            return plan_err!("age of one time needs today's date, which is not known here");
        };
        let (later, earlier) = (
            later.as_primitive::<TimestampMicrosecondType>(),
            earlier.as_primitive::<TimestampMicrosecondType>(),
        );
        let rows = later.iter().zip(earlier.iter());
        let ages = rows.map(|(later, earlier)| match (later, earlier) {
            (Some(later), Some(earlier)) => age(moment(later)?, moment(earlier)?).map(Some),
            _ => Ok(None),
        });
        let ages = ages.collect::<Result<PrimitiveArray<IntervalMonthDayNanoType>, ArrowError>>()?;
        Ok(ColumnarValue::Array(Arc::new(ages)))
    }
}

fn moment(microseconds: i64) -> Result<NaiveDateTime, ArrowError> {
    let time = DateTime::from_timestamp_micros(microseconds);
    time.map(|time| time.naive_utc()).ok_or_else(|| {
        ArrowError::ComputeError(format!("{microseconds} microseconds are no time that age knows"))
    })
}

/// Computes PostgreSQL's `timestamp_age`: the differences of years, months, days and the rest of the time, all with the
/// sign of the whole difference. If a month is borrowed, it has as many days as the month of the earlier time.
fn age(later: NaiveDateTime, earlier: NaiveDateTime) -> Result<IntervalMonthDayNano, ArrowError> {
    if later < earlier {
        let IntervalMonthDayNano { months, days, nanoseconds } = age(earlier, later)?;
        return Ok(IntervalMonthDayNano::new(-months, -days, -nanoseconds));
    }
    let nanoseconds = |time: NaiveDateTime| {
        i64::from(time.num_seconds_from_midnight()) * 1_000_000_000 + i64::from(time.nanosecond())
    };
    let months = |time: NaiveDateTime| time.year() * 12 + time.month0().cast_signed();
    let mut months = months(later) - months(earlier);
    let mut days = later.day().cast_signed() - earlier.day().cast_signed();
    let mut rest = nanoseconds(later) - nanoseconds(earlier);
    if rest < 0 {
        rest += 24 * 3600 * 1_000_000_000;
        days -= 1;
    }
    if days < 0 {
        days += days_of_month(earlier.date());
        months -= 1;
    }
    Ok(IntervalMonthDayNano::new(months, days, rest))
}

fn days_of_month(date: NaiveDate) -> i32 {
    i32::from(date.num_days_in_month())
}

/// `time_bucket(width, t)`, `time_bucket(width, t, origin)`: the beginning of the bucket that contains `t`.
///
/// Without an origin, buckets of months are counted from 2000-01-01 and others from Monday, 2000-01-03, as in DuckDB.
#[derive(Debug, PartialEq, Eq, Hash)]
struct TimeBucket {
    signature: Signature,
}

impl ScalarUDFImpl for TimeBucket {
    fn name(&self) -> &str {
        "time_bucket"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match &types[1] {
            found @ (DataType::Timestamp(..) | DataType::Date32) => Ok(found.clone()),
            DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8 | DataType::Null => Ok(TIME),
            other => plan_err!("time_bucket takes times and dates, no {}", farpool_model::sql_name(other)),
        }
    }

    fn simplify(&self, arguments: Vec<Expr>, context: &SimplifyContext) -> Result<ExprSimplifyResult> {
        let data_type = self.return_type(&[DataType::Null, context.get_data_type(&arguments[1])?])?;
        let mut arguments = arguments.into_iter();
        let (Some(width), Some(time)) = (arguments.next(), arguments.next()) else {
            return plan_err!("time_bucket takes a width and a time");
        };
        let Expr::Literal(constant, _) = &width else {
            return plan_err!("the width of time_bucket must be a constant, like INTERVAL '15 minutes'");
        };
        let in_months = match constant.cast_to(&INTERVAL)? {
            ScalarValue::IntervalMonthDayNano(Some(width)) => width.months != 0,
            _ => false,
        };
        // `date_bin` works on nanoseconds, so that the arguments are cast to them.
        let timestamp = DataType::Timestamp(
            TimeUnit::Nanosecond,
            match &data_type {
                DataType::Timestamp(_, zone) => zone.clone(),
                _ => None,
            },
        );
        let origin =
            arguments.next().unwrap_or_else(|| lit(if in_months { "2000-01-01" } else { "2000-01-03" }));
        let bucket = date_bin(cast(width, INTERVAL), cast(time, timestamp.clone()), cast(origin, timestamp));
        Ok(ExprSimplifyResult::Simplified(cast(bucket, data_type)))
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        plan_err!("the width of time_bucket must be a constant, like INTERVAL '15 minutes'")
    }
}

#[cfg(test)]
mod tests {
    use super::{age, moment};
    use chrono::NaiveDateTime;

    fn time(text: &str) -> NaiveDateTime {
        text.parse().unwrap()
    }

    /// The first four cases are from PostgreSQL's documentation and tests, and agree with DuckDB.
    #[test]
    fn an_age_borrows_days_of_the_earlier_month() {
        for (later, earlier, expected) in [
            ("2001-04-10T00:00:00", "1957-06-13T00:00:00", (43 * 12 + 9, 27, 0)),
            ("2024-03-01T00:00:00", "2024-01-31T00:00:00", (1, 1, 0)),
            ("2023-03-01T00:00:00", "2023-02-28T00:00:00", (0, 1, 0)),
            ("2024-01-01T00:00:00", "2023-12-31T23:59:59", (0, 0, 1_000_000_000)),
            ("1957-06-13T00:00:00", "2001-04-10T00:00:00", (-(43 * 12 + 9), -27, 0)),
            ("2024-01-01T00:00:00", "2024-01-01T00:00:00", (0, 0, 0)),
        ] {
            let age = age(time(later), time(earlier)).unwrap();
            assert_eq!((age.months, age.days, age.nanoseconds), expected, "{later} {earlier}");
        }
        assert!(moment(i64::MAX).is_err());
    }
}
