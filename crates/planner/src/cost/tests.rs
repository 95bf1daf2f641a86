//! Tests which way of executing a program the cost model chooses, at made-up rates.

use super::*;
use crate::tests::rows_of;
use arrow_schema::{DataType, Field, Schema};
use farpool_model::{
    Aggregate, AggregateFunction, ColumnStatistics, CompareOp, Literal, NamedExpr, SortKey, TableName, Value,
    Version,
};
use proptest::prelude::*;
use std::sync::Arc;

/// Returns a table of ten million rows: `id` is unique, `k` has ten values, `s` is a string.
fn info() -> TableInfo {
    let fields = [("id", DataType::Int64), ("k", DataType::Int64), ("s", DataType::Utf8View)];
    let fields = fields.map(|(name, data_type)| Field::new(name, data_type, true));
    let column = |min: i128, max: i128, distinct: Option<u64>, bytes_encoded| ColumnStatistics {
        min: Literal::new(Value::Int(min), DataType::Int64).ok(),
        max: Literal::new(Value::Int(max), DataType::Int64).ok(),
        distinct_count: distinct,
        bytes_encoded,
        ..ColumnStatistics::default()
    };
    let text = ColumnStatistics { bytes_encoded: 150_000_000, ..ColumnStatistics::default() };
    TableInfo {
        name: TableName::new("t").unwrap(),
        version: Version(1),
        schema: Arc::new(Schema::new(fields.to_vec())),
        rows: 10_000_000,
        bytes_plain: 500_000_000,
        bytes_encoded: 200_000_000,
        columns: vec![column(0, 9_999_999, None, 30_000_000), column(0, 9, Some(10), 5_000_000), text],
        rows_profiled: None,
        encryption: None,
        bytes_resident: None,
        is_pinned: false,
    }
}

fn program(filter: Option<Expr>, output: Output) -> Program {
    Program {
        table: info().name,
        version: None,
        lookups: Vec::new(),
        filter,
        output,
        having: None,
        order: Vec::new(),
        limit: None,
    }
}

fn grouped_by(column: usize) -> Program {
    grouped_by_all(&[column])
}

fn grouped_by_all(columns: &[usize]) -> Program {
    let sum = Aggregate {
        name: "s".into(),
        function: AggregateFunction::Sum,
        arguments: vec![Expr::Column(0)],
        filter: None,
        data_type: DataType::Int64,
    };
    let keys = columns.iter().map(|column| NamedExpr::column(&info().schema, *column)).collect();
    program(None, Output::Aggregate { keys, aggregates: vec![sum] })
}

fn embedded() -> Place {
    Place { link: None, workers: 2, threads: 2 }
}

fn remote(bytes_per_s: f64) -> Place {
    Place { link: Some(Link { bytes_per_s, ..Link::default() }), ..embedded() }
}

fn choice(program: &Program, place: Place, rates: Rates) -> Choice {
    estimate(program, &rows_of(info()), place, &rates).choice
}

#[test]
fn what_shrinks_goes_down_whatever_the_link() {
    for place in [embedded(), remote(1e7), remote(1e9), remote(1e11)] {
        assert_eq!(choice(&grouped_by(1), place, Rates::default()), Choice::Push);
    }
}

#[test]
fn a_slow_link_pushes_even_to_slow_workers() {
    let rates = Rates { pool_group_rows: 4e7, ..Rates::default() };
    assert_eq!(choice(&grouped_by(1), remote(1e7), rates), Choice::Push);
    let rates = Rates { pool_group_rows: 1e6, ..Rates::default() };
    assert_eq!(choice(&grouped_by(1), remote(1e6), rates), Choice::Push);
    assert_eq!(choice(&grouped_by(1), remote(1e8), rates), Choice::Packed, "packed columns are a few bytes");
    assert_eq!(choice(&grouped_by(1), remote(1e12), rates), Choice::Packed);
    let slow_decode = Place { workers: 64, ..remote(1e12) };
    let rates = Rates { pool_group_rows: 1e4, decode_bytes: 1e7, ..rates };
    assert_eq!(choice(&grouped_by(1), slow_decode, rates), Choice::Plain, "many workers unpack faster");
}

