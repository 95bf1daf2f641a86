//! Tests exact sums against a naive fold in a wider integer, however the rows are divided, and means against the
//! definition of rounding.

use super::*;
use arrow_array::{Decimal128Array, Decimal256Array, Int64Array, UInt64Array};
use proptest::prelude::*;

/// A row: its group, its value, and the outcome of the filter.
type Row = (usize, Option<i128>, Option<bool>);

/// Computes the sum and count of each group row by row, for comparison.
fn naive(rows: &[Row], groups: usize) -> Vec<(i256, u64)> {
    let mut folded = vec![(i256::ZERO, 0); groups];
    for (group, value, passes) in rows {
        if let (Some(value), Some(true)) = (value, passes) {
            let (sum, count) = &mut folded[*group];
            (*sum, *count) = (sum.checked_add(i256::from_i128(*value)).unwrap(), *count + 1);
        }
    }
    folded
}

fn integers(values: impl Iterator<Item = Option<i128>>) -> ArrayRef {
    Arc::new(values.map(|value| value.map(|value| i64::try_from(value).unwrap())).collect::<Int64Array>())
}

fn column(values: impl Iterator<Item = Option<i128>>, data_type: &DataType) -> ArrayRef {
    if *data_type == DataType::Int64 { integers(values) } else { Arc::new(decimals(values)) }
}

fn decimals(values: impl Iterator<Item = Option<i128>>) -> Decimal128Array {
    values.collect::<Decimal128Array>().with_precision_and_scale(38, 2).unwrap()
}

/// Returns the states of some rows. The groups of these rows get new numbers in the order of first appearance; also
/// returns the original number of each.
fn states(
    rows: &[Row],
    new: &impl Fn() -> ExactSums,
    first: usize,
    by_row: bool,
) -> Vec<(Vec<ArrayRef>, Vec<usize>)> {
    let mut sums = new();
    let data_type = match sums.totals {
        AnyTotals::Integers(_) => DataType::Int64,
        AnyTotals::Narrow(_) | AnyTotals::Wide(_) => DataType::Decimal128(38, 2),
    };
    let values = column(rows.iter().map(|row| row.1), &data_type);
    let filter: BooleanArray = rows.iter().map(|row| row.2).collect();
    let is_filtered = rows.iter().any(|row| row.2 != Some(true));
    let filter = is_filtered.then_some(&filter);
    if by_row {
        let states = sums.states_of_rows(&*values, filter);
        return vec![(states, rows.iter().map(|row| row.0).collect())];
    }
    let mut known: Vec<usize> = Vec::new();
    let mut number = |group| {
        let place = known.iter().position(|known| *known == group);
        place.unwrap_or_else(|| {
            known.push(group);
            known.len() - 1
        })
    };
    let groups: Vec<usize> = rows.iter().map(|row| number(row.0)).collect();
    sums.resize(known.len());
    sums.update(&*values, Some(&groups), filter);
    let first = first.min(known.len());
    let rest = known.split_off(first);
    let emitted = sums.take_states(first);
    assert_eq!(sums.groups(), rest.len());
    vec![(emitted, known), (sums.take_states(rest.len()), rest)]
}

fn merged(parts: &[&[Row]], new: impl Fn() -> ExactSums, groups: usize, first: usize) -> ExactSums {
    let mut sums = new();
    // Every group has a row in the first merge, as engines guarantee.
    let all: Vec<Row> = (0..groups).map(|group| (group, None, Some(true))).collect();
    sums.resize(groups);
    let parts = [all.as_slice()].into_iter().chain(parts.iter().copied()).enumerate();
    for (states, groups) in parts.flat_map(|(i, rows)| states(rows, &new, first, i % 3 == 2)) {
        let types: Vec<DataType> = states.iter().map(|state| state.data_type().clone()).collect();
        assert_eq!(types, sums.state_types().into_iter().map(|(_, of)| of).collect::<Vec<_>>());
        sums.merge(&states, Some(&groups));
    }
    sums
}

/// Converts states to the sums of their groups, each with whether the group has a value.
fn exact(states: &[ArrayRef]) -> Vec<(i256, bool)> {
    let (words, carries) = (&states[0], states[1].as_primitive::<Int64Type>());
    let word = |row: usize| match words.data_type() {
        DataType::Int64 => i256::from_i128(words.as_primitive::<Int64Type>().value(row).into()),
        _ => i256::from_i128(words.as_primitive::<Decimal128Type>().value(row)),
    };
    let bits = if *words.data_type() == DataType::Int64 { 64 } else { 128 };
    let of = |row: usize| {
        let carried = i256::from_i128(carries.value(row).into()) << bits;
        (word(row).wrapping_add(carried), words.is_valid(row))
    };
    (0..words.len()).map(of).collect()
}

