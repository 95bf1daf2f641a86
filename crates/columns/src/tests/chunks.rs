//! Tests every operation of a chunk against Arrow's kernels or a loop over the original values.

use super::arrays::{Random, SHAPES, Shape, TYPES, array};
use super::{encoded, pool};
use crate::encode::encode;
use crate::{Chunk, EncodingKind, IntegerSet, Parcel, ResultBuffer, pack_chunks};
use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{Array, ArrayRef, BooleanArray, StringViewArray, UInt32Array};
use arrow_schema::DataType;
use farpool_model::{CompareOp, Literal, Value, schema};
use std::cmp::Ordering;
use std::sync::Arc;

const OPS: [CompareOp; 6] =
    [CompareOp::Eq, CompareOp::NotEq, CompareOp::Lt, CompareOp::LtEq, CompareOp::Gt, CompareOp::GtEq];

/// Returns the value of a row as a literal; `None` for NULL.
pub fn literal(array: &ArrayRef, row: usize) -> Option<Literal> {
    if array.is_null(row) {
        return None;
    }
    let value = match array.data_type() {
        DataType::Boolean => Value::Bool(array.as_boolean().value(row)),
        DataType::Float32 => Value::Float(array.as_primitive::<Float32Type>().value(row).into()),
        DataType::Float64 => Value::Float(array.as_primitive::<Float64Type>().value(row)),
        DataType::Utf8View => Value::Text(array.as_string_view().value(row).to_string()),
        DataType::BinaryView => Value::Bytes(array.as_binary_view().value(row).to_vec()),
        other => farpool_model::with_integer!(other, T => {
            Value::Int(array.as_primitive::<T>().value(row).into())
        }, unreachable!()),
    };
    Some(Literal::new(value, array.data_type().clone()).unwrap())
}

/// Checks all operations of a chunk against the array that it was encoded from.
pub fn check(chunk: &Chunk, array: &ArrayRef, random: &mut Random) {
    assert_eq!(chunk.rows(), array.len());
    assert_eq!(chunk.null_count(), array.null_count());
    assert_eq!(chunk.data_type(), array.data_type());
    check_decode(chunk, array, random);
    check_gather(chunk, array, random);
    check_pick(chunk, array, random);
    check_zone(chunk, array);
    check_integers(chunk, array, random);
    check_floats(chunk, array, random);
    check_dictionary(chunk, array);
}

fn check_decode(chunk: &Chunk, array: &ArrayRef, random: &mut Random) {
    assert_eq!(&chunk.decode(0..array.len()).unwrap(), array);
    for _ in 0..4 {
        let (a, b) = (random.below(array.len() + 1), random.below(array.len() + 1));
        let rows = a.min(b)..a.max(b);
        let decoded = chunk.decode(rows.clone()).unwrap();
        assert_eq!(&decoded, &array.slice(rows.start, rows.len()));
        decoded.to_data().validate_full().unwrap();
        let validity = chunk.validity(rows.clone());
        for row in rows.clone().step_by(1 + rows.len() / 50) {
            let is_valid = validity.as_ref().is_none_or(|bits| bits.value(row - rows.start));
            assert_eq!(is_valid, array.is_valid(row));
        }
    }
    assert!(chunk.decode(0..array.len() + 1).is_err());
}

fn check_gather(chunk: &Chunk, array: &ArrayRef, random: &mut Random) {
    for step in [1, 3, 40, 700] {
        let mut rows: Vec<u32> = (0..array.len() as u32).filter(|_| random.below(step) == 0).collect();
        if step == 700 {
            rows.reverse();
        }
        let gathered = chunk.gather(&rows).unwrap();
        gathered.to_data().validate_full().unwrap();
        let taken = arrow_select::take::take(array, &UInt32Array::from(rows), None).unwrap();
        assert_eq!(&gathered, &taken);
    }
    assert!(chunk.gather(&[array.len() as u32]).is_err());
}

