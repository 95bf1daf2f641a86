//! A time zone and its offset from UTC. The zone is given by its name in the IANA database, in upper or lower case, or
//! as an offset such as `+02:00`, east of Greenwich as in ISO 8601.
//!
//! The rule for local times that a clock change skips or repeats follows PostgreSQL's `DetermineTimeZoneOffset`.

use crate::names;
use arrow_array::timezone::Tz;
use chrono::{DateTime, Datelike, LocalResult, NaiveDate, NaiveDateTime, Offset, TimeDelta, TimeZone};
use farpool_model::{Error, Result, brief};

/// A time zone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Zone(Tz);

/// Maximum number, and length, of the steps back in time by which the offset for a skipped local time is found.
/// Together they are 26 hours: no clock was ever set forward by more than a day.
const STEPS: i32 = 26 * 4;
const STEP: TimeDelta = TimeDelta::minutes(15);

impl Zone {
    /// Finds a time zone by its name.
    ///
    /// # Errors
    /// `Invalid` if there is none, with advice on similar names.
    pub(super) fn named(name: &str) -> Result<Self> {
        let known = || chrono_tz::TZ_VARIANTS.iter().map(|zone| zone.name());
        let written = known().find(|known| known.eq_ignore_ascii_case(name)).unwrap_or(name);
        written.parse().map(Zone).map_err(|_| {
            let error = Error::invalid(format!("there is no time zone {:?}", brief(name)));
            let city = name.trim().replace(' ', "_");
            let is_meant = |known: &&str| {
                names::are_close(name, known)
                    || known.rsplit('/').next().is_some_and(|last| last.eq_ignore_ascii_case(&city))
            };
            let meant: Vec<&str> = known().filter(is_meant).collect();
            match meant.len() {
                0 => error
                    .advise("a zone has a name such as 'Europe/Berlin', or is an offset such as '+02:00'"),
                1 => error.advise(format!("did you mean {:?}?", meant[0])),
                _ => names::advise(error, name, &meant),
            }
        })
    }

    /// Returns the offset from UTC in seconds at an instant, which is given in seconds from 1970. Returns `None` if the
    /// time is beyond the calendar.
    pub(super) fn ahead_at(&self, seconds: i64) -> Option<i64> {
        Some(seconds_of(self.0.offset_from_utc_datetime(&calendar(seconds)?)))
    }

    /// Returns the offset from UTC in seconds at a local time, which is given in seconds from 1970 as if it were UTC.
    /// For a local time that occurs twice, it is the offset at the later instant; for one that is skipped, the offset
    /// before the change. Returns `None` if the time is beyond the calendar.
    pub(super) fn ahead_on_clock(&self, seconds: i64) -> Option<i64> {
        let shown = calendar(seconds)?;
        (0..=STEPS).find_map(|step| self.shown_last(shown.checked_sub_signed(STEP * step)?))
    }

    /// Returns the offset at the last instant that has this local time; `None` if the local time is skipped.
    fn shown_last(&self, shown: NaiveDateTime) -> Option<i64> {
        match self.0.offset_from_local_datetime(&shown) {
            LocalResult::Single(offset) => Some(seconds_of(offset)),
            LocalResult::Ambiguous(one, other) => Some(seconds_of(one).min(seconds_of(other))),
            LocalResult::None => None,
        }
    }
}

fn seconds_of(offset: impl Offset) -> i64 {
    i64::from(offset.fix().local_minus_utc())
}

/// The last year, with a margin, for which the database is known to contain the rules in force now.
const LAST_YEAR: i32 = 2096;

