//! Tests estimates of the fraction of a column's values that satisfies a condition: they follow from frequent
//! values and histograms, and are in [0, 1] for any statistics.

use super::*;
use crate::estimate::{groups, selectivity};
use arrow_array::{ArrayRef, Int64Array};
use arrow_schema::{DataType, Field, Schema};
use farpool_model::{Expr, TableName, Version};
use farpool_statistics::Profile;
use proptest::prelude::*;
use std::sync::Arc;

fn int(v: i64) -> Literal {
    Literal::new(Value::Int(v.into()), DataType::Int64).unwrap()
}

fn text(v: &str) -> Literal {
    Literal::new(Value::Text(v.into()), DataType::Utf8View).unwrap()
}

fn compare(column: usize, op: CompareOp, literal: Literal) -> Expr {
    Expr::compare(op, Expr::Column(column), Expr::Literal(literal))
}

/// Returns a table of a thousand rows. Column `n`: 500 times the value 7, a hundred values from 0 to 99 and 400 from
/// 900 to 1299. `s`: 700 times `apple`, 290 times `pear` and ten other strings. `m`: from 0 to 1299, evenly
/// distributed.
fn info() -> TableInfo {
    let schema = Schema::new(vec![
        Field::new("n", DataType::Int64, false),
        Field::new("s", DataType::Utf8View, false),
        Field::new("m", DataType::Int64, false),
    ]);
    let column = |min, max, distinct_count, spread| ColumnStatistics {
        min: Some(min),
        max: Some(max),
        distinct_count: Some(distinct_count),
        spread: Some(Arc::new(spread)),
        ..ColumnStatistics::default()
    };
    let bins = |bins: &[u64]| Spread { bins: bins.to_vec(), low: 0.0, width: 100.0, ..Spread::default() };
    let numbers =
        Spread { frequent: vec![(int(7), 500)], ..bins(&[600, 0, 0, 0, 0, 0, 0, 0, 0, 100, 100, 100, 100]) };
    let words = Spread { frequent: vec![(text("apple"), 700), (text("pear"), 290)], ..Spread::default() };
    TableInfo {
        name: TableName::new("t").unwrap(),
        version: Version(1),
        schema: Arc::new(schema),
        rows: 1000,
        bytes_plain: 0,
        bytes_encoded: 0,
        columns: vec![
            column(int(0), int(1299), 500, numbers),
            column(text("apple"), text("quince"), 12, words),
            column(int(0), int(1299), 1000, bins(&[77, 77, 77, 77, 77, 77, 77, 77, 77, 77, 77, 77, 76])),
        ],
        rows_profiled: None,
        encryption: None,
        bytes_resident: None,
        is_pinned: false,
    }
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() < 0.005
}

#[test]
fn frequent_values_and_bins_are_asked_for_numbers() {
    let of = |op, v| selectivity(&compare(0, op, int(v)), &info());
    assert!(close(of(CompareOp::Eq, 7), 0.5));
    assert!(close(of(CompareOp::NotEq, 7), 0.5));
    assert!(close(of(CompareOp::Eq, 8), 0.001));
    assert_eq!(of(CompareOp::Eq, 500), 0.0, "its bin is empty");
    // Half of the other values in the bin, plus the rows of the frequent value.
    assert!(close(of(CompareOp::Lt, 50), 0.55));
    assert!(close(of(CompareOp::Lt, 7), 0.007));
    assert!(close(of(CompareOp::GtEq, 100), 0.4));
    assert!(close(of(CompareOp::Lt, 900), 0.6));
    assert!(close(of(CompareOp::Gt, 1250), 0.049));
    let between = Expr::And(vec![compare(0, CompareOp::GtEq, int(100)), compare(0, CompareOp::Lt, int(950))]);
    assert!(close(selectivity(&between, &info()), 0.05));
}

#[test]
fn frequent_strings_are_compared_and_matched() {
    let of = |op, v| selectivity(&compare(1, op, text(v)), &info());
    assert!(close(of(CompareOp::Eq, "pear"), 0.29));
    assert!(close(of(CompareOp::Eq, "plum"), 0.001));
    assert!(close(of(CompareOp::Lt, "b"), 0.7 + 0.01 / 3.0));
    let like = |pattern: &str, case_insensitive| Expr::Like {
        value: Box::new(Expr::Column(1)),
        pattern: pattern.into(),
        case_insensitive,
    };
    assert!(close(selectivity(&like("%pp%", false), &info()), 0.701));
    assert!(close(selectivity(&like("PEA_", true), &info()), 0.29 + 0.01 * 0.05));
    assert!(selectivity(&like("PEA_", false), &info()) < 0.01);
    let list = Expr::InList(Box::new(Expr::Column(1)), vec![text("apple"), text("pear")]);
    assert!(close(selectivity(&list, &info()), 0.99));
}

#[test]
fn two_columns_are_compared_bin_by_bin() {
    let less = |l, r| selectivity(&Expr::compare(CompareOp::Lt, Expr::Column(l), Expr::Column(r)), &info());
    // Six tenths of the values of `n` are near 0, the others in the last third of the range of `m`.
    assert!((0.6..0.7).contains(&less(0, 2)), "{}", less(0, 2));
    assert!((less(0, 2) + less(2, 0) - 1.0).abs() < 0.05);
}

