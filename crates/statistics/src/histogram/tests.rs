//! Tests histograms against a simple implementation that sees all values at once, in any order and division.

use super::*;
use arrow_array::{ArrayRef, Decimal128Array, Float64Array, Int64Array, PrimitiveArray, UInt64Array};
use proptest::prelude::*;
use std::sync::Arc;

/// Returns the expected histogram: bins for the whole range, to which values are added one by one.
fn naive<T: Number>(values: &[T]) -> Option<Bins<T>> {
    let first = *values.first()?;
    let low = values.iter().copied().fold(first, |a, b| if b < a { b } else { a });
    let high = values.iter().copied().fold(first, |a, b| if b > a { b } else { a });
    let mut bins = Bins::within(low, high);
    for value in values {
        let bin = value.bin(bins.k) - bins.first;
        bins.counts[bin as usize] += 1;
    }
    Some(bins)
}

fn whole(array: &ArrayRef) -> Histogram {
    let mut histogram = Histogram::new(array.data_type()).unwrap();
    histogram.update(array).unwrap();
    histogram
}

fn some_i64() -> impl Strategy<Value = Option<i64>> {
    prop_oneof![
        1 => Just(None),
        4 => (-20i64..20).prop_map(Some),
        2 => (-1_000_000i64..3_000_000).prop_map(Some),
        1 => any::<i64>().prop_map(Some),
    ]
}

fn some_f64() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => (-100i32..100).prop_map(|v| f64::from(v) / 8.0),
        2 => any::<f64>(),
        1 => Just(-0.0),
        1 => Just(f64::NEG_INFINITY),
        1 => -1e-300_f64..1e-300,
    ]
}

proptest! {
    #[test]
    fn integers_are_counted_as_one_by_one(
        parts in proptest::collection::vec(proptest::collection::vec(some_i64(), 0..40), 1..5),
    ) {
        let all: Vec<i128> = parts.iter().flatten().flatten().map(|v| i128::from(*v)).collect();
        let mut merged = Histogram::new(&DataType::Int64).unwrap();
        for part in parts.iter().rev() {
            let array: ArrayRef = Arc::new(Int64Array::from(part.clone()));
            merged.merge(&whole(&array)).unwrap();
        }
        let expected = naive(&all).unwrap_or_else(Bins::empty);
        prop_assert_eq!(&merged.filled, &Filled::Whole(expected));
        prop_assert_eq!(Histogram::from_bytes(&merged.to_bytes()).unwrap(), merged.clone());
        let wide: PrimitiveArray<arrow_array::types::Decimal128Type> = parts.iter().flatten().map(|v| v.map(i128::from)).collect();
        prop_assert_eq!(whole(&(Arc::new(wide) as ArrayRef)), merged.clone());
        for most in [1, 2, 7, 64] {
            let bins = merged.bins(most);
            prop_assert!(bins.len() <= most.max(2));
            prop_assert_eq!(bins.iter().map(|b| b.count).sum::<u64>(), all.len() as u64);
        }
    }

    #[test]
    fn floats_are_counted_as_one_by_one(
        parts in proptest::collection::vec(proptest::collection::vec(some_f64(), 0..40), 1..5),
    ) {
        let finite: Vec<f64> = parts.iter().flatten().filter(|v| v.is_finite()).map(|v| v + 0.0).collect();
        let mut grown = Histogram::new(&DataType::Float64).unwrap();
        let mut merged = grown.clone();
        for part in &parts {
            let array: ArrayRef = Arc::new(Float64Array::from(part.clone()));
            grown.update(&array).unwrap();
            merged.merge(&whole(&array)).unwrap();
        }
        let expected = naive(&finite).unwrap_or_else(Bins::empty);
        prop_assert_eq!(&grown.filled, &Filled::Real(expected));
        prop_assert_eq!(&merged, &grown);
        prop_assert_eq!(grown.outside() as usize, parts.iter().flatten().count() - finite.len());
        prop_assert_eq!(Histogram::from_bytes(&grown.to_bytes()).unwrap(), grown);
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        if let Ok(histogram) = Histogram::from_bytes(&bytes) {
            let _ = (histogram.bins(16), histogram.count());
            prop_assert_eq!(Histogram::from_bytes(&histogram.to_bytes()).unwrap(), histogram);
        }
    }
}

/// Arrays of few rows are counted value by value, longer ones in blocks; the counts must be equal.
#[test]
fn many_values_are_counted_as_few_are() {
    let unless = |i: i64, every: i64, value: i64| (i % every != 0).then_some(value);
    let rows = || 0..5000_i64;
    let arrays: [ArrayRef; 5] = [
        Arc::new(rows().map(|i| unless(i, 7, i * i % 4001 - 2000)).collect::<Int64Array>()),
        Arc::new(rows().map(|i| Some((i * i * 1_000_003) as u64)).collect::<UInt64Array>()),
        Arc::new(rows().map(|i| unless(i, 3, i * 37 % 991).map(i128::from)).collect::<Decimal128Array>()),
        Arc::new(rows().map(|i| Some(i128::from(i) << 90)).collect::<Decimal128Array>()),
        Arc::new(rows().map(|i| unless(i, 5, i).map(|i| 1e4 / i as f64 - 3.0)).collect::<Float64Array>()),
    ];
    for array in arrays {
        let mut parts = Histogram::new(array.data_type()).unwrap();
        for first in (0..array.len()).step_by(500) {
            parts.update(&array.slice(first, 500)).unwrap();
        }
        assert_eq!(whole(&array), parts, "{}", array.data_type());
    }
}

#[test]
fn the_widest_ranges_fit() {
    let array: ArrayRef = Arc::new(UInt64Array::from(vec![0, u64::MAX]));
    let mut histogram = whole(&array);
    let less: ArrayRef = Arc::new(UInt64Array::from(vec![5, 6]));
    histogram.update(&less).unwrap();
    assert_eq!(histogram.bins(2).iter().map(|b| b.count).collect::<Vec<_>>(), [3, 1]);
    let extremes = Decimal128Array::from(vec![i128::MIN, i128::MAX, 0]);
    assert_eq!(whole(&(Arc::new(extremes) as ArrayRef)).count(), 3);
    let floats: ArrayRef = Arc::new(Float64Array::from(vec![f64::MIN, f64::MAX, 5e-324, 0.0]));
    assert_eq!(whole(&floats).count(), 4);
}

#[test]
fn other_kinds_are_refused() {
    assert!(Histogram::new(&DataType::Utf8View).is_none() && Histogram::new(&DataType::Boolean).is_none());
    let floats: ArrayRef = Arc::new(Float64Array::from(vec![1.0]));
    let mut integers = Histogram::new(&DataType::Int64).unwrap();
    assert!(integers.update(&floats).is_err());
    assert!(integers.merge(&whole(&floats)).is_err());
    assert!(integers.is_for(&DataType::Date32) && !integers.is_for(&DataType::Float32));
}
