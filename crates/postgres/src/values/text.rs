//! Numbers, strings and arrays as text, as PostgreSQL's output functions write them.

use super::calendar::put_integer;
use bytes::{BufMut, BytesMut};
use std::fmt::Write;

/// Decimal exponents from which a float is written with an exponent: those of PostgreSQL (`float8out` and `float4out`
/// with `extra_float_digits` of at least 1).
const DOUBLE_DIGITS: i32 = 15;
const SINGLE_DIGITS: i32 = 6;

/// Appends a double as the shortest text that reads back as the same value.
pub(super) fn put_double(out: &mut BytesMut, value: f64) {
    let mut digits = Digits::default();
    // Writing to the buffer does not fail: the shortest form of a double has 24 characters.
    let _ = write!(digits, "{value:e}");
    put_float(out, &digits, value.is_finite(), DOUBLE_DIGITS);
}

/// Appends a single-precision float as the shortest text that reads back as the same value.
pub(super) fn put_single(out: &mut BytesMut, value: f32) {
    let mut digits = Digits::default();
    let _ = write!(digits, "{value:e}");
    put_float(out, &digits, value.is_finite(), SINGLE_DIGITS);
}

/// A float in the form `-1.2345e-6`, or `NaN`, `inf` and `-inf`.
#[derive(Default)]
struct Digits {
    bytes: [u8; 32],
    len: usize,
}

impl Write for Digits {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let room = self.bytes.get_mut(self.len..self.len + text.len()).ok_or(std::fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.len += text.len();
        Ok(())
    }
}

/// Appends a float that was written with an exponent, in the way of `%g`: with an exponent only if it is less than -4
/// or at least `digits_max`.
fn put_float(out: &mut BytesMut, digits: &Digits, is_finite: bool, digits_max: i32) {
    let written = &digits.bytes[..digits.len];
    if !is_finite {
        out.put_slice(match written {
            b"inf" => b"Infinity",
            b"-inf" => b"-Infinity",
            _ => b"NaN",
        });
        return;
    }
    let (sign, written) = match written.split_first() {
        Some((b'-', rest)) => (true, rest),
        _ => (false, written),
    };
    let e = written.iter().position(|byte| *byte == b'e').unwrap_or(written.len());
    let exponent = std::str::from_utf8(written.get(e + 1..).unwrap_or_default()).unwrap_or_default();
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let first = &written[..1.min(e)];
    let others = written.get(2..e).unwrap_or_default();
    if sign {
        out.put_u8(b'-');
    }
    if !(-4..digits_max).contains(&exponent) {
        out.put_slice(first);
        if !others.is_empty() {
            out.put_u8(b'.');
            out.put_slice(others);
        }
        out.put_slice(if exponent < 0 { b"e-" } else { b"e+" });
        if exponent.abs() < 10 {
            out.put_u8(b'0');
        }
        put_integer(out, exponent.abs().into());
        return;
    }
    if exponent < 0 {
        out.put_slice(b"0.");
        (1..-exponent).for_each(|_| out.put_u8(b'0'));
        out.put_slice(first);
        out.put_slice(others);
        return;
    }
    let whole = usize::try_from(exponent).unwrap_or(0);
    out.put_slice(first);
    out.put_slice(&others[..whole.min(others.len())]);
    (others.len()..whole).for_each(|_| out.put_u8(b'0'));
    if others.len() > whole {
        out.put_u8(b'.');
        out.put_slice(&others[whole..]);
    }
}

/// Appends a decimal of this scale.
pub(super) fn put_decimal(out: &mut BytesMut, value: i128, scale: i8) {
    if value < 0 {
        out.put_u8(b'-');
    }
    let mut buffer = itoa::Buffer::new();
    let digits = buffer.format(value.unsigned_abs()).as_bytes();
    let Ok(scale) = usize::try_from(scale) else {
        out.put_slice(digits);
        if value != 0 {
            (0..scale.unsigned_abs()).for_each(|_| out.put_u8(b'0'));
        }
        return;
    };
    if digits.len() > scale {
        let (whole, fraction) = digits.split_at(digits.len() - scale);
        out.put_slice(whole);
        if !fraction.is_empty() {
            out.put_u8(b'.');
            out.put_slice(fraction);
        }
    } else {
        out.put_slice(b"0.");
        (digits.len()..scale).for_each(|_| out.put_u8(b'0'));
        out.put_slice(digits);
    }
}

