//! Values that a client sends, as text or in binary, read into arrays of one row.
//!
//! Invariant: a value that its type does not hold, and any byte that is not part of one, is an error.

use super::binary::{NEGATIVE, NOT_A_NUMBER};
use super::calendar::{DAY_US, EPOCH_DAYS, EPOCH_US};
use crate::failure::{Failure, code};
use crate::messages::Format;
use crate::types::{arrow_type, element_of, oid};
use arrow_array::types::{IntervalMonthDayNano, IntervalMonthDayNanoType};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array,
    Int16Array, Int32Array, Int64Array, ListArray, PrimitiveArray, StringArray, Time64MicrosecondArray,
    TimestampMicrosecondArray, new_null_array,
};
use arrow_buffer::OffsetBuffer;
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{DECIMAL128_MAX_PRECISION, DataType, Field};
use arrow_select::concat::concat;
use bytes::{Buf, Bytes};
use farpool_model::limits;
use std::sync::Arc;

/// Maximum digits behind the point of a numeric. Reason: those of a decimal of 128 bits, of which one is before it.
const SCALE_MAX: usize = 37;

/// Returns an array with one row: the value of the type `oid` that `bytes` represent; NULL without bytes.
///
/// # Errors
/// A failure for the client if the type is not known, or the bytes do not represent a value of it.
pub fn array_of_one(oid: u32, format: Format, bytes: Option<&Bytes>) -> Result<ArrayRef, Failure> {
    let data_type = arrow_type(oid).ok_or_else(|| {
        Failure::new(code::FEATURE_NOT_SUPPORTED, format!("values of the type with oid {oid} are not read"))
            .hint("send them as text, and cast them in the statement")
    })?;
    let Some(bytes) = bytes else {
        return Ok(new_null_array(&data_type, 1));
    };
    let text = || std::str::from_utf8(bytes).map_err(|_| invalid_text("text", "bytes that are not UTF-8"));
    match format {
        Format::Text => of_text(oid, &data_type, text()?),
        Format::Binary if data_type == DataType::Utf8 && oid != oid::UUID => {
            // The binary form of jsonb begins with its version.
            let text = text()?;
            let text = if oid == oid::JSONB { text.trim_start_matches('\u{1}') } else { text };
            Ok(Arc::new(StringArray::from(vec![text])))
        }
        Format::Binary => {
            let mut fields = Fields { bytes: bytes.clone(), oid };
            let value = fields.value(oid)?;
            match fields.bytes.is_empty() {
                true => Ok(value),
                false => Err(fields.wrong()),
            }
        }
    }
}

fn invalid_text(data_type: &str, text: &str) -> Failure {
    let shown = farpool_model::brief(text);
    Failure::new(code::INVALID_TEXT, format!("invalid input syntax for type {data_type}: \"{shown}\""))
}

fn of_text(oid: u32, data_type: &DataType, text: &str) -> Result<ArrayRef, Failure> {
    let wrong = || invalid_text(&farpool_model::sql_name(data_type).to_lowercase(), text);
    match data_type {
        DataType::Utf8 => Ok(Arc::new(StringArray::from(vec![text]))),
        DataType::Decimal128(..) => decimal_of_text(text.trim()).ok_or_else(wrong),
        DataType::Binary => {
            let bytes = bytes_of_text(text).ok_or_else(wrong)?;
            Ok(Arc::new(BinaryArray::from(vec![bytes.as_slice()])))
        }
        DataType::List(_) => {
            let element = element_of(oid).unwrap_or(oid::TEXT);
            let elements = elements_of_text(text).ok_or_else(wrong)?;
            check_elements(elements.len())?;
            let values = elements.into_iter().map(|text| {
                let bytes = text.map(Bytes::from);
                array_of_one(element, Format::Text, bytes.as_ref())
            });
            list(element, values.collect::<Result<Vec<_>, _>>()?)
        }
        _ => {
            let texts = StringArray::from(vec![without_offset(text.trim(), data_type)]);
            let options = CastOptions { safe: false, ..CastOptions::default() };
            cast_with_options(&texts, data_type, &options).map_err(|_| wrong())
        }
    }
}