fn check_pick(chunk: &Chunk, array: &ArrayRef, random: &mut Random) {
    for step in [1, 2, 5, 300] {
        let keep: Vec<bool> =
            (0..array.len()).map(|row| row % 1500 < 300 || random.below(step) == 0).collect();
        let mut selected = vec![0; array.len().div_ceil(64)];
        (0..array.len()).filter(|row| keep[*row]).for_each(|row| selected[row / 64] |= 1 << (row % 64));
        let picked = chunk.pick(&selected).unwrap();
        let expected = arrow_select::filter::filter(array, &BooleanArray::from(keep)).unwrap();
        assert_eq!((picked.rows(), picked.null_count()), (expected.len(), expected.null_count()));
        assert_eq!(&picked.decode(0..picked.rows()).unwrap(), &expected);
        let last = expected.len().saturating_sub(1);
        let rows: Vec<u32> =
            (0..expected.len() as u32).filter(|row| row % 97 == 3 || *row as usize == last).collect();
        let taken = arrow_select::take::take(&expected, &UInt32Array::from(rows.clone()), None).unwrap();
        assert_eq!(&picked.gather(&rows).unwrap(), &taken);
        let bytes_plain = encode(&expected).unwrap().bytes_plain();
        // Bytes of the arbitrary string in a NULL row may be counted or not.
        assert!(picked.bytes_plain() == bytes_plain || picked.null_count() > 0);
        let schema = super::schema_of(std::slice::from_ref(&expected));
        let mut sent = Vec::new();
        let picked = Arc::new(picked);
        pack_chunks(expected.len(), &[picked]).iter().for_each(|piece| sent.extend_from_slice(piece));
        let mut parcel = Parcel::read(&sent.into(), &schema).unwrap();
        assert_eq!(parcel.next(expected.len(), &mut ResultBuffer::default()).unwrap().column(0), &expected);
    }
    assert!(chunk.pick(&vec![0; array.len().div_ceil(64) + 1]).is_err());
    assert!(array.len().is_multiple_of(64) || chunk.pick(&vec![u64::MAX; array.len().div_ceil(64)]).is_err());
}

fn check_zone(chunk: &Chunk, array: &ArrayRef) {
    let values: Vec<Literal> = (0..array.len()).filter_map(|row| literal(array, row)).collect();
    let has_nan = values.iter().any(|v| matches!(v.value(), Value::Float(v) if v.is_nan()));
    let bound = |order: Ordering| {
        values.iter().reduce(|a, b| if b.compare(a) == Some(order) { b } else { a }).filter(|value| {
            !matches!(value.value(), Value::Text(t) if t.len() > 256)
                && !matches!(value.value(), Value::Bytes(b) if b.len() > 256)
        })
    };
    let expected = if has_nan { (None, None) } else { (bound(Ordering::Less), bound(Ordering::Greater)) };
    assert_eq!((chunk.zone().min.as_ref(), chunk.zone().max.as_ref()), expected);
    assert_eq!(chunk.zone().null_count, array.null_count());
}

