//! Tests the profile of a table (sketches, histograms and moments of its columns) against sketches, histograms
//! and moments that see every value; and tests its encoding.

use super::*;
use arrow_array::{
    BooleanArray, Date32Array, Decimal128Array, Float64Array, Int64Array, RecordBatch, StringViewArray,
};
use farpool_model::{ColumnStates, MomentsState, TableInfo, TableName, TableStatistics, Version};
use proptest::prelude::*;
use std::sync::Arc;

/// Returns rows with a column for each path through the code. The smaller `spread`, the more values repeat.
fn rows(count: usize, spread: u64, seed: u64) -> RecordBatch {
    let mut state = seed | 1;
    let mut next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % spread
    };
    let numbers: Vec<Option<i64>> =
        (0..count).map(|_| Some(next() as i64 - 40).filter(|v| v % 7 != 0)).collect();
    let of = |f: fn(i64) -> i64| numbers.iter().map(move |v| v.map(f));
    let text =
        |v: &Option<i64>| v.map(|v| format!("{}{v}", if v % 2 == 0 { "x" } else { "a longer text, " }));
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("i", Arc::new(Int64Array::from(numbers.clone()))),
        ("f", Arc::new(numbers.iter().map(|v| v.map(|v| v as f64 / 8.0)).collect::<Float64Array>())),
        ("d", Arc::new(of(|v| v * 3).map(|v| v.map(i128::from)).collect::<Decimal128Array>())),
        ("day", Arc::new(of(|v| v).map(|v| v.map(|v| v as i32)).collect::<Date32Array>())),
        ("s", Arc::new(numbers.iter().map(text).collect::<StringViewArray>())),
        ("b", Arc::new(of(|v| v % 2).map(|v| v.map(|v| v == 0)).collect::<BooleanArray>())),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, c)| (n, c, true))).unwrap()
}

fn profile(parts: &[RecordBatch]) -> Profile {
    let mut profile = Profile::new(&parts[0].schema()).unwrap();
    for part in parts {
        profile.update(part.columns()).unwrap();
    }
    profile
}

fn statistics(profile: &Profile) -> TableStatistics {
    let states = profile.states().into_iter().map(bytes::Bytes::from).collect();
    let (columns, moments) = profile.arrange(states);
    let table = TableInfo {
        name: TableName::new("t").unwrap(),
        version: Version(1),
        schema: profile.schema().clone(),
        rows: profile.rows(),
        bytes_plain: 0,
        bytes_encoded: 0,
        columns: Vec::new(),
        rows_profiled: None,
        encryption: None,
        bytes_resident: None,
        is_pinned: false,
    };
    TableStatistics { table, columns, moments }
}

