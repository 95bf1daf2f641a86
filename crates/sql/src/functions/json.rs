//! Functions for JSON in strings. The functions that read JSON come from the package `datafusion-functions-json`; those
//! that create JSON write values as COPY does.
//!
//! A string that is not JSON yields NULL, as does a path that does not exist.

use arrow_array::builder::StringBuilder;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BooleanArray, StringArray};
use arrow_json::writer::{EncoderOptions, NullableEncoder, make_encoder};
use arrow_schema::{DataType, Field, FieldRef};
use datafusion::common::{exec_err, plan_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature,
    Volatility,
};
use datafusion::prelude::SessionContext;
use datafusion_functions_json::{json_field_metadata, udfs};
use serde::de::IgnoredAny;
use std::sync::Arc;

/// Registers the functions in `context`. Of the functions in the package, only those whose result has an SQL type are
/// registered.
pub(super) fn register(context: &SessionContext) {
    for function in [
        udfs::json_as_text_udf(),
        udfs::json_get_bool_udf(),
        udfs::json_get_float_udf(),
        udfs::json_get_int_udf(),
        udfs::json_get_json_udf(),
        udfs::json_get_str_udf(),
        udfs::json_length_udf(),
        udfs::json_object_keys_udf(),
    ] {
        context.register_udf(function.as_ref().clone());
    }
    let text = Signature::string(1, Volatility::Immutable);
    for what in [Look::Type, Look::Valid] {
        context.register_udf(ScalarUDF::from(LookAt { what, signature: text.clone() }));
    }
    let any =
        Signature::one_of(vec![TypeSignature::VariadicAny, TypeSignature::Nullary], Volatility::Immutable);
    for (what, signature) in [
        (Make::Value, Signature::any(1, Volatility::Immutable)),
        (Make::Array, any.clone()),
        (Make::Object, any),
    ] {
        context.register_udf(ScalarUDF::from(MakeJson { what, signature }));
    }
}

/// The SQL functions `json_type` and `json_valid`, which inspect a JSON string without extracting a value from it.
#[derive(Debug, PartialEq, Eq, Hash)]
struct LookAt {
    what: Look,
    signature: Signature,
}

#[derive(Debug, PartialEq, Eq, Hash)]
enum Look {
    /// `json_type`: the type of the JSON value, by DuckDB's names (`OBJECT`, `UBIGINT`, …).
    Type,
    /// `json_valid`: whether the string is valid JSON.
    Valid,
}

impl ScalarUDFImpl for LookAt {
    fn name(&self) -> &str {
        match self.what {
            Look::Type => "json_type",
            Look::Valid => "json_valid",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(match self.what {
            Look::Type => DataType::Utf8,
            Look::Valid => DataType::Boolean,
        })
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let texts = arguments.args[0].to_array(arguments.number_rows)?;
        let texts = arrow_cast::cast(&texts, &DataType::Utf8)?;
        let texts = texts.as_string::<i32>().iter();
        Ok(ColumnarValue::Array(match self.what {
            Look::Type => Arc::new(texts.map(|text| json_type(text?)).collect::<StringArray>()),
            Look::Valid => Arc::new(texts.map(|text| Some(is_json(text?))).collect::<BooleanArray>()),
        }))
    }
}

/// Returns whether `text` is valid JSON. Any nesting depth is possible, because ignored values are skipped without
/// recursion.
fn is_json(text: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(text).is_ok()
}

fn json_type(text: &str) -> Option<&'static str> {
    if !is_json(text) {
        return None;
    }
    let text = text.trim_ascii();
    Some(match text.as_bytes().first()? {
        b'{' => "OBJECT",
        b'[' => "ARRAY",
        b'"' => "VARCHAR",
        b't' | b'f' => "BOOLEAN",
        b'n' => "NULL",
        _ if text.parse::<u64>().is_ok() => "UBIGINT",
        _ if text.parse::<i64>().is_ok() => "BIGINT",
        _ => "DOUBLE",
    })
}

/// The SQL functions `to_json`, `json_array` and `json_object`, which create JSON strings from values.
#[derive(Debug, PartialEq, Eq, Hash)]
struct MakeJson {
    what: Make,
    signature: Signature,
}

#[derive(Debug, PartialEq, Eq, Hash)]
enum Make {
    /// `to_json`: the JSON of one value.
    Value,
    /// `json_array`: an array of all arguments.
    Array,
    /// `json_object`: an object; the arguments are alternately keys and values.
    Object,
}

