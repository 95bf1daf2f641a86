//! Tests of options, lines and errors of CSV.

use super::*;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, RecordBatch};
use farpool_model::{FileFormat, OptionValue};
use std::io::{Cursor, Read};

fn options(set: &[(&str, OptionValue)]) -> ReadOptions {
    let mut options = ReadOptions::for_format(FileFormat::Csv);
    set.iter().for_each(|(name, value)| options.set(name, value).unwrap());
    options
}

fn text(value: &str) -> OptionValue {
    OptionValue::Text(value.to_string())
}

fn all(bytes: &[u8], options: &ReadOptions) -> Result<RecordBatch> {
    let path = Path::new("x.csv");
    let (schema, dialect) = open_head(path, bytes, options)?;
    let schema = super::super::schemas::settled(&schema);
    let columns: Vec<usize> = (0..schema.fields().len()).collect();
    let batches = read(path, Cursor::new(bytes.to_vec()), &schema, &dialect, &columns)?;
    let batches = batches.collect::<Result<Vec<_>>>()?;
    Ok(arrow_select::concat::concat_batches(&schema, &batches).unwrap())
}

#[track_caller]
fn fails(bytes: &str, options: &ReadOptions, with: &str) {
    let error = all(bytes.as_bytes(), options).unwrap_err().to_string();
    assert!(error.contains("x.csv") && error.contains(with), "{error} does not have {with}");
}

#[test]
fn texts_that_stand_for_null_are_null() {
    let nulls = OptionValue::List(vec![text("NA"), text("")]);
    let got = all(b"a,b\n1,x\n,\nNA,NA\n", &options(&[("nullstr", nulls)])).unwrap();
    let numbers: Vec<_> = got.column(0).as_primitive::<Int64Type>().iter().collect();
    assert_eq!(numbers, [Some(1), None, None]);
    let got = all(b"a,b\n1,x\n,\nNA,NA\n", &options(&[("nullstr", text("NA"))])).unwrap();
    let texts: Vec<_> = got.column(1).as_string_view().iter().collect();
    assert_eq!(texts, [Some("x"), Some(""), None], "an empty field is a text then");
}

#[test]
fn each_option_does_its_part() {
    let types = OptionValue::Map(vec![("zip".to_string(), text("text"))]);
    let got = all(b"zip\n501\n", &options(&[("types", types)])).unwrap();
    assert_eq!(got.column(0).as_string_view().value(0), "501");
    let got = all(b"1,2\n3,4\n", &options(&[("header", OptionValue::Flag(false))])).unwrap();
    assert_eq!((got.num_rows(), got.schema().field(1).name().as_str()), (2, "column1"));
    let got = all(
        b"made by hand\n# a comment\na;b\n1;'x;y'\n",
        &options(&[
            ("skip", OptionValue::Number(1)),
            ("comment", text("#")),
            ("delim", text(";")),
            ("quote", text("'")),
        ]),
    );
    assert_eq!(got.unwrap().column(1).as_string_view().value(0), "x;y");
    let got = all(b"a\n\"x\\\"y\"\n", &options(&[("escape", text("\\"))])).unwrap();
    assert_eq!(got.column(0).as_string_view().value(0), "x\"y");
    let got = all(b"a\n\"x\n", &options(&[("quote", text(""))])).unwrap();
    assert_eq!(got.column(0).as_string_view().value(0), "\"x");
    let got = all(b"a\n1\n", &options(&[("all_varchar", OptionValue::Flag(true))])).unwrap();
    assert_eq!(got.column(0).as_string_view().value(0), "1");
    let got = all(b"a,b\n1\n2,3\n", &options(&[("null_padding", OptionValue::Flag(true))])).unwrap();
    assert!(got.column(1).is_null(0) && got.column(1).is_valid(1));
}

