//! Parses and writes integers and doubles in Redis' text form. For the numbers of `INCRBYFLOAT` see
//! [`super::ExtendedFloat`].

/// Maximum bytes of the decimal text of an `i64`.
pub const INTEGER_TEXT_BYTES: usize = 20;

/// Parses an integer as Redis' `string2ll` does: no spaces, no plus sign, no leading zeros, no `-0`, so that each
/// integer has one text. Returns `None` for anything else, and for numbers out of range.
pub fn parse_integer(text: &[u8]) -> Option<i64> {
    let (is_negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [b'0'] if !is_negative => return Some(0),
        [b'1'..=b'9', ..] if digits.len() < INTEGER_TEXT_BYTES => {}
        _ => return None,
    }
    let add = |number: i64, digit: &u8| match (digit, is_negative) {
        (b'0'..=b'9', false) => number.checked_mul(10)?.checked_add(i64::from(digit - b'0')),
        (b'0'..=b'9', true) => number.checked_mul(10)?.checked_sub(i64::from(digit - b'0')),
        _ => None,
    };
    digits.iter().try_fold(0, add)
}

/// Writes an integer into `buffer`; returns its text.
pub fn integer_text(number: i64, buffer: &mut [u8; INTEGER_TEXT_BYTES]) -> &[u8] {
    let start = write_before(number, buffer);
    &buffer[start..]
}

/// Writes an integer at the end of `buffer`, which has at least [`INTEGER_TEXT_BYTES`] bytes; returns its start.
#[inline]
pub(super) fn write_before(number: i64, buffer: &mut [u8]) -> usize {
    let mut at = buffer.len();
    let mut rest = number.unsigned_abs();
    loop {
        at -= 1;
        buffer[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if number < 0 {
        at -= 1;
        buffer[at] = b'-';
    }
    at
}

/// Returns the shortest text that reads back as `number`, at most 17 digits, formatted like C's `%.17g`: with an
/// exponent below 10⁻⁴ and from 10¹⁷ on. Infinities are `inf` and `-inf`; NaN is `nan`.
pub fn double_text(number: f64) -> String {
    if number.is_nan() {
        return "nan".to_string();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_string();
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    match exponent.parse::<i32>().unwrap_or(0) {
        // Rust formats `f64` without an exponent, with the fewest digits.
        -4..17 => number.to_string(),
        exponent if exponent < 0 => format!("{digits}e-{:02}", -exponent),
        exponent => format!("{digits}e+{exponent:02}"),
    }
}