/// Appends bytes in hexadecimal (`bytea_output` `hex`).
pub(super) fn put_bytes(out: &mut BytesMut, bytes: &[u8]) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.reserve(2 + 2 * bytes.len());
    out.put_slice(b"\\x");
    for byte in bytes {
        out.put_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
    }
}

/// Appends a value of an array, in quotes if the text needs them (`array_out`).
pub(super) fn put_element(out: &mut BytesMut, text: &[u8]) {
    let is_plain = !text.is_empty()
        && !text.eq_ignore_ascii_case(b"null")
        && !text.iter().any(|byte| matches!(byte, b'{' | b'}' | b',' | b'"' | b'\\' | b' ' | 9..=13));
    if is_plain {
        out.put_slice(text);
        return;
    }
    out.put_u8(b'"');
    for byte in text {
        if matches!(byte, b'"' | b'\\') {
            out.put_u8(b'\\');
        }
        out.put_u8(*byte);
    }
    out.put_u8(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shown(put: impl FnOnce(&mut BytesMut)) -> String {
        let mut out = BytesMut::new();
        put(&mut out);
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn floats_are_those_of_postgresql() {
        let double = |value| shown(|out| put_double(out, value));
        for (value, expected) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (0.1, "0.1"),
            (-12.5, "-12.5"),
            (100_000.0, "100000"),
            (123_456_789_012_345.0, "123456789012345"),
            (1e15, "1e+15"),
            (1.234_567_890_123_456_8e17, "1.2345678901234568e+17"),
            (0.0001, "0.0001"),
            (0.000_012_3, "1.23e-05"),
            (1e-300, "1e-300"),
            (f64::MAX, "1.7976931348623157e+308"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "Infinity"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            assert_eq!(double(value), expected);
        }
        let single = |value| shown(|out| put_single(out, value));
        assert_eq!(single(0.1), "0.1");
        assert_eq!(single(123_456.0), "123456");
        assert_eq!(single(1_000_000.0), "1e+06");
        assert_eq!(single(3.402_823_5e38), "3.4028235e+38");
    }

    #[test]
    fn decimals_keep_their_scale() {
        let decimal = |value, scale| shown(|out| put_decimal(out, value, scale));
        assert_eq!(decimal(12_345, 2), "123.45");
        assert_eq!(decimal(-5, 3), "-0.005");
        assert_eq!(decimal(0, 2), "0.00");
        assert_eq!(decimal(7, 0), "7");
        assert_eq!(decimal(7, -2), "700");
        assert_eq!(decimal(0, -2), "0");
        assert_eq!(decimal(i128::MIN, 38), "-1.70141183460469231731687303715884105728");
    }

    #[test]
    fn elements_are_quoted_where_they_must_be() {
        for (text, expected) in [
            ("a", "a"),
            ("", "\"\""),
            ("NULL", "\"NULL\""),
            ("a b", "\"a b\""),
            ("a\"\\", "\"a\\\"\\\\\""),
            ("{1,2}", "\"{1,2}\""),
        ] {
            assert_eq!(shown(|out| put_element(out, text.as_bytes())), expected);
        }
        assert_eq!(shown(|out| put_bytes(out, &[0, 0xab, 255])), "\\x00abff");
    }

    proptest! {
        #[test]
        fn floats_read_back(value in any::<f64>(), single in any::<f32>()) {
            let text = shown(|out| put_double(out, value));
            prop_assert_eq!(text.parse::<f64>().unwrap().to_bits(), value.to_bits());
            let text = shown(|out| put_single(out, single));
            prop_assert_eq!(text.parse::<f32>().unwrap().to_bits(), single.to_bits());
        }
    }
}
