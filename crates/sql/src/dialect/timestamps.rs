//! Reads timestamp constants that DataFusion 55.2 does not read: `timestamp '2024-01-01 12:00'`, which has no seconds,
//! and timestamps of any year. DataFusion counts nanoseconds in 64 bits, which cover only the years from 1677 to 2262;
//! constants outside are read with microseconds.

use crate::types::with_seconds;
use datafusion::sql::sqlparser::ast::{DataType, Expr, Value, ValueWithSpan};

/// The years that 64 bits of nanoseconds from 1970 can represent.
const YEARS_TO_THE_NANOSECOND: std::ops::RangeInclusive<i64> = 1677..=2262;

pub(super) fn apply(expr: &mut Expr) {
    let (data_type, value) = match expr {
        Expr::TypedString(typed) => (&mut typed.data_type, &mut typed.value),
        Expr::Cast { data_type, expr, .. } => match &mut **expr {
            Expr::Value(value) => (data_type, value),
            _ => return,
        },
        _ => return,
    };
    let DataType::Timestamp(precision, _) = data_type else { return };
    let ValueWithSpan { value: Value::SingleQuotedString(text), .. } = value else { return };
    if let Some(whole) = with_seconds(text) {
        *text = whole;
    }
    let year = text.trim_start().split('-').next().and_then(|year| year.parse().ok());
    if precision.is_none() && year.is_some_and(|year: i64| !YEARS_TO_THE_NANOSECOND.contains(&year)) {
        *precision = Some(6);
    }
}
