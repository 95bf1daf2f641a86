//! Error bounds of the answers of sketches. The bounds of Count-Min and Fast-AGMS hold for any data: they follow from
//! Markov's and Chebyshev's inequalities for each row of counters, and the probability that enough rows are wrong at
//! once. Typical errors are a third of these bounds. The bound of HyperLogLog is the usual normal approximation.
//!
//! Sources: Cormode and Muthukrishnan 2005 (Count-Min), Cormode and Garofalakis 2005 (Fast-AGMS), Flajolet
//! et al. 2007 (HyperLogLog).

/// Probability with which the error bounds hold.
pub(crate) const CONFIDENCE: f64 = 0.95;

/// Returns the number of standard deviations such that the median of `rows` rows of counters is off by more than
/// that, in one of the two directions, with a probability of at most `failure`.
pub(crate) fn median_deviations(rows: u8, failure: f64) -> f64 {
    // The median is off to one side only if at least half of the rows are.
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if at_least_half(rows, middle) <= failure / 2.0 { low = middle } else { high = middle }
    }
    // Cantelli's inequality: one row is k deviations off to one side with a probability of at most 1 / (1 + k²).
    (1.0 / low - 1.0).max(0.0).sqrt()
}

/// Returns the probability that at least half of `rows` independent events, each of probability `p`, happen.
fn at_least_half(rows: u8, p: f64) -> f64 {
    let choose = |k: u8| (0..k).fold(1.0, |c, i| c * f64::from(rows - i) / f64::from(i + 1));
    let exactly = |k: u8| choose(k) * p.powi(k.into()) * (1.0 - p).powi((rows - k).into());
    (rows.div_ceil(2)..=rows).map(exactly).sum()
}

/// Returns the factor such that the overcounts of a value in all `rows` rows of counters exceed that many times their
/// mean with a probability of at most `failure`.
pub(crate) fn minimum_excess(rows: u8, failure: f64) -> f64 {
    // Markov's inequality: the overcount in one row is at least a times its mean with a probability of at most 1 / a.
    failure.powf(-1.0 / f64::from(rows))
}

/// Returns the relative error of a HyperLogLog with 2^`precision` registers, at [`CONFIDENCE`].
pub(crate) fn distinct_error(precision: u8) -> f64 {
    1.96 * 1.04 / f64::from(1_u32 << precision).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_rows_bring_the_median_nearer() {
        let one = median_deviations(1, 0.05);
        assert!((one - 39_f64.sqrt()).abs() < 1e-9, "one row is Cantelli's inequality: {one}");
        let six = median_deviations(6, 0.05);
        assert!((2.7..3.0).contains(&six), "{six}");
        assert!(median_deviations(9, 0.05) < six);
        assert!((minimum_excess(6, 1.0 / 64.0) - 2.0).abs() < 1e-12, "the thesis: 2^-R for twice the mean");
        assert!((distinct_error(16) - 0.00796).abs() < 1e-4);
    }
}
