//! Guesses the types of columns from the first rows, as DuckDB does.
//!
//! Invariant: a value counts for a type only if it can be read as one; `2024-13-45` makes a column of text.

use arrow_array::types::Date32Type;
use arrow_cast::parse::{Parser, string_to_datetime};
use arrow_schema::{DataType, TimeUnit};
use std::borrow::Cow;

/// The types seen so far among the values of a column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Guess {
    seen: u16,
    has_leading_zero: bool,
}

const BOOLEAN: u16 = 1;
const WHOLE: u16 = 2;
const FRACTION: u16 = 4;
const DATE: u16 = 8;
const MICROSECONDS: u16 = 16;
const NANOSECONDS: u16 = 32;
const TEXT: u16 = 64;
/// Flags that are set in addition to that of a timestamp: whether some value has a time zone, and whether some has
/// none.
const ZONED: u16 = 128;
const UNZONED: u16 = 256;

impl Guess {
    /// Adds a value that is not NULL.
    pub(crate) fn see(&mut self, value: &str) {
        if self.seen & TEXT != 0 {
            return;
        }
        let kind = kind(value);
        self.seen |= kind;
        self.has_leading_zero |= kind == WHOLE && has_leading_zero(value);
    }

    /// Returns the guessed type; Null if there were no values.
    pub(crate) fn data_type(self) -> DataType {
        const TIMES: u16 = DATE | MICROSECONDS | NANOSECONDS | ZONED | UNZONED;
        match self.seen {
            0 => DataType::Null,
            BOOLEAN => DataType::Boolean,
            // A number would lose the zeros, for example of a postal code.
            WHOLE if self.has_leading_zero => DataType::Utf8View,
            WHOLE => DataType::Int64,
            seen if seen & !(WHOLE | FRACTION) == 0 => DataType::Float64,
            DATE => DataType::Date32,
            // Timestamps with and without a time zone cannot be compared.
            seen if seen & ZONED != 0 && seen & (DATE | UNZONED) != 0 => DataType::Utf8View,
            seen if seen & !TIMES == 0 => {
                // At least microseconds: later rows may be finer than the first, and would be truncated
                // silently.
                let unit = if seen & NANOSECONDS == 0 { TimeUnit::Microsecond } else { TimeUnit::Nanosecond };
                DataType::Timestamp(unit, (seen & ZONED != 0).then(|| "UTC".into()))
            }
            _ => DataType::Utf8View,
        }
    }
}

fn kind(value: &str) -> u16 {
    match value.as_bytes() {
        [b'0'..=b'9' | b'-' | b'.', ..] => number(value).or_else(|| instant(value)).unwrap_or(TEXT),
        _ if value.eq_ignore_ascii_case("true") || value.eq_ignore_ascii_case("false") => BOOLEAN,
        b"NaN" | b"nan" | b"inf" => FRACTION,
        _ => TEXT,
    }
}

fn number(value: &str) -> Option<u16> {
    let digits = value.strip_prefix('-').unwrap_or(value);
    if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        // A float would round integers beyond 64 bits.
        return Some(value.parse::<i64>().map_or(TEXT, |_| WHOLE));
    }
    let is_plain = digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-'));
    ((is_plain || digits == "inf") && value.parse::<f64>().is_ok()).then_some(FRACTION)
}

fn has_leading_zero(number: &str) -> bool {
    let digits = number.strip_prefix('-').unwrap_or(number);
    digits.len() > 1 && digits.starts_with('0')
}

fn instant(value: &str) -> Option<u16> {
    let written = hyphenated(value);
    let bytes = written.as_bytes();
    let is_date = bytes.len() >= 10 && bytes[4] == b'-' && bytes[7] == b'-';
    if !is_date {
        return None;
    }
    if bytes.len() == 10 {
        return Date32Type::parse(&written).map(|_| DATE);
    }
    if !matches!(bytes[10], b' ' | b'T') || bytes.len() < 19 {
        return None;
    }
    string_to_datetime(&chrono::Utc, &written).ok()?;
    let fraction = written[10..].split_once('.').map_or("", |(_, fraction)| fraction);
    let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
    let zone = if has_zone(&written) { ZONED } else { UNZONED };
    Some(zone | if digits > 6 { NANOSECONDS } else { MICROSECONDS })
}

/// Returns whether a timestamp ends with a time zone: `Z`, an offset, or a name.
pub(crate) fn has_zone(value: &str) -> bool {
    let behind_seconds = value.get(19..).unwrap_or_default();
    !behind_seconds.trim_start_matches(|c: char| c == '.' || c.is_ascii_digit()).is_empty()
}

/// Returns `2015/01/31` as `2015-01-31`, which the parsers of dates and timestamps accept; other text unchanged.
pub(crate) fn hyphenated(value: &str) -> Cow<'_, str> {
    match value.as_bytes() {
        [_, _, _, _, b'/', _, _, b'/', ..] => {
            let (date, rest) = value.split_at(value.len().min(8));
            Cow::Owned(date.replace('/', "-") + rest)
        }
        _ => Cow::Borrowed(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[&str]) -> DataType {
        let mut guess = Guess::default();
        values.iter().for_each(|value| guess.see(value));
        guess.data_type()
    }

    #[test]
    fn values_have_the_type_that_all_can_be_read_as() {
        use DataType::*;
        let micros = Timestamp(TimeUnit::Microsecond, None);
        let nanos = Timestamp(TimeUnit::Nanosecond, None);
        let zoned = |unit| Timestamp(unit, Some("UTC".into()));
        let cases: &[(&[&str], DataType)] = &[
            (&[], Null),
            (&["1", "-2"], Int64),
            (&["1", "0.5"], Float64),
            (&["1e3", ".5", "1.", "-inf", "NaN", "inf"], Float64),
            (&["9223372036854775808"], Utf8View),
            (&["007"], Utf8View),
            (&["007.5", "7"], Float64),
            (&["true", "FALSE"], Boolean),
            (&["true", "1"], Utf8View),
            (&["2024-05-31", "2024/05/31"], Date32),
            (&["2024-05-31", "2024-05-31 12:00:00"], micros.clone()),
            (&["2015/01/01 01:00:00"], micros.clone()),
            (&["2024-05-31T12:00:00Z", "2024-05-31T12:00:00.25+02:00"], zoned(TimeUnit::Microsecond)),
            (&["2024-05-31 12:00:00+02", "2024/05/31 12:00:00 Europe/Berlin"], zoned(TimeUnit::Microsecond)),
            (&["2024-05-31T12:00:00.1234567-0230"], zoned(TimeUnit::Nanosecond)),
            (&["2024-05-31T12:00:00Z", "2024-05-31T12:00:00"], Utf8View),
            (&["2024-05-31", "2024-05-31T12:00:00Z"], Utf8View),
            (&["2024-05-31T12:00:00.5"], micros),
            (&["2024-05-31T12:00:00.123456789"], nanos),
            (&["2024-13-01"], Utf8View),
            (&["2024-05-31 25:00:00"], Utf8View),
            (&["1.2.3"], Utf8View),
            (&["-"], Utf8View),
            (&["."], Utf8View),
            (&["1 "], Utf8View),
            (&["２０２４-05-31"], Utf8View),
            (&["1-2"], Utf8View),
        ];
        for (values, expected) in cases {
            assert_eq!(&of(values), expected, "{values:?}");
        }
    }
}
