//! Tests estimates of selectivity and row counts: they stay in [0, 1] for any condition, and are exact where the
//! statistics determine them.

use crate::cost::{Choice, Place, Rates};
use crate::estimate::{self, groups, rows, selectivity};
use crate::joins::sizes::Source;
use crate::joins::{Matches, Relation, Share, Side, Tree, order, share, share_matched};
use crate::rows::Rows;
use crate::split::{self, place};
use arrow_schema::{DataType, Field, Schema};
use farpool_model::{
    Aggregate, AggregateFunction, Answer, ArithmeticOp, ColumnStatistics, CompareOp, Expr, KeySet, Literal,
    NamedExpr, Operator, OperatorAnswer, Output, Prepared, Program, TableInfo, TableName, Value, Version,
};
use proptest::prelude::*;
use std::sync::Arc;

/// Returns the rows of a table without lookups.
pub(crate) fn rows_of(info: TableInfo) -> Rows {
    Rows::of_table(Source { info: Arc::new(info), sketches: Arc::default() })
}

/// Returns a table of 1000 rows: `id` has the values 1 to 1000 without NULLs, `day` 100 dates, `price` floats of
/// which a fifth are NULL, `word` strings.
fn info() -> TableInfo {
    let schema = Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("day", DataType::Date32, true),
        Field::new("price", DataType::Float64, true),
        Field::new("word", DataType::Utf8View, true),
    ]);
    let column = |min: Option<Literal>, max, null_count, distinct_count| ColumnStatistics {
        null_count,
        min,
        max,
        distinct_count,
        bytes_encoded: 1000,
        distinct_estimate: None,
        spread: None,
    };
    let date = |v| Literal::new(Value::Int(v), DataType::Date32).ok();
    let float = |v| Literal::new(Value::Float(v), DataType::Float64).ok();
    let text = |v: &str| Literal::new(Value::Text(v.into()), DataType::Utf8View).ok();
    TableInfo {
        name: TableName::new("t").unwrap(),
        version: Version(1),
        schema: Arc::new(schema),
        rows: 1000,
        bytes_plain: 50_000,
        bytes_encoded: 4000,
        columns: vec![
            column(Some(int(1)), Some(int(1000)), 0, Some(1000)),
            column(date(0), date(99), 0, Some(100)),
            column(float(0.0), float(10.0), 200, None),
            column(text("a"), text("m"), 0, Some(4)),
        ],
        rows_profiled: None,
        encryption: None,
        bytes_resident: None,
        is_pinned: false,
    }
}

fn int(v: i64) -> Literal {
    Literal::new(Value::Int(v.into()), DataType::Int64).unwrap()
}

fn compare(column: usize, op: CompareOp, literal: Literal) -> Expr {
    Expr::compare(op, Expr::Column(column), Expr::Literal(literal))
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() < 0.005
}

#[test]
fn uniform_integers_are_estimated_exactly() {
    let of = |op, v| selectivity(&compare(0, op, int(v)), &info());
    assert!(close(of(CompareOp::Lt, 251), 0.25));
    assert!(close(of(CompareOp::LtEq, 250), 0.25));
    assert!(close(of(CompareOp::GtEq, 901), 0.1));
    assert!(close(of(CompareOp::Eq, 7), 0.001));
    assert!(close(of(CompareOp::NotEq, 7), 0.999));
    assert_eq!(of(CompareOp::Eq, 5000), 0.0);
    assert_eq!(of(CompareOp::Lt, 5000), 1.0);
    assert_eq!(of(CompareOp::Gt, 5000), 0.0);
}

#[test]
fn the_bounds_of_a_range_are_taken_together() {
    let range = Expr::And(vec![compare(0, CompareOp::GtEq, int(401)), compare(0, CompareOp::LtEq, int(500))]);
    assert!(close(selectivity(&range, &info()), 0.1));
    let empty = Expr::And(vec![compare(0, CompareOp::Gt, int(600)), compare(0, CompareOp::Lt, int(500))]);
    assert_eq!(selectivity(&empty, &info()), 0.0);
}

/// The condition that a join sends for its join keys comes with bounds, their least and greatest value. The bounds
/// must not reduce the estimate a second time.
#[test]
fn keys_of_a_join_lie_within_their_bounds() {
    let keys: Vec<i64> = (401..=500).step_by(2).collect();
    let set = Expr::InSet(Box::new(Expr::Column(0)), KeySet::new(&keys).unwrap());
    let with_bounds = |least, most| {
        let bounds = [compare(0, CompareOp::GtEq, int(least)), compare(0, CompareOp::LtEq, int(most))];
        selectivity(&Expr::And([&bounds[..], std::slice::from_ref(&set)].concat()), &info())
    };
    assert!(close(with_bounds(401, 500), 0.05));
    // Bounds from another condition may leave fewer rows than the join keys do.
    assert!(close(with_bounds(401, 410), 0.01));
}

