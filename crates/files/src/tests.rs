//! Tests of files of every format: valid, corrupted and with a wrong extension.

use super::*;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::*;
use arrow_cast::cast;
use arrow_schema::{DataType, Field, TimeUnit};
use farpool_model::ErrorKind;
use std::fs::{self, File};
use std::sync::atomic::Ordering;
use tempfile::TempDir;

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

    fn parquet(&self, name: &str, batch: &RecordBatch) -> String {
        let file = File::create(self.path(name)).unwrap();
        let properties = ::parquet::file::properties::WriterProperties::builder()
            .set_max_row_group_row_count(Some(1_000))
            .build();
        let mut writer =
            ::parquet::arrow::ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
        writer.write(batch).unwrap();
        writer.close().unwrap();
        self.path(name)
    }

    fn ipc_file(&self, name: &str, batch: &RecordBatch, lz4: bool) -> String {
        let file = File::create(self.path(name)).unwrap();
        let compression = lz4.then_some(arrow_ipc::CompressionType::LZ4_FRAME);
        let options =
            arrow_ipc::writer::IpcWriteOptions::default().try_with_compression(compression).unwrap();
        let mut writer =
            arrow_ipc::writer::FileWriter::try_new_with_options(file, &batch.schema(), options).unwrap();
        slices(batch).for_each(|slice| writer.write(&slice).unwrap());
        writer.finish().unwrap();
        self.path(name)
    }

    fn ipc_stream(&self, name: &str, batch: &RecordBatch) -> String {
        let file = File::create(self.path(name)).unwrap();
        let mut writer = arrow_ipc::writer::StreamWriter::try_new(file, &batch.schema()).unwrap();
        slices(batch).for_each(|slice| writer.write(&slice).unwrap());
        writer.finish().unwrap();
        self.path(name)
    }

    /// Writes the rows of `batch` to a file in every binary format. Returns the paths.
    fn all_formats(&self, batch: &RecordBatch) -> [String; 4] {
        [
            self.parquet("rows.parquet", batch),
            self.ipc_file("rows.arrow", batch, false),
            self.ipc_file("rows.feather", batch, true),
            self.ipc_stream("rows.arrows", batch),
        ]
    }
}

fn slices(batch: &RecordBatch) -> impl Iterator<Item = RecordBatch> + '_ {
    let rows = batch.num_rows();
    (0..rows).step_by(700).map(move |start| batch.slice(start, 700.min(rows - start)))
}

fn rows(count: usize) -> RecordBatch {
    let n = count as i64;
    let some = |i: i64| i % 7 != 0;
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("i", Arc::new(Int64Array::from_iter((0..n).map(|i| some(i).then_some(i))))),
        ("s", Arc::new(StringArray::from_iter((0..n).map(|i| some(i).then(|| format!("text {}", i % 50)))))),
        ("f", Arc::new(Float64Array::from_iter_values((0..n).map(|i| i as f64 / 3.0)))),
        ("b", Arc::new(BooleanArray::from_iter((0..n).map(|i| Some(i % 3 == 0))))),
        ("d", Arc::new(Date32Array::from_iter_values((0..count as i32).map(|i| i * 2)))),
        ("t", Arc::new(TimestampMicrosecondArray::from_iter_values((0..n).map(|i| i * 1_000_003)))),
        (
            "m",
            Arc::new(
                Decimal128Array::from_iter_values((0..n).map(|i| i128::from(i) * 11))
                    .with_precision_and_scale(15, 2)
                    .unwrap(),
            ),
        ),
        ("x", Arc::new(BinaryArray::from_iter_values((0..n).map(|i| i.to_le_bytes())))),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, c)| (n, c, true))).unwrap()
}

fn read(path: &str, columns: Option<&[usize]>) -> Result<RecordBatch> {
    let source = open(path)?;
    let schema = source.schema().clone();
    let batches = source.batches(columns).collect::<Result<Vec<_>>>()?;
    let schema = columns.map_or(schema.clone(), |columns| Arc::new(schema.project(columns).unwrap()));
    assert!(batches.iter().all(|batch| batch.schema() == schema));
    Ok(arrow_select::concat::concat_batches(&schema, &batches).unwrap())
}

