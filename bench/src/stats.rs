//! Statistics of measured times: medians, and percentiles if slow runs matter.

/// Returns the median; NaN for no values.
pub fn median(times: &[f64]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (low, high) = (sorted.len().saturating_sub(1) / 2, sorted.len() / 2);
    match sorted.get(low).zip(sorted.get(high)) {
        Some((low, high)) => f64::midpoint(*low, *high),
        None => f64::NAN,
    }
}

/// Returns the median of a value of each sample; NaN for no samples.
pub fn median_of<S>(samples: &[S], value: impl Fn(&S) -> f64) -> f64 {
    median(&samples.iter().map(value).collect::<Vec<_>>())
}

/// Returns the geometric mean; `None` for no values.
pub fn geometric_mean(values: &[f64]) -> Option<f64> {
    let sum: f64 = values.iter().map(|value| value.ln()).sum();
    (!values.is_empty()).then(|| (sum / values.len() as f64).exp())
}

/// Returns the smallest of `times` that at least the share `part` of them do not exceed; NaN for no values.
pub fn percentile(times: &[f64], part: f64) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = (part * sorted.len() as f64).ceil() as usize;
    sorted.get(place.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::{geometric_mean, median, percentile};

    #[test]
    fn percentiles_are_times_that_were_measured() {
        let times: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        assert_eq!((percentile(&times, 0.99), percentile(&times, 1.0)), (198.0, 200.0));
        assert_eq!(percentile(&[7.0], 0.99), 7.0);
        assert!(percentile(&[], 0.5).is_nan());
    }

    #[test]
    fn a_half_and_a_double_cancel_in_the_geometric_mean() {
        let mean = geometric_mean(&[0.5, 2.0, 1.0]).expect("there are values");
        assert!((mean - 1.0).abs() < 1e-12, "{mean}");
        assert_eq!(geometric_mean(&[]), None);
    }

    #[test]
    fn the_middle_of_odd_even_and_no_times() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(&[7.0]), 7.0);
        assert!(median(&[]).is_nan());
    }
}
