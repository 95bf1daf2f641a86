//! Tests of several files as one table (columns by name, differing types, the files' paths), and of the options of text
//! files that change how they are read.

use super::*;
use arrow_array::{ArrayRef, Int32Array, Int64Array, StringArray};
use arrow_cast::display::array_value_to_string;
use farpool_model::{FileFormat, OptionValue};
use std::fs::{self, File};
use tempfile::TempDir;

fn options(format: FileFormat, set: &[(&str, OptionValue)]) -> ReadOptions {
    let mut options = ReadOptions::for_format(format);
    set.iter().for_each(|(name, value)| options.set(name, value).unwrap());
    options
}

fn text(value: &str) -> OptionValue {
    OptionValue::Text(value.to_string())
}

fn flag() -> OptionValue {
    OptionValue::Flag(true)
}

/// Returns names and types of the columns, and rows as texts. Checks that reading in batches, in tasks and one column
/// at a time gives the same rows.
fn rows(pattern: &str, options: &ReadOptions) -> Result<(Vec<String>, Vec<Vec<String>>)> {
    let source = open_all(&[pattern], options, None)?;
    let described = |field: &arrow_schema::FieldRef| {
        format!("{} {}", field.name(), farpool_model::sql_name(field.data_type()))
    };
    let columns: Vec<String> = source.schema().fields().iter().map(described).collect();
    let of = |batches: Batches| -> Result<Vec<Vec<String>>> {
        let mut rows = Vec::new();
        for batch in batches {
            let batch = batch?;
            let row = |row: usize| {
                batch.columns().iter().map(|column| array_value_to_string(column, row).unwrap()).collect()
            };
            rows.extend((0..batch.num_rows()).map(row));
        }
        Ok(rows)
    };
    let whole = of(source.batches(None))?;
    let parts = of(tasks::in_order(open_all(&[pattern], options, None)?.tasks(None)))?;
    assert_eq!(whole, parts);
    for column in 0..columns.len() {
        let one = of(open_all(&[pattern], options, None)?.batches(Some(&[column])))?;
        let expected: Vec<Vec<String>> =
            whole.iter().map(|row: &Vec<String>| vec![row[column].clone()]).collect();
        assert_eq!(one, expected, "column {column}");
    }
    Ok((columns, whole))
}

struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Folder(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_string()
    }

    fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> String {
        fs::write(self.path(name), contents).unwrap();
        self.path(name)
    }

    fn parquet(&self, name: &str, columns: Vec<(&str, ArrayRef)>) {
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let file = File::create(self.path(name)).unwrap();
        let mut writer = ::parquet::arrow::ArrowWriter::try_new(file, batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
    }
}

#[test]
fn parquet_files_are_one_table_by_the_names_of_columns() {
    let folder = Folder::new();
    folder.parquet("a.parquet", vec![("id", Arc::new(Int32Array::from(vec![1])))]);
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["n"]));
    folder.parquet("b.parquet", vec![("x", texts), ("id", Arc::new(Int64Array::from(vec![1 << 40])))]);
    let pattern = folder.path("*.parquet");
    let by_name = options(FileFormat::Parquet, &[("union_by_name", flag())]);
    let (columns, got) = rows(&pattern, &by_name).unwrap();
    assert_eq!(columns, ["id BIGINT", "x VARCHAR"]);
    assert_eq!(got, [["1", ""], ["1099511627776", "n"]]);
    let with_path = options(FileFormat::Parquet, &[("union_by_name", flag()), ("filename", text("file"))]);
    let (columns, got) = rows(&pattern, &with_path).unwrap();
    assert_eq!(columns, ["id BIGINT", "x VARCHAR", "file VARCHAR"]);
    assert_eq!((got[0][2].clone(), got[1][2].clone()), (folder.path("a.parquet"), folder.path("b.parquet")));
    let error = rows(&pattern, &ReadOptions::default()).unwrap_err().to_string();
    assert!(
        error.contains("1 columns against 2") && error.contains("read_parquet(…, union_by_name = true)"),
        "{error}"
    );
    assert!(!error.contains("types ="), "{error}");
}

#[test]
fn types_that_differ_become_one_that_holds_both_or_an_error() {
    let folder = Folder::new();
    folder.parquet("a.parquet", vec![("id", Arc::new(Int32Array::from(vec![1])))]);
    folder.parquet("b.parquet", vec![("id", Arc::new(Int64Array::from(vec![1 << 40])))]);
    let (columns, got) = rows(&folder.path("*.parquet"), &ReadOptions::default()).unwrap();
    assert_eq!(
        (columns, got),
        (vec!["id BIGINT".to_string()], vec![vec!["1".to_string()], vec![(1_i64 << 40).to_string()]])
    );
    folder.parquet("c.parquet", vec![("id", Arc::new(StringArray::from(vec!["x"])))]);
    let error = rows(&folder.path("*.parquet"), &ReadOptions::default()).unwrap_err().to_string();
    assert!(error.contains("BIGINT against VARCHAR") && error.contains("UNION ALL"), "{error}");
}