/// Returns the error of reading `path`, whose text must contain all of `names`.
#[track_caller]
fn fails(path: &str, kind: ErrorKind, names: &[&str]) -> Error {
    let error = read(path, None).unwrap_err();
    assert_eq!(error.kind, kind, "{error}");
    for name in names {
        assert!(error.to_string().contains(name), "{error} does not mention {name}");
    }
    error
}

#[test]
fn every_format_gives_back_what_was_written() {
    let (folder, expected) = (Folder::new(), rows(2_500));
    for path in folder.all_formats(&expected) {
        let got = read(&path, None).unwrap();
        for (i, column) in expected.columns().iter().enumerate() {
            let got = cast(got.column(i), column.data_type()).unwrap();
            assert_eq!(&got, column, "{path} column {i}");
        }
    }
    for name in ["rows.parquet", "rows.arrow", "rows.feather", "rows.arrows"] {
        assert_eq!(open(&folder.path(name)).unwrap().rows_hint(), Some(2_500));
    }
    let parquet = open(&folder.path("rows.parquet")).unwrap();
    assert_eq!(parquet.schema().field(1).data_type(), &DataType::Utf8View);
    assert_eq!(parquet.schema().field(7).data_type(), &DataType::BinaryView);
}

#[test]
fn columns_come_in_the_order_asked_for_and_none_still_count() {
    let (folder, expected) = (Folder::new(), rows(1_500));
    let mut paths = folder.all_formats(&expected).to_vec();
    paths.push(folder.write("rows.csv", "i,s,f\n".to_string() + &"1,a,0.5\n".repeat(1_500)));
    for path in paths {
        let got = read(&path, Some(&[2, 0])).unwrap();
        assert_eq!(got.schema().field(0).name(), "f", "{path}");
        assert_eq!(got.schema().field(1).name(), "i");
        assert_eq!(got.column(0).data_type(), &DataType::Float64);
        assert_eq!(read(&path, Some(&[])).unwrap().num_rows(), 1_500, "{path}");
        assert_eq!(
            open(&path).unwrap().batches(Some(&[99])).next().unwrap().unwrap_err().kind,
            ErrorKind::Invalid
        );
    }
}

#[test]
fn progress_ends_at_the_size_of_the_files() {
    let (folder, batch) = (Folder::new(), rows(2_500));
    let mut paths = folder.all_formats(&batch).to_vec();
    paths.push(folder.write("rows.csv", "i,s\n".to_string() + &"1,a\n".repeat(50_000)));
    for path in &paths {
        let source = open(path).unwrap();
        let (bytes, progress) = (source.bytes(), source.progress());
        assert_eq!(bytes, fs::metadata(path).unwrap().len());
        let mut last = 0;
        for batch in source.batches(Some(&[1])) {
            batch.unwrap();
            let now = progress.load(Ordering::Relaxed);
            assert!(now >= last && now <= bytes && now > 0);
            last = now;
        }
        assert_eq!(progress.load(Ordering::Relaxed), bytes, "{path}");
    }
    let shared = Arc::new(AtomicU64::new(5));
    for path in &paths[..2] {
        open(path).unwrap().with_progress(shared.clone()).batches(None).for_each(|b| drop(b.unwrap()));
    }
    let sizes: u64 = paths[..2].iter().map(|p| fs::metadata(p).unwrap().len()).sum();
    assert_eq!(shared.load(Ordering::Relaxed), sizes + 5);
}

#[test]
fn a_pattern_is_all_its_files_in_order() {
    let folder = Folder::new();
    for (name, start) in [("b", 100), ("a", 0), ("c", 200)] {
        folder.parquet(&format!("part-{name}.parquet"), &rows(300).slice(start, 100));
    }
    fs::create_dir(folder.path("part-d.parquet")).unwrap();
    let source = open(&folder.path("part-*.parquet")).unwrap();
    assert_eq!(source.files().len(), 3);
    assert_eq!(source.rows_hint(), Some(300));
    let got = read(&folder.path("part-*.parquet"), Some(&[0])).unwrap();
    assert_eq!(got.column(0).as_primitive::<Int64Type>(), rows(300).column(0).as_primitive::<Int64Type>());
    fails(&folder.path("nothing-*.parquet"), ErrorKind::NotFound, &["nothing-*.parquet", "check the path"]);
    fails(&folder.path("[.parquet"), ErrorKind::Invalid, &["[.parquet"]);
    let odd = folder.parquet("odd[1].parquet", &rows(5));
    assert_eq!(read(&odd, None).unwrap().num_rows(), 5);
}