#[test]
fn nulls_pass_neither_a_condition_nor_its_negation() {
    let five = Literal::new(Value::Float(5.0), DataType::Float64).unwrap();
    let below = compare(2, CompareOp::Lt, five);
    assert!(close(selectivity(&below, &info()), 0.4));
    assert!(close(selectivity(&Expr::not(below), &info()), 0.4));
    let null = Expr::IsNull(Box::new(Expr::Column(2)));
    assert!(close(selectivity(&null, &info()), 0.2));
    assert!(close(selectivity(&Expr::not(null), &info()), 0.8));
}

#[test]
fn a_disjunction_counts_what_both_sides_share_once() {
    let half = compare(0, CompareOp::LtEq, int(500));
    let days = |v| Literal::new(Value::Int(v), DataType::Date32).unwrap();
    let half_of_days = compare(1, CompareOp::Lt, days(50));
    assert!(close(selectivity(&Expr::Or(vec![half, half_of_days]), &info()), 0.75));
    let list = Expr::InList(Box::new(Expr::Column(0)), (1..=10).map(int).collect());
    assert!(close(selectivity(&list, &info()), 0.01));
}

#[test]
fn groups_are_bounded_by_rows_and_by_keys() {
    let keys = [Expr::Column(3), Expr::Column(1)];
    assert!((390.0..=400.0).contains(&groups(keys.iter(), None, 100_000.0, &info())));
    assert!(groups(keys.iter(), None, 10.0, &info()) <= 10.0);
    assert_eq!(groups([].iter(), None, 10.0, &info()), 1.0);
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

fn by_word() -> Output {
    let sum = Aggregate {
        name: "s".into(),
        function: AggregateFunction::Sum,
        arguments: vec![Expr::Column(0)],
        filter: None,
        data_type: DataType::Int64,
    };
    Output::Aggregate { keys: vec![NamedExpr::column(&info().schema, 3)], aggregates: vec![sum] }
}

#[test]
fn rows_follow_filter_output_and_limit() {
    let half = Some(compare(0, CompareOp::LtEq, int(500)));
    let scan = program(half.clone(), Output::Rows(vec![NamedExpr::column(&info().schema, 0)]));
    assert!((rows(&scan, &info()) - 500.0).abs() < 2.0);
    assert!((estimate::bytes(&scan, &info()) - 4000.0).abs() < 16.0);
    assert_eq!(rows(&Program { limit: Some(7), ..scan }, &info()), 7.0);
    assert!((rows(&program(half, by_word()), &info()) - 4.0).abs() < 0.01);
}

#[test]
fn a_condition_is_placed_where_it_can_be_decided() {
    let schema = info().schema;
    let opaque = Expr::opaque("the function f", Vec::new());
    let plain = compare(0, CompareOp::Lt, int(5));
    assert_eq!(place(plain.clone(), &schema).answer, Answer::Exact);
    let mixed = place(Expr::And(vec![plain.clone(), opaque.clone()]), &schema);
    assert_eq!((mixed.answer, mixed.reason.as_deref()), (Answer::Superset, Some("the function f")));
    assert_eq!(mixed.sent, Some(plain));
    assert_eq!(place(opaque, &schema).answer, Answer::Refused);
    let ill_typed = place(compare(3, CompareOp::Lt, int(5)), &schema);
    assert_eq!((ill_typed.answer, ill_typed.sent), (Answer::Refused, None));
}

#[test]
fn conjuncts_and_conjunction_undo_each_other() {
    let parts: Vec<Expr> = (0..3).map(|i| compare(0, CompareOp::Eq, int(i))).collect();
    let whole = split::conjunction(parts.clone()).unwrap();
    assert_eq!(split::conjuncts(whole), parts);
    assert_eq!(split::conjunction(Vec::new()), None);
}

#[test]
fn values_that_grow_are_computed_late() {
    let place = Place { link: None, workers: 2, threads: 2 };
    let worthwhile = |output| {
        split::worthwhile(&program(None, output), &rows_of(info()), place, &Rates::default())
            .map(|estimate| estimate.choice)
    };
    let wide = Expr::Cast(Box::new(Expr::Column(1)), DataType::Utf8View);
    let output = Output::Rows(vec![NamedExpr { name: "w".into(), expr: wide }]);
    assert!(worthwhile(output).is_err());
    let product = Expr::arithmetic(ArithmeticOp::Multiply, Expr::Column(0), Expr::Column(0));
    let output = Output::Rows(vec![NamedExpr { name: "p".into(), expr: product }]);
    assert!(worthwhile(output).is_ok());
    assert_eq!(worthwhile(by_word()), Ok(Choice::Push));
}

#[test]
fn an_explanation_has_a_line_for_each_operator() {
    let half = compare(0, CompareOp::LtEq, int(500));
    let effective = program(Some(half), by_word());
    let answer = |operator, detail: &str, answer, reason: Option<&str>| OperatorAnswer {
        operator,
        detail: detail.into(),
        answer,
        reason: reason.map(Into::into),
    };
    let prepared = Prepared {
        version: Version(1),
        answers: vec![
            answer(Operator::Filter, "id <= 500", Answer::Exact, None),
            answer(Operator::Group, "word: sum(id)", Answer::Exact, None),
        ],
        schema: effective.result_schema(&info().schema).unwrap(),
        effective,
    };
    let kept = [answer(Operator::Group, "median(id)", Answer::Refused, Some("median has no operator"))];
    let text = crate::explain::explain("embedded", &prepared, &kept, &rows_of(info()));
    let expected = "t v1 at embedded: 1000 rows, about 500 pass, about 4 leave\n\
        \x20 filter     exact     id <= 500\n\
        \x20 group      exact     word: sum(id)\n\
        \x20 group      refused   median(id) (median has no operator)\n";
    assert_eq!(text, expected);
    let line = crate::explain::one_line(&prepared.effective, &info().schema);
    assert_eq!(line, "table=t, filter=id <= 500, keys=[word], aggregates=[sum(id)]");
}

/// A relation in short form: rows, rows before filters, and join keys (key class and distinct values).
type Short<'a> = (f64, f64, &'a [(usize, f64)]);

