//! Tests the steps by which partial aggregates become results, on small columns.

use super::*;

#[test]
fn floats_keep_their_order_as_integers() {
    let floats =
        [f64::NEG_INFINITY, f64::MIN, -1.5, -f64::MIN_POSITIVE, -0.0, 0.0, 5e-324, 2.0, f64::INFINITY];
    for pair in floats.windows(2) {
        assert!(order_of(pair[0]) < order_of(pair[1]), "{pair:?}");
    }
    for float in floats {
        assert_eq!(float_of(order_of(float)).to_bits(), float.to_bits());
    }
    assert!(order_of(-f64::NAN) > order_of(f64::INFINITY) && float_of(order_of(-f64::NAN)).is_nan());
}

fn decimals(values: &[Option<i128>], precision: u8, scale: i8) -> ArrayRef {
    let decimals = Decimal128Array::from_iter(values.iter().copied());
    Arc::new(decimals.with_precision_and_scale(precision, scale).unwrap())
}

#[test]
fn a_mean_is_the_sum_by_the_count_and_null_of_none() {
    let sums = decimals(&[Some(1000), None, Some(-500)], 38, 2);
    let counts: ArrayRef = Arc::new(Int64Array::from(vec![3, 0, 2]));
    let exact = Field::new("m", DataType::Decimal128(14, 6), true);
    let means = Step::Mean.apply(&[Arc::clone(&sums), Arc::clone(&counts)], &exact).unwrap();
    assert_eq!(&means, &decimals(&[Some(3_333_333), None, Some(-2_500_000)], 14, 6));
    let float = Field::new("m", DataType::Float64, true);
    let sums: ArrayRef = Arc::new(Float64Array::from(vec![Some(1.0), None, Some(-1.0)]));
    let means = Step::Mean.apply(&[sums, counts], &float).unwrap();
    let expected: ArrayRef = Arc::new(Float64Array::from(vec![Some(1.0 / 3.0), None, Some(-0.5)]));
    assert_eq!(&means, &expected);
}

#[test]
fn a_sum_that_does_not_fit_is_an_error() {
    let result = Field::new("s", DataType::Int64, true);
    let sums = |sum| decimals(&[Some(sum)], 38, 0);
    let fits: ArrayRef = Arc::new(Int64Array::from(vec![i64::MAX]));
    assert_eq!(&Step::Sum.apply(&[sums(i64::MAX.into())], &result).unwrap(), &fits);
    let error = Step::Sum.apply(&[sums(i128::from(i64::MAX) + 1)], &result).unwrap_err();
    assert_eq!(error.message, "sum of \"s\" overflows BIGINT");
    assert!(Step::Sum.apply(&[], &result).is_err());
}