fn check_integers(chunk: &Chunk, array: &ArrayRef, random: &mut Random) {
    let values: Vec<Option<i128>> = match schema::is_integer_like(array.data_type()) {
        true => (0..array.len()).map(|row| literal(array, row).and_then(|l| l.as_int())).collect(),
        false => Vec::new(),
    };
    let fits = values.iter().flatten().all(|value| i64::try_from(*value).is_ok());
    assert_eq!(chunk.integers().is_some(), fits && values.iter().any(Option::is_some));
    let Some(integers) = chunk.integers() else { return };
    let mut unpacked = Vec::new();
    integers.unpack(0..values.len(), &mut unpacked);
    for (unpacked, value) in unpacked.iter().zip(&values) {
        assert!((integers.min()..=integers.max()).contains(unpacked));
        assert!(value.is_none_or(|value| value == i128::from(*unpacked)));
    }
    let (min, max) = (i128::from(integers.min()), i128::from(integers.max()));
    let some = i128::from(unpacked[random.below(unpacked.len())]);
    let bounds = [min, max, min - 1, max + 1, some, some + 1, min + (max - min) / 2, i128::MIN, i128::MAX];
    for low in bounds {
        let high = bounds[random.below(bounds.len())];
        let inside = random.below(2) == 0;
        check_predicate(
            &unpacked,
            random,
            |start, alive| {
                integers.retain_within(low, high, inside, start, alive);
            },
            |value| (low <= i128::from(value) && i128::from(value) <= high) == inside,
        );
    }
    let first = unpacked[random.below(unpacked.len())].saturating_sub(random.below(50) as i64);
    let set = IntegerSet::new(first, 1 + random.below(300), |i| i % 3 == 0 || i % 7 == 1);
    for inside in [true, false] {
        check_predicate(
            &unpacked,
            random,
            |start, alive| {
                integers.retain_members(&set, inside, start, alive);
            },
            |value| set.contains(value) == inside,
        );
    }
}

/// Checks a predicate on some blocks with some rows selected, against a test of each value.
fn check_predicate(
    values: &[i64],
    random: &mut Random,
    retain: impl FnOnce(usize, &mut [u64]),
    holds: impl Fn(i64) -> bool,
) {
    let start = random.below(values.len().div_ceil(1024)) * 1024;
    let rows = random.below(values.len() - start + 1);
    let share = 1 + random.below(1200);
    let mut alive = vec![0; rows.div_ceil(64)];
    (0..rows).filter(|_| random.below(share) < 20).for_each(|row| alive[row / 64] |= 1 << (row % 64));
    let mut expected = alive.clone();
    for (row, value) in values[start..start + rows].iter().enumerate() {
        expected[row / 64] &= !(u64::from(!holds(*value)) << (row % 64));
    }
    retain(start, &mut alive);
    assert_eq!(alive, expected);
}

/// Checks comparisons of floats in the order of SQL.
fn check_floats(chunk: &Chunk, array: &ArrayRef, random: &mut Random) {
    let Some(floats) = chunk.floats() else { return };
    let one_zero = |value: f64| if value == 0.0 { 0.0 } else { value };
    let value = |row: usize| match array.as_primitive_opt::<Float64Type>() {
        Some(array) => array.value(row),
        None => array.as_primitive::<Float32Type>().value(row).into(),
    };
    for literal in [value(0), value(array.len() / 2), 0.0, -0.0, f64::NAN, -f64::NAN, f64::INFINITY] {
        for op in OPS {
            let mut alive = vec![u64::MAX; array.len() / 64];
            floats.retain_compared(op, literal, 0, &mut alive);
            for row in (0..alive.len() * 64).step_by(1 + random.below(20)) {
                let order = one_zero(value(row)).total_cmp(&one_zero(literal));
                let kept = alive[row / 64] >> (row % 64) & 1 == 1;
                assert_eq!(kept, holds(op, order), "{} {op:?} {literal}", value(row));
            }
        }
    }
}

fn holds(op: CompareOp, order: Ordering) -> bool {
    match op {
        CompareOp::Eq => order.is_eq(),
        CompareOp::NotEq => order.is_ne(),
        CompareOp::Lt => order.is_lt(),
        CompareOp::LtEq => order.is_le(),
        CompareOp::Gt => order.is_gt(),
        CompareOp::GtEq => order.is_ge(),
    }
}

