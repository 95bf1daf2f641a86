//! Trust in the counts of Count-Min, judged from the other two sketches of the column (M. Chiosa's thesis, ETH Zurich
//! no. 29551, sections 4.3.4 and
//! 4.3.5).
//!
//! Count-Min overestimates the count of a value when, in every row of counters, another value uses the same counter.
//! HyperLogLog (the number of distinct values) tells how likely that is. Fast-AGMS (the skew of the values) tells
//! whether some values are so frequent that the error hardly matters for them.

use std::fmt;

/// Maximum fraction of the distinct values that may share all their counters with other values for Count-Min to be
/// trusted. With 6 × 2^13 counters, this fraction is reached at 5 100 distinct values; the thesis (figure 4.9) finds
/// errors from 1 500 on.
const SHARED_MAX: f64 = 0.01;

/// Maximum relative error of the count of a frequent value for the count to be trusted.
const ERROR_MAX: f64 = 0.1;

/// Trust in the counts of a sketch's Count-Min.
#[derive(Clone, Debug, PartialEq)]
pub struct Trust {
    /// Whether the estimated counts of all values can be taken as nearly exact: at most 1 % of the values are expected
    /// to share all their counters with others.
    pub trusted: bool,
    /// Count from which the relative error is expected to be at most a tenth, even if smaller counts are not trusted.
    /// `None` if it is not known that some value is so frequent.
    pub frequent_from: Option<f64>,
    /// Reason for the judgement, as a clause for people.
    pub reason: String,
}

impl fmt::Display for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.trusted { "trusted: " } else { "not trusted: " })?;
        f.write_str(&self.reason)
    }
}

/// Numbers from which the trust is judged.
pub(crate) struct Evidence {
    /// Number of rows of counters of Count-Min, and number of counters per row (`width`).
    pub rows: u8,
    pub width: f64,
    /// Number of values in the column, without NULLs.
    pub values: f64,
    /// Upper bound of the number of distinct values; `None` without HyperLogLog.
    pub distinct: Option<f64>,
    /// Second moment F2, the sum of the squared counts of all values; `None` without Fast-AGMS.
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

    /// Returns the count from which the relative error is expected to be at most a tenth. That is ten times the mean
    /// overcount of a counter, `values / width`. Returns `None` if the second moment is unknown or does not prove that
    /// some value is so frequent: the most frequent value occurs at least F2 / F1 times, where F1 is the number of
    /// values.
    fn frequent_from(&self) -> Option<f64> {
        let from = self.values / self.width / ERROR_MAX;
        (self.second_moment? >= from * self.values && self.values > 0.0).then_some(from)
    }
}
