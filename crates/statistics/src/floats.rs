//! Order-preserving conversion of floats to integers, whose comparisons vectorise.

/// Converts the bits of a float to an integer that compares as the float does. All NaNs give the same integer, above
/// all numbers.
#[inline(always)]
pub(crate) fn float_order(bits: u64) -> i64 {
    let bits = if f64::from_bits(bits).is_nan() { f64::NAN.to_bits() & (u64::MAX >> 1) } else { bits } as i64;
    bits ^ ((bits >> 63) as u64 >> 1) as i64
}

/// Converts an integer of [`float_order`] back to its float.
pub(crate) fn float_of_order(order: i64) -> f64 {
    f64::from_bits((order ^ ((order >> 63) as u64 >> 1) as i64) as u64)
}
