//! Tests of numbers. Expected results for `long double` were computed with glibc on x86-64, which Redis uses there.

use super::super::big::BigNatural;
use crate::resp::{ExtendedFloat, INTEGER_TEXT_BYTES, double_text, integer_text, parse_integer};
use proptest::prelude::*;

#[test]
fn integers_have_one_text() {
    for text in ["0", "1", "-1", "10", "9223372036854775807", "-9223372036854775808"] {
        assert_eq!(parse_integer(text.as_bytes()), text.parse().ok(), "{text}");
    }
    for text in [
        "",
        "-",
        "-0",
        "+1",
        "00",
        "01",
        "-01",
        " 1",
        "1 ",
        "1.0",
        "1e3",
        "0x1",
        "a",
        "1a",
        "--1",
        "\u{664}",
        "9223372036854775808",
        "-9223372036854775809",
        "18446744073709551616",
        "123456789012345678901234567890",
    ] {
        assert_eq!(parse_integer(text.as_bytes()), None, "{text}");
    }
}

#[test]
fn doubles_have_their_shortest_text() {
    for (number, text) in [
        (0.0, "0"),
        (-0.0, "-0"),
        (3.0, "3"),
        (3.1, "3.1"),
        (-0.1, "-0.1"),
        (0.1 + 0.2, "0.30000000000000004"),
        (0.0001, "0.0001"),
        (0.000_012_5, "1.25e-05"),
        (1e16, "10000000000000000"),
        (1e17, "1e+17"),
        (1.5e300, "1.5e+300"),
        (5e-324, "5e-324"),
        (f64::MAX, "1.7976931348623157e+308"),
        (f64::NAN, "nan"),
    ] {
        assert_eq!(double_text(number), text);
    }
}

fn sum(a: &str, b: &str) -> Option<String> {
    let [a, b] = [a, b].map(|text| ExtendedFloat::parse(text.as_bytes()).expect("a number"));
    a.plus(b).map(ExtendedFloat::text)
}

#[test]
fn increments_give_the_texts_of_redis() {
    for (a, b, text) in INCREMENTS {
        assert_eq!(sum(a, b).as_deref(), Some(*text), "{a} + {b}");
        assert_eq!(sum(b, a).as_deref(), Some(*text), "{b} + {a}");
    }
}

const INCREMENTS: &[(&str, &str, &str)] = &[
    ("10.50", "0.1", "10.6"),
    ("10.6", "-5", "5.6"),
    ("5.0e3", "2.0e2", "5200"),
    ("0.1", "0.2", "0.3"),
    ("1.23", "0", "1.23"),
    ("1.23", "-1.23", "0"),
    ("1", "-1.1", "-0.1"),
    ("17179869184", "1.5", "17179869185.5"),
    ("-0", "-0", "0"),
    ("1e-18", "0", "0"),
    ("-1e-18", "0", "0"),
    ("0x10", "0x.8p1", "17"),
    ("+.5", "5.", "5.5"),
    ("3.14159265358979323846", "2.71828182845904523536", "5.85987448204883847"),
    ("-0.00000000000000001", "0.000000000000000009", "0"),
    ("123456789.123456789", "0.000000001", "123456789.12345678999554366"),
    ("9223372036854775807", "1", "9223372036854775808"),
    ("-9223372036854775808", "0.5", "-9223372036854775807.5"),
    ("18446744073709551615", "0.5", "18446744073709551616"),
    ("1e20", "-1", "100000000000000000000"),
    ("1e30", "1e10", "1000000000000000000024696061952"),
    ("-123456789012345678901234567890", "0.1", "-123456789012345678899921813504"),
    ("1e17", "0.12345", "100000000000000000.125"),
    ("100.1", "0.01", "100.11"),
    ("1000000.1", "0.2", "1000000.30000000000001137"),
    ("0.000000000000000015", "0", "0.00000000000000002"),
    ("0.000000000000000005", "0", "0"),
    ("4.9406564584124654e-324", "1e-4940", "0"),
    ("0.02439024390243902439", "-0.02439024390243902439", "0"),
    ("1e-19", "1e19", "10000000000000000000"),
    ("9007199254740993", "0.5", "9007199254740993.5"),
    ("2.5e-17", "-1e-17", "0.00000000000000001"),
    ("99999999999999999999999", "0.99999", "100000000000000000000000"),
    // Bits of an addend below the precision of the sum decide which of two results is nearer.
    ("18446744073709551620", "-0x1.0000000000000002p0", "18446744073709551618"),
    ("18446744073709551620", "-1", "18446744073709551620"),
    ("18446744073709551618", "0x1.0000000000000002p0", "18446744073709551620"),
    ("-18446744073709551618", "0x1.0000000000000002p0", "-18446744073709551616"),
];

#[test]
fn what_is_no_number_to_increment() {
    for text in [
        "",
        "-",
        "+",
        ".",
        "e1",
        "1e",
        "1e+",
        " 1",
        "1 ",
        "1.2.3",
        "1e1.5",
        "abc",
        "1a",
        "nan",
        "-nan",
        "NAN(1)",
        "0x",
        "0xp1",
        "0x1p",
        "--1",
        "1e4933",
        "1e-4970",
        "0x1p16384",
        "1e99999999999999999999",
        "1\0",
        "infinit",
    ] {
        assert_eq!(ExtendedFloat::parse(text.as_bytes()), None, "{text}");
    }
    assert_eq!(ExtendedFloat::parse(&[b'1'; 5 << 10]), None);
    let zeros = [&b"0."[..], &[b'0'; 5000], b"1e5000"].concat();
    assert_eq!(ExtendedFloat::parse(&zeros).unwrap().text(), "0.1");
}

