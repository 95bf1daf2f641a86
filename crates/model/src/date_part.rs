//! Parts of dates and timestamps, such as the year, by the proleptic Gregorian calendar and ISO 8601's weeks.

use arrow_schema::{DataType, TimeUnit};

/// A part of a date, or of a timestamp without a time zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DatePart {
    /// The year; 0 is 1 BC.
    Year,
    /// The year to which the ISO 8601 week belongs.
    IsoYear,
    /// The quarter, 1 to 4.
    Quarter,
    /// The month, 1 to 12.
    Month,
    /// The ISO 8601 week, 1 to 53. Week 1 has the first Thursday of the year.
    Week,
    /// The day of the month, 1 to 31.
    Day,
    /// The day of the year, 1 to 366.
    DayOfYear,
    /// The day of the week from 0 for Sunday to 6 for Saturday.
    DayOfWeek,
    /// The day of the week from 1 for Monday to 7 for Sunday.
    IsoDayOfWeek,
    /// The hour, 0 to 23.
    Hour,
    /// The minute, 0 to 59.
    Minute,
    /// The second without its fraction, 0 to 59.
    Second,
}

/// Every part with its name in SQL.
const NAMES: &[(DatePart, &str)] = &[
    (DatePart::Year, "year"),
    (DatePart::IsoYear, "isoyear"),
    (DatePart::Quarter, "quarter"),
    (DatePart::Month, "month"),
    (DatePart::Week, "week"),
    (DatePart::Day, "day"),
    (DatePart::DayOfYear, "doy"),
    (DatePart::DayOfWeek, "dow"),
    (DatePart::IsoDayOfWeek, "isodow"),
    (DatePart::Hour, "hour"),
    (DatePart::Minute, "minute"),
    (DatePart::Second, "second"),
];

const SECONDS_PER_DAY: i64 = 86_400;
/// Days of 400 years, the period of the calendar.
const ERA_DAYS: i64 = 146_097;
/// Periods by which days are moved, so that they count from a first of March and are positive. The year begins in March
/// here, because a leap day is its last day then.
const MOVED_ERAS: i64 = 700;
/// Days from the first of March of the year 0 to 1970.
const EPOCH: i64 = 719_468;

impl DatePart {
    /// Days before and after 1970 for which [`DatePart::of`] is defined: some 260,000 years, which calendar code of
    /// other libraries can represent, too.
    pub const CALENDAR_DAYS: i64 = 95_000_000;

    /// Returns every part.
    pub fn all() -> impl Iterator<Item = DatePart> {
        NAMES.iter().map(|(part, _)| *part)
    }

    /// Returns the part with this name in SQL, in any case; `None` if there is none.
    pub fn named(name: &str) -> Option<DatePart> {
        NAMES.iter().find(|(_, known)| known.eq_ignore_ascii_case(name)).map(|(part, _)| *part)
    }

    /// Returns the name in SQL.
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(part, _)| *part == self).map_or("", |(_, name)| *name)
    }

    /// Returns whether the part is one of the time of day, which dates do not have.
    pub fn is_of_time(self) -> bool {
        matches!(self, DatePart::Hour | DatePart::Minute | DatePart::Second)
    }

    /// Returns how many units of a date or a timestamp are one day; `None` for other types.
    pub fn units_per_day(data_type: &DataType) -> Option<i64> {
        match data_type {
            DataType::Date32 => Some(1),
            DataType::Timestamp(unit, _) => Some(units_per_day(*unit)),
            _ => None,
        }
    }

    /// Returns whether the parts of all times from `first` to `last` are defined by [`DatePart::of`].
    pub fn are_of_calendar((first, last): (i64, i64), units_per_day: i64) -> bool {
        let most = i128::from(DatePart::CALENDAR_DAYS) * i128::from(units_per_day);
        i128::from(first) >= -most && i128::from(last) <= most
    }

    /// Returns the least and the greatest value over times in `first..=last`, which count `units_per_day` (1 for dates)
    /// from 1970 and are within [`DatePart::CALENDAR_DAYS`].
    pub fn range(self, (first, last): (i64, i64), units_per_day: i64) -> (i64, i64) {
        match self {
            DatePart::Year | DatePart::IsoYear => {
                (self.of(first, units_per_day), self.of(last, units_per_day))
            }
            DatePart::Quarter => (1, 4),
            DatePart::Month => (1, 12),
            DatePart::Week => (1, 53),
            DatePart::Day => (1, 31),
            DatePart::DayOfYear => (1, 366),
            DatePart::DayOfWeek => (0, 6),
            DatePart::IsoDayOfWeek => (1, 7),
            DatePart::Hour => (0, 23),
            DatePart::Minute | DatePart::Second => (0, 59),
        }
    }

    /// Returns the part of a time that counts `units_per_day` (1 for dates) from 1970 and is within
    /// [`DatePart::CALENDAR_DAYS`].
    #[inline(always)]
    pub fn of(self, time: i64, units_per_day: i64) -> i64 {
        let days = if units_per_day == 1 { time } else { time.div_euclid(units_per_day) };
        let second = || {
            let units_per_second = (units_per_day / SECONDS_PER_DAY).max(1);
            time.rem_euclid(units_per_day) / units_per_second
        };
        match self {
            DatePart::Year => civil(days).year,
            DatePart::IsoYear => civil(thursday(days)).year,
            DatePart::Quarter => (civil(days).month + 2) / 3,
            DatePart::Month => civil(days).month,
            DatePart::Week => (day_of_year(thursday(days)) - 1) / 7 + 1,
            DatePart::Day => civil(days).day,
            DatePart::DayOfYear => day_of_year(days),
            DatePart::DayOfWeek => (days + 4).rem_euclid(7),
            DatePart::IsoDayOfWeek => weekday(days) + 1,
            DatePart::Hour => second() / 3_600,
            DatePart::Minute => second() / 60 % 60,
            DatePart::Second => second() % 60,
        }
    }
}