#[test]
fn lines_that_do_not_fit_are_left_out_if_that_is_asked_for() {
    let lenient = options(&[("ignore_errors", OptionValue::Flag(true))]);
    let mut bytes = b"a,b\n".to_vec();
    (0..GUESS_ROWS).for_each(|_| bytes.extend(b"1,x\n"));
    bytes.extend(b"many,x\n2,y,z\n3\n4,caf\xe9\n5,z\n");
    let path = Path::new("x.csv");
    let (schema, dialect) = open_head(path, &bytes, &lenient).unwrap();
    for columns in [vec![0, 1], vec![1], vec![0]] {
        let batches = read(path, Cursor::new(bytes.clone()), &schema, &dialect, &columns).unwrap();
        let rows: usize = batches.map(|batch| batch.unwrap().num_rows()).sum();
        assert_eq!(rows, GUESS_ROWS + 1, "whichever columns are read: {columns:?}");
    }
}

#[test]
fn errors_have_the_line_as_an_editor_counts_it() {
    let plain = ReadOptions::default();
    fails("a,b\n1,\"x\n2,y\n", &plain, "line 2: a quote opens in this record");
    fails("a,b\n1,\"x\n2,y", &plain, "line 2: a quote opens in this record");
    fails("a,b\n\"1\n1\",x\n\n3\n", &plain, "line 5: 1 field, and the file has 2 columns");
    fails("a,b\r\n1,x\r\n3,4,5\r\n", &plain, "line 3: 3 fields");
    fails("a,b\r\n1,x\r\n3", &plain, "line 3: 1 field");
    fails("#\n\na,b\n3\n", &options(&[("skip", OptionValue::Number(1))]), "line 4: 1 field");
    let types = OptionValue::Map(vec![("a".to_string(), text("int"))]);
    let typed = options(&[("types", types)]);
    fails(
        "a,b\n\"1\",\"x\ny\"\nz,4\n",
        &typed,
        "line 4: \"z\" is not a value of column \"a\", which has type INTEGER",
    );
    let unknown = OptionValue::Map(vec![("zz".to_string(), text("int"))]);
    fails("a,b\n1,2\n", &options(&[("types", unknown)]), "no column \"zz\"");
}

#[test]
fn records_do_not_depend_on_how_bytes_come() {
    struct Slowly(Vec<u8>, usize);
    impl Read for Slowly {
        fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
            let count = to.len().min(1).min(self.0.len() - self.1);
            to[..count].copy_from_slice(&self.0[self.1..self.1 + count]);
            self.1 += count;
            Ok(count)
        }
    }
    let bytes = b"a,b\r\n1,\"x\r\ny \"\"q\"\"\"\r\n2,\n\n3,z".to_vec();
    let (schema, dialect) = open_head(Path::new("x.csv"), &bytes, &ReadOptions::default()).unwrap();
    let whole = all(&bytes, &ReadOptions::default()).unwrap();
    let slow = std::io::BufReader::with_capacity(1, Slowly(bytes, 0));
    let mut batches = read(Path::new("x.csv"), slow, &schema, &dialect, &[0, 1]).unwrap();
    assert_eq!(batches.next().unwrap().unwrap(), whole);
    assert_eq!(
        whole.column(1).as_string_view().iter().collect::<Vec<_>>(),
        [Some("x\r\ny \"q\""), None, Some("z")]
    );
}

#[test]
fn long_records_end_at_the_limit() {
    let from = std::io::BufReader::new(Cursor::new(b"a\n\"".to_vec()).chain(std::io::repeat(b'x')));
    let dialect = Dialect::new(b',', &ReadOptions::default());
    let mut records = Records::new(from, &dialect).unwrap();
    assert_eq!(records.next().unwrap().unwrap().field(0), b"a");
    assert!(matches!(records.next(), Err(records::Broken::Long(2))));
}

