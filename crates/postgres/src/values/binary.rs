//! Values in binary, as PostgreSQL's send functions write them (`numeric_send`, `array_send` and others).

use bytes::{BufMut, BytesMut};

/// The sign field of a negative numeric, and of one that is not a number.
pub(super) const NEGATIVE: u16 = 0x4000;
pub(super) const NOT_A_NUMBER: u16 = 0xC000;

/// The base of the digits of a numeric, and its number of decimal digits.
const BASE: u64 = 10_000;
const BASE_DIGITS: usize = 4;

/// Maximum number of digits of a decimal of 256 bits in base 10,000: 77 decimal digits, of which the point may cut a
/// group in two, and up to 76 zeros behind them.
const GROUPS_MAX: usize = 40;

/// Appends a decimal of this scale as a numeric: its digits in base 10,000, aligned at the point, without the zeros at
/// both ends.
pub(super) fn put_decimal(out: &mut BytesMut, value: i128, scale: i8) {
    let mut groups = [0_u16; GROUPS_MAX];
    let behind = groups_behind(scale);
    let count = fast(value.unsigned_abs(), scale, behind, &mut groups).unwrap_or_else(|| {
        let mut buffer = itoa::Buffer::new();
        from_digits(buffer.format(value.unsigned_abs()).as_bytes(), scale, behind, &mut groups)
    });
    put_groups(out, &groups[..count], behind, (value < 0, scale));
}

/// Appends a decimal that is given as text with all digits of its scale.
pub(super) fn put_text(out: &mut BytesMut, text: &str, scale: i8) {
    let mut groups = [0_u16; GROUPS_MAX];
    let behind = groups_behind(scale);
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_digit).collect();
    let count = from_digits(&digits, scale, behind, &mut groups);
    put_groups(out, &groups[..count], behind, (text.starts_with('-'), scale));
}

/// Returns the number of groups behind the point.
fn groups_behind(scale: i8) -> usize {
    usize::try_from(scale).unwrap_or(0).div_ceil(BASE_DIGITS)
}

/// Appends a numeric with these groups of digits, from the least one up.
fn put_groups(out: &mut BytesMut, groups: &[u16], behind: usize, (is_negative, scale): (bool, i8)) {
    let zeros = groups.iter().take_while(|group| **group == 0).count();
    let shown = &groups[zeros..];
    // The weight is the place of the first group before the point; there are few groups.
    let weight = i16::try_from(groups.len()).unwrap_or(0) - i16::try_from(behind).unwrap_or(0) - 1;
    out.put_u16(u16::try_from(shown.len()).unwrap_or(0));
    out.put_i16(if shown.is_empty() { 0 } else { weight });
    out.put_u16(if is_negative { NEGATIVE } else { 0 });
    out.put_u16(u16::try_from(scale).unwrap_or(0));
    shown.iter().rev().for_each(|group| out.put_u16(*group));
}

/// Fills `groups` with the digits of a value that 64 bits hold; returns their number without the zeros in front.
/// Returns `None` for a greater value.
fn fast(value: u128, scale: i8, behind: usize, groups: &mut [u16; GROUPS_MAX]) -> Option<usize> {
    let scale = usize::try_from(scale).ok()?;
    let shift = 10_u64.pow(u32::try_from(behind * BASE_DIGITS - scale).ok()?);
    let mut rest = u64::try_from(value).ok()?.checked_mul(shift)?;
    let mut count = 0;
    while rest > 0 {
        groups[count] = u16::try_from(rest % BASE).ok()?;
        (rest, count) = (rest / BASE, count + 1);
    }
    Some(count)
}

/// Fills `groups` from decimal digits; returns their number without the zeros in front.
fn from_digits(digits: &[u8], scale: i8, behind: usize, groups: &mut [u16; GROUPS_MAX]) -> usize {
    // Zeros behind the last digit, which align the digits at the point.
    let zeros = match usize::try_from(scale) {
        Ok(scale) => behind * BASE_DIGITS - scale,
        Err(_) => usize::from(scale.unsigned_abs()),
    };
    for (place, digit) in digits.iter().rev().enumerate() {
        let at = place + zeros;
        let weight = 10_u16.pow(u32::try_from(at % BASE_DIGITS).unwrap_or(0));
        if let Some(group) = groups.get_mut(at / BASE_DIGITS) {
            *group += u16::from(digit - b'0') * weight;
        }
    }
    GROUPS_MAX - groups.iter().rev().take_while(|group| **group == 0).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns a numeric in binary as text, computed from its fields by the definition of the format.
    fn read(bytes: &[u8]) -> (String, u16) {
        let field = |at: usize| u16::from_be_bytes([bytes[2 * at], bytes[2 * at + 1]]);
        let (count, weight) = (usize::from(field(0)), i64::from(field(1).cast_signed()));
        let digits: String = (0..count).map(|place| format!("{:04}", field(4 + place))).collect();
        let sign = if field(2) == NEGATIVE { "-" } else { "" };
        // The last digit has the weight of the first one, less the number of the others.
        (format!("{sign}0{digits}e{}", 4 * (weight + 1 - i64::try_from(count).unwrap())), field(3))
    }

    fn same(value: i128, scale: i8) {
        let mut out = BytesMut::new();
        put_decimal(&mut out, value, scale);
        let mut from_text = BytesMut::new();
        if scale >= 0 {
            let digits =
                format!("{:0width$}", value.unsigned_abs(), width = usize::try_from(scale).unwrap() + 1);
            put_text(&mut from_text, &format!("{}{digits}", if value < 0 { "-" } else { "" }), scale);
            assert_eq!(from_text, out);
        }
        let (shown, digits_behind) = read(&out);
        let expected = bigdecimal::BigDecimal::new(value.into(), scale.into());
        assert_eq!(shown.parse::<bigdecimal::BigDecimal>().unwrap(), expected, "{value} of scale {scale}");
        assert_eq!(i32::from(digits_behind), i32::from(scale.max(0)));
        let groups = &out[8..];
        assert!(!groups.starts_with(&[0, 0]) && !groups.ends_with(&[0, 0]), "zeros are left out");
    }

    #[test]
    fn numerics_are_those_of_postgresql() {
        let mut out = BytesMut::new();
        put_decimal(&mut out, 12_345, 2);
        assert_eq!(&out[..], &[0, 2, 0, 0, 0, 0, 0, 2, 0, 123, 0x11, 0x94], "123.45 is 123 and 4500");
        for scale in [-38, -5, 0, 1, 2, 4, 5, 37, 38] {
            for value in [0, 1, -1, 10_000, 99_999_999, i128::from(u64::MAX), i128::MAX, i128::MIN] {
                same(value, scale);
            }
        }
    }

    proptest! {
        #[test]
        fn any_decimal_is_itself(value in any::<i128>(), small in any::<i64>(), scale in -38..=38_i8) {
            same(value, scale);
            same(small.into(), scale);
        }
    }
}
