//! Tests of reading values: what is written reads back, in both formats, and hostile bytes are errors.

use super::*;
use crate::output::Output;
use crate::types::PostgresType;
use crate::values::{Columns, Style};
use arrow_array::RecordBatch;
use proptest::prelude::*;

/// Writes the value of an array of one row, and reads it again.
fn again(array: &ArrayRef, format: Format) -> Result<ArrayRef, Failure> {
    let batch = RecordBatch::try_from_iter([("x", Arc::clone(array))]).unwrap();
    let columns = Columns::new(&batch, |_| format, Style::default()).unwrap();
    let mut output = Output::default();
    columns.put_row(0, &mut output).unwrap();
    // The kind, the lengths of the message and of the list, and that of the value.
    let mut message = output.bytes.freeze();
    message.advance(7);
    let length = message.get_i32();
    let value = (length >= 0).then_some(message);
    array_of_one(PostgresType::of(array.data_type()).oid, format, value.as_ref())
}

fn examples() -> Vec<ArrayRef> {
    let decimal = |value: i128, scale| {
        Decimal128Array::from(vec![value]).with_precision_and_scale(38, scale).map(Arc::new).unwrap()
    };
    let interval = IntervalMonthDayNano { months: 14, days: -3, nanoseconds: 1_500_000_000 };
    vec![
        Arc::new(BooleanArray::from(vec![true])),
        Arc::new(Int16Array::from(vec![i16::MIN])),
        Arc::new(Int32Array::from(vec![-7])),
        Arc::new(Int64Array::from(vec![i64::MAX])),
        Arc::new(Float32Array::from(vec![0.1])),
        Arc::new(Float64Array::from(vec![f64::NEG_INFINITY])),
        decimal(-1_234_567, 3),
        decimal(0, 2),
        decimal(99_999_999_999_999_999_999_999_999_999_999_999_999, 0),
        decimal(1, 37),
        Arc::new(StringArray::from(vec!["a 'b' é"])),
        Arc::new(BinaryArray::from(vec![&[0_u8, 255, b'\\'][..]])),
        Arc::new(Date32Array::from(vec![-719_162])),
        Arc::new(Time64MicrosecondArray::from(vec![86_399_999_999])),
        Arc::new(TimestampMicrosecondArray::from(vec![1])),
        Arc::new(TimestampMicrosecondArray::from(vec![-1]).with_timezone("+00:00")),
        Arc::new(PrimitiveArray::<IntervalMonthDayNanoType>::from(vec![interval])),
        list(oid::INT4, vec![Arc::new(Int32Array::from(vec![1])), Arc::new(Int32Array::from(vec![None]))])
            .unwrap(),
        list(oid::TEXT, vec![Arc::new(StringArray::from(vec!["a, \"b\" \\ {}"]))]).unwrap(),
        list(oid::INT8, vec![]).unwrap(),
    ]
}

#[test]
fn what_is_written_reads_back() {
    for array in examples() {
        for format in [Format::Binary, Format::Text] {
            // An interval is not read as text in the form that it is written in.
            if format == Format::Text && matches!(array.data_type(), DataType::Interval(_)) {
                continue;
            }
            let read = again(&array, format).unwrap();
            assert_eq!(&read, &array, "{format:?}");
        }
        let null = new_null_array(array.data_type(), 1);
        assert!(again(&null, Format::Binary).unwrap().is_null(0));
    }
}

#[test]
fn texts_are_read_as_postgresql_does() {
    let read =
        |oid, text: &'static str| array_of_one(oid, Format::Text, Some(&Bytes::from_static(text.as_bytes())));
    for (oid, text) in [
        (oid::INT4, "1.5"),
        (oid::INT2, "40000"),
        (oid::BOOL, "maybe"),
        (oid::DATE, "2020-13-01"),
        (oid::NUMERIC, "1e40"),
        (oid::NUMERIC, "."),
        (oid::NUMERIC, "--1"),
        (oid::BYTEA, "\\xabc"),
        (oid::BYTEA, "\\9"),
        (1007, "{1,2"),
        (1007, "{1,,2}"),
        (1007, "{{1},{2}}"),
    ] {
        assert_eq!(read(oid, text).unwrap_err().code, code::INVALID_TEXT, "{text}");
    }
    assert_eq!(&read(oid::INT4, " 12 ").unwrap(), &(Arc::new(Int32Array::from(vec![12])) as ArrayRef));
    assert_eq!(read(oid::NUMERIC, "1.5e2").unwrap().data_type(), &DataType::Decimal128(38, 0));
    assert_eq!(read(3904, "[1,2)").unwrap_err().code, code::FEATURE_NOT_SUPPORTED);
}

proptest! {
    #[test]
    fn any_bytes_are_a_value_or_an_error(
        oid in prop::sample::select(vec![16_u32, 17, 20, 21, 23, 25, 26, 700, 701, 1007, 1009, 1082, 1083, 1114, 1184, 1186, 1231, 1700, 2950, 3802]),
        bytes in prop::collection::vec(prop_oneof![Just(0_u8), Just(1), any::<u8>()], 0..40),
    ) {
        let bytes = Bytes::from(bytes);
        for format in [Format::Text, Format::Binary] {
            if let Ok(array) = array_of_one(oid, format, Some(&bytes)) {
                prop_assert_eq!(array.len(), 1);
            }
        }
    }

    #[test]
    fn decimals_read_back(value in any::<i64>(), scale in 0..=18_i8) {
        let array = Decimal128Array::from(vec![i128::from(value)]).with_precision_and_scale(38, scale).unwrap();
        let array: ArrayRef = Arc::new(array);
        for format in [Format::Text, Format::Binary] {
            prop_assert_eq!(&again(&array, format).unwrap(), &array);
        }
    }
}
