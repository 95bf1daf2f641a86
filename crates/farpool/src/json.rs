//! How rows become JSON, the same for every output: a NULL is `null`, and floats that JSON has no number for
//! are the texts that PostgreSQL and the JSON of Protocol Buffers have for them, so that they are neither lost
//! nor taken for NULL.

use arrow::array::{Array, AsArray};
use arrow::datatypes::{DataType, FieldRef, Float16Type, Float32Type, Float64Type};
use arrow::error::ArrowError;
use arrow::json::writer::{NullableEncoder, make_encoder};
use arrow::json::{Encoder, EncoderFactory, EncoderOptions, WriterBuilder};
use std::sync::{Arc, LazyLock};

/// Arrow's own encoding of finite numbers.
static PLAIN: LazyLock<EncoderOptions> = LazyLock::new(EncoderOptions::default);

/// Returns the settings of a writer of rows as JSON.
pub fn json_writer() -> WriterBuilder {
    WriterBuilder::new().with_explicit_nulls(true).with_encoder_factory(Arc::new(Floats))
}

/// Returns the text of a float that JSON has no number for: `NaN`, `Infinity` or `-Infinity`.
pub fn json_float(value: f64) -> Option<&'static str> {
    match value {
        value if value.is_finite() => None,
        value if value.is_nan() => Some("NaN"),
        value if value > 0.0 => Some("Infinity"),
        _ => Some("-Infinity"),
    }
}

#[derive(Debug)]
struct Floats;

impl EncoderFactory for Floats {
    fn make_default_encoder<'a>(
        &self,
        field: &'a FieldRef,
        array: &'a dyn Array,
        _options: &'a EncoderOptions,
    ) -> Result<Option<NullableEncoder<'a>>, ArrowError> {
        let is_special = |row| !array.is_null(row) && special(array, row).is_some();
        if !array.data_type().is_floating() || !(0..array.len()).any(is_special) {
            return Ok(None);
        }
        let finite = make_encoder(field, array, &PLAIN)?;
        let encoder = FloatEncoder { array, finite };
        Ok(Some(NullableEncoder::new(Box::new(encoder), array.nulls().cloned())))
    }
}

struct FloatEncoder<'a> {
    array: &'a dyn Array,
    finite: NullableEncoder<'a>,
}

impl Encoder for FloatEncoder<'_> {
    fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        match special(self.array, row) {
            Some(text) => out.extend([b"\"", text.as_bytes(), b"\""].concat()),
            None => self.finite.encode(row, out),
        }
    }
}

fn special(array: &dyn Array, row: usize) -> Option<&'static str> {
    json_float(match array.data_type() {
        DataType::Float16 => array.as_primitive::<Float16Type>().value(row).to_f64(),
        DataType::Float32 => array.as_primitive::<Float32Type>().value(row).into(),
        DataType::Float64 => array.as_primitive::<Float64Type>().value(row),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{ArrayRef, Float32Array, Float64Array, ListArray, RecordBatch};
    use arrow::json::writer::LineDelimited;

    #[test]
    fn floats_without_a_number_in_json_are_texts() {
        let wide = [Some(1.5), Some(f64::NAN), Some(f64::INFINITY), Some(f64::NEG_INFINITY), None];
        let narrow = [Some(-0.25), None, Some(f32::NAN), Some(2.0), Some(f32::INFINITY)];
        let lists = wide.map(|value| Some(vec![value, Some(0.0)]));
        let columns: [(&str, ArrayRef); 3] = [
            ("wide", Arc::new(Float64Array::from_iter(wide))),
            ("narrow", Arc::new(Float32Array::from_iter(narrow))),
            ("list", Arc::new(ListArray::from_iter_primitive::<Float64Type, _, _>(lists))),
        ];
        let mut writer = json_writer().build::<_, LineDelimited>(Vec::new());
        writer.write(&RecordBatch::try_from_iter(columns).unwrap()).unwrap();
        let text = String::from_utf8(writer.into_inner()).unwrap();
        let expected = r#"{"wide":1.5,"narrow":-0.25,"list":[1.5,0.0]}
{"wide":"NaN","narrow":null,"list":["NaN",0.0]}
{"wide":"Infinity","narrow":"NaN","list":["Infinity",0.0]}
{"wide":"-Infinity","narrow":2.0,"list":["-Infinity",0.0]}
{"wide":null,"narrow":"Infinity","list":[null,0.0]}
"#;
        assert_eq!(text, expected);
    }
}
