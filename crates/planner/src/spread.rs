//! Estimates the fraction of a column's values that satisfies a condition.
//!
//! The frequencies of the most frequent values are known, and the condition is tested on each of them. The other values
//! are assumed to be equally frequent, and spread evenly within each bin of a histogram, or evenly between minimum and
//! maximum if there is no histogram (Ioannidis, *The History of Histograms*, VLDB 2003: "end-biased" histograms). Bins
//! are inaccurate if most values lie in one of them. Therefore the fraction of values below a constant that follows
//! from the bins is clamped to the fractions of the quantiles next to the constant.
//!
//! Invariant: a fraction refers to the values that are not NULL, and is in [0, 1].

use farpool_model::{ColumnStatistics, CompareOp, Literal, Spread, TableInfo, Value, schema};
use std::cmp::Ordering;

/// Assumed fraction of values below a constant for types whose values have no distance, such as strings (System R's
/// 1/3).
const UNKNOWN_ORDER: f64 = 1.0 / 3.0;

/// Facts that are known of a column's values.
pub(crate) struct Values<'a> {
    column: &'a ColumnStatistics,
    spread: Option<&'a Spread>,
    /// Number of values that are not NULL, at least 1.
    count: f64,
    /// Number of distinct values, at least 1.
    distinct: f64,
    /// Number of rows that have one of the frequent values.
    known: f64,
}

impl<'a> Values<'a> {
    /// Collects what is known of a column with about `distinct` distinct values.
    pub fn new(column: &'a ColumnStatistics, distinct: f64, info: &TableInfo) -> Self {
        let spread = column.spread.as_deref();
        let count = (info.rows.saturating_sub(column.null_count) as f64).max(1.0);
        let frequent = spread.map_or(&[][..], |spread| &spread.frequent);
        let known = frequent.iter().map(|(_, rows)| *rows as f64).sum::<f64>().min(count);
        Values { column, spread, count, distinct: distinct.max(1.0), known }
    }

