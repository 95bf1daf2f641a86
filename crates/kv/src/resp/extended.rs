//! Numbers of `INCRBYFLOAT` and `HINCRBYFLOAT`: x87's 80-bit floats emulated with integers, so that an increment gives
//! the same text as in Redis, on every machine. Doubles are not precise enough: 0.1 + 0.2 must give 0.3.
//!
//! Parsing and addition round to nearest, ties to even (IEEE 754). Subnormal numbers keep all their bits, which is not
//! observable, as texts have at most 17 digits after the point.

use super::big::BigNatural;
use std::cmp::Reverse;

/// Number of bytes from which on the text of a number is too long; Redis' `MAX_LONG_DOUBLE_CHARS`.
const TEXT_BYTES_END: usize = 5 << 10;

/// Maximum number of digits after the decimal point in the text of a number.
const DECIMALS: u32 = 17;

/// Binary exponents of the smallest positive number, and of the first bit of the largest.
const EXPONENTS: std::ops::RangeInclusive<i64> = -16445..=16383;

/// A number as Redis increments it: 64 significant bits, exponents of two up to 16383.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtendedFloat {
    is_negative: bool,
    magnitude: Magnitude,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Magnitude {
    Zero,
    /// `significand` × 2^`exponent`; the first bit of the significand is set.
    Finite {
        significand: u64,
        exponent: i64,
    },
    Infinite,
}

impl ExtendedFloat {
    /// Parses a number as Redis does with C's `strtold`: an optional sign, then decimal or, after `0x`, hexadecimal
    /// digits with a point and an exponent, or `inf` or `infinity`; no spaces. Returns `None` for anything else, for
    /// `nan`, and for numbers out of range.
    pub fn parse(text: &[u8]) -> Option<Self> {
        if text.len() >= TEXT_BYTES_END {
            return None;
        }
        let (is_negative, text) = match text {
            [sign @ (b'-' | b'+'), rest @ ..] => (*sign == b'-', rest),
            _ => (false, text),
        };
        if text.eq_ignore_ascii_case(b"inf") || text.eq_ignore_ascii_case(b"infinity") {
            return Some(Self { is_negative, magnitude: Magnitude::Infinite });
        }
        let magnitude = match text {
            [b'0', b'x' | b'X', digits @ ..] => Literal::parse(digits, 16)?.hexadecimal()?,
            digits => Literal::parse(digits, 10)?.decimal()?,
        };
        Some(Self { is_negative, magnitude })
    }

    /// Converts an integer exactly.
    pub fn of_integer(number: i64) -> Self {
        let magnitude = rounded(number.unsigned_abs().into(), false, 0).unwrap_or(Magnitude::Zero);
        Self { is_negative: number < 0, magnitude }
    }

    /// Adds two numbers. Returns `None` if the result is not finite.
    pub fn plus(self, other: Self) -> Option<Self> {
        match (self.magnitude, other.magnitude) {
            (Magnitude::Infinite, _) | (_, Magnitude::Infinite) => None,
            (_, Magnitude::Zero) => Some(self),
            (Magnitude::Zero, _) => Some(other),
            (
                Magnitude::Finite { significand: a, exponent: a_exponent },
                Magnitude::Finite { significand: b, exponent: b_exponent },
            ) => {
                let mut terms = [(a_exponent, a, self.is_negative), (b_exponent, b, other.is_negative)];
                terms.sort_by_key(|&(exponent, significand, _)| Reverse((exponent, significand)));
                add(terms[0], terms[1])
            }
        }
    }

    /// Returns the text that Redis stores: no exponent, up to 17 digits after the point, rounded, without trailing
    /// zeros, no negative zero.
    pub fn text(self) -> String {
        let digits = match self.magnitude {
            Magnitude::Zero => return "0".to_string(),
            Magnitude::Infinite => "inf".to_string(),
            Magnitude::Finite { significand, exponent } if exponent >= 0 => {
                let mut number = BigNatural::of(significand);
                number.shift_left(exponent as usize);
                number.into_text()
            }
            Magnitude::Finite { significand, exponent } => {
                fraction_text(significand, exponent.unsigned_abs())
            }
        };
        if self.is_negative && digits != "0" { format!("-{digits}") } else { digits }
    }
}

/// Adds two terms, each given as exponent, significand and sign; the first has the larger or equal magnitude.
fn add(a: (i64, u64, bool), b: (i64, u64, bool)) -> Option<ExtendedFloat> {
    // Shifted so that one bit is left for the carry of the addition.
    let (high, low) = (u128::from(a.1) << 63, u128::from(b.1) << 63);
    let distance = (a.0 - b.0).min(127) as u32;
    let is_inexact = low & ((1 << distance) - 1) != 0;
    let low = low >> distance;
    let is_difference = a.2 != b.2;
    // Bits cut off from the smaller term make a difference smaller.
    let bits = if is_difference { high - low - u128::from(is_inexact) } else { high + low };
    let magnitude = rounded(bits, is_inexact, a.0 - 63)?;
    Some(ExtendedFloat { is_negative: a.2, magnitude })
}

