//! Tests of JSON in both forms, valid and broken.

use super::*;
use arrow_array::cast::AsArray;
use arrow_array::types::{Date32Type, Float64Type, Int64Type};
use std::io::Cursor;

fn all(text: &str) -> Result<RecordBatch> {
    all_with(text, &ReadOptions::default())
}

fn all_with(text: &str, options: &ReadOptions) -> Result<RecordBatch> {
    let path = Path::new("x.json");
    let schema = super::super::schemas::settled(&*open(path, Cursor::new(text.as_bytes()), options)?);
    let columns: Vec<usize> = (0..schema.fields().len()).collect();
    let from: Bytes = Box::new(Cursor::new(text.as_bytes().to_vec()));
    let batches = read(path, from, &schema, &Form::of(options), &columns)?.collect::<Result<Vec<_>>>()?;
    Ok(arrow_select::concat::concat_batches(&schema, &batches).unwrap())
}

#[track_caller]
fn fails(text: &str, with: &str) {
    let error = all(text).unwrap_err().to_string();
    assert!(error.contains("x.json") && error.contains(with), "{error} does not have {with}");
}

#[test]
fn lines_and_arrays_are_the_same_rows() {
    let rows = [
        r#"{"a": 1, "s": "x \" } ,", "d": "2024-05-31", "b": true}"#,
        r#"{"a": 2.5, "n": null, "s": null}"#,
        "{\"s\": \"ö\\n\",\n \"d\": \"2024/06/01\"}",
    ];
    let texts = [
        rows.join("\n"),
        rows.join(" "),
        format!("[{}]", rows.join(",\n")),
        format!(" [ {} ]\n", rows.join(" , ")),
    ];
    for text in texts {
        let got = all(&text).unwrap();
        let schema = got.schema();
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        assert_eq!(names, ["a", "s", "d", "b", "n"], "{text}");
        let numbers: Vec<_> = got.column(0).as_primitive::<Float64Type>().iter().collect();
        assert_eq!(numbers, [Some(1.0), Some(2.5), None]);
        let texts: Vec<_> = got.column(1).as_string_view().iter().collect();
        assert_eq!(texts, [Some("x \" } ,"), None, Some("ö\n")]);
        let days: Vec<_> = got.column(2).as_primitive::<Date32Type>().iter().collect();
        assert_eq!(days, [Some(19_874), None, Some(19_875)]);
        assert_eq!(got.column(4).null_count(), 3);
    }
}

#[test]
fn nested_values_are_lists_and_structs() {
    let got =
        all(r#"{"l": [1, 2], "o": {"p": "x", "q": [{"r": 1}]}, "m": [1]}{"l": [], "o": {"z": 1}, "m": "t"}"#);
    let schema = got.unwrap_err();
    assert!(schema.to_string().contains("line 1"), "a list is no text: {schema}");
    let got = all(r#"{"l": [1, 2], "o": {"p": "x", "q": [{"r": 1}]}} {"l": [], "o": {"z": 1}}"#).unwrap();
    assert_eq!(got.column(0).as_list::<i32>().value(0).as_primitive::<Int64Type>().values(), &[1, 2]);
    let object = got.column(1).as_struct();
    assert_eq!(object.column_names(), ["p", "q", "z"]);
}

#[test]
fn broken_json_says_where() {
    fails("{\"a\": 1}\n{\"a\": \n", "ends within an object");
    fails("[{\"a\": 1},\n{\"a\": 2}", "ends within an object or array");
    fails("[{\"a\": 1}\n{\"a\": 2}]", "line 2: a comma is missing");
    fails("[{\"a\": 1},\n]", "line 2: no object follows the last comma");
    fails("[{\"a\": 1}] x", "line 1: there is something behind the array");
    fails("[1, 2]", "line 1: a row is not an object");
    fails("{\"a\": 1}\n\n{\"a\": x}", "line 3: no JSON object");
    fails("{\"a\": [1}}", "no JSON object");
    fails("{\"a\": [1}", "ends within");
    fails("  \n ", "has no columns");
    let late = "{\"a\": 1}\n".repeat(30_000) + "{\"a\": \"many\"}";
    fails(&late, "many");
}

#[test]
fn deep_nesting_is_an_error_and_no_crash() {
    let deep = format!("{{\"a\": {}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
    fails(&deep, "recursion limit");
    let at_most = format!("{{\"a\": {}1{}}}", "[".repeat(100), "]".repeat(100));
    assert_eq!(all(&at_most).unwrap().num_rows(), 1);
}

#[test]
fn instants_and_times_without_a_zone_are_told_apart() {
    let got =
        all(r#"{"a": "2013-01-01T05:00:00+02:00", "b": "2013-01-01T05:00:00", "c": "2013-01-01T05:00:00Z"}
                     {"a": "2013-01-01T03:00:00Z", "b": null, "c": "2013-01-01T05:00:00"}"#)
        .unwrap();
    let types: Vec<_> = got.schema().fields().iter().map(|field| field.data_type().clone()).collect();
    let micros =
        |zone: Option<&str>| DataType::Timestamp(arrow_schema::TimeUnit::Microsecond, zone.map(Into::into));
    assert_eq!(types, [micros(Some("UTC")), micros(None), DataType::Utf8View]);
    let instants = got.column(0).as_primitive::<arrow_array::types::TimestampMicrosecondType>();
    assert_eq!(instants.value(0), instants.value(1));
}

#[test]
fn lines_that_do_not_fit_are_left_out_if_that_is_asked_for() {
    let lenient = ReadOptions { ignore_errors: true, sample_rows: Some(2), ..ReadOptions::default() };
    let text = "\u{feff}{\"a\": 1, \"b\": \"x\"}\n{\"a\": 2}\n\n{\"a\": \"many\"}\n{\"a\": 3,\nno\n{\"a\": 4} {}\n[1]\n{\"a\": 5}\r\n{\"a\": 6";
    let got = all_with(text, &lenient).unwrap();
    assert_eq!(got.column(0).as_primitive::<Int64Type>().values(), &[1, 2, 5]);
    assert_eq!(got.column(1).as_string_view().iter().next(), Some(Some("x")));
    let path = Path::new("x.json");
    let schema = super::super::schemas::settled(&open(path, Cursor::new(text.as_bytes()), &lenient).unwrap());
    let from: Bytes = Box::new(Cursor::new(text.as_bytes().to_vec()));
    let batches = read(path, from, &schema, &Form::of(&lenient), &[1]).unwrap();
    let rows: usize = batches.map(|batch| batch.unwrap().num_rows()).sum();
    assert_eq!(rows, 3, "whichever columns are read");
    let error = all_with("[{\"a\": 1}]", &lenient).unwrap_err().to_string();
    assert!(error.contains("an array of objects"), "{error}");
}
