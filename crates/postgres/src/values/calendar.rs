//! Dates and times as text, in PostgreSQL's date style ISO, and the ranges that PostgreSQL holds.

use arrow_array::timezone::Tz;
use bytes::{BufMut, BytesMut};
use chrono::{DateTime, Offset, TimeZone};
use farpool_model::{Error, Result};
use std::str::FromStr;

pub(super) const DAY_US: i64 = 86_400_000_000;

/// Days from 1970-01-01, the epoch of Arrow, to 2000-01-01, the epoch of PostgreSQL.
pub(super) const EPOCH_DAYS: i32 = 10_957;
pub(super) const EPOCH_US: i64 = EPOCH_DAYS as i64 * DAY_US;

/// The days since 1970 that PostgreSQL holds: from Julian day 0 to the end of 5874897 (`date.h`).
const DAYS: std::ops::RangeInclusive<i32> = -2_440_588..=2_145_042_905;

/// The least microseconds since 1970 that PostgreSQL holds: those of Julian day 0 (`timestamp.h`). It holds all later
/// ones that 64 bits can count from 1970.
const MICROSECONDS_MIN: i64 = -2_440_588 * DAY_US;

/// Returns the day if PostgreSQL holds it.
///
/// # Errors
/// `Invalid` if it does not.
pub(super) fn checked_day(days: i32) -> Result<i32> {
    match DAYS.contains(&days) {
        true => Ok(days),
        false => Err(Error::invalid(format!("date out of range: {days} days since 1970-01-01"))
            .advise("PostgreSQL's clients hold 4713 BC to 5874897; cast it to text")),
    }
}

/// Returns the time if PostgreSQL holds it.
///
/// # Errors
/// `Invalid` if it does not.
pub(super) fn checked_time(microseconds: i64) -> Result<i64> {
    match microseconds >= MICROSECONDS_MIN {
        true => Ok(microseconds),
        false => Err(out_of_range()),
    }
}

/// Returns the error for a timestamp that PostgreSQL does not hold.
pub(super) fn out_of_range() -> Error {
    Error::invalid("timestamp out of range")
        .advise("PostgreSQL's clients hold 4713 BC to 294276; cast it to text")
}

/// The time zone of a session, in which times with a zone are written.
#[derive(Clone, Debug)]
pub struct Zone {
    /// The name as it was given.
    pub name: String,
    /// `None` for UTC.
    zone: Option<Tz>,
}

impl Default for Zone {
    fn default() -> Self {
        Zone { name: "UTC".to_string(), zone: None }
    }
}

impl FromStr for Zone {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        if ["utc", "gmt", "z", "etc/utc", "zulu", "universal"].contains(&name.to_lowercase().as_str()) {
            return Ok(Zone { name: name.to_string(), zone: None });
        }
        let zone = Tz::from_str(name).map_err(|_| {
            Error::invalid(format!("invalid value for parameter \"TimeZone\": \"{name}\""))
                .advise("give a name such as Europe/Oslo, or an offset such as +02:00")
        })?;
        Ok(Zone { name: name.to_string(), zone: Some(zone) })
    }
}

impl Zone {
    /// Returns the seconds that clocks of the zone are ahead of UTC at a time.
    fn offset_s(&self, microseconds: i64) -> i32 {
        let Some(zone) = &self.zone else { return 0 };
        // Beyond the years that the rules are evaluated for, the zone is taken for UTC.
        let Some(time) = DateTime::from_timestamp_micros(microseconds) else { return 0 };
        zone.offset_from_utc_datetime(&time.naive_utc()).fix().local_minus_utc()
    }
}

/// The year, month and day of a day of the proleptic Gregorian calendar (H. Hinnant, "chrono-Compatible Low-Level Date
/// Algorithms", `civil_from_days`).
fn civil(days: i64) -> (i64, u32, u32) {
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    // Months are 1 to 12, and days 1 to 31.
    (year, u32::try_from(month).unwrap_or(0), u32::try_from(day).unwrap_or(0))
}