/// Returns the text of a value without an offset from UTC at its end if the type has no zone: PostgreSQL ignores it
/// there, and clients send it.
pub fn without_offset<'a>(text: &'a str, data_type: &DataType) -> &'a str {
    let has_zone =
        !matches!(data_type, DataType::Timestamp(_, None) | DataType::Date32 | DataType::Time64(_));
    // Behind the date, of which the parts are separated by the same sign.
    let Some(behind) = text.get(10..).filter(|_| !has_zone) else { return text };
    let Some(at) = behind.find(['+', '-']) else {
        return text.strip_suffix(['Z', 'z']).unwrap_or(text);
    };
    let is_offset = behind[at + 1..].bytes().all(|byte| byte.is_ascii_digit() || byte == b':');
    if is_offset { text[..10 + at].trim_end() } else { text }
}

/// Reads a decimal, with an exponent or without; its scale is the number of its digits behind the point.
fn decimal_of_text(text: &str) -> Option<ArrayRef> {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (is_negative, digits) = match mantissa.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, mantissa.strip_prefix('+').unwrap_or(mantissa)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut value = 0_i128;
    for digit in whole.bytes().chain(fraction.bytes()) {
        let digit = digit.is_ascii_digit().then(|| i128::from(digit - b'0'))?;
        value = value.checked_mul(10)?.checked_add(digit)?;
    }
    let scale = i64::try_from(fraction.len()).ok()? - i64::from(exponent);
    decimal(if is_negative { -value } else { value }, scale)
}

/// Returns a decimal of this scale, which may be negative.
fn decimal(mut value: i128, mut scale: i64) -> Option<ArrayRef> {
    if value == 0 {
        scale = scale.max(0);
    }
    while scale < 0 {
        (value, scale) = (value.checked_mul(10)?, scale + 1);
    }
    let scale =
        i8::try_from(scale).ok().filter(|scale| usize::try_from(*scale).is_ok_and(|n| n <= SCALE_MAX))?;
    let array = Decimal128Array::from(vec![value]).with_precision_and_scale(DECIMAL128_MAX_PRECISION, scale);
    let array = array.ok()?;
    array.validate_decimal_precision(DECIMAL128_MAX_PRECISION).ok()?;
    Some(Arc::new(array))
}

/// Reads bytes in hexadecimal (`\x…`), or with escapes in octal; `None` for another text.
pub fn bytes_of_text(text: &str) -> Option<Vec<u8>> {
    if let Some(digits) = text.strip_prefix("\\x") {
        let digits: Vec<u8> = digits.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
        let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        return match digits.len() % 2 {
            0 if digits.iter().all(u8::is_ascii_hexdigit) => digits.chunks_exact(2).map(pair).collect(),
            _ => None,
        };
    }
    let (mut out, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        if byte != b'\\' {
            out.push(byte);
        } else if let Some(behind) = rest.strip_prefix(b"\\") {
            out.push(b'\\');
            rest = behind;
        } else {
            let digits = rest.get(..3).filter(|digits| digits.iter().all(|d| (b'0'..=b'7').contains(d)))?;
            out.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()?);
            rest = &rest[3..];
        }
    }
    Some(out)
}

/// Reads the elements of an array of one dimension, `{1,NULL,"a b"}`: the text of each, `None` for NULL. Returns `None`
/// for another text.
pub fn elements_of_text(text: &str) -> Option<Vec<Option<String>>> {
    let inner = text.trim().strip_prefix('{')?.strip_suffix('}')?;
    let mut elements = Vec::new();
    if inner.trim().is_empty() {
        return Some(elements);
    }
    let mut chars = inner.chars().peekable();
    loop {
        while chars.next_if(|c| c.is_whitespace()).is_some() {}
        let mut element = String::new();
        let is_quoted = chars.next_if_eq(&'"').is_some();
        loop {
            match chars.peek() {
                None | Some(',') if !is_quoted => break,
                _ => {}
            }
            match chars.next()? {
                '"' if is_quoted => break,
                '\\' => element.push(chars.next()?),
                '{' | '}' | '"' if !is_quoted => return None,
                c => element.push(c),
            }
        }
        if !is_quoted {
            element.truncate(element.trim_end().len());
            if element.is_empty() {
                return None;
            }
        }
        let is_null = !is_quoted && element.eq_ignore_ascii_case("null");
        elements.push((!is_null).then_some(element));
        while chars.next_if(|c| c.is_whitespace()).is_some() {}
        match chars.next() {
            None => return Some(elements),
            Some(',') => {}
            Some(_) => return None,
        }
    }
}