#[test]
fn a_zone_is_kept_and_one_among_times_without_is_a_misfit() {
    use arrow_schema::TimeUnit::Microsecond;
    let instants = DataType::Timestamp(Microsecond, Some("UTC".into()));
    let got = all(b"t\n2013-01-01T05:00:00+02:00\n2013-01-01 03:00:00Z\n", &ReadOptions::default()).unwrap();
    assert_eq!(got.schema().field(0).data_type(), &instants);
    let micros = got.column(0).as_primitive::<arrow_array::types::TimestampMicrosecondType>();
    assert_eq!(micros.value(0), micros.value(1));
    let one = || OptionValue::Number(1);
    let mixed = "t\n2013-01-01 05:00:00Z\n2013-01-01 05:00:00\n";
    fails(mixed, &options(&[("sample_size", one())]), "line 3: \"2013-01-01 05:00:00\" is not a value");
    let turned = "t\n2013-01-01 05:00:00\n2013-01-01 05:00:00-01:00\n";
    fails(
        turned,
        &options(&[("sample_size", one())]),
        "line 3: \"2013-01-01 05:00:00-01:00\" is not a value",
    );
    assert_eq!(
        all(mixed.as_bytes(), &ReadOptions::default()).unwrap().column(0).data_type(),
        &DataType::Utf8View
    );
    let types = OptionValue::Map(vec![("t".to_string(), text("timestamptz"))]);
    let got = all(mixed.as_bytes(), &options(&[("types", types)])).unwrap();
    let micros = got.column(0).as_primitive::<arrow_array::types::TimestampMicrosecondType>();
    assert_eq!(micros.value(0), micros.value(1), "the zone of a session is UTC");
}

/// A quoted empty field is an empty text, as in PostgreSQL; for other types it is NULL, since some programs quote all
/// fields.
#[test]
fn a_field_in_quotes_is_not_null() {
    let texts = |bytes: &[u8], options: &ReadOptions, column: usize| -> Vec<Option<String>> {
        let got = all(bytes, options).unwrap();
        got.column(column).as_string_view().iter().map(|text| text.map(str::to_string)).collect()
    };
    let some = |text: &str| Some(text.to_string());
    let plain = ReadOptions::default();
    assert_eq!(
        texts(b"n,s\n1,\"\"\n2,\n3,\"x\"\"\"\n,\"\"\n", &plain, 1),
        [some(""), None, some("x\""), some("")]
    );
    assert_eq!(texts(b"n,s\n1,\"a\"\"\"\n2,\"\"\n3,\n", &plain, 1), [some("a\""), some(""), None]);
    let got = all(b"n,s\n\"1\",\"\"\n\"\",\n", &plain).unwrap();
    let numbers: Vec<_> = got.column(0).as_primitive::<Int64Type>().iter().collect();
    assert_eq!(numbers, [Some(1), None]);
    let na = options(&[("nullstr", text("NA"))]);
    assert_eq!(texts(b"n,s\n1,\"NA\"\n2,NA\n3,\n", &na, 1), [some("NA"), None, some("")]);
    let tabs = options(&[("delim", text("\\t")), ("comment", text("#"))]);
    assert_eq!(texts(b"n\ts\n# \"\"\n1\t\"\"\n#x\n\n2\t\n", &tabs, 1), [some(""), None]);
}

/// In a file of one column an empty line is a NULL, as in PostgreSQL and DuckDB: a NULL cannot be written otherwise.
#[test]
fn an_empty_line_of_a_single_column_is_null() {
    let rows = |bytes: &[u8]| -> Vec<Option<String>> {
        let got = all(bytes, &ReadOptions::default()).unwrap();
        got.column(0).as_string_view().iter().map(|text| text.map(str::to_string)).collect()
    };
    let some = |text: &str| Some(text.to_string());
    let expected = [some("x"), None, some(""), some("y"), None];
    assert_eq!(rows(b"a\nx\n\n\"\"\ny\n\n"), expected);
    assert_eq!(rows(b"\n\na\r\nx\r\n\r\n\"\"\r\ny\r\n\r\n"), expected);
    assert_eq!(rows(b"a\nx\ny"), [some("x"), some("y")]);
    let got = all(b"a,b\nx,1\n\ny,2\n\n", &ReadOptions::default()).unwrap();
    assert_eq!(got.num_rows(), 2, "of more columns it is none");
}