/// Appends a date, and returns whether it is before year 1, which the end of the text has to say.
fn put_civil(out: &mut BytesMut, days: i64) -> bool {
    let (year, month, day) = civil(days);
    let is_before = year <= 0;
    put_padded(out, if is_before { 1 - year } else { year }, 4);
    out.put_u8(b'-');
    put_padded(out, month.into(), 2);
    out.put_u8(b'-');
    put_padded(out, day.into(), 2);
    is_before
}

/// Appends a date, given as days since 1970.
pub(super) fn put_date(out: &mut BytesMut, days: i32) {
    if put_civil(out, days.into()) {
        out.put_slice(b" BC");
    }
}

/// Appends a time of day, given as microseconds since midnight.
pub(super) fn put_time(out: &mut BytesMut, microseconds: i64) {
    let seconds = microseconds / 1_000_000;
    put_padded(out, seconds / 3600, 2);
    out.put_u8(b':');
    put_padded(out, seconds / 60 % 60, 2);
    out.put_u8(b':');
    put_padded(out, seconds % 60, 2);
    put_fraction(out, microseconds % 1_000_000);
}

/// Appends a fraction of a second without its trailing zeros; nothing for 0.
pub(super) fn put_fraction(out: &mut BytesMut, microseconds: i64) {
    if microseconds == 0 {
        return;
    }
    out.put_u8(b'.');
    let (mut digits, mut rest) = (6, microseconds);
    while rest % 10 == 0 {
        (rest, digits) = (rest / 10, digits - 1);
    }
    put_padded(out, rest, digits);
}

/// Appends a time, given as microseconds since 1970; with `zone`, as clocks there show it, and with their offset from
/// UTC.
pub(super) fn put_timestamp(out: &mut BytesMut, microseconds: i64, zone: Option<&Zone>) {
    let offset_s = zone.map(|zone| zone.offset_s(microseconds));
    let local = microseconds.saturating_add(i64::from(offset_s.unwrap_or(0)) * 1_000_000);
    let is_before = put_civil(out, local.div_euclid(DAY_US));
    out.put_u8(b' ');
    put_time(out, local.rem_euclid(DAY_US));
    if let Some(offset_s) = offset_s {
        out.put_u8(if offset_s < 0 { b'-' } else { b'+' });
        let offset_s = i64::from(offset_s.abs());
        put_padded(out, offset_s / 3600, 2);
        if offset_s % 3600 != 0 {
            out.put_u8(b':');
            put_padded(out, offset_s / 60 % 60, 2);
        }
        if offset_s % 60 != 0 {
            out.put_u8(b':');
            put_padded(out, offset_s % 60, 2);
        }
    }
    if is_before {
        out.put_slice(b" BC");
    }
}

/// Appends an interval in PostgreSQL's interval style `postgres`: `1 year 2 mons -3 days +04:05:06.7`.
pub(super) fn put_interval(out: &mut BytesMut, months: i32, days: i32, microseconds: i64) {
    let start = out.len();
    let mut was_negative = false;
    for (count, unit) in [(months / 12, "year"), (months % 12, "mon"), (days, "day")] {
        if count == 0 {
            continue;
        }
        if out.len() > start {
            out.put_u8(b' ');
        }
        if was_negative && count > 0 {
            out.put_u8(b'+');
        }
        put_integer(out, count.into());
        out.put_u8(b' ');
        out.put_slice(unit.as_bytes());
        if count != 1 {
            out.put_u8(b's');
        }
        was_negative = count < 0;
    }
    if microseconds == 0 && out.len() > start {
        return;
    }
    if out.len() > start {
        out.put_u8(b' ');
    }
    if microseconds < 0 {
        out.put_u8(b'-');
    } else if was_negative {
        out.put_u8(b'+');
    }
    let whole = microseconds.unsigned_abs();
    // Less than 2^63 / 10^6 seconds.
    let [seconds, fraction] = [whole / 1_000_000, whole % 1_000_000].map(|n| i64::try_from(n).unwrap_or(0));
    put_padded(out, seconds / 3600, 2);
    out.put_u8(b':');
    put_padded(out, seconds / 60 % 60, 2);
    out.put_u8(b':');
    put_padded(out, seconds % 60, 2);
    put_fraction(out, fraction);
}

