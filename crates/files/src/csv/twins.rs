//! Tests that the pieces of a CSV file, parsed separately, give the records that one splitter gives which reads byte by
//! byte: on random bytes cut at every position.

use super::super::tasks::in_order;
use super::cut::{self, Cutter};
use super::piece::PieceRecords;
use super::*;
use farpool_model::{FileFormat, OptionValue};
use proptest::prelude::*;

/// The line, number of fields and first fields of each record, with whether they were in quotes; and the error that
/// ended the records, if any.
type All = (Vec<(u64, usize, Vec<(Vec<u8>, bool)>)>, Option<String>);

fn drain(records: &mut impl RecordSource, needed: usize, all: &mut All) {
    loop {
        match records.next() {
            Ok(Some(record)) => {
                let field = |i: usize| (record.field(i).to_vec(), record.is_quoted(i));
                let fields = (0..record.len().min(needed)).map(field).collect();
                all.0.push((record.line, record.len(), fields));
            }
            Ok(None) => return,
            Err(why) => {
                all.1 = Some(format!("{why:?}"));
                return;
            }
        }
    }
}

fn plain(bytes: &[u8], dialect: &Dialect, needed: usize) -> All {
    let mut all = All::default();
    drain(&mut Records::new(bytes, dialect).unwrap(), needed, &mut all);
    all
}

fn in_pieces(bytes: &[u8], dialect: &Dialect, needed: usize, size: usize) -> All {
    let mut cutter = Cutter::new(bytes, dialect).unwrap().of_size(size);
    let mut all = All::default();
    let mut is_first = true;
    while let Some(piece) = cutter.next().unwrap() {
        assert_eq!(piece.is_first, is_first);
        is_first &= piece.bytes.iter().all(|byte| matches!(byte, b'\n' | b'\r'));
        assert!(piece.rest.is_none());
        drain(
            &mut PieceRecords::new(piece.bytes, piece.line, piece.is_first, dialect, needed),
            needed,
            &mut all,
        );
        if all.1.is_some() {
            break;
        }
    }
    all
}

/// Reads pieces and passes over records in between, `most` at once; checks each against the records of the splitter
/// that reads byte by byte. Returns how many were passed over.
fn pass(bytes: &[u8], dialect: &Dialect, fields: usize, most: usize, size: usize) -> usize {
    let (all, error) = plain(bytes, dialect, 0);
    let mut expected = all.into_iter();
    let mut passed = 0;
    let mut cutter = Cutter::new(bytes, dialect).unwrap().of_size(size);
    while let Some(piece) = cutter.next().unwrap() {
        let mut records = PieceRecords::new(piece.bytes, piece.line, piece.is_first, dialect, 0);
        loop {
            let count = records.pass(fields, most);
            assert!(count <= most);
            for _ in 0..count {
                let (_, len, _) = expected.next().unwrap();
                assert_eq!(len, fields);
            }
            passed += count;
            match records.next() {
                Ok(Some(record)) => {
                    let (line, len, _) = expected.next().unwrap();
                    assert_eq!((record.line, record.len()), (line, len));
                }
                Ok(None) => break,
                Err(why) => {
                    assert_eq!(Some(format!("{why:?}")), error);
                    return passed;
                }
            }
        }
    }
    assert_eq!((expected.next(), error), (None, None));
    passed
}

#[test]
fn simple_records_are_passed_over() {
    let simple = "1,two,\n\"a, quoted\nfield\",\"\",3\n4,5,\"6\"\n".repeat(50);
    let dialect = &dialects()[0];
    // The last record of a piece is not passed over, because it could be without an end.
    assert_eq!(pass(simple.as_bytes(), dialect, 3, usize::MAX, 1 << 20), 150);
    let pairs = "\"a \"\"pair\"\"\",b\n1,2\n".repeat(50);
    assert_eq!(pass(pairs.as_bytes(), dialect, 2, usize::MAX, 1 << 20), 50);
}

fn dialects() -> Vec<Dialect> {
    let text = |text: &str| OptionValue::Text(text.to_string());
    let options: [&[(&str, OptionValue)]; 6] = [
        &[],
        &[("escape", text("\\"))],
        &[("quote", text(""))],
        &[("quote", text("'")), ("delim", text(";"))],
        &[("skip", OptionValue::Number(1))],
        &[("escape", text("a"))],
    ];
    let dialect = |set: &[(&str, OptionValue)]| {
        let mut options = ReadOptions::for_format(FileFormat::Csv);
        set.iter().for_each(|(name, value)| options.set(name, value).unwrap());
        Dialect::new(options.delimiter.unwrap_or(b','), &options)
    };
    let dialects: Vec<Dialect> = options.into_iter().map(dialect).collect();
    let single = dialects.iter().cloned().map(|dialect| Dialect { is_single: true, ..dialect });
    dialects.iter().cloned().chain(single).collect()
}

fn check(bytes: &[u8]) {
    for dialect in dialects() {
        assert!(cut::can_cut(&dialect));
        for needed in [usize::MAX, 0, 1, 2] {
            let expected = plain(bytes, &dialect, needed);
            for size in 1..=bytes.len() + 1 {
                let got = in_pieces(bytes, &dialect, needed, size);
                assert_eq!(got, expected, "{needed} of {size}: {bytes:?} {dialect:?}");
            }
        }
        for (fields, most) in [(1, usize::MAX), (2, 1), (2, 3), (3, usize::MAX)] {
            for size in 1..=bytes.len() + 1 {
                pass(bytes, &dialect, fields, most, size);
            }
        }
    }
}

