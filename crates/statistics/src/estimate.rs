//! What a sketch answers: a value and how far the truth may be from it.

/// An answer that is true to within its bounds with a stated probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The most likely value.
    pub value: f64,
    /// The truth is no less, with probability `confidence`.
    pub low: f64,
    /// The truth is no more, with probability `confidence`.
    pub high: f64,
    /// The probability that the truth is in between; 1 where it is certain.
    pub confidence: f64,
}