/// Converts seconds from 1970 to a calendar time; `None` beyond the calendar. A year after [`LAST_YEAR`] is replaced by
/// an earlier one that begins on the same day of the week and has the same length, so that rules such as "the last
/// Sunday of March" give the same result.
fn calendar(seconds: i64) -> Option<NaiveDateTime> {
    let time = DateTime::from_timestamp(seconds, 0)?.naive_utc();
    if time.year() <= LAST_YEAR {
        return Some(time);
    }
    let shape = |year: i32| {
        let first = NaiveDate::from_ymd_opt(year, 1, 1)?;
        Some((first.weekday(), first.leap_year()))
    };
    let wanted = shape(time.year())?;
    // Within 28 years of a century, every combination of first weekday and length of the year occurs.
    let alike = (LAST_YEAR - 27..=LAST_YEAR).find(|year| shape(*year) == Some(wanted))?;
    time.with_year(alike)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(text: &str) -> i64 {
        NaiveDateTime::parse_from_str(text, "%Y-%m-%d %H:%M:%S").unwrap().and_utc().timestamp()
    }

    /// Expected offsets are from DuckDB, whose rule for skipped and repeated local times is PostgreSQL's.
    #[test]
    fn clocks_are_ahead_as_others_say() {
        let cases = [
            ("America/New_York", "2024-07-01 12:00:00", "2024-07-01 16:00:00"),
            ("America/New_York", "2024-01-01 12:00:00", "2024-01-01 17:00:00"),
            // Skipped local times.
            ("America/New_York", "2024-03-10 02:30:00", "2024-03-10 07:30:00"),
            ("Pacific/Apia", "2011-12-30 12:00:00", "2011-12-30 22:00:00"),
            ("Europe/Dublin", "2024-03-31 01:30:00", "2024-03-31 01:30:00"),
            ("Australia/Lord_Howe", "2024-10-06 02:15:00", "2024-10-05 15:45:00"),
            // Repeated local times.
            ("America/New_York", "2024-11-03 01:30:00", "2024-11-03 06:30:00"),
            ("Europe/Moscow", "2014-10-26 01:30:00", "2014-10-25 22:30:00"),
            ("Europe/Dublin", "2024-10-27 01:30:00", "2024-10-27 01:30:00"),
            ("Australia/Lord_Howe", "2024-04-07 01:45:00", "2024-04-06 15:15:00"),
            // Times before time zones existed, and times far in the future.
            ("America/New_York", "1850-11-18 12:00:00", "1850-11-18 16:56:02"),
            ("America/New_York", "2090-07-18 12:00:00", "2090-07-18 16:00:00"),
            ("America/New_York", "2150-07-18 12:00:00", "2150-07-18 16:00:00"),
            ("Europe/Berlin", "2400-02-29 12:00:00", "2400-02-29 11:00:00"),
            ("+02:00", "2024-07-01 12:00:00", "2024-07-01 10:00:00"),
            ("europe/berlin", "2024-07-01 12:00:00", "2024-07-01 10:00:00"),
        ];
        for (name, shown, instant) in cases {
            let zone = Zone::named(name).unwrap();
            let (shown, instant) = (clock(shown), clock(instant));
            assert_eq!(zone.ahead_on_clock(shown), Some(shown - instant), "{name} {shown}");
        }
    }

    #[test]
    fn an_instant_has_one_time_on_each_clock() {
        let zone = Zone::named("America/New_York").unwrap();
        let at = |text: &str| zone.ahead_at(clock(text)).unwrap() / 3600;
        assert_eq!([at("2024-11-03 05:59:59"), at("2024-11-03 06:00:00")], [-4, -5]);
        assert_eq!([at("2024-03-10 06:59:59"), at("2024-03-10 07:00:00")], [-5, -4]);
        assert_eq!([at("2199-07-01 12:00:00"), at("2199-12-01 12:00:00")], [-4, -5]);
        assert_eq!(zone.ahead_at(i64::MAX), None);
        assert_eq!(zone.ahead_on_clock(i64::MIN), None);
    }

    #[test]
    fn a_name_that_is_none_is_told_with_one_that_is() {
        let advice = |name: &str| Zone::named(name).unwrap_err().advice.unwrap();
        assert!(advice("Amerika/New_York").contains("America/New_York"), "{}", advice("Amerika/New_York"));
        assert!(advice("New York").contains("America/New_York"), "{}", advice("New York"));
        assert!(advice("").contains("Europe/Berlin"));
        assert!(advice("+25:00").contains("+02:00"));
    }
}
