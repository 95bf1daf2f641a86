//! Checks for dates and times outside the calendar of the query engine (chrono's, in DataFusion).
//!
//! Invariant: every date and time that a source returns can be formatted as text. A date has 32 bits and a time 64,
//! which exceed the years of the engine's calendar; DuckDB and PostgreSQL write 'infinity' as the maximum value.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Date64Type, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampSecondType,
};
use arrow_array::{Array, ArrayRef, make_array};
use arrow_schema::{DataType, TimeUnit};
use chrono::{DateTime, Utc};
use farpool_model::{Error, Result, brief};
use std::ops::RangeInclusive;

const DAY_SECONDS: i64 = 86_400;

/// Range of the times that can be formatted in any time zone, in seconds since 1970: one day less at either end of the
/// calendar.
const SECONDS: RangeInclusive<i64> =
    DateTime::<Utc>::MIN_UTC.timestamp() + DAY_SECONDS..=DateTime::<Utc>::MAX_UTC.timestamp() - DAY_SECONDS;

/// Checks the column `name` and its nested columns.
///
/// # Errors
/// `Invalid` if a date or time is outside the calendar; the error names the column.
pub(super) fn check(name: &str, column: &ArrayRef) -> Result<()> {
    let outside = match column.data_type() {
        DataType::Date32 => outside::<Date32Type>(column, 1, DAY_SECONDS),
        DataType::Date64 => outside::<Date64Type>(column, 1_000, 1),
        DataType::Timestamp(TimeUnit::Second, _) => outside::<TimestampSecondType>(column, 1, 1),
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            outside::<TimestampMillisecondType>(column, 1_000, 1)
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            outside::<TimestampMicrosecondType>(column, 1_000_000, 1)
        }
        // 64 bits of nanoseconds end in 2262.
        nested if has_times_within(nested) => {
            let data = column.to_data();
            return data.child_data().iter().try_for_each(|child| check(name, &make_array(child.clone())));
        }
        _ => None,
    };
    match outside {
        None => Ok(()),
        Some(value) => Err(Error::invalid(format!(
            "column {:?} has a date or time outside of the calendar ({value})",
            brief(name)
        ))
        .advise(
            "DuckDB and PostgreSQL write 'infinity' so: write NULL or a date such as 9999-12-31 in its place, or leave \
             the column out",
        )),
    }
}

/// Returns whether a nested type may contain dates or times.
fn has_times_within(of: &DataType) -> bool {
    match of {
        DataType::Dictionary(_, of) => {
            matches!(**of, DataType::Date32 | DataType::Date64 | DataType::Timestamp(..))
        }
        other => other.is_nested(),
    }
}

/// Returns the first value outside the calendar; `None` if there is none. A unit of the values is `seconds / parts`
/// seconds.
fn outside<T: ArrowPrimitiveType>(column: &ArrayRef, parts: i64, seconds: i64) -> Option<i64>
where
    i64: From<T::Native>,
{
    let bounds = SECONDS.start() / seconds * parts..=SECONDS.end() / seconds * parts;
    let values = column.as_primitive::<T>();
    // The first pass includes the values under NULLs, so that it has no branches.
    let are_inside =
        values.values().iter().fold(true, |all, value| all & bounds.contains(&i64::from(*value)));
    if are_inside {
        return None;
    }
    values.iter().flatten().map(i64::from).find(|value| !bounds.contains(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::builder::{ListBuilder, TimestampMicrosecondBuilder};
    use arrow_array::{
        Date32Array, TimestampMicrosecondArray, TimestampMillisecondArray, TimestampNanosecondArray,
        TimestampSecondArray,
    };
    use arrow_cast::display::{ArrayFormatter, FormatOptions};
    use std::sync::Arc;

    /// Asserts that a column is refused exactly if its first value has no text.
    #[track_caller]
    fn agrees(column: ArrayRef) {
        let formatter = ArrayFormatter::try_new(&column, &FormatOptions::default()).unwrap();
        let is_printed = formatter.value(0).try_to_string().is_ok();
        assert_eq!(check("t", &column).is_ok(), is_printed, "{column:?}");
    }

    #[test]
    fn what_is_not_refused_has_a_text() {
        let year = 365 * DAY_SECONDS;
        for seconds in [0, -1, 8_000 * year, 260_000 * year, -260_000 * year, 263_000 * year, -266_000 * year]
        {
            agrees(Arc::new(TimestampSecondArray::from(vec![seconds])));
            agrees(Arc::new(TimestampMillisecondArray::from(vec![seconds * 1_000])));
            agrees(Arc::new(TimestampMicrosecondArray::from(vec![seconds * 1_000_000])));
            agrees(Arc::new(Date32Array::from(vec![(seconds / DAY_SECONDS) as i32])));
        }
        for value in [i64::MAX, i64::MIN, -i64::MAX] {
            agrees(Arc::new(TimestampSecondArray::from(vec![value])));
            agrees(Arc::new(TimestampMicrosecondArray::from(vec![value]).with_timezone("+14:00")));
            agrees(Arc::new(TimestampNanosecondArray::from(vec![value])));
        }
        agrees(Arc::new(Date32Array::from(vec![i32::MAX])));
        agrees(Arc::new(Date32Array::from(vec![-i32::MAX])));
    }

    #[test]
    fn values_within_lists_count_and_those_below_nulls_do_not() {
        let mut lists = ListBuilder::new(TimestampMicrosecondBuilder::new());
        lists.append_value([Some(1), Some(i64::MAX)]);
        let error = check("t", &(Arc::new(lists.finish()) as ArrayRef)).unwrap_err().to_string();
        assert!(error.contains("\"t\"") && error.contains("9223372036854775807"), "{error}");
        let hidden = TimestampMicrosecondArray::new(vec![i64::MAX, 5].into(), Some(vec![false, true].into()));
        check("t", &(Arc::new(hidden) as ArrayRef)).unwrap();
    }
}