/// Appends an integer.
pub(super) fn put_integer(out: &mut BytesMut, value: i64) {
    out.put_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Appends an integer of at least 0, with zeros in front up to `width` digits.
fn put_padded(out: &mut BytesMut, value: i64, width: usize) {
    let mut buffer = itoa::Buffer::new();
    let digits = buffer.format(value);
    (digits.len()..width).for_each(|_| out.put_u8(b'0'));
    out.put_slice(digits.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(put: impl FnOnce(&mut BytesMut)) -> String {
        let mut out = BytesMut::new();
        put(&mut out);
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn dates_are_those_of_postgresql() {
        for (days, expected) in [
            (0, "1970-01-01"),
            (-1, "1969-12-31"),
            (11_016, "2000-02-29"),
            (-719_162, "0001-01-01"),
            (-719_163, "0001-12-31 BC"),
            (*DAYS.start(), "4714-11-24 BC"),
            (*DAYS.end(), "5874897-12-31"),
        ] {
            assert_eq!(shown(|out| put_date(out, days)), expected);
            assert_eq!(checked_day(days).unwrap(), days);
        }
        assert!(checked_day(DAYS.start() - 1).is_err() && checked_day(DAYS.end() + 1).is_err());
    }

    #[test]
    fn times_are_those_of_postgresql() {
        let plain = |us| shown(|out| put_timestamp(out, us, None));
        assert_eq!(plain(0), "1970-01-01 00:00:00");
        assert_eq!(plain(-1), "1969-12-31 23:59:59.999999");
        assert_eq!(plain(1_500_000), "1970-01-01 00:00:01.5");
        assert_eq!(plain(i64::MAX), "294247-01-10 04:00:54.775807");
        assert_eq!(plain(MICROSECONDS_MIN), "4714-11-24 00:00:00 BC");
        assert!(checked_time(MICROSECONDS_MIN - 1).is_err());
        let there = |zone: &str, us| {
            let zone: Zone = zone.parse().unwrap();
            shown(|out| put_timestamp(out, us, Some(&zone)))
        };
        assert_eq!(there("UTC", 0), "1970-01-01 00:00:00+00");
        assert_eq!(there("Asia/Kolkata", 0), "1970-01-01 05:30:00+05:30");
        assert_eq!(there("America/New_York", 1_719_835_200_000_000), "2024-07-01 08:00:00-04");
        // Before there were time zones, clocks showed the time of their place.
        assert_eq!(there("America/New_York", -3_000_000_000_000_000), "1874-12-07 13:43:58-04:56:02");
        assert_eq!(there("-03:30", 0), "1969-12-31 20:30:00-03:30");
        assert!("Europe/Nowhere".parse::<Zone>().is_err());
    }

    #[test]
    fn intervals_are_those_of_postgresql() {
        let shown = |months, days, us| shown(|out| put_interval(out, months, days, us));
        assert_eq!(shown(0, 0, 0), "00:00:00");
        assert_eq!(shown(14, 3, 14_706_700_000), "1 year 2 mons 3 days 04:05:06.7");
        assert_eq!(shown(-1, 5, -1_000_000), "-1 mons +5 days -00:00:01");
        assert_eq!(shown(0, -1, 1_000_000), "-1 days +00:00:01");
        assert_eq!(shown(12, 0, 0), "1 year");
        assert_eq!(shown(0, 0, i64::MIN), "-2562047788:00:54.775808");
    }
}
