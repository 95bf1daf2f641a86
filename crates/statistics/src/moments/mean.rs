//! A mean in twice the precision of a float: merging co-moments needs the difference of two means, which
//! would lose most of its digits for means far from 0.

/// The mean `high` + `low`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Mean {
    pub(crate) high: f64,
    /// The rounding error of `high`.
    pub(crate) low: f64,
}

impl Mean {
    /// Returns an integer, to 106 bits.
    pub(crate) fn of(value: i128) -> Mean {
        let high = value as f64;
        Mean { high, low: value.saturating_sub(high as i128) as f64 }
    }

    /// This and `more`, without rounding where `more` is much less (Knuth, TAOCP 2, theorem 4.2.2 B).
    pub(crate) fn plus(self, more: f64) -> Mean {
        let more = more + self.low;
        let high = self.high + more;
        let part = high - self.high;
        let low = (self.high - (high - part)) + (more - part);
        if high.is_finite() { Mean { high, low } } else { Mean { high, low: 0.0 } }
    }

    /// Returns the difference to another mean.
    pub(crate) fn minus(self, other: Mean) -> f64 {
        (self.high - other.high) + (self.low - other.low)
    }

    pub(crate) fn value(self) -> f64 {
        self.high + self.low
    }
}
