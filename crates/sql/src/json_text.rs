//! Conversion of rows to JSON, the same for every output. NULL is `null`, and floats that JSON has no number for become
//! the texts that PostgreSQL and the JSON form of Protocol Buffers use, so that they are neither lost nor taken for
//! NULL.

use arrow_array::builder::StringViewBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float16Type, Float32Type, Float64Type};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_json::writer::{LineDelimited, NullableEncoder, make_encoder};
use arrow_json::{Encoder, EncoderFactory, EncoderOptions, WriterBuilder};
use arrow_ord::sort::sort_to_indices;
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Schema, SortOptions};
use farpool_model::{Error, Result, sql_name};
use std::sync::{Arc, LazyLock};

/// Bytes that the writer puts before and after a value of a column named `v`.
const AROUND: (&[u8], &[u8]) = (b"{\"v\":", b"}");

/// Arrow's own encoding of finite numbers.
static PLAIN: LazyLock<EncoderOptions> = LazyLock::new(EncoderOptions::default);

/// Returns the settings of a writer of rows as JSON.
pub fn json_writer() -> WriterBuilder {
    WriterBuilder::new().with_explicit_nulls(true).with_encoder_factory(Arc::new(Floats))
}

/// Checks that all values of a batch can be formatted. For a time outside the calendar, Arrow's writer would return the
/// text of an error as if it were the value.
///
/// # Errors
/// `Invalid`, with the column and the first such value.
pub fn check_json(batch: &RecordBatch) -> Result<()> {
    let schema = batch.schema();
    batch.columns().iter().zip(schema.fields()).try_for_each(|(column, field)| {
        check_values(column).map_err(|error| {
            let name = farpool_model::brief(field.name());
            Error::invalid(format!("column {name:?} has a value that cannot be written: {error}"))
                .advise("cast it to BIGINT, or leave such rows out with WHERE")
        })
    })
}

fn check_values(values: &ArrayRef) -> std::result::Result<(), ArrowError> {
    match values.data_type() {
        data_type if data_type.is_temporal() => check_times(values),
        DataType::List(_) => check_values(values.as_list::<i32>().values()),
        DataType::LargeList(_) => check_values(values.as_list::<i64>().values()),
        DataType::FixedSizeList(..) => check_values(values.as_fixed_size_list().values()),
        DataType::Struct(_) => values.as_struct().columns().iter().try_for_each(check_values),
        DataType::Map(..) => values.as_map().entries().columns().iter().try_for_each(check_values),
        DataType::Dictionary(..) => check_values(values.as_any_dictionary().values()),
        _ => Ok(()),
    }
}

/// Checks the minimum and the maximum time. If both can be formatted, all times between them can.
fn check_times(times: &ArrayRef) -> std::result::Result<(), ArrowError> {
    const OPTIONS: FormatOptions<'static> = FormatOptions::new();
    let formatter = ArrayFormatter::try_new(times, &OPTIONS)?;
    [false, true].into_iter().try_for_each(|descending| {
        let options = SortOptions { descending, nulls_first: false };
        let first = sort_to_indices(times, Some(options), Some(1))?;
        let rows = first.values().iter().map(|row| *row as usize).filter(|row| times.is_valid(*row));
        rows.into_iter().try_for_each(|row| formatter.value(row).try_to_string().map(drop))
    })
}

/// Returns the text of a float that JSON has no number for: `NaN`, `Infinity` or `-Infinity`; `None` for other floats.
pub fn json_float(value: f64) -> Option<&'static str> {
    match value {
        value if value.is_finite() => None,
        value if value.is_nan() => Some("NaN"),
        value if value > 0.0 => Some("Infinity"),
        _ => Some("-Infinity"),
    }
}

/// Returns each value of `column` as the text of its JSON; NULL stays NULL.
///
/// # Errors
/// `Invalid` if the type, or a value, has no form in JSON.
pub fn json_texts(column: &ArrayRef, field: &Field) -> Result<ArrayRef> {
    let failed = |error: ArrowError| {
        let (name, kind) = (field.name(), sql_name(field.data_type()));
        Error::invalid(format!("column {name:?} of type {kind} has no form in JSON: {error}"))
            .advise("leave it out (SELECT names the others, farpool load has --columns)")
    };
    let alone = Arc::new(Schema::new(vec![field.clone().with_name("v")]));
    let batch = RecordBatch::try_new(alone, vec![column.clone()]).map_err(failed)?;
    check_json(&batch)?;
    let mut writer = json_writer().build::<_, LineDelimited>(Vec::new());
    writer.write(&batch).map_err(failed)?;
    let bytes = writer.into_inner();
    let mut texts = StringViewBuilder::with_capacity(column.len());
    // Splitting at line breaks is safe: the writer escapes those within strings as `\n`.
    for (row, line) in bytes.split(|byte| *byte == b'\n').take(column.len()).enumerate() {
        let value = line.strip_prefix(AROUND.0).and_then(|line| line.strip_suffix(AROUND.1));
        let value = value.and_then(|value| std::str::from_utf8(value).ok());
        texts.append_option(value.filter(|_| column.is_valid(row)));
    }
    Ok(Arc::new(texts.finish()))
}

#[derive(Debug)]
struct Floats;

impl EncoderFactory for Floats {
    fn make_default_encoder<'a>(
        &self,
        field: &'a FieldRef,
        array: &'a dyn Array,
        _options: &'a EncoderOptions,
    ) -> std::result::Result<Option<NullableEncoder<'a>>, ArrowError> {
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
    use arrow_array::{Float32Array, Float64Array, ListArray};

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

    #[test]
    fn a_time_without_a_text_is_an_error_wherever_it_stands() {
        use arrow_array::TimestampMicrosecondArray;
        use arrow_array::types::TimestampMicrosecondType;
        let of = |column: ArrayRef| RecordBatch::try_from_iter([("t", column)]).unwrap();
        let times =
            |last| Arc::new(TimestampMicrosecondArray::from(vec![None, Some(0), Some(last), Some(5)]));
        check_json(&of(times(253_402_300_799_000_000))).unwrap();
        for last in [i64::MAX, i64::MIN] {
            let error = check_json(&of(times(last))).unwrap_err();
            assert!(error.message.contains("\"t\"") && error.advice.is_some(), "{error}");
        }
        let lists = ListArray::from_iter_primitive::<TimestampMicrosecondType, _, _>([
            Some(vec![Some(1)]),
            None,
            Some(vec![None, Some(i64::MAX)]),
        ]);
        assert!(check_json(&of(Arc::new(lists))).is_err());
        let whole: ArrayRef = Arc::new(arrow_array::Int64Array::from(vec![i64::MAX]));
        check_json(&of(whole)).unwrap();
    }
}