#[test]
fn columns_compare_with_each_other() {
    let mut random = Random(5);
    let pool = pool(64);
    let columns: Vec<(ArrayRef, Arc<Chunk>)> =
        [DataType::Int8, DataType::Int32, DataType::Int64, DataType::Int64]
            .iter()
            .flat_map(|t| SHAPES.map(|shape| (t, shape)))
            .map(|(data_type, shape)| array(data_type, shape, 3000, 0, &mut random))
            .map(|array| (Arc::clone(&array), encoded(&pool, &array)))
            .collect();
    for _ in 0..200 {
        let (left, right) =
            (&columns[random.below(columns.len())].1, &columns[random.below(columns.len())].1);
        let (left, right) = (left.integers().unwrap(), right.integers().unwrap());
        let (mut lefts, mut rights) = (Vec::new(), Vec::new());
        left.unpack(0..3000, &mut lefts);
        right.unpack(0..3000, &mut rights);
        let op = OPS[random.below(6)];
        let rows: Vec<i64> = (0..3000).collect();
        check_predicate(
            &rows,
            &mut random,
            |start, alive| left.retain_compared(op, &right, start, alive),
            |row| holds(op, lefts[row as usize].cmp(&rights[row as usize])),
        );
    }
}

#[test]
fn sets_have_what_they_were_made_of() {
    let set = IntegerSet::of_sorted(&[-5, -4, 90, 1000]);
    assert!([-5, -4, 90, 1000].into_iter().all(|v| set.contains(v)));
    assert!(![i64::MIN, -6, -3, 0, 91, 999, 1001, i64::MAX].into_iter().any(|v| set.contains(v)));
    let edge = IntegerSet::new(i64::MAX, 1, |_| true);
    assert!(edge.contains(i64::MAX) && !edge.contains(i64::MIN) && !edge.contains(0));
}

fn check_dictionary(chunk: &Chunk, array: &ArrayRef) {
    let Some(dictionary) = chunk.dictionary() else { return };
    let distinct: Vec<Literal> = (0..dictionary.values().len())
        .map(|code| literal(dictionary.values(), code).expect("no NULL in a dictionary"))
        .collect();
    assert!(distinct.is_sorted_by(|a, b| a.compare(b) == Some(Ordering::Less)));
    let mut codes = Vec::new();
    dictionary.codes().unpack(0..array.len(), &mut codes);
    for (row, code) in codes.iter().enumerate() {
        assert!(literal(array, row).is_none_or(|value| value == distinct[*code as usize]));
    }
}

#[test]
fn columns_of_every_type_and_shape_come_back() {
    let mut random = Random(1);
    for data_type in &TYPES {
        for shape in SHAPES {
            for rows in [0, 1, 2, 63, 1023, 1024, 1025, 3000] {
                for nulls in [0, 20, 100] {
                    let pool = pool(32);
                    let array = array(data_type, shape, rows, nulls, &mut random);
                    check(&encoded(&pool, &array), &array, &mut random);
                }
            }
        }
    }
}

#[test]
fn full_row_groups_come_back() {
    let mut random = Random(2);
    for (i, data_type) in TYPES.iter().enumerate() {
        for (rows, nulls) in [(65_535, 0), (65_536, 10)] {
            let pool = pool(64);
            let array = array(data_type, SHAPES[(i + rows) % 4], rows, nulls, &mut random);
            check(&encoded(&pool, &array), &array, &mut random);
        }
    }
}

#[test]
fn a_slice_of_an_array_is_encoded_as_itself() {
    let mut random = Random(3);
    for data_type in &TYPES {
        let pool = pool(16);
        let whole = array(data_type, Shape::Narrow, 2000, 30, &mut random);
        let slice = whole.slice(777, 1100);
        check(&encoded(&pool, &slice), &slice, &mut random);
    }
}

#[test]
fn each_shape_of_strings_gets_its_encoding() {
    let mut random = Random(4);
    let pool = pool(64);
    let mut kind =
        |shape, rows| encoded(&pool, &array(&DataType::Utf8View, shape, rows, 0, &mut random)).encoding();
    assert_eq!(kind(Shape::Constant, 100), EncodingKind::Constant);
    assert_eq!(kind(Shape::Few, 5000), EncodingKind::Dictionary);
    assert_eq!(kind(Shape::Narrow, 50_000), EncodingKind::Fsst);
    assert_eq!(kind(Shape::Wild, 5000), EncodingKind::PlainBytes);
}

