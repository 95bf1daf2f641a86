//! Answers of a sketch: estimates with their error bounds (`bounds.rs`).

use super::basics::Total;
use super::counters::median;
use super::distinct::Distinct;
use super::hashed::hash_of;
use super::{Quantile, Sketch, trust};
use crate::Trust;
use crate::bounds::{self, CONFIDENCE};
use crate::estimate::Estimate;
use crate::hash::Hash;
use arrow_schema::DataType;
use farpool_model::{Counters, Error, Literal, Result};

impl Sketch {
    /// Returns the number of rows, NULLs included.
    pub fn rows(&self) -> u64 {
        self.basics.rows
    }

    /// Returns the number of rows that are NULL.
    pub fn nulls(&self) -> u64 {
        self.basics.nulls
    }

    /// Returns the minimum; `None` without values. NaN counts as greater than all numbers.
    pub fn minimum(&self) -> Option<&Literal> {
        self.basics.range.as_ref().map(|(low, _)| low)
    }

    /// Returns the maximum; `None` without values. NaN counts as greater than all numbers.
    pub fn maximum(&self) -> Option<&Literal> {
        self.basics.range.as_ref().map(|(_, high)| high)
    }

    /// Returns the sum of the values; `None` for a column that is not numeric, and without values.
    pub fn sum(&self) -> Option<Total> {
        self.basics.total()
    }

    /// Estimates the number of distinct values, not counting NULL; `None` without HyperLogLog.
    pub fn distinct(&self) -> Option<Estimate> {
        let (value, low, high) = self.distinct.as_ref()?.estimate();
        let values = self.basics.values() as f64;
        Some(estimate(value.round(), low, high, values.min(1.0), values))
    }

    /// Estimates the number of occurrences of `value`; `None` without Count-Min.
    ///
    /// # Errors
    /// `Invalid` when the value is not of the column's type.
    pub fn frequency(&self, value: &Literal) -> Result<Option<Estimate>> {
        self.frequencies().of(value)
    }

