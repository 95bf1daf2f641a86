//! Tests chunks with replaced or removed rows against Arrow's kernels over the plain values.

use super::*;
use crate::tests::arrays::{Random, SHAPES, Shape, TYPES, array};
use crate::tests::{pool, schema_of};
use arrow_array::StringViewArray;
use arrow_select::zip::zip;
use farpool_model::{ErrorKind, TenantName};
use std::sync::Arc;

fn encoder(column: &ArrayRef) -> Encoder {
    Encoder::new(pool(64), TenantName::default(), schema_of(std::slice::from_ref(column)))
}

fn words(mask: &BooleanArray) -> Vec<u64> {
    let words = mask.len().div_ceil(64);
    let bit = |row: usize| u64::from(row < mask.len() && mask.value(row)) << (row % 64);
    (0..words).map(|word| (word * 64..word * 64 + 64).map(bit).sum()).collect()
}

/// Returns the rows of `column` where `mask` is set.
fn rows_of(column: &ArrayRef, mask: &BooleanArray) -> ArrayRef {
    filter(column, mask).unwrap()
}

#[test]
fn the_other_rows_stay_as_they_are() {
    let mut random = Random(7);
    for data_type in TYPES {
        for shape in SHAPES {
            let rows = 1 + random.below(3_000);
            let old = array(&data_type, shape, rows, 10, &mut random);
            let encoder = encoder(&old);
            let chunk = encoder.encode_values(0, &old, rows).unwrap();
            for one_in in [1, 2, 50, rows + 1] {
                let mask: BooleanArray = (0..rows).map(|_| Some(random.below(one_in) == 0)).collect();
                let unmarked: BooleanArray = mask.values().iter().map(|bit| Some(!bit)).collect();
                let without = encoder.encode_without(0, &chunk, &words(&mask)).unwrap();
                let left = rows_of(&old, &unmarked);
                assert_eq!(&without.decode(0..without.rows()).unwrap(), &left);
                let anew = encoder.encode_values(0, &left, left.len()).unwrap();
                assert_eq!((without.zone(), without.bytes_plain()), (anew.zone(), anew.bytes_plain()));
                let new = array(&data_type, Shape::Wild, rows, 30, &mut random);
                let mut values = NewValues::default();
                let marked = rows_of(&new, &mask);
                let cut = random.below(marked.len());
                values.add(&[marked.slice(0, cut)]).unwrap();
                values.add(&[marked.slice(cut, marked.len() - cut)]).unwrap();
                let replaced = encoder.encode_replaced(0, &chunk, &words(&mask), &values).unwrap();
                assert_eq!(&replaced.decode(0..rows).unwrap(), &zip(&mask, &new, &old).unwrap());
                assert_eq!(replaced.data_type(), &data_type);
            }
        }
    }
}

#[test]
fn strings_that_stay_keep_their_symbols_if_they_are_most() {
    let text = |row: usize| {
        (!row.is_multiple_of(9)).then(|| format!("the {row}th of many strings that have much in common"))
    };
    let old: ArrayRef = Arc::new((0..4_000).map(text).collect::<StringViewArray>());
    let encoder = encoder(&old);
    let chunk = encoder.encode_values(0, &old, 4_000).unwrap();
    assert_eq!(chunk.encoding(), EncodingKind::Fsst);
    for one_in in [1, 2, 3, 100] {
        let mask: BooleanArray = (0..4_000).map(|row| Some(row % one_in == 0)).collect();
        let unmarked: BooleanArray = mask.values().iter().map(|bit| Some(!bit)).collect();
        let without = encoder.encode_without(0, &chunk, &words(&mask)).unwrap();
        let left = rows_of(&old, &unmarked);
        assert_eq!(&without.decode(0..without.rows()).unwrap(), &left);
        let anew = encoder.encode_values(0, &left, left.len()).unwrap();
        assert_eq!((without.zone(), without.bytes_plain()), (anew.zone(), anew.bytes_plain()));
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let old: ArrayRef = Arc::new(StringViewArray::from(vec!["a", "b", "c"]));
    let encoder = encoder(&old);
    let chunk = encoder.encode_values(0, &old, 3).unwrap();
    let mut values = NewValues::default();
    values.add(&[old.slice(0, 2)]).unwrap();
    assert_eq!(encoder.encode_replaced(0, &chunk, &[0b111], &values).unwrap_err().kind, ErrorKind::Invalid);
    assert_eq!(encoder.encode_replaced(1, &chunk, &[0b11], &values).unwrap_err().kind, ErrorKind::Invalid);
    assert_eq!(encoder.encode_without(0, &chunk, &[0, 0]).unwrap_err().kind, ErrorKind::Invalid);
    let mut numbers = NewValues::default();
    numbers.add(&[Arc::new(arrow_array::Int64Array::from(vec![1]))]).unwrap();
    assert_eq!(encoder.encode_replaced(0, &chunk, &[0b1], &numbers).unwrap_err().kind, ErrorKind::Invalid);
    let long = "x".repeat(ROW_GROUP_BYTES_MAX / 8);
    let long: ArrayRef = Arc::new(StringViewArray::from(vec![long.as_str()]));
    let mut added = (0..9).map(|_| values.add(std::slice::from_ref(&long)));
    assert_eq!(added.find_map(Result::err).unwrap().kind, ErrorKind::OverLimit);
}