#[test]
fn cases_that_look_like_others() {
    for text in [
        "",
        "\n",
        "a",
        "a,b\n1,\"x\ny\"\n\"\"\"\",\"\"\n",
        "a\r\nb\rc\n\rd",
        "\"a\"b,c\nd\"e\nf\",g\n",
        "\"a\"\"b\nc\",d\ne\n",
        "\"a\\\"b\nc\",d\ne\n",
        "\u{feff}\"a\nb\",c\n\u{feff}d\n",
        "\u{feff}\u{feff}a\nb",
        "\n\u{feff}a\nb",
        "\n\ra,b\n\n\r\nc\r\r\nd\n\n",
        "'a;\n';b\n\"c\n",
        "a,\"b\nc,d\ne,f\n",
        "\"a\r\nb\"\r\n\r\n,\r\n\"\"\r\nc,\"d\re\"\rf",
        "é,\"ü\nß\"\n日,本\n",
    ] {
        check(text.as_bytes());
    }
}

const FIELDS: &[&str] = &[
    "",
    "1",
    "plain",
    "a longer one, of which some is quoted by no one",
    "\"quoted\"",
    "\"with, a delimiter\"",
    "\"with\na line break, and long enough that it lies in more than one of the blocks that are looked at\"",
    "\"with a \"\"pair\"\"\"",
    "in\"ner",
    "\"\"",
];

const BEHIND: &[&str] = &[",", ",", ",", ",", "\n", "\n", "\r\n", ";", "\n\n"];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn any_bytes_cut_anywhere(
        bytes in prop::collection::vec(prop::sample::select(b",;\"'\n\n\r\\a\xc3\xa9\xef\xbb\xbf1".to_vec()), 0..40)
    ) {
        check(&bytes);
    }

    /// Records of many fields, mostly valid, that cross the 64-byte blocks.
    #[test]
    fn records_longer_than_a_word_has_bits(
        fields in prop::collection::vec((prop::sample::select(FIELDS), prop::sample::select(BEHIND)), 0..60),
        size in 1..300_usize
    ) {
        let text: String = fields.into_iter().flat_map(|(field, behind)| [field, behind]).collect();
        for dialect in dialects() {
            for needed in [usize::MAX, 0, 3] {
                let expected = plain(text.as_bytes(), &dialect, needed);
                prop_assert_eq!(in_pieces(text.as_bytes(), &dialect, needed, size), expected);
            }
            for fields in 1..5 {
                pass(text.as_bytes(), &dialect, fields, usize::MAX, size);
            }
        }
    }
}

/// Bytes that look like one long record again and again are examined only a few times in all.
#[test]
fn carriage_returns_in_place_of_line_breaks() {
    for record in ["1,x\r", "\"1\",\"x\"\r", "1,\"x\"\"y\"\r"] {
        let bytes = record.repeat(20_000);
        for dialect in dialects().into_iter().filter(|dialect| dialect.skip_lines == 0) {
            let mut records = PieceRecords::new(bytes.clone().into_bytes(), 1, true, &dialect, usize::MAX);
            let mut all = All::default();
            drain(&mut records, usize::MAX, &mut all);
            assert_eq!(all, plain(bytes.as_bytes(), &dialect, usize::MAX));
            assert!(records.bytes_wasted() <= 2 * bytes.len(), "{record:?} {dialect:?}");
        }
    }
}

/// Tests input longer than the first pieces, with one record longer than the limit.
#[test]
fn batches_of_tasks_are_those_of_one_reader() {
    let mut bytes = b"a,b,c\n".to_vec();
    for row in 0..30_000 {
        let quoted = if row % 7 == 0 { "\"x,\ny\"" } else { "plain" };
        bytes.extend(format!("{row},{quoted},{}\n", f64::from(row) / 4.0).as_bytes());
    }
    let path = Path::new("x.csv");
    let compare = |bytes: &[u8], ends_with: &str| {
        let options = ReadOptions::default();
        let (schema, dialect) = open_head(path, bytes, &options).unwrap();
        let columns = [2, 1];
        let whole = read(path, Cursor::new(bytes.to_vec()), &schema, &dialect, &columns).unwrap();
        let tasks = tasks(path, Cursor::new(bytes.to_vec()), &schema, &dialect, &columns).unwrap();
        let of = |batches: Batches| {
            let mut said = String::new();
            let good = batches.map_while(|batch| batch.map_err(|error| said = error.to_string()).ok());
            let good: Vec<_> = good.collect();
            let schema = Arc::new(schema.project(&columns).unwrap());
            (arrow_select::concat::concat_batches(&schema, &good).unwrap(), said)
        };
        let ((left, left_said), (right, right_said)) = (of(whole), of(in_order(tasks)));
        assert_eq!(left_said, right_said);
        assert!(right_said.contains(ends_with), "{right_said}");
        // Of the rows before an error, those of the last batches may be missing.
        let rows = left.num_rows().min(right.num_rows());
        assert_eq!(left.slice(0, rows), right.slice(0, rows));
        assert!(!right_said.is_empty() || left.num_rows() == right.num_rows());
    };
    compare(&bytes, "");
    let mut long = bytes.clone();
    long.extend(b"1,\"");
    long.extend(vec![b'z'; 9 << 20]);
    long.extend(b"\n\",2\n3,4,5\n");
    compare(&long, "");
    let mut ragged = bytes.clone();
    ragged.extend(b"1,2\n");
    ragged.extend(&bytes);
    compare(&ragged, "2 fields, and the file has 3 columns");
    bytes.extend(b"1,\"");
    compare(&bytes, "a quote opens in this record");
}