#[test]
fn a_group_for_each_row_stays_where_grouping_is_faster() {
    let even = Rates { pool_spread_rows: 1.5e7, engine_spread_rows: 1.5e7, ..Rates::default() };
    assert_eq!(choice(&grouped_by(0), embedded(), even), Choice::Push, "a little is not enough");
    let better = Rates { pool_spread_rows: 1e7, ..even };
    assert_eq!(choice(&grouped_by(0), embedded(), better), Choice::Plain);
    assert_eq!(choice(&grouped_by(1), embedded(), better), Choice::Push, "few groups are another matter");
    // There are as many groups as rows, and a result row of a group is wider than the packed columns.
    assert_eq!(choice(&grouped_by(0), remote(1e8), better), Choice::Packed);
}

#[test]
fn keys_of_many_bits_stay_where_grouping_them_is_faster() {
    let rates = Rates { pool_text_rows: 1e6, engine_text_rows: 5e6, ..Rates::default() };
    let chosen = |columns: &[usize], rates| choice(&grouped_by_all(columns), remote(1e10), rates);
    assert_eq!(chosen(&[2], rates), Choice::Packed, "strings");
    assert_eq!(chosen(&[1, 2], rates), Choice::Packed, "a string beside an integer");
    assert_eq!(chosen(&[0, 0, 0], rates), Choice::Packed, "72 bits");
    let rates = Rates { pool_spread_rows: 5e6, engine_spread_rows: 1e6, ..rates };
    assert_eq!(chosen(&[0, 0, 1], rates), Choice::Push, "52 bits");
    assert_eq!(chosen(&[0], rates), Choice::Push);
    let few = |distinct_count| {
        let mut few = info();
        few.columns[2].distinct_count = distinct_count;
        estimate(&grouped_by_all(&[0, 2]), &rows_of(few.clone()), remote(1e10), &rates).choice
    };
    assert_eq!(few(Some(7)), Choice::Push, "few strings are numbered");
    assert_eq!(few(Some(60_000)), Choice::Packed, "many are not");
    assert_eq!(few(None), Choice::Packed);
}

#[test]
fn the_first_rows_go_down() {
    let columns = (0..3).map(|c| NamedExpr::column(&info().schema, c)).collect();
    let order = vec![SortKey { column: 0, descending: true, nulls_first: true }];
    let top = Program { order, limit: Some(10), ..program(None, Output::Rows(columns)) };
    for place in [embedded(), remote(1e9)] {
        assert_eq!(choice(&top, place, Rates::default()), Choice::Push);
    }
}

#[test]
fn patterns_cost_more_than_comparisons() {
    let like =
        Expr::Like { value: Box::new(Expr::Column(2)), pattern: "%a%".into(), case_insensitive: false };
    let less = Expr::compare(
        CompareOp::Lt,
        Expr::Column(0),
        Expr::Literal(Literal::new(Value::Int(5), DataType::Int64).unwrap()),
    );
    let ns = |filter: Expr| {
        let program = program(Some(filter), Output::Rows(Vec::new()));
        estimate(&program, &rows_of(info()), embedded(), &Rates::default()).costs[0].ns
    };
    assert!(ns(like.clone()) > 10.0 * ns(less.clone()));
    assert!(ns(Expr::And(vec![like.clone(), less])) > ns(like));
}

#[test]
fn a_link_has_its_defaults_until_it_is_measured() {
    let unknown = Link::default();
    assert_eq!(Link::measured(None, None, 0.0), unknown);
    assert_eq!(Link::measured(Some(5.0), Some(1e7), 2e7), Link { bytes_per_s: 2e7, latency_ns: 5.0 });
    assert_eq!(Link::measured(None, Some(1e7), 1e6).bytes_per_s, 1e7);
}

#[test]
fn an_estimate_reads_like_a_sentence() {
    let text = estimate(&grouped_by(1), &rows_of(info()), remote(1e9), &Rates::default()).to_string();
    assert!(text.starts_with("push ") && text.ends_with(": push"), "{text}");
    assert!(text.contains("10 rows, 85 B") && text.contains("10000000 rows, 152.6 MiB"), "{text}");
}

proptest! {
    #[test]
    fn costs_are_numbers_at_any_speed(rate in 1e-3f64..1e15, link in 1e-3f64..1e15, rows in any::<u64>()) {
        let rates = Rates { pool_group_rows: rate, engine_group_rows: 1.0 / rate, ..Rates::default() };
        let info = TableInfo { rows, ..info() };
        for place in [embedded(), remote(link), Place { workers: 0, threads: 0, ..embedded() }] {
            let estimate = estimate(&grouped_by(1), &rows_of(info.clone()), place, &rates);
            prop_assert!(estimate.costs.iter().all(|c| c.ns.is_finite() && c.ns >= 0.0 && c.bytes >= 0.0));
        }
    }
}