#[test]
fn the_most_that_a_profile_takes_is_known_before() {
    let texts = |round: usize| {
        // A few frequent strings of the greatest length that is kept, among other strings.
        let text = |row: usize| match row % 3 {
            0 => format!("{:01000}", row % 120),
            _ => format!("text {round} {row}"),
        };
        Arc::new(StringViewArray::from_iter_values((0..6_000).map(text))) as ArrayRef
    };
    let numbers = |column: usize, round: usize| {
        let number = |row: usize| {
            let number =
                (row * 7919 + round * 6_000).wrapping_mul(0x9e37_79b9_7f4a_7c15) as i64 >> (column % 50);
            (!(row + column).is_multiple_of(9)).then_some(number)
        };
        match column % 3 {
            0 => Arc::new((0..6_000).map(|row| number(row).map(|n| n as f64)).collect::<Float64Array>())
                as ArrayRef,
            _ => Arc::new((0..6_000).map(number).collect::<Int64Array>()),
        }
    };
    for (text_columns, number_columns) in [(3, 0), (0, 1), (2, 20), (150, 0)] {
        let rows = |round: usize| {
            let texts = (0..text_columns).map(|column| (format!("t{column}"), texts(round), true));
            let numbers =
                (0..number_columns).map(|column| (format!("n{column}"), numbers(column, round), true));
            RecordBatch::try_from_iter_with_nullable(texts.chain(numbers)).unwrap()
        };
        let schema = rows(0).schema();
        let most = Profile::bytes_most(&schema).unwrap();
        let mut profile = Profile::new(&schema).unwrap();
        for round in 0..2 {
            profile.update(rows(round).columns()).unwrap();
            assert!(profile.bytes_held() <= most, "{} of {most}, {schema}", profile.bytes_held());
        }
        let states: usize = profile.states().iter().map(Vec::len).sum();
        assert!(states <= most / 2, "{states} of {most}");
        assert!(profile.bytes_held() >= most / 10, "{} of {most}", profile.bytes_held());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn counting_first_changes_nothing(count in 0usize..9000, spread in 1u64..6000, seed in any::<u64>()) {
        let batch = rows(count, spread, seed);
        let profile = profile(std::slice::from_ref(&batch));
        for (column, values) in profile.columns().iter().zip(batch.columns()) {
            let mut sketch = Sketch::new(EVERYTHING, values.data_type()).unwrap();
            sketch.update(values).unwrap();
            let (got, expected) = (&column.sketch, &sketch);
            prop_assert_eq!((got.rows(), got.nulls()), (expected.rows(), expected.nulls()));
            prop_assert_eq!((got.minimum(), got.maximum()), (expected.minimum(), expected.maximum()));
            prop_assert_eq!(got.distinct(), expected.distinct());
            prop_assert_eq!(got.second_moment(), expected.second_moment());
            let sums = [got.sum(), expected.sum()].map(|sum| sum.map_or(0.0, |sum| sum.as_f64()));
            prop_assert!((sums[0] - sums[1]).abs() <= sums[1].abs() * 1e-12);
            if let Some(histogram) = &column.histogram {
                let mut plain = Histogram::new(values.data_type()).unwrap();
                plain.update(values).unwrap();
                prop_assert_eq!(histogram, &plain);
            }
        }
    }

    #[test]
    fn parts_merge_and_travel(cut in 0usize..3000, spread in 1u64..3000, seed in any::<u64>()) {
        let batch = rows(3000, spread, seed);
        let whole = profile(std::slice::from_ref(&batch));
        let mut merged = profile(&[batch.slice(0, cut)]);
        let rest = profile(&[batch.slice(cut, 3000 - cut)]);
        merged.merge(&Profile::read(&statistics(&rest)).unwrap().unwrap()).unwrap();
        prop_assert_eq!(merged.rows(), 3000);
        for (one, other) in merged.columns().iter().zip(whole.columns()) {
            prop_assert_eq!(one.sketch.distinct(), other.sketch.distinct());
            prop_assert_eq!(one.sketch.second_moment(), other.sketch.second_moment());
            prop_assert_eq!(&one.histogram, &other.histogram);
        }
        let (one, other) = (&merged.moments().unwrap().moments, &whole.moments().unwrap().moments);
        prop_assert_eq!(one.count(0, 1), other.count(0, 1));
        prop_assert_eq!(one.variance(0, crate::Form::Sample).to_bits(), other.variance(0, crate::Form::Sample).to_bits());
    }
}

/// Returns the encoded states of a profile, by column, and that of its moments.
fn written(profile: &Profile) -> (Vec<ColumnStates>, Option<MomentsState>) {
    profile.arrange(profile.states().into_iter().map(bytes::Bytes::from).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]
    #[test]
    fn column_by_column_is_as_all_at_once(cut in 0usize..5000, spread in 1u64..3000, seed in any::<u64>()) {
        let batch = rows(5000, spread, seed);
        let (first, rest) = (profile(&[batch.slice(0, cut)]), profile(&[batch.slice(cut, 5000 - cut)]));
        let (columns, moments) = written(&first);
        let mut whole = Profile::from_states(first.schema(), &columns, moments.as_ref()).unwrap().unwrap();
        whole.merge(&rest).unwrap();
        let mut behind = rest.clone();
        for (column, states) in columns.iter().enumerate() {
            behind.put_column_behind(column, states).unwrap();
        }
        behind.put_moments_behind(moments.as_ref()).unwrap();
        prop_assert!(written(&behind) == written(&whole));
        prop_assert!(behind.put_column_behind(0, &columns[4]).is_err());
        prop_assert!(behind.put_moments_behind(None).is_err());
    }

    #[test]
    fn moments_of_whole_blocks_are_those_of_all_rows(blocks in 0usize..6, spread in 1u64..3000, seed in any::<u64>()) {
        // Tests with float columns, and without, where blocks of rows are larger.
        for columns in [0..3, 2..3] {
            let batch = rows(6_000, spread, seed);
            let columns = &batch.columns()[columns];
            let types: Vec<_> = columns.iter().map(|column| column.data_type().clone()).collect();
            let of = |parts: &[std::ops::Range<usize>]| {
                let mut moments = Moments::new(&types, NullHandling::Pairwise).unwrap();
                for part in parts {
                    let part: Vec<_> = columns.iter().map(|c| c.slice(part.start, part.len())).collect();
                    moments.update(&part).unwrap();
                }
                moments
            };
            let cut = (blocks * of(&[]).block_rows()).min(6_000);
            prop_assert!(of(&[0..cut, cut..6_000]).to_bytes() == of(&[0..0, 0..6_000]).to_bytes());
        }
    }
}

#[test]
fn moments_are_of_numbers_only() {
    let profile = profile(&[rows(100, 50, 1)]);
    assert_eq!(profile.moments().unwrap().columns, [0, 1, 2]);
    assert_eq!(profile.moments().unwrap().place(2), Some(2));
    assert_eq!(profile.moments().unwrap().place(3), None);
}

#[test]
fn wide_tables_are_only_counted() {
    let fields: Vec<_> = (0..=limits::TAP_COLUMNS_MAX)
        .map(|i| arrow_schema::Field::new(format!("c{i}"), DataType::Int64, true))
        .collect();
    let profile = Profile::new(&Arc::new(arrow_schema::Schema::new(fields))).unwrap();
    assert!(profile.columns().iter().all(|c| c.histogram.is_none() && c.sketch.second_moment().is_none()));
    assert_eq!(profile.moments().unwrap().columns.len(), limits::TAP_MOMENT_COLUMNS_MAX);
    assert!(Profile::read(&statistics(&profile)).unwrap().is_some());
}

#[test]
fn states_of_other_columns_are_refused() {
    let good = statistics(&profile(&[rows(100, 50, 1)]));
    let swapped = |a: usize, b: usize| {
        let mut bad = good.clone();
        bad.columns.swap(a, b);
        bad
    };
    assert!(Profile::read(&swapped(0, 4)).is_err());
    let mut bad = good.clone();
    bad.columns[0].histogram = good.columns[1].histogram.clone();
    assert!(Profile::read(&bad).is_err());
    let mut bad = good.clone();
    bad.moments.as_mut().unwrap().columns[0] = 3;
    assert!(Profile::read(&bad).is_err());
    let mut none = good.clone();
    none.columns[1].sketch = None;
    assert!(Profile::read(&none).unwrap().is_none());
    assert!(Profile::read(&good).unwrap().is_some());
}

#[test]
fn a_spread_has_the_frequent_values_and_all_numbers_in_bins() {
    let rows = 100_000;
    // Half of the numbers are 7, and the others are all different; there are few names.
    let numbers: Vec<i64> = (0..rows).map(|i| if i % 2 == 0 { 7 } else { i * 10 }).collect();
    let names: StringViewArray = (0..rows).map(|i| Some(format!("name {}", i % 3))).collect();
    let batch = RecordBatch::try_from_iter([
        ("i", Arc::new(Int64Array::from(numbers)) as ArrayRef),
        ("s", Arc::new(names) as ArrayRef),
    ]);
    let profile = profile(&[batch.unwrap()]);
    let spread = profile.columns()[0].spread().unwrap();
    assert_eq!(spread.frequent.len(), 1, "{spread:?}");
    let (value, count) = &spread.frequent[0];
    assert_eq!(value.as_int(), Some(7));
    assert!((*count as f64 / 50_000.0 - 1.0).abs() < 0.1, "{count}");
    assert_eq!(spread.bins.iter().sum::<u64>(), rows as u64);
    assert!(spread.bins.len() <= limits::SPREAD_BINS_MAX && spread.bins[0] > 50_000);
    assert!(
        spread.low <= 7.0 && spread.low + spread.width * spread.bins.len() as f64 > (rows - 1) as f64 * 10.0
    );
    assert_eq!(spread.quantiles.len(), limits::SPREAD_QUANTILES_MAX);
    assert!(spread.quantiles.is_sorted() && spread.quantile_error < 0.02);
    // About half of the values are at most 7, and few are below 7.
    assert_eq!((spread.quantiles[1], spread.quantiles[29]), (7.0, 7.0));
    assert!(spread.quantiles[48] > 300_000.0 && spread.quantiles[48] < 700_000.0);
    let spread = profile.columns()[1].spread().unwrap();
    assert_eq!((spread.frequent.len(), spread.bins.len(), spread.quantiles.len()), (3, 0, 0));
    assert!(Profile::new(profile.schema()).unwrap().columns()[0].spread().is_none());
}