    /// Prepares estimates for many values: what depends on the whole sketch is computed only once.
    pub fn frequencies(&self) -> Frequencies<'_> {
        Frequencies { sketch: self, judged: self.judge() }
    }

    /// Returns the most frequent values with their estimated frequencies, the most frequent first: at most `count`, and
    /// at most as many as the parameters keep.
    pub fn top(&self, count: usize) -> Vec<(Literal, Estimate)> {
        let judged = self.judge();
        let mut all: Vec<_> = self
            .top
            .iter()
            .filter_map(|(hash, value)| Some((self.frequency_of(hash, judged)?, hash, value)))
            .collect();
        all.sort_by(|one, other| other.0.value.total_cmp(&one.0.value).then(one.1.cmp(&other.1)));
        let count = count.min(self.parameters.top as usize);
        all.into_iter().take(count).map(|(estimate, _, value)| (value.clone(), estimate)).collect()
    }

    /// Returns for each fraction in `shares` a quantile: a value such that this fraction of the values is at or below
    /// it. NULLs are ignored. Returns an empty list without values; `None` without KLL.
    pub fn quantiles(&self, shares: &[f64]) -> Option<Vec<Quantile>> {
        let mut found = self.quantiles.as_ref()?.at(shares, &self.data_type);
        // The least and the greatest value are known exactly.
        if let Some((least, greatest)) = &self.basics.range {
            for (quantile, share) in found.iter_mut().zip(shares) {
                let end = if *share <= 0.0 { least } else { greatest };
                if *share <= 0.0 || *share >= 1.0 {
                    let (value, low, high) = (end.clone(), end.clone(), end.clone());
                    *quantile = Quantile { value, low, high, confidence: 1.0 };
                }
            }
        }
        Some(found)
    }

    /// Returns the rank error of quantiles: the fraction of values at or below a quantile may differ by this much
    /// from the requested fraction, at the confidence of quantiles. `None` without KLL.
    pub fn quantile_error(&self) -> Option<f64> {
        let values = self.basics.values().max(1) as f64;
        Some((self.quantiles.as_ref()?.rank_error() / values).min(1.0))
    }

    fn judge(&self) -> Judged {
        let most = self.moment_within(0.01).map(|moment| moment.high);
        Judged {
            trusted: self.count_min_trust().trusted,
            second_moment_most: most,
            counted_exactly: self.is_counted_exactly(),
        }
    }

    /// Returns whether the counts of all values are known to be exact. That is so if every distinct value is kept as
    /// a frequent value and the estimated counts, none of which is too low, add up to no more than the number of
    /// values.
    fn is_counted_exactly(&self) -> bool {
        let distinct = self.distinct.as_ref().and_then(Distinct::few);
        let kept = self.top.iter().count();
        let sum = || self.top.iter().map(|(hash, _)| u128::from(self.count(hash))).sum::<u128>();
        kept > 0 && distinct == Some(kept) && sum() == u128::from(self.basics.values())
    }

    /// Estimates the frequency of the value with this hash. The smallest of Count-Min's counters is never too low; the
    /// signed counters of Fast-AGMS bound from both sides how much it may be too high.
    fn frequency_of(&self, hash: Hash, judged: Judged) -> Option<Estimate> {
        let shape = self.parameters.frequency?;
        let values = self.basics.values() as f64;
        if judged.counted_exactly {
            let is_there = self.top.iter().any(|(kept, _)| kept == hash);
            let count = if is_there { self.count(hash) as f64 } else { 0.0 };
            return Some(Estimate { value: count, low: count, high: count, confidence: 1.0 });
        }
        let least = self.count(hash) as f64;
        let excess = bounds::minimum_excess(shape.rows, 0.025) * (values - least).max(0.0) / width(shape);
        let (mut value, mut low) = (least, least - excess);
        if let (Some(table), Some(moment)) = (&self.second_moment, self.parameters.second_moment) {
            let signed = median(table.signed_at(hash));
            let most = judged.second_moment_most?;
            let deviation = bounds::median_deviations(moment.rows, 0.02) * (most / width(moment)).sqrt();
            low = low.max(signed - deviation);
            value = if judged.trusted { least } else { signed };
        }
        // Equal bounds would mean that the count is certain, so the lower bound is made at least one less than the
        // upper bound.
        Some(estimate(value.round(), low.ceil().min(least - 1.0), least, 0.0, least))
    }

    /// Estimates the second moment: the sum of the squared frequencies of all values, which is the size of the column's
    /// join with itself. `None` without Fast-AGMS.
    pub fn second_moment(&self) -> Option<Estimate> {
        self.moment_within(1.0 - CONFIDENCE)
    }

    fn moment_within(&self, failure: f64) -> Option<Estimate> {
        let (table, shape) = (self.second_moment.as_ref()?, self.parameters.second_moment?);
        let value = median(table.products(table));
        // The variance of the estimate of one row of counters is at most 2 F2² / 2^P, where F2 is the second moment
        // and 2^P the number of counters.
        let error = bounds::median_deviations(shape.rows, failure) * (2.0 / width(shape)).sqrt();
        let high = if error < 1.0 { value / (1.0 - error) } else { f64::INFINITY };
        let values = self.basics.values() as f64;
        let found = estimate(value, value / (1.0 + error), high, values, values * values);
        Some(Estimate { confidence: 1.0 - failure, ..found })
    }

    /// Estimates the size of the equi-join of the two columns: the number of pairs of rows with equal values. `None` if
    /// one of the sketches is without Fast-AGMS.
    ///
    /// # Errors
    /// `Invalid` when the tables of Fast-AGMS differ in shape, or equal values of the two columns have different
    /// hashes.
    pub fn join_size(&self, other: &Sketch) -> Result<Option<Estimate>> {
        let (Some(ours), Some(theirs)) = (&self.second_moment, &other.second_moment) else { return Ok(None) };
        let shape = self.parameters.second_moment;
        let (Some(shape), true) = (shape, shape == other.parameters.second_moment) else {
            return Err(Error::invalid("the two sketches have Fast-AGMS of different shapes")
                .advise("make both with the same parameters"));
        };
        self.expect_comparable(other)?;
        let value = median(ours.products(theirs));
        let moments = self.moment_within(0.02).zip(other.moment_within(0.02));
        let product = moments.map_or(f64::INFINITY, |(one, two)| one.high * two.high);
        // The variance of the estimate of one row of counters is at most (F2 F2' + J²) / 2^P, and J² is at most F2
        // F2', where J is the size of the join, F2 and F2' are the second moments, and 2^P is the number of counters.
        let error = bounds::median_deviations(shape.rows, 0.03) * (2.0 * product / width(shape)).sqrt();
        let most = product.sqrt().min(self.basics.values() as f64 * other.basics.values() as f64);
        Ok(Some(estimate(value.max(0.0).round(), value - error, value + error, 0.0, most)))
    }

    /// Checks that values of the two columns have equal hashes exactly if they are equal.
    fn expect_comparable(&self, other: &Sketch) -> Result<()> {
        let (one, two) = (&self.data_type, &other.data_type);
        let alike = match (one, two) {
            (DataType::Timestamp(unit, _), DataType::Timestamp(other, _)) => unit == other,
            (DataType::Decimal128(_, scale), DataType::Decimal128(_, other)) => scale == other,
            _ if one.is_integer() => two.is_integer() && !self.wraps(other) && !other.wraps(self),
            _ if one.is_floating() => two.is_floating(),
            _ => one == two,
        };
        if alike {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "values of {one} and of {two} are not hashed alike: their join is unknown"
        ))
        .advise("cast both columns to the same type"))
    }

    /// Returns whether this column has integers beyond 63 bits and the other one has negative integers: such a pair may
    /// have the same 8 bytes, and so the same hash.
    fn wraps(&self, other: &Sketch) -> bool {
        let beyond = |literal: &Literal| literal.as_int().is_some_and(|v| v > i64::MAX.into());
        let negative = |literal: &Literal| literal.as_int().is_some_and(|v| v < 0);
        self.maximum().is_some_and(beyond) && other.minimum().is_some_and(negative)
    }

    /// Judges how far the counts of Count-Min can be trusted; see [`Trust`].
    pub fn count_min_trust(&self) -> Trust {
        let Some(shape) = self.parameters.frequency else {
            let reason = "there is no Count-Min".to_string();
            return Trust { trusted: false, frequent_from: None, reason };
        };
        let evidence = trust::Evidence {
            rows: shape.rows,
            width: width(shape),
            values: self.basics.values() as f64,
            distinct: self.distinct().map(|estimate| estimate.high),
            second_moment: self.second_moment().map(|estimate| estimate.value),
        };
        evidence.verdict()
    }
}