#[test]
fn files_that_differ_are_named_with_the_column() {
    let folder = Folder::new();
    folder.parquet("x1.parquet", &rows(10));
    folder.parquet("x2.parquet", &rows(10).project(&[0, 2]).unwrap());
    fails(
        &folder.path("x*.parquet"),
        ErrorKind::Invalid,
        &["x1.parquet", "x2.parquet", "8 columns against 2"],
    );
    folder.write("y1.csv", "a,b\n1,x\n");
    folder.write("y2.csv", "a,c\n1,x\n");
    fails(&folder.path("y?.csv"), ErrorKind::Invalid, &["y1.csv", "y2.csv", "\"b\" against \"c\""]);
    folder.write("z1.csv", "a,b\n1,2020-01-01\n");
    folder.write("z2.csv", "a,b\n1,true\n");
    fails(&folder.path("z?.csv"), ErrorKind::Invalid, &["z1.csv", "z2.csv", "\"b\"", "DATE", "BOOLEAN"]);
}

#[test]
fn csv_files_may_differ_in_how_numbers_look() {
    let folder = Folder::new();
    folder.write("1.csv", "a,b,c\n1,,x\n");
    folder.write("2.csv", "a,b,c\n2.5,7,\n");
    folder.write("3.csv", "a,b,c\n,,\n");
    let got = read(&folder.path("?.csv"), None).unwrap();
    assert_eq!(
        got.column(0).as_primitive::<Float64Type>(),
        &Float64Array::from(vec![Some(1.0), Some(2.5), None])
    );
    assert_eq!(got.column(1).as_primitive::<Int64Type>(), &Int64Array::from(vec![None, Some(7), None]));
    assert_eq!(got.column(2).as_string_view(), &StringViewArray::from(vec![Some("x"), None, None]));
}

#[test]
fn csv_types_are_guessed() {
    let folder = Folder::new();
    let text = "\u{feff}n,f,b,d,t,s,empty,\n\
                1,0.5,true,2024-05-31,2024-05-31 12:00:00,\"a, \"\"b\"\"\nc\",,x\n\
                -2,1e3,FALSE,1969-12-31,2024-05-31T12:00:00.25,,,\n";
    let got = read(&folder.write("t.csv", text), None).unwrap();
    let types: Vec<_> = got.schema().fields().iter().map(|f| f.data_type().clone()).collect();
    use DataType::*;
    let micros = Timestamp(TimeUnit::Microsecond, None);
    assert_eq!(types, [Int64, Float64, Boolean, Date32, micros, Utf8View, Utf8View, Utf8View]);
    assert_eq!(got.schema().field(0).name(), "n", "a byte order mark is no part of the name");
    assert_eq!(got.schema().field(7).name(), "column7");
    let strings = got.column(5).as_string_view();
    assert_eq!((strings.value(0), strings.is_null(1)), ("a, \"b\"\nc", true));
    let times = got.column(4).as_primitive::<types::TimestampMicrosecondType>();
    assert_eq!(times.value(1) - times.value(0), 250_000);
    assert_eq!(got.column(6).null_count(), 2);
}

#[test]
fn other_separators_are_found_in_the_header() {
    let folder = Folder::new();
    for (name, text) in [("a.tsv", "a\tb,c\n1\tx\n"), ("a.csv", "a;b\n1;x,y\n"), ("b.csv", "a|b\n1|x\n")] {
        let got = read(&folder.write(name, text), None).unwrap();
        assert_eq!((got.num_columns(), got.num_rows()), (2, 1), "{name}");
    }
    let got = read(&folder.write("one.csv", "only\n1\n2\n"), None).unwrap();
    assert_eq!((got.num_columns(), got.num_rows()), (1, 2));
    let got = read(&folder.write("header.csv", "a,b\n"), None).unwrap();
    assert_eq!((got.num_columns(), got.num_rows()), (2, 0));
}

