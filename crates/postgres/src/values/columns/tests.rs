//! Tests of rows as messages: each type as text and in binary, NULLs, lists, and values without a representation.

use super::*;
use arrow_array::builder::{Int64Builder, ListBuilder};
use arrow_array::{
    BinaryArray, Date32Array, DictionaryArray, Int32Array, Int64Array, StringArray, TimestampNanosecondArray,
    TimestampSecondArray, UInt8Array, UInt64Array,
};

/// Returns the values of the first column as the client gets them.
fn sent(array: ArrayRef, format: Format, style: Style) -> Vec<Option<Vec<u8>>> {
    let batch = RecordBatch::try_from_iter([("x", array)]).unwrap();
    let columns = Columns::new(&batch, |_| format, style).unwrap();
    let value = |row| {
        let mut out = BytesMut::new();
        columns.put_value((row, 0), &mut out).unwrap().then(|| out.to_vec())
    };
    (0..columns.rows()).map(value).collect()
}

fn texts(array: impl Array + 'static) -> Vec<String> {
    let sent = sent(Arc::new(array), Format::Text, Style::default());
    sent.into_iter()
        .map(|value| value.map_or("NULL".into(), |value| String::from_utf8(value).unwrap()))
        .collect()
}

#[test]
fn values_are_texts_as_postgresql_writes_them() {
    assert_eq!(texts(UInt8Array::from(vec![Some(255), None])), ["255", "NULL"]);
    assert_eq!(texts(UInt64Array::from(vec![u64::MAX])), ["18446744073709551615"]);
    assert_eq!(texts(BinaryArray::from(vec![&b"\x01"[..]])), ["\\x01"]);
    assert_eq!(texts(TimestampNanosecondArray::from(vec![-1])), ["1969-12-31 23:59:59.999999"]);
    assert_eq!(
        texts(TimestampSecondArray::from(vec![1]).with_timezone("+05:00")),
        ["1970-01-01 00:00:01+00"]
    );
    let words: DictionaryArray<arrow_array::types::Int32Type> = ["a", "b", "a"].into_iter().collect();
    assert_eq!(texts(words), ["a", "b", "a"]);
    let mut lists = ListBuilder::new(Int64Builder::new());
    lists.append_value([Some(1), None, Some(-3)]);
    lists.append_null();
    lists.append_value([]);
    assert_eq!(texts(lists.finish()), ["{1,NULL,-3}", "NULL", "{}"]);
    let zone = Style { zone: "Asia/Tokyo".parse().unwrap() };
    let times = Arc::new(TimestampSecondArray::from(vec![0]).with_timezone("UTC"));
    assert_eq!(sent(times, Format::Text, zone), [Some(b"1970-01-01 09:00:00+09".to_vec())]);
}

#[test]
fn values_in_binary_are_those_of_send_functions() {
    let sent = |array: ArrayRef| sent(array, Format::Binary, Style::default()).remove(0).unwrap();
    assert_eq!(sent(Arc::new(Int32Array::from(vec![-2]))), [255, 255, 255, 254]);
    assert_eq!(sent(Arc::new(Date32Array::from(vec![EPOCH_DAYS + 1]))), [0, 0, 0, 1]);
    let times = TimestampSecondArray::from(vec![946_684_800]);
    assert_eq!(sent(Arc::new(times)), [0; 8], "2000-01-01");
    let mut lists = ListBuilder::new(Int64Builder::new());
    lists.append_value([Some(5), None]);
    let expected: Vec<u8> = [1, 1, 20, 2, 1, 8, 0, 5, -1].into_iter().flat_map(i32::to_be_bytes).collect();
    assert_eq!(sent(Arc::new(lists.finish())), expected);
}

#[test]
fn what_postgresql_does_not_hold_is_an_error_and_no_message() {
    let days: ArrayRef = Arc::new(Date32Array::from(vec![0, i32::MAX]));
    let batch = RecordBatch::try_from_iter([("x", days)]).unwrap();
    for format in [Format::Text, Format::Binary] {
        let columns = Columns::new(&batch, |_| format, Style::default()).unwrap();
        let mut output = Output::default();
        columns.put_row(0, &mut output).unwrap();
        let before = output.len();
        assert!(columns.put_row(1, &mut output).unwrap_err().message.contains("out of range"));
        assert_eq!(output.len(), before, "the message is taken back");
    }
    let seconds: ArrayRef = Arc::new(TimestampSecondArray::from(vec![i64::MAX]));
    let batch = RecordBatch::try_from_iter([("x", seconds)]).unwrap();
    assert!(Columns::new(&batch, |_| Format::Text, Style::default()).is_err());
}

#[test]
fn a_row_is_a_message_with_its_length() {
    let columns: [(&str, ArrayRef); 3] = [
        ("a", Arc::new(Int64Array::from(vec![Some(12), None]))),
        ("b", Arc::new(StringArray::from(vec!["x", ""]))),
        ("c", Arc::new(arrow_array::NullArray::new(2))),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let columns = Columns::new(&batch, |_| Format::Text, Style::default()).unwrap();
    let mut output = Output::default();
    columns.put_row(0, &mut output).unwrap();
    columns.put_row(1, &mut output).unwrap();
    let first = b"D\0\0\0\x15\0\x03\0\0\0\x0212\0\0\0\x01x\xff\xff\xff\xff";
    let second = b"D\0\0\0\x12\0\x03\xff\xff\xff\xff\0\0\0\0\xff\xff\xff\xff";
    assert_eq!(output.bytes, [&first[..], &second[..]].concat());
}

#[test]
fn quotients_have_the_digits_of_postgresql() {
    let scale = 20;
    let of = |value: i128, expected: &str| {
        let (value, scale) = super::shown(value, scale);
        let mut out = BytesMut::new();
        text::put_decimal(&mut out, value, scale);
        assert_eq!(String::from_utf8(out.to_vec()).unwrap(), expected);
    };
    let one = 10_i128.pow(20);
    of(2 * one, "2.0000000000000000");
    of(-one / 2, "-0.50000000000000000000");
    of(25_000 * one, "25000.000000000000");
    of(one / 3, "0.33333333333333333333");
    of(0, "0.00000000000000000000");
    of(one + 1, "1.00000000000000000001");
    let values = arrow_array::Decimal128Array::from(vec![2 * one]).with_precision_and_scale(38, 20).unwrap();
    let field = arrow_schema::Field::new("x", values.data_type().clone(), true);
    let field = field.with_metadata([(QUOTIENT.to_string(), String::new())].into());
    let schema = Arc::new(arrow_schema::Schema::new(vec![field]));
    let batch = RecordBatch::try_new(schema, vec![Arc::new(values)]).unwrap();
    let columns = Columns::new(&batch, |_| Format::Text, Style::default()).unwrap();
    let mut out = BytesMut::new();
    assert!(columns.put_value((0, 0), &mut out).unwrap());
    assert_eq!(&out[..], b"2.0000000000000000");
}