/// Returns how many of this unit are one day.
pub(crate) fn units_per_day(unit: TimeUnit) -> i64 {
    SECONDS_PER_DAY
        * match unit {
            TimeUnit::Second => 1,
            TimeUnit::Millisecond => 1_000,
            TimeUnit::Microsecond => 1_000_000,
            TimeUnit::Nanosecond => 1_000_000_000,
        }
}

/// A date of the calendar.
struct Civil {
    year: i64,
    /// From 1 to 12.
    month: i64,
    /// From 1 to 31.
    day: i64,
}

/// Returns the date of a day since 1970 within [`DatePart::CALENDAR_DAYS`]. The fractions are those of Neri and Schneider,
/// "Euclidean affine functions and their application to calendar algorithms" (2022); they need no 64-bit division, so
/// that the loops which call this become vector code.
#[inline(always)]
fn civil(days: i64) -> Civil {
    let from_march = (days + EPOCH + MOVED_ERAS * ERA_DAYS) as u32;
    let quarters = 4 * from_march + 3;
    let century = quarters / ERA_DAYS as u32;
    let in_century = (quarters % ERA_DAYS as u32) | 3;
    let product = 2_939_745 * u64::from(in_century);
    let (year, day_of_year) = ((product >> 32) as u32, (product as u32) / 2_939_745 / 4);
    let months = 2_141 * day_of_year + 197_913;
    // January and February belong to the next year of the calendar.
    let is_next = u32::from(day_of_year >= 306);
    Civil {
        year: i64::from(100 * century + year + is_next) - MOVED_ERAS * 400,
        month: i64::from((months >> 16) - 12 * is_next),
        day: i64::from((months & 0xffff) / 2_141 + 1),
    }
}

/// Returns the day of the year, from 1.
#[inline(always)]
fn day_of_year(days: i64) -> i64 {
    // The year before, so that the leap day of the year itself does not count.
    let past = civil(days).year - 1;
    let new_year = 365 * past + past.div_euclid(4) - past.div_euclid(100) + past.div_euclid(400) - 719_162;
    days - new_year + 1
}

/// Returns the day of the week, 0 for Monday.
#[inline(always)]
fn weekday(days: i64) -> i64 {
    (days + 3).rem_euclid(7)
}

/// Returns the Thursday of the week of a day.
#[inline(always)]
fn thursday(days: i64) -> i64 {
    days - weekday(days) + 3
}

#[cfg(test)]
mod tests {
    use super::DatePart;

    /// Days from 1970 to the first of January of `year`, counted year by year.
    fn new_year(year: i64) -> i64 {
        let is_leap = |y: i64| y % 4 == 0 && (y % 100 != 0 || y % 400 == 0);
        let days = |y: i64| if is_leap(y) { 366 } else { 365 };
        match year {
            1970.. => (1970..year).map(days).sum(),
            _ => -(year..1970).map(days).sum::<i64>(),
        }
    }

    #[test]
    fn days_that_are_counted_one_by_one() {
        let lengths = |leap: bool| [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        let mut days = new_year(-1_200);
        for year in -1_200..3_200 {
            let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let mut day_of_year = 0;
            for (month, length) in (1..).zip(lengths(is_leap)) {
                for day in 1..=length {
                    day_of_year += 1;
                    let expected = [year, (month + 2) / 3, month, day, day_of_year];
                    use DatePart::{Day, DayOfYear, Month, Quarter, Year};
                    let parts = [Year, Quarter, Month, Day, DayOfYear].map(|part| part.of(days, 1));
                    assert_eq!(parts, expected, "day {days}");
                    days += 1;
                }
            }
        }
    }

    #[test]
    fn the_farthest_days_have_the_years_that_counting_gives() {
        for days in [-DatePart::CALENDAR_DAYS, DatePart::CALENDAR_DAYS] {
            let year = DatePart::Year.of(days, 1);
            assert!((new_year(year)..new_year(year + 1)).contains(&days), "{days} in {year}");
        }
    }

    #[test]
    fn names_are_found_again() {
        for part in DatePart::all() {
            assert_eq!(DatePart::named(&part.name().to_uppercase()), Some(part));
        }
        assert_eq!(DatePart::named(""), None);
    }
}
