//! The expiry of an access token: the end of a day in UTC, or a time of day with an offset.

use farpool_model::{Error, Result};
use serde::{Deserialize, Deserializer, de};
use std::fmt;
use std::str::FromStr;
use toml::value::{Date, Datetime, Offset};

const DAY_S: i64 = 86_400;

/// The time at which a token expires, and the date as written in the access file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndDate {
    /// The first time, in seconds since 1970, at which the token is no longer valid.
    end_s: u64,
    /// The date as written in the file.
    written: Datetime,
}

impl EndDate {
    /// Returns whether the token has expired at `now_s` seconds since 1970.
    pub fn is_over(&self, now_s: u64) -> bool {
        now_s >= self.end_s
    }

    fn of(written: Datetime) -> Result<Self> {
        let wrong = || {
            Error::invalid(format!("{written} is no date to end at"))
                .advise("write a day, 2027-03-31, or an instant with its offset, 2027-03-31T18:00:00Z")
        };
        let date = written.date.ok_or_else(wrong)?;
        let midnight_s = days_since_1970(date) * DAY_S;
        let end_s = match (written.time, written.offset) {
            // A date without a time of day means the end of that day.
            (None, None) => midnight_s + DAY_S,
            (Some(time), Some(offset)) => {
                let offset_s = match offset {
                    Offset::Z => 0,
                    Offset::Custom { minutes } => i64::from(minutes) * 60,
                };
                let seconds = i64::from(time.second.unwrap_or(0));
                midnight_s + i64::from(time.hour) * 3600 + i64::from(time.minute) * 60 + seconds - offset_s
            }
            // A time without an offset from UTC is ambiguous.
            _ => return Err(wrong()),
        };
        // An expiry before 1970 is stored as 0, because such a token has expired in any case.
        Ok(EndDate { end_s: u64::try_from(end_s).unwrap_or(0), written })
    }
}

/// Returns the days from 1970-01-01 to a date of the proleptic Gregorian calendar (H. Hinnant, "chrono-Compatible
/// Low-Level Date Algorithms", `days_from_civil`).
fn days_since_1970(date: Date) -> i64 {
    let (month, day) = (i64::from(date.month), i64::from(date.day));
    // In years that begin in March, the leap day is the last day.
    let year = i64::from(date.year) - i64::from(month <= 2);
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

impl FromStr for EndDate {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let written = text.parse().map_err(|_| {
            Error::invalid(format!("{text:?} is no date"))
                .advise("write a day, 2027-03-31, or an instant with its offset, 2027-03-31T18:00:00Z")
        })?;
        EndDate::of(written)
    }
}

impl fmt::Display for EndDate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.written.fmt(f)
    }
}

impl<'de> Deserialize<'de> for EndDate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = Datetime::deserialize(deserializer)?;
        EndDate::of(written).map_err(|error| {
            let advice = error.advice.unwrap_or_default();
            de::Error::custom(format!("{}: {advice}", error.message))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_ends_with_it_and_an_instant_at_once() {
        for (text, end_s) in [
            ("1970-01-01", 86_400),
            ("1970-01-01T00:00:10Z", 10),
            ("2000-02-29", 951_868_800),
            ("2000-03-01T01:00:00+01:00", 951_868_800),
            ("2026-11-23T12:00:00Z", 1_795_435_200),
            ("1969-12-31T23:00:00Z", 0),
        ] {
            let end: EndDate = text.parse().unwrap();
            assert_eq!(end.end_s, end_s, "{text}");
            assert!(end.is_over(end_s) && (end_s == 0 || !end.is_over(end_s - 1)));
            assert_eq!(end.to_string(), text);
        }
    }

    #[test]
    fn what_is_no_date_is_refused_with_advice() {
        for text in ["", "soon", "2027-02-30", "12:00:00", "2027-03-31T18:00:00"] {
            let error = text.parse::<EndDate>().unwrap_err();
            assert!(error.advice.unwrap().contains("2027-03-31"), "{text}");
        }
    }
}
