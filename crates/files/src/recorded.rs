//! Tests of files that DuckDB, pyarrow and Polars have written, with the values that these read in them
//! (`testdata/files/make.py`).

use super::*;
use arrow_cast::display::array_value_to_string;
use arrow_schema::DataType;

fn path(name: &str) -> String {
    format!("{}/../../testdata/files/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// Returns the columns at the indexes `columns` as text. Checks that reading in batches and in tasks gives the same.
fn texts(name: &str, columns: &[usize]) -> Result<Vec<Vec<String>>> {
    let of = |batches: Batches| -> Result<Vec<Vec<String>>> {
        let mut texts = vec![Vec::new(); columns.len()];
        for batch in batches {
            let batch = batch?;
            for (texts, column) in texts.iter_mut().zip(batch.columns()) {
                let text = |row| array_value_to_string(column, row).unwrap();
                texts.extend((0..column.len()).map(text));
            }
        }
        Ok(texts)
    };
    let whole = of(open(&path(name))?.batches(Some(columns)));
    let parts = of(tasks::in_order(open(&path(name))?.tasks(Some(columns))));
    match (whole, parts) {
        (Ok(whole), Ok(parts)) => {
            assert_eq!(whole, parts, "{name}");
            Ok(whole)
        }
        (Err(whole), parts) => {
            assert_eq!(parts.unwrap_err().to_string(), whole.to_string());
            Err(whole)
        }
        (Ok(_), Err(error)) => panic!("{name}: tasks fail, and batches do not: {error}"),
    }
}

fn types(name: &str) -> Vec<String> {
    open(&path(name))
        .unwrap()
        .schema()
        .fields()
        .iter()
        .map(|field| farpool_model::sql_name(field.data_type()))
        .collect()
}

#[track_caller]
fn fails(name: &str, columns: &[usize], with: &[&str]) {
    let error = texts(name, columns).unwrap_err().to_string();
    assert!(error.contains(name), "{error}");
    with.iter().for_each(|with| assert!(error.contains(with), "{error} does not have {with}"));
}

#[test]
fn int96_holds_the_times_of_any_year() {
    let expected = [
        "0001-01-01T00:00:00",
        "1677-09-21T00:00:00",
        "",
        "2024-02-29T12:00:00.000005",
        "9999-12-31T23:59:59.999999",
    ];
    for name in ["int96.parquet", "int96-schema.parquet"] {
        let got = texts(name, &[0, 1]).unwrap();
        assert_eq!(got[0], expected, "{name}");
        assert_eq!(
            got[1],
            ["[0001-01-01T00:00:00]", "[]", "", "[]", "[9999-12-31T23:59:59.999999]"],
            "{name}"
        );
    }
    let zoned = texts("int96-schema.parquet", &[2]).unwrap();
    assert_eq!(zoned[0][4], "9999-12-31T23:59:59.999999Z");
}

#[test]
fn an_interval_has_months_days_and_milliseconds() {
    let got = texts("interval.parquet", &[0, 1]).unwrap();
    assert_eq!(got[0], ["14 mons 2 days 3 hours", "", "0.001000000 secs"]);
    assert_eq!(got[1], ["[1 mons]", "[]", ""]);
}

#[test]
fn integers_of_128_bits_are_decimals() {
    let got = texts("int128.parquet", &[0, 1, 2]).unwrap();
    assert_eq!(got[0], ["1", "-5", "", "99999999999999999999999999999999999999"]);
    assert_eq!(got[1], ["1", "5", "", "10000000000000000000000000000000000000"]);
    assert_eq!(got[2], ["1", "2", "3", "4"]);
    let source = open(&path("int128.parquet")).unwrap();
    assert_eq!(source.schema().field(0).data_type(), &DataType::Decimal128(38, 0));
    // All other types in the footer's Arrow schema are kept.
    assert!(matches!(source.schema().field(3).data_type(), DataType::Duration(_)));
    assert_eq!(texts("int128-large.parquet", &[1]).unwrap()[0], ["1"]);
    fails("int128-large.parquet", &[0], &["\"i\"", "100000000000000000000000000000000000000", "38 digits"]);
    fails("int128-list.parquet", &[0], &["\"l\"", "128-bit integers"]);
    fails("int128.arrow", &[2], &["\"i\"", "128-bit integers"]);
}

#[test]
fn times_without_a_text_are_refused_by_their_column() {
    assert_eq!(texts("infinite.parquet", &[0]).unwrap()[0], ["1"]);
    for (i, name) in ["t", "m", "z", "d", "l"].iter().enumerate() {
        fails("infinite.parquet", &[i + 1], &[&format!("\"{name}\""), "outside of the calendar", "infinity"]);
    }
}

#[test]
fn dates_of_milliseconds_and_columns_of_nothing_are_read() {
    for name in ["date64.parquet", "date64.arrow"] {
        assert_eq!(types(name), ["DATE", "VARCHAR"], "{name}");
        let got = texts(name, &[0, 1]).unwrap();
        assert!(got[0][0].starts_with("2024-02-29") && got[0][1].starts_with("1969-12-31"), "{got:?}");
        assert_eq!(got[1], ["", "", ""]);
    }
}