impl ScalarUDFImpl for MakeJson {
    fn name(&self) -> &str {
        match self.what {
            Make::Value => "to_json",
            Make::Array => "json_array",
            Make::Object => "json_object",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match self.what {
            Make::Object if !types.len().is_multiple_of(2) => {
                plan_err!("json_object takes keys and values in turns")
            }
            _ => Ok(DataType::Utf8),
        }
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs) -> Result<FieldRef> {
        let types: Vec<DataType> =
            arguments.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        Ok(Arc::new(
            Field::new(self.name(), self.return_type(&types)?, true).with_metadata(json_field_metadata()),
        ))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = arguments.number_rows;
        let arrays =
            arguments.args.iter().map(|argument| argument.to_array(rows)).collect::<Result<Vec<_>>>()?;
        let arrays = arrays.iter().zip(&arguments.arg_fields).enumerate().map(|(place, (array, field))| {
            let is_key = self.what == Make::Object && place.is_multiple_of(2);
            if is_key { key(array) } else { Ok((is_json_text(field), array.clone())) }
        });
        let arrays = arrays.collect::<Result<Vec<_>>>()?;
        let fields: Vec<FieldRef> = arrays
            .iter()
            .map(|(_, array)| Arc::new(Field::new("", array.data_type().clone(), true)))
            .collect();
        let options = EncoderOptions::default().with_explicit_nulls(true);
        let mut values = arrays
            .iter()
            .zip(&fields)
            .map(|((is_json, array), field)| Values::new(*is_json, array, field, &options))
            .collect::<Result<Vec<_>>>()?;
        let mut texts = StringBuilder::new();
        let mut text = Vec::new();
        for row in 0..rows {
            text.clear();
            match (&self.what, values.as_mut_slice()) {
                (Make::Value, [value]) if value.is_null(row) => {
                    texts.append_null();
                    continue;
                }
                (Make::Value, values) => values.iter_mut().for_each(|value| value.write(row, &mut text)),
                (Make::Array, values) => joined(values, row, [b'[', b',', b',', b']'], &mut text),
                (Make::Object, values) => joined(values, row, [b'{', b':', b',', b'}'], &mut text),
            }
            append(&mut texts, &text)?;
        }
        Ok(ColumnarValue::Array(Arc::new(texts.finish())))
    }
}

/// Converts an argument of `json_object` to strings, which become keys. Fails if one is NULL.
fn key(array: &ArrayRef) -> Result<(bool, ArrayRef)> {
    match array.null_count() {
        0 => Ok((false, arrow_cast::cast(array, &DataType::Utf8)?)),
        _ => exec_err!("a key of json_object is NULL"),
    }
}

/// Returns whether a string column contains JSON, because a function here has created it; it is then embedded in other
/// JSON without quotes.
fn is_json_text(field: &Field) -> bool {
    *field.data_type() == DataType::Utf8 && *field.metadata() == json_field_metadata()
}

/// Writes the values of a column as JSON, one row at a time.
enum Values<'a> {
    Json(&'a StringArray),
    Encoded(NullableEncoder<'a>),
}

impl<'a> Values<'a> {
    fn new(
        is_json: bool,
        array: &'a ArrayRef,
        field: &'a FieldRef,
        options: &'a EncoderOptions,
    ) -> Result<Values<'a>> {
        match is_json {
            true => Ok(Values::Json(array.as_string())),
            false => Ok(Values::Encoded(make_encoder(field, array, options)?)),
        }
    }

    fn is_null(&self, row: usize) -> bool {
        match self {
            Values::Json(texts) => texts.is_null(row),
            Values::Encoded(encoder) => encoder.is_null(row),
        }
    }

    fn write(&mut self, row: usize, text: &mut Vec<u8>) {
        match self {
            _ if self.is_null(row) => text.extend_from_slice(b"null"),
            Values::Json(texts) => text.extend_from_slice(texts.value(row).as_bytes()),
            Values::Encoded(encoder) => encoder.encode(row, text),
        }
    }
}

/// Writes a row's values between the brackets `open` and `close`, separated alternately by `first` and `second` (`:`
/// and `,` for objects).
fn joined(values: &mut [Values<'_>], row: usize, [open, first, second, close]: [u8; 4], text: &mut Vec<u8>) {
    text.push(open);
    for (place, value) in values.iter_mut().enumerate() {
        match place {
            0 => {}
            _ if place.is_multiple_of(2) => text.push(second),
            _ => text.push(first),
        }
        value.write(row, text);
    }
    text.push(close);
}

fn append(texts: &mut StringBuilder, text: &[u8]) -> Result<()> {
    if texts.values_slice().len() + text.len() > i32::MAX as usize {
        return exec_err!("the JSON of one batch of rows is larger than 2 GiB");
    }
    texts
        .append_value(std::str::from_utf8(text).map_err(|error| DataFusionError::External(Box::new(error)))?);
    Ok(())
}