fn relations(of: &[Short<'_>]) -> Vec<Relation> {
    of.iter()
        .map(|(rows, all, keys)| Relation { rows: *rows, rows_unfiltered: *all, keys: keys.to_vec() })
        .collect()
}

fn leaves(tree: &Tree, found: &mut Vec<usize>) {
    match tree {
        Tree::Leaf(index) => found.push(*index),
        Tree::Join(left, right) => {
            leaves(left, found);
            leaves(right, found);
        }
    }
}

#[test]
fn joins_follow_the_filters() {
    // A chain of joins of a small filtered relation, a middle one and a large one; listed from large to small.
    let chain = relations(&[
        (6e6, 6e6, &[(0, 1.5e6)]),
        (1.5e6, 1.5e6, &[(0, 1.5e6), (1, 1e5)]),
        (30.0, 1.5e5, &[(1, 1.5e5)]),
    ]);
    let leaf = |i| Box::new(Tree::Leaf(i));
    let expected = Tree::Join(Box::new(Tree::Join(leaf(2), leaf(1))), leaf(0));
    assert_eq!(order(&chain, &[], 1000.0), Some(expected));
    assert_eq!(order(&chain[..2], &[], 1000.0), None, "two relations have no order");
    let apart = relations(&[(1.0, 1.0, &[(0, 1.0)]), (1.0, 1.0, &[(0, 1.0)]), (1.0, 1.0, &[(1, 1.0)])]);
    assert_eq!(order(&apart, &[], 1000.0), None, "there is nothing to join the third on");
}

#[test]
fn sketches_say_what_to_join_last() {
    // If values are evenly distributed, each has 100 rows, so that 1e8 pairs match. Frequent values make it a
    // thousand times as many.
    let three =
        relations(&[(1e5, 1e5, &[(0, 1e3)]), (1e5, 1e5, &[(0, 1e3), (1, 1e5)]), (1e6, 1e6, &[(1, 1e4)])]);
    let with = |value: f64, low, high| {
        let share = Share { value, low, high };
        order(&three, &[Matches { class: 0, relations: (1, 0), share }], 0.0)
    };
    let first = |tree: &Option<Tree>| match tree {
        Some(Tree::Join(build, probe)) => {
            let mut pair = Vec::new();
            let inner = if matches!(**build, Tree::Join(..)) { build } else { probe };
            leaves(inner, &mut pair);
            pair.sort_unstable();
            pair
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(first(&with(1e-6, 0.9e-6, 1.1e-6)), [0, 1], "hardly any match");
    assert_eq!(first(&order(&three, &[], 0.0)), [1, 2]);
    assert_eq!(first(&with(1e-9, 0.0, 1e-6)), [0, 1], "the bounds rule the guess out");
    let share = Share { value: 0.5, low: 0.0, high: 1.0 };
    assert_eq!(share.refine(0.25), 0.25, "bounds far apart leave it as it is");
}

#[test]
fn what_a_semi_join_keeps_follows_from_the_keys_that_are_left() {
    assert!(close(share_matched(1000.0, 1000.0, 1e9), 1.0));
    assert!(close(share_matched(1000.0, 10.0, 1e9), 0.01));
    assert!(close(share_matched(10.0, 1000.0, 100.0), 0.095));
    let side = |rows, apart| Side { rows, apart };
    let (few, many) = (side(1e3, false), side(1e6, false));
    assert_eq!(share(&[], few, few), 1.0);
    assert_eq!(share(&[(10.0, 100.0)], few, few), 0.01);
    let two = [(100.0, 100.0), (100.0, 100.0)];
    assert_eq!(share(&two, few, many), 1e-3, "a key of two columns and rows that refer to it");
    assert_eq!(share(&two, few, side(1e6, true)), 1e-4, "what a key's row has and what two others have");
}

fn literal() -> impl Strategy<Value = Literal> {
    prop_oneof![
        any::<i64>().prop_map(int),
        (-5i64..1100).prop_map(int),
        any::<f64>().prop_map(|v| Literal::new(Value::Float(v), DataType::Float64).unwrap()),
        (-5i32..200).prop_map(|v| Literal::new(Value::Int(v.into()), DataType::Date32).unwrap()),
        "[a-z]{0,3}".prop_map(|v| Literal::new(Value::Text(v), DataType::Utf8View).unwrap()),
        Just(Literal::null(DataType::Boolean).unwrap()),
        any::<bool>().prop_map(|v| Literal::new(Value::Bool(v), DataType::Boolean).unwrap()),
    ]
}

/// Generates expressions, well typed or not: estimates must not fail for either.
fn expr() -> impl Strategy<Value = Expr> {
    let op = prop_oneof![
        Just(CompareOp::Eq),
        Just(CompareOp::NotEq),
        Just(CompareOp::Lt),
        Just(CompareOp::LtEq),
        Just(CompareOp::Gt),
        Just(CompareOp::GtEq),
    ];
    let leaf = prop_oneof![
        (0usize..6).prop_map(Expr::Column),
        literal().prop_map(Expr::Literal),
        (0usize..6, op.clone(), literal()).prop_map(|(c, op, l)| compare(c, op, l)),
        Just(Expr::opaque("f", vec![Expr::Column(0)])),
    ];
    leaf.prop_recursive(4, 40, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 1..4).prop_map(Expr::And),
            prop::collection::vec(inner.clone(), 1..4).prop_map(Expr::Or),
            inner.clone().prop_map(Expr::not),
            inner.clone().prop_map(|e| Expr::IsNull(Box::new(e))),
            (inner.clone(), prop::collection::vec(literal(), 0..5))
                .prop_map(|(e, list)| Expr::InList(Box::new(e), list)),
            (op.clone(), inner.clone(), inner.clone()).prop_map(|(op, l, r)| Expr::compare(op, l, r)),
            (inner.clone(), "[a%_]{0,4}").prop_map(|(e, pattern)| Expr::Like {
                value: Box::new(e),
                pattern,
                case_insensitive: false
            }),
            (inner.clone(), inner.clone(), inner).prop_map(|(when, then, otherwise)| Expr::Case {
                branches: vec![(when, then)],
                otherwise: Some(Box::new(otherwise))
            }),
        ]
    })
}

