//! `timestamp '2024-01-01 12:00'`, which has no seconds, and timestamps of any year. The engine counts
//! nanoseconds in 64 bits, which cover the years from 1677 to 2262 only: constants outside are read with
//! microseconds.

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

/// Appends seconds to a text that ends with hours and minutes, possibly followed by a time zone.
fn with_seconds(text: &str) -> Option<String> {
    let at = text.trim_start().find(['T', ' '])? + (text.len() - text.trim_start().len()) + 1;
    let (date, time) = text.split_at_checked(at)?;
    let zone = time.find(|c: char| !c.is_ascii_digit() && c != ':' && c != '.').unwrap_or(time.len());
    let (clock, zone) = time.split_at(zone);
    let (hours, minutes) = clock.split_once(':')?;
    let is_two = |digits: &str| digits.len() == 2 && digits.bytes().all(|b| b.is_ascii_digit());
    (is_two(hours) && is_two(minutes)).then(|| format!("{date}{clock}:00{zone}"))
}
