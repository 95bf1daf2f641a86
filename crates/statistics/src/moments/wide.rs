//! Integers of 384 bits, for exact sums of products: the sum of squares of 2^62 decimals of 38 digits, multiplied
//! by the number of rows, is less than 2^383 (M. Chiosa's thesis, ETH Zurich no. 29551, equation 3.2, without rounding).
//!
//! Invariant: nothing here panics. Results that do not fit wrap around, which happens only with corrupt states.

use std::cmp::Ordering;
use std::ops::{Add, Mul, Sub};

/// Number of 64-bit words of a [`Wide`].
pub(crate) const WORDS: usize = 6;

/// A signed integer of 384 bits in two's complement, the lowest word first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wide(pub(crate) [u64; WORDS]);

impl Wide {
    /// Converts words, the lowest first, to an integer. The sign of the last word is extended.
    #[inline]
    pub(crate) fn from_words(words: &[u64]) -> Wide {
        let sign = if words.last().is_some_and(|word| word.cast_signed() < 0) { u64::MAX } else { 0 };
        let mut all = [sign; WORDS];
        all[..words.len()].copy_from_slice(words);
        Wide(all)
    }

    /// Returns the exact product of two 128-bit integers.
    #[inline]
    pub(crate) fn product(a: i128, b: i128) -> Wide {
        let product = magnitude_product(a.unsigned_abs(), b.unsigned_abs());
        if (a < 0) == (b < 0) { product } else { Wide::default() - product }
    }

    /// Returns the lower 128 bits.
    #[inline]
    pub(crate) fn low_i128(self) -> i128 {
        (u128::from(self.0[0]) | u128::from(self.0[1]) << 64).cast_signed()
    }

    /// Multiplies by 2^(8 `bytes`).
    pub(crate) fn shifted_left(self, bytes: usize) -> Wide {
        let (words, bits) = (bytes / 8, 8 * (bytes % 8) as u32);
        let word = |k: usize| k.checked_sub(words).map_or(0, |k| self.0[k]);
        let below = |k: usize| k.checked_sub(words + 1).map_or(0, |k| self.0[k]);
        Wide(std::array::from_fn(|k| {
            if bits == 0 { word(k) } else { (word(k) << bits) | (below(k) >> (64 - bits)) }
        }))
    }

    pub(crate) fn is_negative(self) -> bool {
        self.0[WORDS - 1].cast_signed() < 0
    }

    /// Returns the absolute value as an unsigned number.
    fn magnitude(self) -> Wide {
        if self.is_negative() { Wide::default() - self } else { self }
    }

    /// Returns the nearest float; ties go to the even one.
    pub(crate) fn to_f64(self) -> f64 {
        let Wide(words) = self.magnitude();
        let Some(top) = words.iter().rposition(|word| *word != 0) else { return 0.0 };
        let shift = words[top].leading_zeros();
        let next = if top > 0 { words[top - 1] } else { 0 };
        let head = if shift == 0 { words[top] } else { (words[top] << shift) | (next >> (64 - shift)) };
        let rest = if shift == 0 { next } else { next << shift };
        let sticky = rest != 0 || words[..top.saturating_sub(1)].iter().any(|word| *word != 0);
        let exponent = 64 * top as u64 + 1023 - u64::from(shift);
        let value = (head | u64::from(sticky)) as f64 * f64::from_bits(exponent << 52);
        if self.is_negative() { -value } else { value }
    }

    /// Returns whether the absolute value is at most that of `bound`.
    pub(crate) fn within(self, bound: Wide) -> bool {
        let (left, right) = (self.magnitude(), bound.magnitude());
        left.0.iter().rev().cmp(right.0.iter().rev()) != Ordering::Greater
    }
}

/// Returns the product of two unsigned numbers, which is less than 2^256.
#[inline]
fn magnitude_product(a: u128, b: u128) -> Wide {
    let low = |value: u128| value & u128::from(u64::MAX);
    let (a0, a1, b0, b1) = (low(a), a >> 64, low(b), b >> 64);
    let bottom = a0 * b0;
    let (left, right, top) = (a0 * b1, a1 * b0, a1 * b1);
    let middle = (bottom >> 64) + low(left) + low(right);
    let upper = top + (left >> 64) + (right >> 64) + (middle >> 64);
    Wide([bottom as u64, middle as u64, upper as u64, (upper >> 64) as u64, 0, 0])
}

