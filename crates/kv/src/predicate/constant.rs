//! Converts constants in the text of a condition (such as `30` in `age > 30`) to values of the type of the column that
//! they are compared with.

use arrow_schema::{DataType, TimeUnit};

/// Maximum number of digits of a number. Reason for 38: the longest SQL decimal has as many.
const MOST_DIGITS: usize = 38;

/// A number in units of the least digit of a type (a decimal's last place, for example), rounded down to an integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ScaledNumber {
    pub floor: i128,
    /// Whether the number equals the integer, that is, nothing was rounded off.
    pub is_exact: bool,
}

impl ScaledNumber {
    pub fn exact(floor: i128) -> Self {
        ScaledNumber { floor, is_exact: true }
    }

    /// Returns the quotient of two integers, of which the divisor is positive.
    fn of_quotient(dividend: i128, divisor: i128) -> Self {
        ScaledNumber { floor: dividend.div_euclid(divisor), is_exact: dividend.rem_euclid(divisor) == 0 }
    }
}

/// Parses a number as units of 10^-`scale`. A number beyond 128 bits becomes the minimum or maximum integer. Returns
/// `None` for more than 38 digits.
pub(super) fn units(text: &str, is_negative: bool, scale: i8) -> Option<ScaledNumber> {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let fraction = fraction.trim_end_matches('0');
    let digits = [whole, fraction].concat();
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return Some(ScaledNumber::exact(0));
    }
    if digits.len() > MOST_DIGITS {
        return None;
    }
    let number: i128 = digits.parse().ok()?;
    let number = if is_negative { -number } else { number };
    // An exponent out of range is clamped to a value that is still out of the range of all types.
    let exponent: i64 =
        exponent.parse().unwrap_or(if exponent.starts_with('-') { -1 << 40 } else { 1 << 40 });
    let shift = exponent.clamp(-1 << 40, 1 << 40) - fraction.len() as i64 + i64::from(scale);
    let power = |shift: u64| u32::try_from(shift).ok().and_then(|shift| 10_i128.checked_pow(shift));
    let beyond = ScaledNumber { floor: if is_negative { i128::MIN } else { i128::MAX }, is_exact: false };
    if shift >= 0 {
        let product = power(shift.unsigned_abs()).and_then(|power| number.checked_mul(power));
        return Some(product.map_or(beyond, ScaledNumber::exact));
    }
    Some(match power(shift.unsigned_abs()) {
        Some(power) => ScaledNumber::of_quotient(number, power),
        None => ScaledNumber { floor: if is_negative { -1 } else { 0 }, is_exact: false },
    })
}

/// Parses a date, `1998-09-02`, or a timestamp, `1998-09-02 23:59:59.25`, in units of the type. For a type with a time
/// zone, a timestamp may end in `Z` or `+02:00`, and is in UTC otherwise.
pub(super) fn moment(text: &str, data_type: &DataType) -> Option<ScaledNumber> {
    let (date, time) = match text.split_once([' ', 'T', 't']) {
        Some((date, time)) => (date, Some(time)),
        None => (text, None),
    };
    let days = i128::from(days(date)?);
    let (unit, has_zone) = match (data_type, time) {
        (DataType::Date32, None) => return Some(ScaledNumber::exact(days)),
        (DataType::Timestamp(unit, zone), _) => (unit, zone.is_some()),
        _ => return None,
    };
    let (nanoseconds, offset) = match time {
        None => (0, 0),
        Some(time) if has_zone => {
            let (time, offset) = without_offset(time)?;
            (nanoseconds(time)?, offset)
        }
        Some(time) => (nanoseconds(time)?, 0),
    };
    let whole = (days * 86_400 - i128::from(offset)) * 1_000_000_000 + i128::from(nanoseconds);
    let per_unit = match unit {
        TimeUnit::Second => 1_000_000_000,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1000,
        TimeUnit::Nanosecond => 1,
    };
    Some(ScaledNumber::of_quotient(whole, per_unit))
}