/// Returns the expected mean, rounded half away from zero, computed on magnitudes.
fn rounded(sum: i256, count: u64, factor: i128) -> i256 {
    let (one, count) = (i256::from_i128(1), i256::from_i128(count.into()));
    let twice = |value: i256| value.wrapping_mul(i256::from_i128(2));
    let magnitude = twice(sum.wrapping_abs().wrapping_mul(i256::from_i128(factor))).wrapping_add(count);
    let quotient = magnitude.wrapping_div(twice(count));
    if sum.is_negative() { quotient.wrapping_mul(one.wrapping_neg()) } else { quotient }
}

fn row(value: impl Strategy<Value = i128>) -> impl Strategy<Value = Row> {
    let passes = prop_oneof![8 => Just(Some(true)), 1 => Just(Some(false)), 1 => Just(None)];
    (0_usize..4, prop::option::weighted(0.9, value), passes)
}

fn new_sums(data_type: &DataType, purpose: Purpose) -> ExactSums {
    ExactSums::new(data_type, purpose).unwrap()
}

fn any_integer() -> impl Strategy<Value = i128> {
    prop_oneof![any::<i64>(), Just(i64::MAX), Just(i64::MIN), -3_i64..4].prop_map(i128::from)
}

fn any_value() -> impl Strategy<Value = i128> {
    prop_oneof![any::<i128>(), Just(i128::MAX), Just(i128::MIN), -3_i128..4]
}

proptest! {
    #[test]
    fn sums_are_those_of_a_naive_fold(
        rows in prop::collection::vec(row(any_value()), 0..120),
        cuts in (0_usize..120, 0_usize..120),
        first in 0_usize..4,
    ) {
        let (a, b) = (cuts.0.min(rows.len()), cuts.1.min(rows.len()));
        let (a, b) = (a.min(b), a.max(b));
        let parts = [&rows[..a], &rows[a..b], &rows[b..]];
        let expected = naive(&rows, 4);
        let mut sums = merged(&parts, || new_sums(&DataType::Decimal128(38, 2), Purpose::Sum), 4, first);
        let bound = i256::from_i128(10_i128.pow(38));
        let fits = expected.iter().all(|(sum, _)| sum.wrapping_abs() < bound);
        let results = sums.results(4, "x", &DataType::Decimal128(38, 2));
        prop_assert_eq!(results.is_ok(), fits);
        if let Ok(results) = results {
            let values = expected.iter().map(|(sum, count)| (*count > 0).then(|| sum.to_i128().unwrap()));
            prop_assert_eq!(results.as_primitive::<Decimal128Type>(), &decimals(values));
        }
        let found = exact(&sums.take_states(4));
        prop_assert_eq!(found, expected.into_iter().map(|(sum, count)| (sum, count > 0)).collect::<Vec<_>>());
    }

    #[test]
    fn sums_of_integers_are_those_of_a_naive_fold(
        rows in prop::collection::vec(row(any_integer()), 0..120),
        cuts in (0_usize..120, 0_usize..120),
        first in 0_usize..4,
    ) {
        let (a, b) = (cuts.0.min(rows.len()), cuts.1.min(rows.len()));
        let (a, b) = (a.min(b), a.max(b));
        let parts = [&rows[..a], &rows[a..b], &rows[b..]];
        let expected = naive(&rows, 4);
        let mut sums = merged(&parts, || new_sums(&DataType::Int64, Purpose::Sum), 4, first);
        let narrow = |sum: i256| sum.to_i128().and_then(|sum| i64::try_from(sum).ok());
        let results = sums.results(4, "x", &DataType::Int64);
        prop_assert_eq!(results.is_ok(), expected.iter().all(|(sum, _)| narrow(*sum).is_some()));
        if let Ok(results) = results {
            let values = expected.iter().map(|(sum, count)| (*count > 0).then(|| sum.to_i128().unwrap()));
            prop_assert_eq!(&results, &integers(values));
        }
        let found = exact(&sums.take_states(4));
        prop_assert_eq!(found, expected.into_iter().map(|(sum, count)| (sum, count > 0)).collect::<Vec<_>>());
    }

    #[test]
    fn means_are_rounded_half_away_from_zero(
        rows in prop::collection::vec(row(prop_oneof![-99_i128..100, -10_i128.pow(30)..10_i128.pow(30)]), 0..60),
        cut in 0_usize..60,
        first in 0_usize..4,
    ) {
        let parts = rows.split_at(cut.min(rows.len()));
        let sums = merged(&[parts.0, parts.1], || new_sums(&DataType::Decimal128(38, 2), Purpose::Mean), 4, first);
        let results = sums.results(4, "x", &DataType::Decimal128(38, 4)).unwrap();
        let mean = |(sum, count): (i256, u64)| (count > 0).then(|| rounded(sum, count, 100).to_i128().unwrap());
        let expected = naive(&rows, 4).into_iter().map(mean).collect::<Decimal128Array>();
        let expected = expected.with_precision_and_scale(38, 4).unwrap();
        prop_assert_eq!(results.as_primitive::<Decimal128Type>(), &expected);
    }

    #[test]
    fn narrow_means_are_wide_means(sum in any_value(), count in 1_i64.., factor in prop_oneof![Just(1), Just(10_000), Just(10_i128.pow(30))]) {
        let wide = mean_of_wide_decimals(i256::from_i128(sum), count, factor);
        prop_assert_eq!(mean_of_decimals(sum, count, factor), wide.and_then(i256::to_i128));
    }

    #[test]
    fn what_is_taken_out_again_leaves_no_trace(
        kept in prop::collection::vec(prop::option::of(any_value()), 0..20),
        gone in prop::collection::vec(prop::option::of(any_value()), 0..20),
    ) {
        let (kept, gone) = (decimals(kept.into_iter()), decimals(gone.into_iter()));
        let new = || ExactSums::new(kept.data_type(), Purpose::Sum).unwrap().retractable();
        let (mut moved, mut plain) = (new(), new());
        moved.update(&gone, None, None);
        moved.update(&kept, None, None);
        moved.retract(&gone);
        plain.update(&kept, None, None);
        prop_assert_eq!(exact(&moved.take_states(1)), exact(&plain.take_states(1)));
    }
}

