//! Trust in Count-Min, judged from the other two sketches (thesis, sections 4.3.4 and 4.3.5).
//!
//! Count-Min overestimates a value when another one shares its counter in every row. The number of distinct
//! values (HyperLogLog) tells how likely that is; their skew (Fast-AGMS) tells whether some are so frequent
//! that they are hardly affected.

use std::fmt;

/// The most values, as a share of all, that may share all their counters for Count-Min to be trusted. With 6
/// × 2^13 counters there are more beyond 5 100 values; the thesis (figure 4.9) finds errors from 1 500 on.
const SHARED_MAX: f64 = 0.01;

/// The relative error up to which the count of a frequent value is trusted.
const ERROR_MAX: f64 = 0.1;

/// Trust in the counts of a sketch's Count-Min.
#[derive(Clone, Debug, PartialEq)]
pub struct Trust {
    /// Whether the count of any value can be taken as nearly exact.
    pub trusted: bool,
    /// Counts from this number on have a relative error of at most a tenth, even if small counts have not.
    /// `None` where it is likely that no value is as frequent.
    pub frequent_from: Option<f64>,
    /// The reason, in words.
    pub reason: String,
}

impl fmt::Display for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.trusted { "trusted: " } else { "not trusted: " })?;
        f.write_str(&self.reason)
    }
}

/// The numbers that the verdict is derived from.
pub(crate) struct Evidence {
    /// Number of rows of Count-Min, and of counters in a row.
    pub rows: u8,
    pub width: f64,
    /// Number of values, without NULLs.
    pub values: f64,
    /// Upper bound of the number of distinct values.
    pub distinct: Option<f64>,
    /// The second moment.
    pub second_moment: Option<f64>,
}

impl Evidence {
    pub fn verdict(&self) -> Trust {
        let frequent_from = self.frequent_from();
        let Some(distinct) = self.distinct else {
            let reason = "without HyperLogLog nothing says how many values share the counters".to_string();
            return Trust { trusted: false, frequent_from, reason };
        };
        let shared = (1.0 - (-distinct / self.width).exp()).powi(self.rows.into());
        let share = format!(
            "of up to {distinct:.0} distinct values {:.2} % share a counter of {} in each of {} rows",
            100.0 * shared,
            self.width,
            self.rows
        );
        let trusted = shared <= SHARED_MAX;
        let reason = match frequent_from {
            _ if trusted => share,
            Some(from) => format!("{share}; but counts from {from:.0} on are right to a tenth"),
            None => format!("{share}, and no value is frequent enough to stand out"),
        };
        Trust { trusted, frequent_from, reason }
    }

    /// Returns the mean excess of a counter is `values / width`; it changes ten times that count by a tenth. The most
    /// frequent value occurs at least F2 / F1 times.
    fn frequent_from(&self) -> Option<f64> {
        let from = self.values / self.width / ERROR_MAX;
        (self.second_moment? >= from * self.values && self.values > 0.0).then_some(from)
    }
}