/// Parses a number without a sign; returns `None` unless the number of its digits is in the range `count`.
fn digits(text: &str, count: std::ops::RangeInclusive<usize>) -> Option<i64> {
    let is_number = count.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

/// Parses a date, `1998-09-02`; returns the days since 1970-01-01 (Howard Hinnant's algorithm), or `None` for an
/// invalid date.
fn days(text: &str) -> Option<i64> {
    let mut parts = text.split('-');
    let (year, month, day) =
        (digits(parts.next()?, 4..=6)?, digits(parts.next()?, 1..=2)?, digits(parts.next()?, 1..=2)?);
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let last = match month {
        2 => 28 + i64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    if parts.next().is_some() || !(1..=12).contains(&month) || !(1..=last).contains(&day) {
        return None;
    }
    let (year, month_from_march) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    Some(era * 146_097 + day_of_era - 719_468)
}

/// Parses `23:59`, `23:59:59` or `23:59:59.25`; returns nanoseconds.
fn nanoseconds(text: &str) -> Option<i64> {
    let (clock, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let mut parts = clock.split(':');
    let (hours, minutes) = (digits(parts.next()?, 1..=2)?, digits(parts.next()?, 2..=2)?);
    let seconds = parts.next().map_or(Some(0), |seconds| digits(seconds, 2..=2))?;
    let fraction = digits(fraction, 1..=9)? * 10_i64.pow(9 - fraction.len() as u32);
    let is_time = parts.next().is_none() && hours < 24 && minutes < 60 && seconds < 60;
    is_time.then_some(((hours * 60 + minutes) * 60 + seconds) * 1_000_000_000 + fraction)
}

/// Splits the time zone off a timestamp; returns the rest and the seconds by which the zone is ahead of UTC.
fn without_offset(text: &str) -> Option<(&str, i64)> {
    if let Some(time) = text.strip_suffix(['Z', 'z']) {
        return Some((time, 0));
    }
    let Some(at) = text.find(['+', '-']) else { return Some((text, 0)) };
    let (hours, minutes) = text[at + 1..].split_once(':').unwrap_or((&text[at + 1..], "00"));
    let (hours, minutes) = (digits(hours, 2..=2)?, digits(minutes, 2..=2)?);
    let seconds = (hours * 60 + minutes) * 60;
    let offset = if text[at..].starts_with('-') { -seconds } else { seconds };
    (hours < 24 && minutes < 60).then_some((text[..at].trim_end(), offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_exact_in_units_of_any_scale() {
        let read = |text: &str, scale| {
            let (digits, is_negative) = text.strip_prefix('-').map_or((text, false), |digits| (digits, true));
            units(digits, is_negative, scale).map(|units| (units.floor, units.is_exact))
        };
        assert_eq!(read("30", 0), Some((30, true)));
        assert_eq!(read("-4.5", 0), Some((-5, false)));
        assert_eq!(read("4.50", 1), Some((45, true)));
        assert_eq!(read("1.5e3", 0), Some((1500, true)));
        assert_eq!(read("150e-2", 2), Some((150, true)));
        assert_eq!(read("150", -2), Some((1, false)));
        assert_eq!(read("0.000e99999999999999999999", 0), Some((0, true)));
        assert_eq!(read("1e99999999999999999999", 0), Some((i128::MAX, false)));
        assert_eq!(read("-1e39", 0), Some((i128::MIN, false)));
        assert_eq!(read("1e-99999999999999999999", 0), Some((0, false)));
        assert_eq!(read("-1e-99", 0), Some((-1, false)));
        assert_eq!(read(&"9".repeat(39), 0), None);
    }

    #[test]
    fn moments_are_exact_in_units_of_any_type() {
        let read = |text: &str, data_type: &DataType| {
            moment(text, data_type).map(|units| (units.floor, units.is_exact))
        };
        let seconds = DataType::Timestamp(TimeUnit::Second, None);
        let nanoseconds = DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()));
        assert_eq!(read("1998-09-02", &DataType::Date32), Some((10_471, true)));
        assert_eq!(read("1969-12-31", &DataType::Date32), Some((-1, true)));
        assert_eq!(read("2000-02-29", &DataType::Date32), Some((11_016, true)));
        assert_eq!(read("1900-02-29", &DataType::Date32), None);
        assert_eq!(read("1998-09-02 00:00:00", &DataType::Date32), None);
        assert_eq!(read("1970-01-02", &seconds), Some((86_400, true)));
        assert_eq!(read("1970-01-01T01:02:03.5", &seconds), Some((3723, false)));
        assert_eq!(read("1969-12-31 23:59:59.5", &seconds), Some((-1, false)));
        assert_eq!(read("1970-01-01 00:00:00Z", &seconds), None);
        assert_eq!(read("1970-01-01 02:00+02:00", &nanoseconds), Some((0, true)));
        assert_eq!(read("1970-01-01 00:00:00.000000001Z", &nanoseconds), Some((1, true)));
        for wrong in
            ["", "1970", "1970-13-01", "1970-01-01 24:00", "1970-01-01 1:2", "1970-01-01 01:02:03.", "é"]
        {
            assert_eq!(read(wrong, &nanoseconds), None, "{wrong}");
        }
    }
}