    fn frequent(&self) -> &'a [(Literal, u64)] {
        self.spread.map_or(&[], |spread| &spread.frequent)
    }

    /// Returns the fraction of values that are not among the frequent ones; 0 if all values are.
    fn share_of_rest(&self) -> f64 {
        if self.distinct_rest() > 0.0 { 1.0 - self.known / self.count } else { 0.0 }
    }

    fn distinct_rest(&self) -> f64 {
        (self.distinct - self.frequent().len() as f64).max(0.0)
    }

    /// Returns the fraction of values for which `holds` is true. It is tested on the frequent values; of the others,
    /// the fraction `of_rest` is assumed to satisfy it.
    pub fn matching(&self, holds: impl Fn(&Literal) -> bool, of_rest: f64) -> f64 {
        let rest = self.share_of_rest();
        let passed: f64 =
            self.frequent().iter().filter(|(v, _)| holds(v)).map(|(_, rows)| *rows as f64).sum();
        let of_known = if self.known > 0.0 { (passed / self.known).min(1.0) } else { 0.0 };
        of_known * (1.0 - rest) + of_rest.clamp(0.0, 1.0) * rest
    }

    /// Returns the fraction of values for which the comparison with `literal` is true; `None` if it cannot be
    /// estimated.
    pub fn compare(&self, op: CompareOp, literal: &Literal) -> Option<f64> {
        let (min, max) = (self.column.min.as_ref()?, self.column.max.as_ref()?);
        let below = literal.compare(min)? == Ordering::Less;
        let above = literal.compare(max)? == Ordering::Greater;
        let equal = if below || above { 0.0 } else { self.equal(literal) };
        let less = match (below, above, numeric(literal)) {
            (true, ..) => 0.0,
            (_, true, _) => 1.0,
            (_, _, Some(value)) => self.below(value),
            _ => self.matching(|v| v.compare(literal) == Some(Ordering::Less), UNKNOWN_ORDER),
        };
        let at_most = (less + equal).min(1.0);
        let share = match op {
            CompareOp::Eq => equal,
            CompareOp::NotEq => 1.0 - equal,
            CompareOp::Lt => less,
            CompareOp::LtEq => at_most,
            CompareOp::Gt => 1.0 - at_most,
            CompareOp::GtEq => 1.0 - less,
        };
        Some(share.clamp(0.0, 1.0))
    }

    /// Returns the fraction of values that equal `literal`, which must be between minimum and maximum.
    fn equal(&self, literal: &Literal) -> f64 {
        let frequent = self.frequent().iter().find(|(v, _)| v.compare(literal) == Some(Ordering::Equal));
        if let Some((_, rows)) = frequent {
            return (*rows as f64 / self.count).min(1.0);
        }
        let each = self.share_of_rest() / self.distinct_rest().max(1.0);
        // The count of the bin is an upper limit, and may be 0. If the bin covers a single integer, it is the exact
        // count.
        match numeric(literal).and_then(|value| self.bin_of(value)) {
            Some((count, alone)) if alone => count / self.count,
            Some((count, _)) => each.min(count / self.count),
            None => each,
        }
    }

    /// Returns the number of values in the histogram bin of `value`, and whether the bin covers a single integer;
    /// `None` if there is no such bin.
    fn bin_of(&self, value: f64) -> Option<(f64, bool)> {
        let spread = self.spread.filter(|spread| !spread.bins.is_empty())?;
        let place = ((value - spread.low) / spread.width).floor();
        let bin = if place >= 0.0 { spread.bins.get(place as usize) } else { None };
        let alone = self.step() == 1.0 && spread.width <= 1.0;
        Some((bin.map_or(0.0, |count| *count as f64), alone))
    }

    /// Returns the distance between neighbouring values of the column's type: 1 for integers, 0 for other types.
    fn step(&self) -> f64 {
        let whole = self.column.min.as_ref().is_some_and(|min| schema::is_integer_like(min.data_type()));
        if whole { 1.0 } else { 0.0 }
    }

    /// Returns the fraction of values below `value`, for a column of numbers.
    fn below(&self, value: f64) -> f64 {
        let (rest, total) = self.rest_below(value);
        let of_rest = if total > 0.0 { rest / total } else { 0.0 };
        let share = self.matching(|v| numeric(v).is_some_and(|v| v < value), of_rest);
        let (least, most) = self.shares_below(value);
        share.clamp(least, most)
    }

    /// Returns the least and the greatest fraction of values that may be below `value`, according to the quantiles next
    /// to it.
    fn shares_below(&self, value: f64) -> (f64, f64) {
        let Some(spread) = self.spread.filter(|spread| !spread.quantiles.is_empty()) else {
            return (0.0, 1.0);
        };
        // This many quantiles are less than the value, and so is the corresponding fraction of the values.
        let less = spread.quantiles.partition_point(|quantile| *quantile < value) as f64;
        let parts = spread.quantiles.len() as f64 + 1.0;
        let error = spread.quantile_error.clamp(0.0, 1.0);
        ((less / parts - error).max(0.0), ((less + 1.0) / parts + error).min(1.0))
    }

    /// Returns how many of the values that are not frequent are below `value`, and how many of these there are in
    /// total. Without a histogram, returns the fraction of the range that is below `value`, and 1.
    fn rest_below(&self, value: f64) -> (f64, f64) {
        let (Some(min), Some(max)) = self.range() else { return (0.0, 0.0) };
        // The range ends one step after `max`, because each integer takes up a part of the range of that width.
        let end = max + self.step();
        let share = |low: f64, high: f64| {
            let (low, high) = (low.max(min), high.min(end));
            if high > low { ((value - low) / (high - low)).clamp(0.0, 1.0) } else { f64::from(value > low) }
        };
        match self.spread.filter(|spread| !spread.bins.is_empty()) {
            None => (share(min, end), 1.0),
            Some(spread) => self.rest_of_bins(spread).fold((0.0, 0.0), |(below, total), (low, rest)| {
                (below + rest * share(low, low + spread.width), total + rest)
            }),
        }
    }

    /// Returns the lower edge of each histogram bin, and how many of its values are not frequent.
    fn rest_of_bins(&self, spread: &'a Spread) -> impl Iterator<Item = (f64, f64)> {
        let mut rest: Vec<f64> = spread.bins.iter().map(|count| *count as f64).collect();
        for (value, rows) in &spread.frequent {
            let place = numeric(value).map_or(-1.0, |v| ((v - spread.low) / spread.width).floor());
            if let Some(bin) = if place >= 0.0 { rest.get_mut(place as usize) } else { None } {
                *bin = (*bin - *rows as f64).max(0.0);
            }
        }
        rest.into_iter().enumerate().map(|(i, rest)| (spread.low + spread.width * i as f64, rest))
    }

    fn range(&self) -> (Option<f64>, Option<f64>) {
        (self.column.min.as_ref().and_then(numeric), self.column.max.as_ref().and_then(numeric))
    }

    /// Returns the fraction of pairs in which this column's value is less than the other's, if the two are independent;
    /// `None` unless both have histograms.
    pub fn less_than(&self, other: &Values<'_>) -> Option<f64> {
        let spread = self.spread.filter(|spread| !spread.bins.is_empty())?;
        other.spread.filter(|spread| !spread.bins.is_empty())?;
        let (min, max) = (self.range().0?, self.range().1?);
        let types = (self.column.min.as_ref()?.data_type(), other.column.min.as_ref()?.data_type());
        let total: f64 = spread.bins.iter().map(|count| *count as f64).sum();
        if types.0 != types.1 || total <= 0.0 {
            return None;
        }
        let greater = |(i, count): (usize, &u64)| {
            let low = spread.low + spread.width * i as f64;
            let middle = (low.max(min) + (low + spread.width).min(max + self.step())) / 2.0;
            *count as f64 * (1.0 - other.below(middle))
        };
        Some((spread.bins.iter().enumerate().map(greater).sum::<f64>() / total).clamp(0.0, 1.0))
    }
}

