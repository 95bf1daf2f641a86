//! Tests moments (sums and sums of products of pairs of columns) against a naive implementation (the plain twin):
//! exactness, merging, NULLs, and hostile bytes.

use super::*;
use crate::moments::layout::triangle;
use arrow_array::builder::PrimitiveBuilder;
use arrow_array::types::*;
use arrow_array::{
    Array, ArrowPrimitiveType, Float32Array, Float64Array, Int32Array, Int64Array, PrimitiveArray,
};
use arrow_array::{Decimal128Array, UInt32Array};
use proptest::prelude::*;
use std::sync::Arc;

/// A simple random number generator: the tests need many numbers, not good ones.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 ^ (self.0 >> 29)
    }

    fn array<T: ArrowPrimitiveType>(
        &mut self,
        rows: usize,
        nulls: u64,
        value: impl Fn(u64) -> T::Native,
    ) -> ArrayRef {
        let mut builder = PrimitiveBuilder::<T>::new();
        for _ in 0..rows {
            let null = nulls > 0 && self.next() >> 33 & 7 < nulls;
            builder.append_option((!null).then(|| value(self.next())));
        }
        Arc::new(builder.finish())
    }

    /// Returns a random column of any type: over the full range, or with few values or one; sometimes with NULLs.
    fn column(&mut self, rows: usize) -> ArrayRef {
        let (choice, bits) = (self.next() >> 40 & 15, (self.next() >> 40) as u32 % 64);
        let nulls = (self.next() >> 40 & 7).saturating_sub(4);
        let wide = move |value: u64| i128::from(value.cast_signed()) * i128::from(value >> bits);
        match choice {
            0 => self.array::<Int8Type>(rows, nulls, |v| (v >> (56 + bits / 8)) as i8),
            1 => self.array::<UInt8Type>(rows, nulls, |v| (v >> (56 + bits / 8)) as u8),
            2 => self.array::<Int16Type>(rows, nulls, |v| (v >> 40) as i16 >> (bits / 4)),
            3 => self.array::<UInt16Type>(rows, nulls, |v| (v >> 40) as u16 >> (bits / 4)),
            4 | 5 => self.array::<Int32Type>(rows, nulls, |v| (v >> 20) as i32 >> (bits / 2)),
            6 => self.array::<UInt32Type>(rows, nulls, |v| (v >> 20) as u32 >> (bits / 2)),
            7 | 8 => self.array::<Int64Type>(rows, nulls, |v| v.cast_signed() >> bits),
            9 => self.array::<UInt64Type>(rows, nulls, |v| u64::MAX - (v >> bits)),
            10 => {
                let array =
                    self.array::<Decimal128Type>(rows, nulls, |v| i128::from(v.cast_signed()) >> bits);
                decimal(&array)
            }
            11 => decimal(&self.array::<Decimal128Type>(rows, nulls, wide)),
            12 => self.array::<Float32Type>(rows, nulls, |v| (v >> 40) as f32 / 1000.0),
            _ => self.array::<Float64Type>(rows, nulls, |v| 1e6 + (v >> 40) as f64 / 1000.0),
        }
    }
}

fn decimal(array: &ArrayRef) -> ArrayRef {
    let array = array.as_any().downcast_ref::<Decimal128Array>().unwrap().clone();
    Arc::new(array.with_precision_and_scale(38, 3).unwrap())
}

fn types(columns: &[ArrayRef]) -> Vec<DataType> {
    columns.iter().map(|column| column.data_type().clone()).collect()
}

fn moments(columns: &[ArrayRef], nulls: NullHandling) -> Moments {
    let mut moments = Moments::new(&types(columns), nulls).unwrap();
    moments.update(columns).unwrap();
    moments
}

/// Returns the sums of the same rows as the plain twin, the naive implementation, computes them.
fn twin(columns: &[ArrayRef], nulls: NullHandling) -> Split {
    let layout = Layout::new(&types(columns), nulls).unwrap();
    scalar::split(&layout, columns, columns[0].len())
}