#[test]
fn whole_numbers_with_leading_zeros_are_text() {
    let folder = Folder::new();
    let late = "501,1,0,-7\n".repeat(15_000) + "00501,2,00,-07\n";
    let got = read(&folder.write("zip.csv", "zip,n,zero,m\n".to_string() + &late), None).unwrap();
    let types = |got: &RecordBatch| -> Vec<DataType> {
        got.schema().fields().iter().map(|field| field.data_type().clone()).collect()
    };
    let text = || DataType::Utf8View;
    assert_eq!(types(&got), [text(), DataType::Int64, text(), text()]);
    let last = |column: usize| {
        arrow_cast::display::array_value_to_string(got.column(column), got.num_rows() - 1).unwrap()
    };
    assert_eq!([last(0), last(1), last(2), last(3)], ["00501", "2", "00", "-07"]);
    let got = read(&folder.write("numbers.csv", "a,b,c\n0,-0,0.5\n10,100,00.5\n"), None).unwrap();
    assert_eq!(types(&got), [DataType::Int64, DataType::Int64, DataType::Float64]);
}

#[test]
fn a_csv_value_that_does_not_fit_is_named_with_its_line() {
    let folder = Folder::new();
    let mut text = "id,qty\n".to_string();
    (0..30_000).for_each(|i| text.push_str(&format!("{i},{}\n", i % 10)));
    text.push_str("30000,many\n");
    fails(
        &folder.write("late.csv", text),
        ErrorKind::Invalid,
        &["late.csv", "line 30002", "\"many\"", "\"qty\""],
    );
    fails(&folder.write("short.csv", "a,b\n1,2\n3\n"), ErrorKind::Invalid, &["short.csv", "line 3"]);
    fails(&folder.write("latin.csv", b"a,b\n1,caf\xe9\n"), ErrorKind::Invalid, &["latin.csv", "line 2"]);
}

#[test]
fn what_is_no_readable_file_says_so() {
    let folder = Folder::new();
    fails(&folder.path("missing.parquet"), ErrorKind::NotFound, &["missing.parquet", "check the path"]);
    fails("missing-relative.csv", ErrorKind::NotFound, &["missing-relative.csv", "looked for from"]);
    fails(folder.0.path().to_str().unwrap(), ErrorKind::NotFound, &["no file of a known format"]);
    fails("/dev/null", ErrorKind::Invalid, &["/dev/null", "no regular file"]);
    for extension in ["parquet", "csv", "arrow", "xyz"] {
        let path = folder.write(&format!("empty.{extension}"), "");
        fails(&path, ErrorKind::Invalid, &[&path, "is empty"]);
    }
    fails(
        &folder.write("text.parquet", "hello, world"),
        ErrorKind::Corrupt,
        &["text.parquet", "looks like text"],
    );
    fails(
        &folder.write("text.arrow", "hello, world"),
        ErrorKind::Corrupt,
        &["text.arrow", "looks like text"],
    );
    fails(&folder.write("bin.csv", b"\0\x01\x02"), ErrorKind::Corrupt, &["bin.csv", "binary"]);
    fails(&folder.write("z.csv", b"\x1f\x8b\x08\0"), ErrorKind::Corrupt, &["z.csv", "decompressed"]);
    fails(&folder.write("z.json", b"BZh91AY"), ErrorKind::Invalid, &["z.json", "unpack it first"]);
    fails(&folder.write("notes", "hello"), ErrorKind::Invalid, &["notes", "extension"]);
    let parquet = folder.parquet("p.parquet", &rows(5));
    fs::copy(&parquet, folder.path("p.csv")).unwrap();
    fails(&folder.path("p.csv"), ErrorKind::Invalid, &["p.csv", "Parquet", "rename"]);
    fs::copy(&parquet, folder.path("no-extension")).unwrap();
    assert_eq!(read(&folder.path("no-extension"), None).unwrap().num_rows(), 5);
}