/// Returns a constant as a number; `None` if its type has no distances between values.
pub(crate) fn numeric(literal: &Literal) -> Option<f64> {
    match literal.value() {
        Value::Int(v) => Some(*v as f64),
        Value::Float(v) if v.is_finite() => Some(*v),
        _ => None,
    }
}

/// Returns whether a string matches a LIKE pattern, as [`farpool_model::Expr::Like`] defines it. With `folded`, ignores
/// the case of letters, nearly as the operators do.
pub(crate) fn is_like(text: &str, pattern: &str, folded: bool) -> bool {
    let fold = |s: &str| if folded { s.to_lowercase() } else { s.to_string() };
    let (text, pattern): (Vec<char>, Vec<char>) =
        (fold(text).chars().collect(), fold(pattern).chars().collect());
    let (mut at, mut next) = (0, 0);
    // Position in the text and the pattern from which to resume, after the last `%`, if the rest of the pattern does
    // not match.
    let mut again: Option<(usize, usize)> = None;
    while at < text.len() {
        let (matched, taken) = match pattern.get(next) {
            Some('%') => {
                again = Some((at, next + 1));
                next += 1;
                continue;
            }
            Some('_') => (true, 1),
            Some('\\') => (pattern.get(next + 1) == Some(&text[at]), 2),
            Some(c) => (*c == text[at], 1),
            None => (false, 0),
        };
        match again {
            _ if matched => (at, next) = (at + 1, next + taken),
            Some((from, rest)) => {
                again = Some((from + 1, rest));
                (at, next) = (from + 1, rest);
            }
            None => return false,
        }
    }
    pattern[next..].iter().all(|c| *c == '%')
}

#[cfg(test)]
mod tests;