proptest! {
    #[test]
    fn every_relation_is_joined_once(
        sizes in prop::collection::vec((1f64..1e9, prop::collection::vec((0usize..4, 1f64..1e6), 1..4)), 3..8)
    ) {
        let relations: Vec<Relation> = sizes
            .iter()
            .map(|(rows, keys)| Relation { rows: *rows, rows_unfiltered: *rows, keys: keys.clone() })
            .collect();
        if let Some(tree) = order(&relations, &[], 100.0) {
            let mut found = Vec::new();
            leaves(&tree, &mut found);
            found.sort_unstable();
            prop_assert_eq!(found, (0..relations.len()).collect::<Vec<_>>());
        }
    }

    #[test]
    fn selectivities_are_fractions(expr in expr()) {
        let mut info = info();
        for rows in [1000, 0, 1] {
            info.rows = rows;
            let holds = selectivity(&expr, &info);
            prop_assert!((0.0..=1.0).contains(&holds), "{holds} for {expr}");
            let fails = selectivity(&Expr::not(expr.clone()), &info);
            prop_assert!(holds + fails <= 1.0 + 1e-9, "{holds} + {fails} for {expr}");
        }
    }

    #[test]
    fn group_counts_are_between_nothing_and_all_rows(keys in prop::collection::vec(expr(), 1..4), rows in 0f64..1e9) {
        let groups = groups(keys.iter(), None, rows, &info());
        prop_assert!(groups <= rows.max(1.0) + 1e-6 && groups >= 0.0, "{groups} of {rows}");
    }
}