/// Asserts that sums of exact pairs are equal to those of the plain twin to the last bit, and others up to rounding.
fn assert_equals_twin(moments: &Moments, twin: &Split) {
    let layout = &moments.layout;
    let nothing = Shared::new(layout);
    let mut split = moments.split.clone().map_or_else(|| Split::new(layout), |split| *split);
    split.merge_shared(layout, &moments.whole);
    assert_eq!(split.counts, twin.counts);
    assert!(split.sums == twin.sums);
    for (p, q) in (layout.exact..layout.columns()).flat_map(|p| (0..=p).map(move |q| (p, q))) {
        let (ours, theirs) =
            (split.pair_with(layout, &nothing, p, q), twin.pair_with(layout, &nothing, p, q));
        assert_eq!(ours.count, theirs.count);
        let scale = (theirs.x.squares * theirs.y.squares).sqrt();
        close(ours.products, theirs.products, scale, "products");
        close(ours.x.mean, theirs.x.mean, theirs.x.mean, "mean");
        close(ours.y.mean, theirs.y.mean, theirs.y.mean, "mean");
        close(ours.y.squares, theirs.y.squares, theirs.y.squares, "squares");
        close(ours.x.squares, theirs.x.squares, theirs.x.squares, "squares");
    }
}

fn close(ours: f64, theirs: f64, scale: f64, what: &str) {
    let near = (ours - theirs).abs() <= 1e-9 * scale.abs() || (ours.is_nan() && theirs.is_nan());
    assert!(near || ours == theirs, "{what}: {ours} and {theirs}");
}

#[test]
fn answers_on_a_line() {
    let x = Int32Array::from(vec![Some(1), Some(2), None, Some(4)]);
    let y = Float64Array::from(vec![Some(3.0), Some(5.0), Some(100.0), Some(9.0)]);
    let moments = moments(&[Arc::new(x), Arc::new(y)], NullHandling::Pairwise);
    assert_eq!((moments.count(0, 1), moments.count(1, 1)), (3, 4));
    close(moments.correlation(0, 1), 1.0, 1e-3, "correlation");
    let line = moments.regression(1, 0);
    close(line.slope, 2.0, 1e-3, "slope");
    close(line.intercept, 1.0, 1e-3, "intercept");
    assert_eq!(moments.mean(1), 29.25);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_the_plain_twin(seed in any::<u64>(), columns in 1usize..7, rows in 0usize..300, listwise in any::<bool>()) {
        let nulls = if listwise { NullHandling::Listwise } else { NullHandling::Pairwise };
        let mut numbers = Numbers(seed);
        let columns: Vec<ArrayRef> = (0..columns).map(|_| numbers.column(rows)).collect();
        let whole = moments(&columns, nulls);
        assert_equals_twin(&whole, &twin(&columns, nulls));
        let decoded = Moments::from_bytes(&whole.to_bytes()).unwrap();
        prop_assert_eq!(decoded.to_bytes(), whole.to_bytes());
        for i in 0..columns.len() {
            for j in 0..columns.len() {
                let (r, again) = (whole.correlation(i, j), decoded.correlation(i, j));
                prop_assert!(r.is_nan() || r.abs() <= 1.0);
                prop_assert!((r.is_nan() && again.is_nan()) || (r - again).abs() < 1e-9, "{} {}", r, again);
            }
        }
    }

    #[test]
    fn merges_in_any_order_to_the_same_bytes(seed in any::<u64>(), cuts in proptest::collection::vec(0usize..200, 3)) {
        let mut numbers = Numbers(seed);
        let ints: Vec<ArrayRef> = (0..12).map(|_| numbers.column(200)).filter(|c| !c.data_type().is_floating()).collect();
        for nulls in [NullHandling::Listwise, NullHandling::Pairwise] {
            let mut ends = cuts.clone();
            ends.sort_unstable();
            ends.push(200);
            let mut start = 0;
            let mut parts = Vec::new();
            for end in ends {
                let part: Vec<ArrayRef> = ints.iter().map(|c| c.slice(start, end - start)).collect();
                parts.push(moments(&part, nulls));
                start = end;
            }
            let mut backwards = Moments::new(&types(&ints), nulls).unwrap();
            parts.iter().rev().for_each(|part| backwards.merge(part).unwrap());
            prop_assert!(backwards.to_bytes() == moments(&ints, nulls).to_bytes());
        }
    }

    #[test]
    fn damage_is_refused(seed in any::<u64>(), at in any::<u64>(), bit in 0u32..8) {
        let mut numbers = Numbers(seed);
        let columns: Vec<ArrayRef> = (0..3).map(|_| numbers.column(20)).collect();
        let mut bytes = moments(&columns, NullHandling::Pairwise).to_bytes();
        let at = (at % bytes.len() as u64) as usize;
        bytes[at] ^= 1 << bit;
        prop_assert!(Moments::from_bytes(&bytes).is_err());
        prop_assert!(Moments::from_bytes(&bytes[..at]).is_err());
    }
}

