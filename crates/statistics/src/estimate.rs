//! Answers of sketches: an estimated value with its error bounds.

/// An estimate, and bounds within which the true value lies with a stated probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Most likely value.
    pub value: f64,
    /// Lower bound of the true value.
    pub low: f64,
    /// Upper bound of the true value.
    pub high: f64,
    /// Probability that the true value is within the bounds; 1 if the estimate is exact.
    pub confidence: f64,
}
