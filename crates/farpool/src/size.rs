//! Formats and parses sizes, counts and durations for people.

pub use farpool_memory::parse_size as parse;
use farpool_model::{Error, Result};
use std::time::Duration;

/// Units of time with their length in seconds. A unit comes after the longer ones that end with it, because the first
/// match is used.
const TIME_UNITS: [(&str, f64); 7] =
    [("ms", 1e-3), ("min", 60.0), ("sec", 1.0), ("hours", 3600.0), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];

/// Parses a duration such as `500ms`, `30s`, `1.5 min` or `2h`.
///
/// # Errors
/// `Invalid` for anything else, and for less than a millisecond.
pub fn parse_duration(text: &str) -> Result<Duration> {
    let refused = |why: &str| {
        Err(Error::invalid(format!("{text:?} is not a time: {why}")).advise("write 500ms, 30s, 5min or 2h"))
    };
    let lower = text.trim().to_ascii_lowercase();
    let unit = TIME_UNITS.iter().find_map(|(suffix, seconds)| Some((lower.strip_suffix(suffix)?, *seconds)));
    let Some((digits, seconds)) = unit else { return refused("a number and a unit are expected") };
    let Some(number) = plain_number(digits.trim_end()) else {
        return refused("a number and a unit are expected");
    };
    match Duration::try_from_secs_f64(number * seconds) {
        Ok(time) if time < Duration::from_millis(1) => refused("it is less than a millisecond"),
        Ok(time) => Ok(time),
        Err(_) => refused("nobody waits so long"),
    }
}

/// Parses digits, which may contain a decimal point.
fn plain_number(digits: &str) -> Option<f64> {
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    digits.parse().ok().filter(|_| plain)
}

/// Formats a size in the largest binary unit that keeps it at or above one: `4.0 GiB`.
pub fn bytes(count: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = count as f64;
    let mut unit = 0;
    // 1023.95 and more would be rounded to 1024.0 of the smaller unit.
    while value >= 1023.95 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{count} B") } else { format!("{value:.1} {}", units[unit]) }
}

/// Formats a count with thousands separators: `6,001,215`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a count and the name of the counted thing, in the plural if needed: `1 row`, `2 rows`.
pub fn counted(number: u64, thing: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {thing}{plural}", count(number))
}

/// Formats a duration with about three significant digits: `850 µs`, `12.3 ms`, `1.23 s`, `2 min 5 s`.
pub fn duration(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        s if s < 0.000_999_5 => format!("{:.0} µs", s * 1e6),
        s if s < 0.009_995 => format!("{:.2} ms", s * 1e3),
        s if s < 0.099_95 => format!("{:.1} ms", s * 1e3),
        s if s < 0.999_5 => format!("{:.0} ms", s * 1e3),
        s if s < 99.95 => format!("{s:.2} s"),
        s => whole_units(s.round() as u64),
    }
}

fn whole_units(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours) {
        (0, 0) => format!("{minutes} min {} s", seconds % 60),
        (0, _) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

/// Formats how many times as large `before` is as `after`: `3.5x`; `-` if one of them is zero.
pub fn factor(before: u64, after: u64) -> String {
    if before == 0 || after == 0 {
        return "-".to_string();
    }
    let factor = before as f64 / after as f64;
    if factor < 99.95 { format!("{factor:.1}x") } else { format!("{}x", count(factor.round() as u64)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_people_write_them() {
        for (text, milliseconds) in [
            ("500ms", 500),
            ("30s", 30_000),
            ("1.5 min", 90_000),
            ("2H", 7_200_000),
            ("10 sec", 10_000),
            ("3m", 180_000),
        ] {
            assert_eq!(parse_duration(text).unwrap(), Duration::from_millis(milliseconds), "{text}");
        }
        for text in ["", "s", "30", "-1s", "0s", "0.1ms", "1e9s", "inf s", "99999999999999999999h", "3 weeks"]
        {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_read_well() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(4 << 30), "4.0 GiB");
        assert_eq!(bytes((1 << 20) - 1), "1.0 MiB");
        assert_eq!(count(0), "0");
        assert_eq!(count(6_001_215), "6,001,215");
        assert_eq!(counted(1, "row"), "1 row");
        assert_eq!(counted(0, "row"), "0 rows");
        assert_eq!(duration(Duration::from_micros(12_340)), "12.3 ms");
        assert_eq!(duration(Duration::from_secs(3_700)), "1 h 1 min");
        assert_eq!(factor(10, 4), "2.5x");
        assert_eq!(factor(4_000_000, 4), "1,000,000x");
        assert_eq!(factor(1, 0), "-");
    }
}