/// Rounds `bits` × 2^`exponent` to 64 bits. `is_inexact` says that the true number is larger by less than the last bit;
/// there are more than 65 bits in that case. Returns `None` on overflow; underflow gives zero.
fn rounded(bits: u128, is_inexact: bool, exponent: i64) -> Option<Magnitude> {
    if bits == 0 {
        return Some(Magnitude::Zero);
    }
    let zeros = bits.leading_zeros();
    let bits = bits << zeros;
    let (high, low) = ((bits >> 64) as u64, bits as u64);
    let is_odd = high & 1 == 1;
    let is_up = low > 1 << 63 || (low == 1 << 63 && (is_inexact || is_odd));
    let exponent = exponent + 64 - i64::from(zeros);
    let (significand, exponent) = match high.checked_add(u64::from(is_up)) {
        Some(significand) => (significand, exponent),
        None => (1 << 63, exponent + 1),
    };
    match exponent + 63 {
        first if first > *EXPONENTS.end() => None,
        first if first < *EXPONENTS.start() => Some(Magnitude::Zero),
        _ => Some(Magnitude::Finite { significand, exponent }),
    }
}

/// Returns the decimal text of the fraction `significand` / 2^`places`.
fn fraction_text(significand: u64, places: u64) -> String {
    let one = 10_u128.pow(DECIMALS);
    // The product is below 2¹²¹, so it does not overflow.
    let scaled = u128::from(significand) * one;
    let number = match places {
        0..128 => {
            let (whole, rest) = (scaled >> places, scaled & ((1 << places) - 1));
            let half = (1 << places) >> 1;
            whole + u128::from(rest > half || (rest == half && whole & 1 == 1))
        }
        _ => 0,
    };
    let text = format!("{}.{:017}", number / one, number % one);
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

/// A parsed number: its digits as an integer, and the exponent of the power of ten (of two, for hexadecimal digits) to
/// multiply them by.
struct Literal {
    digits: BigNatural,
    exponent: i64,
}

impl Literal {
    /// Parses digits with at most one point, and an exponent.
    fn parse(text: &[u8], radix: u32) -> Option<Self> {
        let (mark, digit_exponent) = if radix == 16 { (b'p', 4) } else { (b'e', 1) };
        let end = text.iter().position(|byte| byte.to_ascii_lowercase() == mark).unwrap_or(text.len());
        let mut exponent = if end < text.len() { parse_exponent(&text[end + 1..])? } else { 0 };
        let (mut digits, mut has_digits, mut has_point) = (BigNatural::default(), false, false);
        // Digits are added in groups, as texts may be long.
        let (mut group, mut base) = (0, 1);
        for &byte in &text[..end] {
            if byte == b'.' && !has_point {
                has_point = true;
                continue;
            }
            (group, base) = (group * radix + char::from(byte).to_digit(radix)?, base * radix);
            if base > u32::MAX / radix {
                digits.multiply_add(base, group);
                (group, base) = (0, 1);
            }
            has_digits = true;
            exponent -= if has_point { digit_exponent } else { 0 };
        }
        digits.multiply_add(base, group);
        has_digits.then_some(Self { digits, exponent })
    }

    fn hexadecimal(self) -> Option<Magnitude> {
        let is_zero = self.digits.is_zero();
        let magnitude = of_big(self.digits, false, self.exponent)?;
        (is_zero || magnitude != Magnitude::Zero).then_some(magnitude)
    }

    fn decimal(self) -> Option<Magnitude> {
        if self.digits.is_zero() {
            return Some(Magnitude::Zero);
        }
        // Rejects numbers far out of range before computing them.
        let places = self.digits.bits() as i64 * 30_103 / 100_000 + self.exponent;
        if !(-5_000..=5_000).contains(&places) {
            return None;
        }
        let Self { digits: mut number, exponent } = self;
        let magnitude = if exponent >= 0 {
            number.multiply_by_tens(exponent as usize);
            of_big(number, false, 0)?
        } else {
            let mut divisor = BigNatural::of(1);
            divisor.multiply_by_tens(exponent.unsigned_abs() as usize);
            // Shifts the dividend so that the quotient has 67 or 68 bits, enough to round it to 64.
            let shift = (divisor.bits() + 67).saturating_sub(number.bits());
            number.shift_left(shift);
            let spare = number.bits() - divisor.bits() - 67;
            divisor.shift_left(spare);
            let (quotient, is_inexact) = number.divide(&divisor);
            rounded(quotient, is_inexact, spare as i64 - shift as i64)?
        };
        (magnitude != Magnitude::Zero).then_some(magnitude)
    }
}

/// Rounds `number` × 2^`exponent`.
fn of_big(mut number: BigNatural, is_inexact: bool, exponent: i64) -> Option<Magnitude> {
    let spare = number.bits().saturating_sub(128);
    let is_inexact = number.shift_right(spare) || is_inexact;
    rounded(number.to_u128()?, is_inexact, exponent + spare as i64)
}

/// Parses an exponent; one out of range is clamped to a value that is still out of range.
fn parse_exponent(text: &[u8]) -> Option<i64> {
    let (is_negative, digits) = match text {
        [sign @ (b'-' | b'+'), rest @ ..] => (*sign == b'-', rest),
        _ => (false, text),
    };
    let add = |number: i64, digit: &u8| {
        digit.is_ascii_digit().then(|| (number * 10 + i64::from(digit - b'0')).min(1_000_000))
    };
    let exponent = digits.iter().try_fold(0, add)?;
    (!digits.is_empty()).then_some(if is_negative { -exponent } else { exponent })
}