#[test]
fn integers_take_the_bits_that_their_range_needs() {
    let pool = pool(16);
    let array: ArrayRef =
        Arc::new((0..65_536).map(|v| Some(i64::MIN + v % 1000)).collect::<arrow_array::Int64Array>());
    let chunk = encoded(&pool, &array);
    assert_eq!(chunk.bytes_encoded(), 65_536 * 10 / 8);
    assert_eq!(chunk.bytes_plain(), 65_536 * 8);
    assert_eq!(chunk.integers().unwrap().lane_bits(), 16);
    let (mut deltas, mut values) = (Vec::new(), Vec::new());
    chunk.integers().unwrap().unpack_deltas_u16(1024..3000, &mut deltas);
    chunk.integers().unwrap().unpack(1024..3000, &mut values);
    assert!(deltas.iter().zip(&values).all(|(d, v)| i64::MIN + i64::from(*d) == *v));
}

#[test]
fn decoded_strings_outlive_the_chunk_without_being_copied() {
    let pool = pool(16);
    let text = "a string that does not fit into a view";
    let array: ArrayRef = Arc::new(StringViewArray::from(vec![text, "b", text]));
    let chunk = encoded(&pool, &array);
    let decoded = chunk.decode(0..3).unwrap();
    drop(chunk);
    assert_eq!(&decoded, &array);
    assert!(pool.usage().bytes_used > 0, "the array keeps the page");
    drop(decoded);
    assert_eq!(pool.usage().bytes_used, 0);
}

#[test]
fn too_many_rows_and_too_long_strings_are_refused() {
    let pool = pool(16);
    let tenant = farpool_model::TenantName::default();
    let rows: ArrayRef = Arc::new(arrow_array::Int8Array::from(vec![1; 65_537]));
    let columns = [rows];
    assert!(crate::encode_row_group(&pool, &tenant, &super::schema_of(&columns), &columns).is_err());
    let long: ArrayRef = Arc::new(StringViewArray::from(vec!["x".repeat((64 << 20) + 1)]));
    let columns = [long];
    assert!(crate::encode_row_group(&pool, &tenant, &super::schema_of(&columns), &columns).is_err());
}

#[test]
fn strings_of_which_each_comes_a_few_times_have_a_dictionary() {
    let pool = pool(64);
    let kind = |distinct: u64| {
        let number = |row: u64| row.wrapping_mul(0x9e37_79b9_7f4a_7c15) % distinct;
        let texts = (0..65_536).map(|row| format!("Clerk#{:0>9}", number(row)));
        let array: ArrayRef = Arc::new(StringViewArray::from_iter_values(texts));
        let chunk = encoded(&pool, &array);
        check_dictionary(&chunk, &array);
        chunk.encoding()
    };
    assert_eq!(kind(1000), EncodingKind::Dictionary);
    assert_eq!(kind(8000), EncodingKind::Dictionary);
    assert_eq!(kind(60_000), EncodingKind::Fsst);
}

#[test]
fn symbols_are_those_of_strings_from_all_over() {
    // The first rows differ from all others, and every other row is an empty string.
    let words = ["lease", "token", "commit", "retry", "page", "queue"];
    let text = |row: usize| match row {
        0..1000 => format!("{row:0>200}"),
        _ if row.is_multiple_of(2) => String::new(),
        _ => format!("{row}{}", (0..40).map(|i| words[(row * 7919 + i * i * 31) % 6]).collect::<String>()),
    };
    let array: ArrayRef = Arc::new(StringViewArray::from_iter_values((0..6000).map(text)));
    let chunk = encoded(&pool(64), &array);
    assert_eq!(chunk.encoding(), EncodingKind::Fsst);
    assert!(chunk.bytes_encoded() * 4 < chunk.bytes_plain(), "{} bytes", chunk.bytes_encoded());
    assert_eq!(&chunk.decode(0..6000).unwrap(), &array);
}