#[test]
fn text_files_are_one_table_by_the_names_of_columns() {
    let folder = Folder::new();
    folder.write("1.csv", "a,b\n1,x\n");
    folder.write("2.csv", "c,a\n2024-01-01,2.5\n");
    let by_name = options(FileFormat::Csv, &[("union_by_name", flag()), ("filename", flag())]);
    let (columns, got) = rows(&folder.path("?.csv"), &by_name).unwrap();
    assert_eq!(columns, ["a DOUBLE", "b VARCHAR", "c DATE", "filename VARCHAR"]);
    assert_eq!(got[0][..3], ["1.0", "x", ""]);
    assert_eq!(got[1][..3], ["2.5", "", "2024-01-01"]);
    let types = OptionValue::Map(vec![("c".to_string(), text("text"))]);
    let typed = options(FileFormat::Csv, &[("union_by_name", flag()), ("types", types)]);
    assert_eq!(rows(&folder.path("?.csv"), &typed).unwrap().0[2], "c VARCHAR");
    let types = OptionValue::Map(vec![("zz".to_string(), text("text"))]);
    let typed = options(FileFormat::Csv, &[("union_by_name", flag()), ("types", types)]);
    assert!(
        rows(&folder.path("?.csv"), &typed).unwrap_err().to_string().contains("no file has a column \"zz\"")
    );
    let (columns, _) =
        rows(&folder.path("1.csv"), &options(FileFormat::Csv, &[("filename", flag())])).unwrap();
    assert_eq!(columns.len(), 3);
    let taken = options(FileFormat::Csv, &[("filename", text("a"))]);
    assert!(rows(&folder.path("1.csv"), &taken).unwrap_err().to_string().contains("another name"));
    folder.write("1.json", "{\"a\": 1}\n");
    folder.write("2.json", "{\"b\": \"x\", \"a\": 0.5}\n");
    let (columns, got) =
        rows(&folder.path("?.json"), &options(FileFormat::Json, &[("union_by_name", flag())])).unwrap();
    assert_eq!(columns, ["a DOUBLE", "b VARCHAR"]);
    assert_eq!(got, [["1.0", ""], ["0.5", "x"]]);
}

/// The expected values are those that DuckDB 2.0.1 reads with the same options.
#[test]
fn csv_of_other_countries_is_read() {
    let folder = Folder::new();
    let path = folder.write("de.csv", b"stra\xdfe;preis;am\nK\xf6nig;1.234,50;31.12.2024\n;0,5;01.02.2023\n");
    let set = [
        ("encoding", text("latin-1")),
        ("delim", text(";")),
        ("decimal_separator", text(",")),
        ("thousands", text(".")),
        ("dateformat", text("%d.%m.%Y")),
    ];
    let (columns, got) = rows(&path, &options(FileFormat::Csv, &set)).unwrap();
    assert_eq!(columns, ["straße VARCHAR", "preis DOUBLE", "am DATE"]);
    assert_eq!(got, [["König", "1234.5", "2024-12-31"], ["", "0.5", "2023-02-01"]]);
    let types = OptionValue::Map(vec![("preis".to_string(), text("decimal(10, 2)"))]);
    let typed: Vec<_> = set.into_iter().chain([("types", types)]).collect();
    assert_eq!(rows(&path, &options(FileFormat::Csv, &typed)).unwrap().1[0][1], "1234.50");
    let utf16: Vec<u8> = "\u{feff}a,b\n1,日本\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let path = folder.write("utf16.csv", &utf16);
    let (columns, got) = rows(&path, &options(FileFormat::Csv, &[("encoding", text("utf-16"))])).unwrap();
    assert_eq!(
        (columns.join(", "), got),
        ("a BIGINT, b VARCHAR".to_string(), vec![vec!["1".to_string(), "日本".to_string()]])
    );
}

#[test]
fn columns_have_the_names_that_are_given() {
    let folder = Folder::new();
    let path = folder.write("x.csv", "1,2,3\n4,5,6\n");
    let names = |names: &[&str]| OptionValue::List(names.iter().map(|name| text(name)).collect());
    let set = [("names", names(&["x", "y"])), ("header", OptionValue::Flag(false))];
    let (columns, got) = rows(&path, &options(FileFormat::Csv, &set)).unwrap();
    assert_eq!((columns.join(", "), got.len()), ("x BIGINT, y BIGINT, column2 BIGINT".to_string(), 2));
    let (columns, got) = rows(&path, &options(FileFormat::Csv, &set[..1])).unwrap();
    assert_eq!((columns[0].as_str(), got.len()), ("x BIGINT", 1), "the first line is a header then");
    let many = options(FileFormat::Csv, &[("names", names(&["a", "b", "c", "d"]))]);
    assert!(rows(&path, &many).unwrap_err().to_string().contains("3 columns, and 4 names"));
}