#[test]
fn a_file_that_is_cut_off_is_corrupt_and_named() {
    let (folder, batch) = (Folder::new(), rows(2_000));
    for path in [folder.parquet("a.parquet", &batch), folder.ipc_file("a.arrow", &batch, false)] {
        let whole = fs::read(&path).unwrap();
        for cut in [8, 13, whole.len() / 3, whole.len() / 2, whole.len() - 9, whole.len() - 1] {
            let name = if path.ends_with("parquet") { "cut.parquet" } else { "cut.arrow" };
            let cut = folder.write(name, &whole[..cut]);
            fails(&cut, ErrorKind::Corrupt, &[name, "damaged or cut off"]);
        }
    }
    let stream = fs::read(folder.ipc_stream("a.arrows", &batch)).unwrap();
    let cut = folder.write("cut.arrows", &stream[..stream.len() / 2]);
    fails(&cut, ErrorKind::Corrupt, &["cut.arrows"]);
}

#[test]
fn damaged_bytes_never_panic_and_errors_name_the_file() {
    let (folder, batch) = (Folder::new(), rows(300));
    let mut state = 88_172_645_463_325_252_u64;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    for path in folder.all_formats(&batch) {
        let whole = fs::read(&path).unwrap();
        let extension = path.rsplit('.').next().unwrap();
        for _ in 0..400 {
            let mut damaged = whole.clone();
            for _ in 0..=random(4) {
                // The first four bytes are left unchanged, because they decide the format.
                let at = 4 + random(damaged.len() - 4);
                damaged[at] ^= 1 << random(8);
            }
            let path = folder.write(&format!("damaged.{extension}"), damaged);
            if let Err(error) = read_lenient(&path) {
                assert!(error.to_string().contains("damaged."), "{error}");
            }
        }
    }
}

#[test]
fn a_column_of_type_null_becomes_text() {
    let folder = Folder::new();
    let nulls: ArrayRef = Arc::new(NullArray::new(3));
    let batch = RecordBatch::try_from_iter([("n", nulls)]).unwrap();
    for path in [folder.ipc_file("n.arrow", &batch, false), folder.parquet("n.parquet", &batch)] {
        let got = read(&path, None).unwrap();
        assert_eq!((got.column(0).data_type(), got.column(0).null_count()), (&DataType::Utf8View, 3));
    }
}

/// Reads a file to its end and discards the rows.
fn read_lenient(path: &str) -> Result<()> {
    open(path)?.batches(None).try_for_each(|batch| batch.map(|_| ()))
}

fn gzip(text: &str) -> Vec<u8> {
    use std::io::Write;
    let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    writer.write_all(text.as_bytes()).unwrap();
    writer.finish().unwrap()
}

#[test]
fn compressed_text_is_read_as_it_is_decompressed() {
    let folder = Folder::new();
    let rows = "i,s\n".to_string() + &"1,a\n".repeat(30_000);
    let objects = "{\"i\": 1, \"s\": \"a\"}\n".repeat(30_000);
    // Two concatenated gzip members form one file (RFC 1952, 2.2).
    let members = [gzip(&rows), gzip(&"2,b\n".repeat(100))].concat();
    let zstd = |text: &str| zstd::encode_all(text.as_bytes(), 1).unwrap();
    for (name, bytes, expected) in [
        ("a.csv.gz", gzip(&rows), 30_000),
        ("b.csv.gz", members, 30_100),
        ("c.csv.zst", zstd(&rows), 30_000),
        ("d.json.gz", gzip(&objects), 30_000),
        ("e.ndjson.zst", zstd(&objects), 30_000),
        ("f.csv", gzip(&rows), 30_000),
    ] {
        let path = folder.write(name, &bytes);
        let got = read(&path, None).unwrap();
        assert_eq!((got.num_rows(), got.column(0).data_type()), (expected, &DataType::Int64), "{name}");
        let source = open(&path).unwrap();
        let (bytes, progress) = (source.bytes(), source.progress());
        source.batches(None).for_each(|batch| drop(batch.unwrap()));
        assert_eq!(progress.load(Ordering::Relaxed), bytes, "{name}");
        // Reading a truncated file must fail, and not return fewer rows.
        let whole = fs::read(&path).unwrap();
        let cut = folder.write(&format!("cut-{name}"), &whole[..whole.len() - 5]);
        fails(&cut, ErrorKind::Corrupt, &["cut-", "damaged or cut off"]);
    }
    let parquet = fs::read(folder.parquet("p.parquet", &super::tests::rows(5))).unwrap();
    let path = folder.write("p.parquet.zst", zstd::encode_all(&parquet[..], 1).unwrap());
    fails(&path, ErrorKind::Invalid, &["p.parquet.zst", "unpack it first"]);
}

