//! The text form of values in rows, as clients of the Redis protocol write and read them.
//!
//! Integers are decimal without leading zeros, booleans `true` or `false`, floats the shortest decimal that reads back
//! as the same number, dates `2026-01-31`, timestamps `2026-01-31T12:00:00.5` (or with a space) in UTC.

use super::{ColumnType, RowSchema};
use crate::resp::parse_integer;
use chrono::{DateTime, NaiveDate, NaiveDateTime};
use farpool_model::cast::u32_checked;
use std::borrow::Cow;

const DATE: &str = "%Y-%m-%d";

impl ColumnType {
    /// Parses a text as a value of this type; returns the bytes as rows store them, or `None` if it is not a value of
    /// this type.
    pub fn parse_value(self, text: &[u8]) -> Option<Vec<u8>> {
        let words = || std::str::from_utf8(text).ok();
        Some(match self {
            ColumnType::Bool => match text.to_ascii_lowercase().as_slice() {
                b"true" | b"t" | b"1" => vec![1],
                b"false" | b"f" | b"0" => vec![0],
                _ => return None,
            },
            ColumnType::Int(width) => {
                let value = parse_integer(text)?;
                let bits = 8 * u32_checked(width);
                let is_held = bits == 64 || (value >> (bits - 1) == 0 || value >> (bits - 1) == -1);
                is_held.then(|| value.to_le_bytes()[..width].to_vec())?
            }
            ColumnType::UInt(width) => {
                let is_canonical =
                    text == b"0" || text.first().is_some_and(|first| (b'1'..=b'9').contains(first));
                let value: u64 = words().filter(|_| is_canonical)?.parse().ok()?;
                let is_held = width == 8 || value >> (8 * width) == 0;
                is_held.then(|| value.to_le_bytes()[..width].to_vec())?
            }
            ColumnType::F32 => words()?.parse::<f32>().ok()?.to_le_bytes().to_vec(),
            ColumnType::F64 => words()?.parse::<f64>().ok()?.to_le_bytes().to_vec(),
            ColumnType::Utf8 => words()?.as_bytes().to_vec(),
            ColumnType::Binary => text.to_vec(),
            ColumnType::Date => {
                let date = NaiveDate::parse_from_str(words()?, DATE).ok()?;
                let days = date.signed_duration_since(NaiveDate::default()).num_days();
                i32::try_from(days).ok()?.to_le_bytes().to_vec()
            }
            ColumnType::Timestamp => {
                let text = words()?;
                let text = text.strip_suffix('Z').unwrap_or(text);
                let time = NaiveDateTime::parse_from_str(text, "%Y-%m-%dT%H:%M:%S%.f")
                    .or_else(|_| NaiveDateTime::parse_from_str(text, "%Y-%m-%d %H:%M:%S%.f"))
                    .or_else(|_| NaiveDate::parse_from_str(text, DATE).map(|date| date.into()))
                    .ok()?;
                time.and_utc().timestamp_micros().to_le_bytes().to_vec()
            }
        })
    }

    /// Returns the text of a value, given its bytes in a row (as [`ColumnType::parse_value`] returns them).
    pub fn value_text(self, value: &[u8]) -> Cow<'_, [u8]> {
        let owned = |text: String| Cow::Owned(text.into_bytes());
        match self {
            ColumnType::Utf8 | ColumnType::Binary => Cow::Borrowed(value),
            ColumnType::Bool => Cow::Borrowed(if value.first() == Some(&0) { b"false" } else { b"true" }),
            ColumnType::Int(_) => owned(signed(value).to_string()),
            ColumnType::UInt(_) => owned(unsigned(value).to_string()),
            ColumnType::F32 => owned(short(f32::from_bits(unsigned(value) as u32))),
            ColumnType::F64 => owned(short(f64::from_bits(unsigned(value)))),
            ColumnType::Date => {
                let days = chrono::Days::new(signed(value).unsigned_abs());
                let epoch = NaiveDate::default();
                let is_before = signed(value) < 0;
                let date =
                    if is_before { epoch.checked_sub_days(days) } else { epoch.checked_add_days(days) };
                owned(date.map_or_else(String::new, |date| date.format(DATE).to_string()))
            }
            ColumnType::Timestamp => {
                let time = DateTime::from_timestamp_micros(signed(value));
                owned(time.map_or_else(String::new, |time| time.format("%Y-%m-%dT%H:%M:%S%.f").to_string()))
            }
        }
    }
}

/// Returns the unsigned number that `value`, up to eight bytes, encodes in little-endian order.
fn unsigned(value: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    bytes[..value.len().min(8)].copy_from_slice(&value[..value.len().min(8)]);
    u64::from_le_bytes(bytes)
}

fn signed(value: &[u8]) -> i64 {
    let missing = 64 - 8 * u32_checked(value.len().clamp(1, 8));
    (unsigned(value) << missing) as i64 >> missing
}

/// Returns the shortest decimal text that reads back as the same number.
fn short<F: std::fmt::Display + std::fmt::LowerExp + Into<f64> + Copy>(value: F) -> String {
    let size = value.into().abs();
    if size != 0.0 && size.is_finite() && !(1e-5..1e16).contains(&size) {
        return format!("{value:e}");
    }
    format!("{value}")
}

impl RowSchema {
    /// Parses the value of the first column from the part of a key after the prefix. Returns `None` if this is not the
    /// canonical text of a value, because `users:1` and `users:01` would otherwise be two keys with the same id.
    pub fn key_value(&self, rest: &[u8]) -> Option<Vec<u8>> {
        let kind = self.key().kind;
        let value = kind.parse_value(rest)?;
        let is_canonical = *kind.value_text(&value) == *rest;
        is_canonical.then_some(value)
    }
}