#[test]
fn a_mean_is_scaled_before_it_is_rounded() {
    for (sum, count, factor, mean) in [
        (10, 3, 10_000, 33_333),
        (20, 3, 1, 7),
        (5, 2, 1, 3),
        (-5, 2, 1, -3),
        (-10, 3, 10_000, -33_333),
        (1, 3, 1, 0),
        (10_i128.pow(38) - 1, 10_i64.pow(6), 10_000, 10_i128.pow(36)),
    ] {
        assert_eq!(mean_of_decimals(sum, count, factor), Some(mean), "{sum} by {count}");
    }
    assert_eq!(mean_of_decimals(1, 0, 10), None);
    assert_eq!(mean_of_decimals(i128::MAX, 1, 10), None);
}

#[test]
fn integers_may_leave_their_type_on_the_way_but_not_at_the_end() {
    let mut sums = ExactSums::new(&DataType::Int64, Purpose::Sum).unwrap();
    sums.resize(2);
    sums.update(&Int64Array::from(vec![i64::MAX, i64::MIN, i64::MAX, -1]), Some(&[0, 1, 0, 1]), None);
    let error = sums.results(2, "x", &DataType::Int64).unwrap_err();
    assert_eq!(error.message, "sum of \"x\" overflows BIGINT");
    sums.update(&Int64Array::from(vec![-i64::MAX, 1]), Some(&[0, 1]), None);
    let expected: ArrayRef = Arc::new(Int64Array::from(vec![i64::MAX, i64::MIN]));
    assert_eq!(&sums.results(2, "x", &DataType::Int64).unwrap(), &expected);
    sums.drop_first(1);
    assert_eq!(&sums.results(1, "x", &DataType::Int64).unwrap(), &expected.slice(1, 1));

    let mut unsigned = ExactSums::new(&DataType::UInt64, Purpose::Sum).unwrap().retractable();
    unsigned.update(&UInt64Array::from(vec![u64::MAX, 1]), None, None);
    assert!(unsigned.results(1, "x", &DataType::UInt64).is_err());
    unsigned.retract(&UInt64Array::from(vec![1]));
    let expected: ArrayRef = Arc::new(UInt64Array::from(vec![u64::MAX]));
    assert_eq!(&unsigned.results(1, "x", &DataType::UInt64).unwrap(), &expected);
}

#[test]
fn sums_of_256_bits_carry_too() {
    let wide = |values: Vec<i256>| Decimal256Array::from(values).with_precision_and_scale(76, 0).unwrap();
    let mut sums = ExactSums::new(&DataType::Decimal256(76, 0), Purpose::Sum).unwrap().retractable();
    sums.update(&wide(vec![i256::MAX, i256::MAX, i256::MAX]), None, None);
    assert!(sums.results(1, "x", &DataType::Decimal256(76, 0)).is_err());
    let state = sums.take_states(1);
    sums.resize(1);
    sums.update(&wide(vec![i256::MIN, i256::MIN, i256::MIN, i256::from_i128(8)]), None, None);
    sums.merge(&state, None);
    let expected: ArrayRef = Arc::new(wide(vec![i256::from_i128(5)]));
    assert_eq!(&sums.results(1, "x", &DataType::Decimal256(76, 0)).unwrap(), &expected);
}

#[test]
fn a_mean_fits_whose_sum_does_not() {
    let value = 99 * 10_i128.pow(34);
    let mut sums = ExactSums::new(&DataType::Decimal128(38, 2), Purpose::Mean).unwrap().retractable();
    sums.update(&decimals(std::iter::repeat_n(Some(value), 1000)), None, None);
    let expected = Decimal128Array::from(vec![value * 100]).with_precision_and_scale(38, 4).unwrap();
    let found = sums.results(1, "x", &DataType::Decimal128(38, 4)).unwrap();
    assert_eq!(found.as_primitive::<Decimal128Type>(), &expected);
    let error = sums.results(1, "x", &DataType::Decimal128(38, 6)).unwrap_err();
    assert_eq!(error.message, "mean of \"x\" overflows DECIMAL(38,6)");
}
