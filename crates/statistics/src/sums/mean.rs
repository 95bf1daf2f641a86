//! Means of decimals: the quotient of an exact sum and a count, rounded half away from zero. The pool, the engine, and
//! the merging of partial results all use this rule.

use arrow_buffer::i256;

/// Returns the mean of `count` decimals with the sum `sum`, multiplied by `factor`; `None` if it does not fit 128 bits,
/// or `count` is 0.
pub fn mean_of_decimals(sum: i128, count: i64, factor: i128) -> Option<i128> {
    // The narrow division is an order of magnitude faster, and fails only for enormous factors and means.
    let narrow = || {
        let divisor = i128::from(count);
        let (whole, rest) = (sum.checked_div(divisor)?, sum.checked_rem(divisor)?);
        let scaled = rest.checked_mul(factor)?;
        let (part, left) = (scaled / divisor, scaled % divisor);
        let away = i128::from(2 * left.unsigned_abs() >= divisor.unsigned_abs()) * left.signum();
        whole.checked_mul(factor)?.checked_add(part)?.checked_add(away)
    };
    narrow().or_else(|| mean_of_wide_decimals(i256::from_i128(sum), count, factor)?.to_i128())
}

/// Returns a mean as [`mean_of_decimals`] does, for a sum of 256 bits. `factor` must be positive.
pub fn mean_of_wide_decimals(sum: i256, count: i64, factor: i128) -> Option<i256> {
    let (divisor, factor) = (i256::from_i128(count.into()), i256::from_i128(factor));
    let (whole, rest) = (sum.checked_div(divisor)?, sum.checked_rem(divisor)?);
    // The remainder has less than 64 bits and the factor less than 128, so the product fits.
    let scaled = rest.wrapping_mul(factor);
    let (part, left) = (scaled.checked_div(divisor)?, scaled.checked_rem(divisor)?);
    let is_away = left.wrapping_abs().wrapping_mul(i256::from_i128(2)) >= divisor;
    let away = if is_away { left.signum() } else { i256::ZERO };
    whole.checked_mul(factor)?.checked_add(part)?.checked_add(away)
}