#[test]
fn agrees_with_the_plain_twin_over_blocks_and_tiles() {
    let mut numbers = Numbers(7);
    for (columns, rows, nulls) in [(3, 9000, 0), (70, 700, 0), (40, 1500, 1)] {
        let columns: Vec<ArrayRef> = (0..columns)
            .map(|k| match k % 3 {
                0 => numbers.array::<Int64Type>(rows, nulls, |v| v.cast_signed()),
                1 => numbers.array::<UInt32Type>(rows, 0, |v| (v >> 20) as u32),
                _ => numbers.array::<Float64Type>(rows, nulls, |v| (v >> 40) as f64),
            })
            .collect();
        assert_equals_twin(
            &moments(&columns, NullHandling::Pairwise),
            &twin(&columns, NullHandling::Pairwise),
        );
    }
    let wide: Vec<ArrayRef> =
        (0..90).map(|_| numbers.array::<Int64Type>(500, 0, |v| v.cast_signed())).collect();
    assert_equals_twin(&moments(&wide, NullHandling::Listwise), &twin(&wide, NullHandling::Listwise));
}

/// Adds 2^33 rows of the greatest values, by merging a state with itself: the published baselines wrap around after a
/// few thousand rows.
#[test]
fn paper_3_5_full_range_columns_do_not_wrap() {
    let extremes = |high: u64, low: u64| (0..1024).map(move |k| if k % 2 == 0 { high } else { low });
    let words: PrimitiveArray<UInt32Type> = extremes(u32::MAX.into(), 0).map(|v| Some(v as u32)).collect();
    let signed: PrimitiveArray<Int64Type> =
        extremes(i64::MAX as u64, i64::MIN as u64).map(|v| Some(v.cast_signed())).collect();
    let unsigned: PrimitiveArray<UInt64Type> = extremes(u64::MAX, 0).map(Some).collect();
    let ramp: PrimitiveArray<UInt32Type> = (0..1024u32).map(|v| Some(u32::MAX - v)).collect();
    let columns: [ArrayRef; 4] = [Arc::new(words), Arc::new(signed), Arc::new(unsigned), Arc::new(ramp)];
    let small = moments(&columns, NullHandling::Pairwise);
    let mut large = small.clone();
    (0..23).for_each(|_| {
        let half = large.clone();
        large.merge(&half).unwrap();
    });
    assert_eq!(large.count(0, 1), 1 << 33);
    for (i, j) in [(0, 1), (1, 2), (0, 2), (0, 3), (3, 1)] {
        assert_eq!(large.correlation(i, j), small.correlation(i, j), "{i} {j}");
        assert_eq!(large.covariance(i, j, Form::Population), small.covariance(i, j, Form::Population));
    }
    assert_eq!((large.correlation(0, 1), large.correlation(1, 2)), (1.0, 1.0));
    assert_eq!(large.variance(1, Form::Population), 2f64.powi(126));
    assert_eq!(large.mean(1), -0.5);
}

#[test]
fn constant_columns_correlate_with_nothing() {
    let rows = 3000;
    let float = Float64Array::from_iter_values((0..rows).map(|_| 0.1));
    let small = Float32Array::from_iter_values((0..rows).map(|_| 0.1));
    let int = Int64Array::from_iter_values((0..rows).map(|_| i64::MAX));
    let ramp = UInt32Array::from_iter_values(0..rows);
    let columns: [ArrayRef; 4] = [Arc::new(float), Arc::new(small), Arc::new(int), Arc::new(ramp)];
    let moments = moments(&columns, NullHandling::Listwise);
    for (i, j) in [(0, 0), (0, 1), (0, 2), (0, 3), (1, 3), (2, 3), (2, 2)] {
        assert!(moments.correlation(i, j).is_nan(), "{i} {j}");
    }
    assert_eq!((moments.mean(0), moments.variance(0, Form::Sample)), (0.1, 0.0));
    assert_eq!(moments.correlation(3, 3), 1.0);
}

