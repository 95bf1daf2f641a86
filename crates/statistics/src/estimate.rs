//! The answer of a sketch: a value and its error bounds.

/// An answer that is true to within its bounds with a stated probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The most likely value.
    pub value: f64,
    /// The truth is no less, with probability `confidence`.
    pub low: f64,
    /// The truth is no more, with probability `confidence`.
    pub high: f64,
    /// The probability that the true value is within the bounds; 1 where it is exact.
    pub confidence: f64,
}