/// Checks the number of elements of a list, each of which is an array of its own at first.
fn check_elements(count: usize) -> Result<(), Failure> {
    match count <= limits::POSTGRES_ELEMENTS_MAX {
        true => Ok(()),
        false => {
            let message =
                format!("a list of {count} values; at most {} are read", limits::POSTGRES_ELEMENTS_MAX);
            Err(Failure::new(code::PROGRAM_LIMIT_EXCEEDED, message))
        }
    }
}

/// Returns a list with these values, each in an array of one row.
fn list(element: u32, values: Vec<ArrayRef>) -> Result<ArrayRef, Failure> {
    let data_type = values.first().map(|value| value.data_type().clone()).or_else(|| arrow_type(element));
    let data_type = data_type.unwrap_or(DataType::Utf8);
    let options = CastOptions { safe: false, ..CastOptions::default() };
    // Decimals have a scale of their own each.
    let widest = values.iter().map(|value| value.data_type()).fold(data_type, wider);
    let cast = |value: &ArrayRef| cast_with_options(value, &widest, &options);
    let failed =
        |error: arrow_schema::ArrowError| Failure::new(code::NUMERIC_OUT_OF_RANGE, error.to_string());
    let values = values.iter().map(cast).collect::<Result<Vec<_>, _>>().map_err(failed)?;
    let values = match values.is_empty() {
        true => new_null_array(&widest, 0),
        false => concat(&values.iter().map(|value| &**value).collect::<Vec<_>>()).map_err(failed)?,
    };
    let field = Arc::new(Field::new_list_field(widest, true));
    Ok(Arc::new(ListArray::new(field, OffsetBuffer::from_lengths([values.len()]), values, None)))
}

fn wider(a: DataType, b: &DataType) -> DataType {
    match (&a, b) {
        (DataType::Decimal128(_, scale), DataType::Decimal128(precision, other)) => {
            DataType::Decimal128(*precision, *scale.max(other))
        }
        _ => a,
    }
}

/// The bytes of a value in binary that are not read yet.
struct Fields {
    bytes: Bytes,
    oid: u32,
}

impl Fields {
    fn wrong(&self) -> Failure {
        let what = format!("the bytes are not a value of the type with oid {} in binary", self.oid);
        Failure::new(code::INVALID_BINARY, what)
    }

    fn take(&mut self, count: usize) -> Result<Bytes, Failure> {
        match count <= self.bytes.len() {
            true => Ok(self.bytes.split_to(count)),
            false => Err(self.wrong()),
        }
    }

    fn u16(&mut self) -> Result<u16, Failure> {
        Ok(self.take(2)?.get_u16())
    }

    fn i32(&mut self) -> Result<i32, Failure> {
        Ok(self.take(4)?.get_i32())
    }

    fn i64(&mut self) -> Result<i64, Failure> {
        Ok(self.take(8)?.get_i64())
    }