/// Estimates of the frequencies of single values.
#[derive(Clone, Copy, Debug)]
pub struct Frequencies<'a> {
    sketch: &'a Sketch,
    judged: Judged,
}

impl Frequencies<'_> {
    /// Estimates the number of occurrences of `value`; `None` without Count-Min.
    ///
    /// # Errors
    /// `Invalid` when the value is not of the column's type.
    pub fn of(&self, value: &Literal) -> Result<Option<Estimate>> {
        self.sketch.expect_type(value.data_type())?;
        if value.is_null() {
            let nulls = self.sketch.basics.nulls as f64;
            return Ok(Some(Estimate { value: nulls, low: nulls, high: nulls, confidence: 1.0 }));
        }
        Ok(self.sketch.frequency_of(hash_of(value), self.judged))
    }
}

/// Properties of a whole sketch that the estimates of single values need.
#[derive(Clone, Copy, Debug)]
struct Judged {
    trusted: bool,
    /// Upper bound of the second moment.
    second_moment_most: Option<f64>,
    counted_exactly: bool,
}

fn width(shape: Counters) -> f64 {
    f64::from(1_u32 << shape.precision)
}

/// Returns an estimate with its value and bounds limited to the range from `least` to `most`, in which the true value
/// is certain to be.
fn estimate(value: f64, low: f64, high: f64, least: f64, most: f64) -> Estimate {
    let clamp = |v: f64| v.max(least).min(most);
    let (low, high) = (clamp(low), clamp(high));
    Estimate { value: clamp(value).max(low).min(high), low, high, confidence: CONFIDENCE }
}