#[test]
fn folders_braces_and_partitions_are_files() {
    let folder = Folder::new();
    for (year, city, text) in [
        ("2023", "Oslo", "a\n1\n"),
        ("2024", "New%20York", "a\n2\n"),
        ("2024", "__HIVE_DEFAULT_PARTITION__", "a\n3\n"),
    ] {
        let path = format!("trips/year={year}/city={city}");
        fs::create_dir_all(folder.path(&path)).unwrap();
        folder.write(&format!("{path}/part.csv"), text);
        folder.write(&format!("{path}/_SUCCESS"), "");
    }
    let got = read(&folder.path("trips"), None).unwrap();
    let schema = got.schema();
    let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    assert_eq!(names, ["a", "year", "city"]);
    let years: Vec<_> = got.column(1).as_primitive::<Int64Type>().iter().flatten().collect();
    let cities: Vec<_> = got.column(2).as_string_view().iter().collect();
    assert_eq!((years, cities), (vec![2023, 2024, 2024], vec![Some("Oslo"), Some("New York"), None]));
    let got = read(&folder.path("trips/**/*.csv"), Some(&[1])).unwrap();
    assert_eq!((got.num_rows(), got.num_columns()), (3, 1));
    let got = read(&folder.path("trips/year={2023,2024}/city={Oslo,Rome}/*.csv"), None).unwrap();
    assert_eq!(got.num_rows(), 1);
    let mut flat = ReadOptions::default();
    flat.set("hive_partitioning", &farpool_model::OptionValue::Flag(false)).unwrap();
    assert_eq!(open_all(&[&folder.path("trips")], &flat, None).unwrap().schema().fields().len(), 1);
    let bomb = folder.path(&"{a,b}".repeat(20));
    fails(&bomb, ErrorKind::OverLimit, &["braces"]);
}

#[test]
fn columns_of_one_name_are_renamed() {
    let folder = Folder::new();
    let column: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
    let field = || Field::new("a", DataType::Int64, true);
    let schema = Arc::new(arrow_schema::Schema::new(vec![field(), field()]));
    let batch = RecordBatch::try_new(schema, vec![column.clone(), column]).unwrap();
    let csv = folder.write("a.csv", "a,a\n1,1\n2,2\n");
    for path in [csv, folder.ipc_file("a.arrow", &batch, false), folder.ipc_stream("a.arrows", &batch)] {
        let got = read(&path, Some(&[1])).unwrap();
        assert_eq!(got.schema().field(0).name(), "a_1", "{path}");
        assert_eq!(got.column(0).as_primitive::<Int64Type>().values(), &[1, 2]);
    }
}

#[test]
fn no_more_is_read_than_the_limit() {
    let (folder, batch) = (Folder::new(), rows(2_500));
    let mut paths = folder.all_formats(&batch).to_vec();
    paths.push(folder.write("rows.csv", "i,s\n".to_string() + &"1,a\n".repeat(50_000)));
    for path in paths {
        for limit in [0, 1, 5, 1_700] {
            let batches = open(&path).unwrap().with_limit(limit).batches(Some(&[0]));
            assert_eq!(batches.map(|batch| batch.unwrap().num_rows()).sum::<usize>(), limit, "{path}");
        }
    }
}

#[test]
fn json_files_are_put_together_by_names() {
    let folder = Folder::new();
    folder.write("1.json", "[{\"a\": 1, \"b\": \"x\"}]");
    folder.write("2.json", "{\"c\": true, \"a\": 2.5}");
    let got = read(&folder.path("?.json"), None).unwrap();
    assert_eq!((got.num_rows(), got.num_columns()), (2, 3));
    assert_eq!(got.column(0).as_primitive::<Float64Type>().values(), &[1.0, 2.5]);
    folder.write("3.json", "{\"a\": [1]}");
    fails(&folder.path("?.json"), ErrorKind::Invalid, &["3.json", "\"a\""]);
}