    /// Reads a value, which takes all bytes if its length is not fixed.
    fn value(&mut self, oid: u32) -> Result<ArrayRef, Failure> {
        Ok(match oid {
            oid::BOOL => match self.take(1)?.get_u8() {
                0 => Arc::new(BooleanArray::from(vec![false])),
                1 => Arc::new(BooleanArray::from(vec![true])),
                _ => return Err(self.wrong()),
            },
            oid::INT2 => Arc::new(Int16Array::from(vec![self.u16()?.cast_signed()])),
            oid::INT4 => Arc::new(Int32Array::from(vec![self.i32()?])),
            oid::INT8 => Arc::new(Int64Array::from(vec![self.i64()?])),
            oid::OID => Arc::new(Int64Array::from(vec![i64::from(self.i32()?.cast_unsigned())])),
            oid::FLOAT4 => Arc::new(Float32Array::from(vec![self.take(4)?.get_f32()])),
            oid::FLOAT8 => Arc::new(Float64Array::from(vec![self.take(8)?.get_f64()])),
            oid::NUMERIC => self.numeric()?,
            oid::BYTEA => {
                let bytes = std::mem::take(&mut self.bytes);
                Arc::new(BinaryArray::from(vec![&bytes[..]]))
            }
            oid::UUID => {
                let bytes = self.take(16)?;
                let hex = |range: std::ops::Range<usize>| {
                    bytes[range].iter().map(|byte| format!("{byte:02x}")).collect::<String>()
                };
                let parts = [0..4, 4..6, 6..8, 8..10, 10..16].map(hex);
                Arc::new(StringArray::from(vec![parts.join("-")]))
            }
            oid::DATE => {
                let days = self.i32()?.checked_add(EPOCH_DAYS).ok_or_else(|| self.wrong())?;
                Arc::new(Date32Array::from(vec![days]))
            }
            oid::TIME => match self.i64()? {
                time if (0..DAY_US).contains(&time) => Arc::new(Time64MicrosecondArray::from(vec![time])),
                _ => return Err(self.wrong()),
            },
            oid::TIMESTAMP | oid::TIMESTAMPTZ => {
                let time = self.i64()?.checked_add(EPOCH_US);
                let time =
                    time.ok_or_else(|| Failure::new(code::DATETIME_OVERFLOW, "timestamp out of range"))?;
                let times = TimestampMicrosecondArray::from(vec![time]);
                match oid {
                    oid::TIMESTAMP => Arc::new(times),
                    _ => Arc::new(times.with_timezone("+00:00")),
                }
            }
            oid::INTERVAL => {
                let (microseconds, days, months) = (self.i64()?, self.i32()?, self.i32()?);
                let nanoseconds = microseconds.checked_mul(1000);
                let nanoseconds = nanoseconds
                    .ok_or_else(|| Failure::new(code::DATETIME_OVERFLOW, "interval out of range"))?;
                let interval = IntervalMonthDayNano { months, days, nanoseconds };
                Arc::new(PrimitiveArray::<IntervalMonthDayNanoType>::from(vec![interval]))
            }
            _ => return self.array(),
        })
    }

    /// Reads a numeric: digits in base 10,000, of which the first has the weight of 10,000 to the power of a field.
    fn numeric(&mut self) -> Result<ArrayRef, Failure> {
        let (count, weight) = (self.u16()?, i64::from(self.u16()?.cast_signed()));
        let (sign, scale) = (self.u16()?, i64::from(self.u16()?));
        let range = || Failure::new(code::NUMERIC_OUT_OF_RANGE, "a numeric of more than 38 digits");
        match sign {
            0 | NEGATIVE => {}
            NOT_A_NUMBER | 0xD000 | 0xF000 => {
                let what = "a numeric that is not a number, or infinite";
                return Err(Failure::new(code::NUMERIC_OUT_OF_RANGE, what));
            }
            _ => return Err(self.wrong()),
        }
        let mut value = 0_i128;
        for _ in 0..count {
            let digit = self.u16()?;
            if digit >= 10_000 {
                return Err(self.wrong());
            }
            value = value.checked_mul(10_000).and_then(|n| n.checked_add(digit.into())).ok_or_else(range)?;
        }
        // Digits behind the point that the digits in base 10,000 have.
        let mut behind = 4 * (i64::from(count) - weight - 1);
        while behind > scale && value % 10 == 0 {
            (value, behind) = (value / 10, behind - 1);
        }
        // Zeros that were left out behind the last digit, as far as there is room for them.
        let room = 10_i128.pow(37);
        while behind < scale.min(i64::try_from(SCALE_MAX).unwrap_or(0)) && value < room {
            (value, behind) = (value * 10, behind + 1);
        }
        decimal(if sign == NEGATIVE { -value } else { value }, behind).ok_or_else(range)
    }

    /// Reads an array of at most one dimension.
    fn array(&mut self) -> Result<ArrayRef, Failure> {
        let expected = element_of(self.oid).ok_or_else(|| self.wrong())?;
        let (dimensions, _has_nulls) = (self.i32()?, self.i32()?);
        let element = self.i32()?.cast_unsigned();
        if element != expected || !(0..=1).contains(&dimensions) {
            return Err(self.wrong());
        }
        let count = match dimensions {
            0 => 0,
            _ => {
                let (count, _first) = (self.i32()?, self.i32()?);
                count
            }
        };
        check_elements(usize::try_from(count).map_err(|_| self.wrong())?)?;
        let mut values = Vec::new();
        for _ in 0..count {
            let length = self.i32()?;
            let bytes = match length {
                -1 => None,
                _ => Some(self.take(usize::try_from(length).map_err(|_| self.wrong())?)?),
            };
            values.push(array_of_one(element, Format::Binary, bytes.as_ref())?);
        }
        list(element, values)
    }
}

#[cfg(test)]
mod tests;