#[test]
fn a_condition_on_a_key_leaves_fewer_groups() {
    let of =
        |key: usize, filter: &Expr, rows| groups([Expr::Column(key)].iter(), Some(filter), rows, &info());
    assert_eq!(of(0, &compare(0, CompareOp::Eq, int(7)), 500.0), 1.0);
    let few = Expr::InList(Box::new(Expr::Column(1)), vec![text("apple"), text("pear")]);
    assert!((1.9..=2.0).contains(&of(1, &few, 990.0)));
    let range = Expr::And(vec![compare(2, CompareOp::GtEq, int(0)), compare(2, CompareOp::Lt, int(130))]);
    assert!((60.0..=100.0).contains(&of(2, &range, 100.0)));
    assert!(of(2, &few, 990.0) > 600.0, "a condition on another column says nothing");
}

#[test]
fn patterns_match_as_like_does() {
    for (text, pattern, expected) in [
        ("", "", true),
        ("", "%", true),
        ("a", "", false),
        ("abc", "a%c", true),
        ("abcbd", "a%b_", true),
        ("abcb", "a%b_", false),
        ("a%", "a\\%", true),
        ("ab", "a\\%", false),
        ("aXbXc", "%X%X%", true),
        ("aXbc", "%X%X%", false),
        ("é", "_", true),
        ("a", "a\\", false),
    ] {
        assert_eq!(is_like(text, pattern, false), expected, "{text:?} LIKE {pattern:?}");
    }
    assert!(is_like("ÄbC", "äB_", true));
}

/// Returns a table of one column with these values, and its profile.
fn profiled(values: &[i64]) -> TableInfo {
    let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]));
    let mut profile = Profile::new(&schema).unwrap();
    for part in values.chunks(8192) {
        profile.update(&[Arc::new(Int64Array::from(part.to_vec())) as ArrayRef]).unwrap();
    }
    let column = ColumnStatistics {
        min: values.iter().min().map(|v| int(*v)),
        max: values.iter().max().map(|v| int(*v)),
        spread: profile.columns()[0].spread().map(Arc::new),
        ..ColumnStatistics::default()
    };
    TableInfo { schema, rows: values.len() as u64, columns: vec![column], ..info() }
}

/// Function that returns the value of a row, given the index of the row.
type Shape = Box<dyn Fn(i64) -> i64>;

/// The columns have nearly all values in one bin, unevenly distributed within the bin.
#[test]
fn skewed_values_are_estimated_within_the_error_of_the_sketch() {
    let rows = 200_000_i64;
    let mixed = |i: i64| i.wrapping_mul(0x5851_f42d_4c95_7f2d).cast_unsigned() >> 33;
    let shapes: [(&str, Shape); 3] = [
        // 98 of 100 values are zeros, and one large value makes the bins wide.
        (
            "zeros",
            Box::new(move |i| {
                if mixed(i) % 50 == 0 {
                    1 + i % 1000
                } else if i == 7 {
                    1 << 40
                } else {
                    0
                }
            }),
        ),
        ("far", Box::new(move |i| if i == 7 { 1 << 40 } else { (mixed(i) % 10_000) as i64 })),
        ("squares", Box::new(move |i| ((mixed(i) % 1000).pow(4) >> 10) as i64)),
    ];
    for (name, value) in shapes {
        let values: Vec<i64> = (0..rows).map(value).collect();
        let info = profiled(&values);
        let spread = info.columns[0].spread.as_ref().unwrap();
        let step = 1.0 / (spread.quantiles.len() as f64 + 1.0);
        assert!(spread.quantile_error < 0.02, "{name}: {}", spread.quantile_error);
        for bound in [1, 2, 50, 100, 900, 2500, 5000, 9000, 1 << 20, 1 << 30] {
            let truth = values.iter().filter(|v| **v < bound).count() as f64 / rows as f64;
            let share = selectivity(&compare(0, CompareOp::Lt, int(bound)), &info);
            let off = (share - truth).abs();
            assert!(
                off <= step + 2.0 * spread.quantile_error,
                "{name} < {bound}: {share}, and it is {truth}"
            );
        }
    }
}

proptest! {
    #[test]
    fn shares_are_fractions_whatever_was_gathered(
        bins in prop::collection::vec(0u64..u64::MAX / 200, 0..20),
        frequent in prop::collection::vec((any::<i64>(), any::<u64>()), 0..5),
        (low, width) in (-1e18f64..1e18, 1e-9f64..1e18),
        (min, max, value) in (any::<i64>(), any::<i64>(), any::<i64>()),
        (rows, distinct) in (0u64..u64::MAX, 0u64..u64::MAX),
        mut quantiles in prop::collection::vec(any::<i64>().prop_map(|v| v as f64), 0..9),
        quantile_error in 0.0f64..=1.0,
    ) {
        let mut info = info();
        let frequent = frequent.into_iter().map(|(v, rows)| (int(v), rows)).collect();
        info.rows = rows;
        quantiles.sort_by(f64::total_cmp);
        let spread = Spread { frequent, bins, low, width, quantiles, quantile_error };
        info.columns[0].spread = Some(Arc::new(spread));
        info.columns[0].distinct_count = Some(distinct);
        (info.columns[0].min, info.columns[0].max) = (Some(int(min.min(max))), Some(int(min.max(max))));
        use CompareOp::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
        for op in [Eq, NotEq, Lt, LtEq, Gt, GtEq] {
            let share = selectivity(&compare(0, op, int(value)), &info);
            prop_assert!((0.0..=1.0).contains(&share), "{share}");
            let share = selectivity(&Expr::compare(op, Expr::Column(0), Expr::Column(2)), &info);
            prop_assert!((0.0..=1.0).contains(&share), "{share}");
        }
    }
}
