//! The table `date`: a row for each day.

use super::columns::{flags, numbers, texts};
use arrow::array::RecordBatch;
use arrow::error::ArrowError;
use std::ops::Range;

/// Number of days, from 1992-01-01 to 1998-12-30.
pub const DAYS: u64 = 2_556;

const FIRST_YEAR: i32 = 1992;

/// The day of the week of 1992-01-01, from 0 for Sunday.
const FIRST_WEEKDAY: i32 = 3;

const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// The months: name, days in a common year, and selling season.
const MONTHS: [(&str, i32, &str); 12] = [
    ("January", 31, "Winter"),
    ("February", 28, "Winter"),
    ("March", 31, "Winter"),
    ("April", 30, "Spring"),
    ("May", 31, "Summer"),
    ("June", 30, "Summer"),
    ("July", 31, "Summer"),
    ("August", 31, "Summer"),
    ("September", 30, "Fall"),
    ("October", 31, "Fall"),
    ("November", 30, "Christmas"),
    ("December", 31, "Christmas"),
];

/// The holidays of the authors' generator: month and day.
const HOLIDAYS: [(i32, i32); 10] =
    [(1, 1), (2, 20), (4, 20), (5, 20), (7, 20), (8, 20), (9, 20), (10, 20), (11, 20), (12, 24)];

struct Day {
    year: i32,
    /// From 1, as are all others but the day of the week.
    month: i32,
    day_in_month: i32,
    day_in_year: i32,
    /// From 0 for Sunday.
    weekday: i32,
    is_last_in_month: bool,
    date: String,
    year_month: String,
}

impl Day {
    /// Returns the day that is `index` days after the first one.
    fn at(index: u64) -> Day {
        let (mut year, mut rest) = (FIRST_YEAR, index as i32);
        while rest >= days_of_year(year) {
            rest -= days_of_year(year);
            year += 1;
        }
        let (day_in_year, mut month) = (rest + 1, 1);
        while rest >= days_of_month(year, month) {
            rest -= days_of_month(year, month);
            month += 1;
        }
        let (name, _, _) = MONTHS[month as usize - 1];
        let day_in_month = rest + 1;
        Day {
            year,
            month,
            day_in_month,
            day_in_year,
            weekday: (FIRST_WEEKDAY + index as i32) % 7,
            is_last_in_month: day_in_month == days_of_month(year, month),
            date: format!("{name} {day_in_month}, {year}"),
            year_month: format!("{}{year}", &name[..3]),
        }
    }

    fn year_month_number(&self) -> i32 {
        self.year * 100 + self.month
    }

    /// Returns the key of the day, such as 19940131.
    fn key(&self) -> i32 {
        self.year_month_number() * 100 + self.day_in_month
    }
}

/// Returns the keys of all days, in order.
pub fn keys() -> Vec<i32> {
    (0..DAYS).map(|index| Day::at(index).key()).collect()
}

/// Generates some rows.
pub fn batch(rows: Range<u64>) -> Result<RecordBatch, ArrowError> {
    let days: Vec<Day> = rows.map(Day::at).collect();
    RecordBatch::try_from_iter([
        ("d_datekey", numbers(&days, Day::key)),
        ("d_date", texts(&days, |day| &day.date)),
        ("d_dayofweek", texts(&days, |day| WEEKDAYS[day.weekday as usize])),
        ("d_month", texts(&days, |day| MONTHS[day.month as usize - 1].0)),
        ("d_year", numbers(&days, |day| day.year)),
        ("d_yearmonthnum", numbers(&days, Day::year_month_number)),
        ("d_yearmonth", texts(&days, |day| &day.year_month)),
        ("d_daynuminweek", numbers(&days, |day| day.weekday + 1)),
        ("d_daynuminmonth", numbers(&days, |day| day.day_in_month)),
        ("d_daynuminyear", numbers(&days, |day| day.day_in_year)),
        ("d_monthnuminyear", numbers(&days, |day| day.month)),
        ("d_weeknuminyear", numbers(&days, |day| (day.day_in_year - 1) / 7 + 1)),
        ("d_sellingseason", texts(&days, |day| MONTHS[day.month as usize - 1].2)),
        ("d_lastdayinweekfl", flags(&days, |day| day.weekday == 6)),
        ("d_lastdayinmonthfl", flags(&days, |day| day.is_last_in_month)),
        ("d_holidayfl", flags(&days, |day| HOLIDAYS.contains(&(day.month, day.day_in_month)))),
        ("d_weekdayfl", flags(&days, |day| (1..=5).contains(&day.weekday))),
    ])
}

fn days_of_year(year: i32) -> i32 {
    365 + i32::from(is_leap(year))
}

fn days_of_month(year: i32, month: i32) -> i32 {
    MONTHS[month as usize - 1].1 + i32::from(month == 2 && is_leap(year))
}

/// Returns whether a year is a leap year; right from 1901 to 2099.
fn is_leap(year: i32) -> bool {
    year % 4 == 0
}

#[cfg(test)]
mod tests {
    use super::{DAYS, Day, WEEKDAYS, keys};

    #[test]
    fn days_follow_the_calendar() {
        let shown = |index| {
            let day = Day::at(index);
            (day.key(), WEEKDAYS[day.weekday as usize], day.day_in_year, day.is_last_in_month)
        };
        assert_eq!(shown(0), (19_920_101, "Wednesday", 1, false));
        assert_eq!(shown(59), (19_920_229, "Saturday", 60, true));
        assert_eq!(shown(366), (19_930_101, "Friday", 1, false));
        assert_eq!(shown(DAYS - 1), (19_981_230, "Wednesday", 364, false));
        assert!(keys().is_sorted_by(|left, right| left < right));
    }
}