/// The column is constant only over the rows where the other column is not NULL, and far from that value in the other
/// rows.
#[test]
fn a_column_constant_over_the_rows_of_a_pair() {
    let rows = 5000;
    let x =
        Float64Array::from_iter_values((0..rows).map(|k| if k % 3 == 0 { 0.1 } else { 1e9 + f64::from(k) }));
    let y: Float64Array = (0..rows).map(|k| (k % 3 == 0).then(|| f64::from(k))).collect();
    let moments = moments(&[Arc::new(x), Arc::new(y)], NullHandling::Pairwise);
    assert!(moments.correlation(0, 1).is_nan());
    assert_eq!(moments.regression(1, 0).sxx, 0.0);
    assert_eq!(moments.regression(1, 0).avgx, 0.1);
}

#[test]
fn numbers_far_from_zero_correlate_as_well() {
    let rows = 10_000;
    let of = |offset: f64| -> ArrayRef {
        Arc::new(Float64Array::from_iter_values((0..rows).map(|k| offset + f64::from(k * 7919 % 1024))))
    };
    let other: ArrayRef = Arc::new(Float64Array::from_iter_values((0..rows).map(|k| f64::from(k % 1024))));
    let near = moments(&[of(0.0), other.clone()], NullHandling::Pairwise).correlation(0, 1);
    let far = moments(&[of(1e12), other], NullHandling::Pairwise).correlation(0, 1);
    assert!((near - far).abs() < 1e-12, "{near} {far}");
}

#[test]
fn odd_floats_spoil_their_own_pairs_only() {
    let of = |odd: Option<f64>| -> ArrayRef {
        let value = |k: i32| odd.filter(|_| k == 70).unwrap_or(f64::from(k * k % 100));
        Arc::new(Float64Array::from_iter_values((0..100).map(value)))
    };
    let nulls: ArrayRef = Arc::new((0..100).map(|k| (k != 70).then_some(k)).collect::<Int32Array>());
    let columns = [of(Some(f64::NAN)), of(Some(f64::INFINITY)), of(None), of(None), nulls];
    let pairwise = moments(&columns, NullHandling::Pairwise);
    assert!(pairwise.correlation(0, 2).is_nan() && pairwise.correlation(1, 2).is_nan());
    assert!(pairwise.mean(0).is_nan() && pairwise.mean(1) == f64::INFINITY);
    close(pairwise.correlation(2, 3), 1.0, 1e-3, "correlation");
    // The only row with a different value is left out of the pair because of a NULL.
    close(pairwise.correlation(0, 4), pairwise.correlation(2, 4), 1e-3, "correlation");
    assert!(pairwise.correlation(0, 4).is_finite());
    let listwise = moments(&columns, NullHandling::Listwise);
    assert!(listwise.correlation(0, 1).is_finite());
    assert!(moments(&columns[..4], NullHandling::Listwise).correlation(0, 3).is_nan());
}

#[test]
fn others_are_refused() {
    let text = Moments::new(&[DataType::Utf8], NullHandling::Pairwise);
    assert!(text.unwrap_err().message.contains("no moments of a column of type Utf8"));
    let many = Moments::new(&vec![DataType::Int8; limits::MOMENT_COLUMNS_MAX + 1], NullHandling::Pairwise);
    assert_eq!(many.unwrap_err().kind, farpool_model::ErrorKind::OverLimit);
    let column: ArrayRef = Arc::new(Int32Array::from(vec![1]));
    let mut moments = moments(std::slice::from_ref(&column), NullHandling::Pairwise);
    assert!(moments.update(&[column.clone(), column.clone()]).is_err());
    assert!(moments.update(&[Arc::new(Int64Array::from(vec![1]))]).is_err());
    assert!(moments.merge(&Moments::new(&[DataType::Int32], NullHandling::Listwise).unwrap()).is_err());
    assert_eq!(triangle(16), 136);
}
