//! Spread of a column (frequent values, histogram, quantiles) in the description of a table. It is small enough to be
//! sent with every description.

use super::ColumnProfile;
use crate::{Estimate, Histogram, Quantile, Sketch};
use farpool_model::{Literal, Spread, Value, limits};

/// Maximum relative error of the frequency of a value that is reported as frequent.
const UNCERTAINTY_MAX: f64 = 0.25;

impl ColumnProfile {
    /// Returns the values that are certain to be frequent, a histogram with few bins, and quantiles; `None` if there
    /// are none of these.
    pub fn spread(&self) -> Option<Spread> {
        let mut spread = Spread { frequent: frequent(&self.sketch), ..Spread::default() };
        if let Some(histogram) = &self.histogram {
            put_bins(&mut spread, histogram);
        }
        put_quantiles(&mut spread, &self.sketch);
        (!spread.frequent.is_empty() || !spread.bins.is_empty() || !spread.quantiles.is_empty())
            .then_some(spread)
    }
}

fn frequent(sketch: &Sketch) -> Vec<(Literal, u64)> {
    let certain = |estimate: &Estimate| estimate.high - estimate.low <= UNCERTAINTY_MAX * estimate.value;
    let top = sketch.top(limits::SPREAD_FREQUENT_MAX).into_iter();
    let kept = top.filter(|(value, estimate)| certain(estimate) && is_short(value));
    kept.map(|(value, estimate)| (value, estimate.value as u64)).collect()
}

fn is_short(value: &Literal) -> bool {
    match value.value() {
        Value::Text(text) => text.len() <= limits::SPREAD_VALUE_BYTES_MAX,
        Value::Bytes(bytes) => bytes.len() <= limits::SPREAD_VALUE_BYTES_MAX,
        _ => true,
    }
}

fn put_bins(spread: &mut Spread, histogram: &Histogram) {
    let bins = histogram.bins(limits::SPREAD_BINS_MAX);
    let Some(first) = bins.first() else { return };
    let width = first.high - first.low;
    // The width of a bin may overflow if the values are near the end of the range of floats.
    if first.low.is_finite() && width.is_finite() && width > 0.0 && bins.len() <= limits::SPREAD_BINS_MAX {
        (spread.low, spread.width) = (first.low, width);
        spread.bins = bins.iter().map(|bin| bin.count).collect();
    }
}

fn put_quantiles(spread: &mut Spread, sketch: &Sketch) {
    let parts = limits::SPREAD_QUANTILES_MAX + 1;
    let shares: Vec<f64> = (1..parts).map(|part| part as f64 / parts as f64).collect();
    let (Some(quantiles), Some(error)) = (sketch.quantiles(&shares), sketch.quantile_error()) else { return };
    let number = |quantile: &Quantile| match quantile.value.value() {
        Value::Int(value) => *value as f64,
        Value::Float(value) if value.is_nan() => f64::INFINITY,
        Value::Float(value) => *value,
        // Other types have no distance between values, and so no quantiles.
        _ => f64::INFINITY,
    };
    (spread.quantiles, spread.quantile_error) = (quantiles.iter().map(number).collect(), error);
}
