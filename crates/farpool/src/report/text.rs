//! Formats values, numbers and types for people.

use crate::size;
use arrow::datatypes::DataType;
use serde_json::Value;

/// Returns a short name of the type.
pub fn type_name(data_type: &DataType) -> String {
    match data_type {
        DataType::Utf8View => "string".to_string(),
        DataType::BinaryView => "binary".to_string(),
        DataType::Boolean => "boolean".to_string(),
        DataType::Date32 => "date".to_string(),
        DataType::Decimal128(precision, scale) => format!("decimal({precision},{scale})"),
        DataType::Timestamp(_, None) => "timestamp".to_string(),
        DataType::Timestamp(_, Some(zone)) => format!("timestamp {zone}"),
        other => other.to_string().to_lowercase(),
    }
}

/// Formats a value of a report.
pub fn value(value: &Value) -> String {
    match value {
        Value::Null => "–".to_string(),
        Value::String(text) => text.clone(),
        Value::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
            (Some(whole), ..) => size::count(whole),
            (None, Some(whole), _) => format!("-{}", size::count(whole.unsigned_abs())),
            (.., Some(value)) => float(value),
            _ => number.to_string(),
        },
        other => other.to_string(),
    }
}

/// Formats a number with five significant digits and thousands separators; very large and very small numbers with an
/// exponent.
pub fn float(value: f64) -> String {
    let magnitude = value.abs();
    if value == 0.0 {
        return "0".to_string();
    }
    if !(1e-4..1e12).contains(&magnitude) {
        return format!("{value:.3e}");
    }
    let digits = 4 - magnitude.log10().floor() as i32;
    let text = format!("{magnitude:.*}", digits.clamp(0, 8) as usize);
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let fraction = fraction.trim_end_matches('0');
    let sign = if value < 0.0 { "-" } else { "" };
    let whole = whole.parse().map_or_else(|_| whole.to_string(), size::count);
    if fraction.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") }
}

/// Formats a number with three significant digits: `1.23M`.
pub fn short(count: u64) -> String {
    let units = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    let value = count as f64;
    match units.into_iter().find(|(unit, _)| value >= unit * 9.995 || *unit > 1e3 && value >= unit * 0.9995) {
        Some((unit, name)) => {
            let scaled = value / unit;
            let digits = if scaled < 9.995 { 2 } else { usize::from(scaled < 99.95) };
            format!("{scaled:.digits$}{name}")
        }
        None => size::count(count),
    }
}

/// Formats `part` as a percentage of `whole`.
pub fn percent(part: u64, whole: u64) -> String {
    let share = if whole == 0 { 0.0 } else { part as f64 / whole as f64 * 100.0 };
    match share {
        s if part == 0 || s == 0.0 => "0".to_string(),
        s if s < 0.1 => "<0.1%".to_string(),
        s if part < whole && s > 99.9 => ">99.9%".to_string(),
        s if s < 9.95 => format!("{s:.1}%"),
        s => format!("{s:.0}%"),
    }
}

/// Truncates the text to `width` columns of a terminal.
pub fn cut(text: &str, width: usize) -> String {
    use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};
    if text.width() <= width {
        return text.to_string();
    }
    let (mut out, mut used) = (String::new(), 0);
    for c in text.chars() {
        used += c.width().unwrap_or(1);
        if used >= width {
            break;
        }
        out.push(c);
    }
    out + "…"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        for (number, expected) in [
            (0.0, "0"),
            (1.0, "1"),
            (-0.5, "-0.5"),
            (12.345678, "12.346"),
            (1234567.8, "1,234,568"),
            (0.00012345, "0.00012345"),
            (1e15, "1.000e15"),
            (-3.2e-9, "-3.200e-9"),
        ] {
            assert_eq!(float(number), expected);
        }
        for (count, expected) in [
            (0, "0"),
            (9_994, "9,994"),
            (12_345, "12.3k"),
            (999_600, "1.00M"),
            (1_500_000, "1.50M"),
            (2_000_000_000, "2.00G"),
        ] {
            assert_eq!(short(count), expected, "{count}");
        }
        for (part, whole, expected) in [
            (0, 0, "0"),
            (0, 5, "0"),
            (1, 1_000_000, "<0.1%"),
            (1, 3, "33%"),
            (5, 5, "100%"),
            (9_999, 10_000, ">99.9%"),
        ] {
            assert_eq!(percent(part, whole), expected);
        }
    }

    #[test]
    fn long_texts_are_cut_to_their_place() {
        assert_eq!(cut("Zürich", 6), "Zürich");
        assert_eq!(cut("Zürich", 4), "Zür…");
        assert_eq!(cut("東京都", 4), "東…");
    }
}
