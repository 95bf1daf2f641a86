//! A mean with twice the precision of a float. Merging co-moments needs the difference of two means, which would lose
//! most of its digits for means far from 0.

/// A mean, as the sum `high` + `low`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Mean {
    pub(crate) high: f64,
    /// Rounding error of `high`.
    pub(crate) low: f64,
}

impl Mean {
    /// Converts an integer, rounded to 106 bits.
    pub(crate) fn of(value: i128) -> Mean {
        let high = value as f64;
        Mean { high, low: value.saturating_sub(high as i128) as f64 }
    }

    /// Returns the sum of this mean and `more`. The sum is exact if `more` is much smaller (Knuth, TAOCP 2, theorem
    /// 4.2.2 B).
    pub(crate) fn plus(self, more: f64) -> Mean {
        let more = more + self.low;
        let high = self.high + more;
        let part = high - self.high;
        let low = (self.high - (high - part)) + (more - part);
        if high.is_finite() { Mean { high, low } } else { Mean { high, low: 0.0 } }
    }

    /// Returns this mean minus another one, as a float.
    pub(crate) fn minus(self, other: Mean) -> f64 {
        (self.high - other.high) + (self.low - other.low)
    }

    pub(crate) fn value(self) -> f64 {
        self.high + self.low
    }
}