#[test]
fn a_sum_that_is_not_finite_is_none() {
    for (a, b) in [("inf", "1"), ("1", "-Infinity"), ("inf", "-inf"), ("+INF", "0")] {
        assert_eq!(sum(a, b), None, "{a} + {b}");
    }
    let largest = "1.1897314953572317650e4932";
    assert_eq!(sum(largest, largest), None);
    assert_eq!(sum(largest, "-1").unwrap().len(), 4933);
}

#[test]
fn numbers_that_are_halfway_are_rounded_to_even() {
    // With a significand of 64 bits, 2⁶⁴ + 1 and 2⁶⁴ + 3 lie half way between two representable numbers.
    for (text, rounded) in [
        ("18446744073709551617", "18446744073709551616"),
        ("18446744073709551619", "18446744073709551620"),
        ("18446744073709551617.0000000000000000000000000000000000000001", "18446744073709551618"),
        ("18446744073709551616.9999999999999999999999999999999999999999", "18446744073709551616"),
        ("184467440737095516170e-1", "18446744073709551616"),
        ("0x1.0000000000000001p64", "18446744073709551616"),
        ("0x1.00000000000000010000000000000000000000000001p64", "18446744073709551618"),
        ("18446744073709551615", "18446744073709551615"),
        ("18446744073709551615.5", "18446744073709551616"),
    ] {
        assert_eq!(ExtendedFloat::parse(text.as_bytes()).unwrap().text(), rounded, "{text}");
    }
    // Rounding at the 17th digit of a text: 2⁻¹⁸ ends with a 5 at the 18th.
    assert_eq!(sum("0x1p-18", "0").unwrap(), "0.00000381469726562");
    assert_eq!(sum("0x3p-18", "0").unwrap(), "0.00001144409179688");
}

/// Returns the number that a decimal text stands for, as a multiple of 10⁻¹⁷.
fn units(text: &str) -> i128 {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    format!("{whole}{fraction:0<17}").parse().unwrap()
}

/// Formats a number divided by 10^`scale`.
fn decimal_text(number: i128, scale: usize) -> String {
    let digits = format!("{:0width$}", number.unsigned_abs(), width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    let text = format!("{whole}.{fraction}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if number < 0 && text != "0" { format!("-{text}") } else { text.to_string() }
}

proptest! {
    #[test]
    fn integers_are_read_as_written(number in prop_oneof![any::<i64>(), -2000..2000_i64]) {
        let mut buffer = [0; INTEGER_TEXT_BYTES];
        let text = integer_text(number, &mut buffer);
        prop_assert_eq!(std::str::from_utf8(text).unwrap(), &number.to_string());
        prop_assert_eq!(parse_integer(text), Some(number));
    }

    #[test]
    fn texts_are_integers_if_they_are_their_own_text(text in "[-+ 0]?[0-9]{0,21}") {
        let expected = text.parse::<i64>().ok().filter(|number| number.to_string() == text);
        prop_assert_eq!(parse_integer(text.as_bytes()), expected);
    }

    #[test]
    fn doubles_are_read_as_written(bits in any::<u64>()) {
        let number = f64::from_bits(bits);
        let text = double_text(number);
        prop_assert!(text.len() <= 24);
        let read: f64 = text.parse().unwrap();
        prop_assert!(read == number || (read.is_nan() && number.is_nan()));
    }

    #[test]
    fn sums_of_integers_are_exact(a in any::<i64>(), b in any::<i64>()) {
        let [x, y] = [a, b].map(ExtendedFloat::of_integer);
        prop_assert_eq!(ExtendedFloat::parse(a.to_string().as_bytes()), Some(x));
        prop_assert_eq!(x.plus(y).unwrap().text(), (i128::from(a) + i128::from(b)).to_string());
    }

    #[test]
    fn sums_of_decimals_are_as_exact_as_64_bits(
        a in -10_i128.pow(16)..10_i128.pow(16),
        b in -10_i128.pow(16)..10_i128.pow(16),
        scale in 0..16_usize,
    ) {
        let text = sum(&decimal_text(a, scale), &decimal_text(b, scale)).unwrap();
        let unit = 10_i128.pow(17 - scale as u32);
        let error = (units(&text) - (a + b) * unit).abs();
        prop_assert!(error <= ((a.abs().max(b.abs()) * unit) >> 61) + 1);
        prop_assert_eq!(sum(&text, "0").unwrap(), text);
    }

    /// Parsing two decimals and adding them makes three rounding errors of at most half a unit in the last place.
    /// Together they are less than half of the last printed digit, so sums of small decimals are printed exactly.
    #[test]
    fn sums_of_small_decimals_are_exact(
        a in -16 * 10_i128.pow(15)..16 * 10_i128.pow(15),
        b in -16 * 10_i128.pow(15)..16 * 10_i128.pow(15),
    ) {
        prop_assert_eq!(sum(&decimal_text(a, 15), &decimal_text(b, 15)), Some(decimal_text(a + b, 15)));
    }

    #[test]
    fn big_numbers_divide_as_small_ones(a in any::<u64>(), b in 1..=u64::MAX, shift in 0..60_usize) {
        let (mut big, by) = (BigNatural::of(a), BigNatural::of(b));
        prop_assert_eq!(big.bits(), 64 - a.leading_zeros() as usize);
        big.shift_left(shift);
        let number = u128::from(a) << shift;
        prop_assert_eq!(big.to_u128(), Some(number));
        prop_assert_eq!(big.clone().into_text(), number.to_string());
        let exact = (number / u128::from(b), number % u128::from(b) != 0);
        prop_assert_eq!(big.clone().divide(&by), exact);
        let is_inexact = big.shift_right(7);
        prop_assert_eq!((big.to_u128(), is_inexact), (Some(number >> 7), number & 127 != 0));
    }
}