impl From<i128> for Wide {
    #[inline]
    fn from(value: i128) -> Wide {
        Wide::from_words(&[value as u64, (value >> 64) as u64])
    }
}

impl From<u128> for Wide {
    #[inline]
    fn from(value: u128) -> Wide {
        Wide([value as u64, (value >> 64) as u64, 0, 0, 0, 0])
    }
}

impl From<u64> for Wide {
    #[inline]
    fn from(value: u64) -> Wide {
        Wide([value, 0, 0, 0, 0, 0])
    }
}

impl Add for Wide {
    type Output = Wide;

    #[inline]
    fn add(self, other: Wide) -> Wide {
        let mut sum = Wide::default();
        let mut carry = 0;
        for k in 0..WORDS {
            let (partial, first) = self.0[k].overflowing_add(other.0[k]);
            let (total, second) = partial.overflowing_add(carry);
            sum.0[k] = total;
            carry = u64::from(first) + u64::from(second);
        }
        sum
    }
}

impl Sub for Wide {
    type Output = Wide;

    #[inline]
    fn sub(self, other: Wide) -> Wide {
        difference(self, other)
    }
}

#[inline]
fn difference(left: Wide, right: Wide) -> Wide {
    let mut difference = Wide::default();
    let mut borrow = 0;
    for k in 0..WORDS {
        let (partial, first) = left.0[k].overflowing_sub(right.0[k]);
        let (total, second) = partial.overflowing_sub(borrow);
        difference.0[k] = total;
        borrow = u64::from(first | second);
    }
    difference
}

impl Mul for Wide {
    type Output = Wide;

    /// Returns the lower 384 bits of the product.
    fn mul(self, other: Wide) -> Wide {
        let mut product = Wide::default();
        for i in 0..WORDS {
            let mut carry = 0u128;
            for j in 0..WORDS - i {
                let at = &mut product.0[i + j];
                let sum = u128::from(self.0[i]) * u128::from(other.0[j]) + u128::from(*at) + carry;
                *at = sum as u64;
                carry = sum >> 64;
            }
        }
        product
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn goes_to_the_nearest_float() {
        for value in [0i128, 1, -1, 1 << 53, (1 << 53) + 1, (1 << 54) + 6, i128::MAX, i128::MIN, -12345] {
            assert_eq!(Wide::from(value).to_f64(), value as f64, "{value}");
        }
        assert_eq!(Wide::product(i128::MAX, i128::MIN).to_f64(), i128::MAX as f64 * i128::MIN as f64);
        let halfway = Wide::from(1u64).shifted_left(40) + Wide::from(1u64).shifted_left(40);
        assert_eq!(halfway.to_f64(), 2f64.powi(321));
    }

    proptest! {
        #[test]
        fn calculates_as_128_bits_do(a in any::<i64>(), b in any::<i64>(), c in any::<i128>(), d in any::<i128>()) {
            let product = i128::from(a) * i128::from(b);
            prop_assert_eq!(Wide::from(i128::from(a)) * Wide::from(i128::from(b)), Wide::from(product));
            prop_assert_eq!(Wide::product(a.into(), b.into()), Wide::from(product));
            prop_assert_eq!(Wide::from(c / 2) + Wide::from(d / 2), Wide::from(c / 2 + d / 2));
            prop_assert_eq!(Wide::from(c / 2) - Wide::from(d / 2), Wide::from(c / 2 - d / 2));
            prop_assert_eq!(Wide::product(c, d), Wide::from(c) * Wide::from(d));
            prop_assert_eq!(Wide::from(c).to_f64(), c as f64);
            prop_assert_eq!(Wide::from(c).within(Wide::from(d)), c.unsigned_abs() <= d.unsigned_abs());
        }

        #[test]
        fn shifts_multiply(a in any::<i64>(), bytes in 0usize..15) {
            let power = Wide::from(1u128 << (8 * bytes));
            prop_assert_eq!(Wide::from(i128::from(a)).shifted_left(bytes), Wide::from(i128::from(a)) * power);
        }
    }
}
