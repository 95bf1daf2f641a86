//! Tests the answers to programs with operators that cannot be executed at the node, and the effective programs
//! (those that the node executes instead).

use super::*;
use arrow_schema::{DataType, Field, SchemaRef, TimeUnit};
use farpool_model::{
    AggregateFunction, ArithmeticOp, ColumnStatistics, CompareOp, ErrorKind, Literal, TableName, Value,
    limits,
};
use std::sync::Arc;

fn schema() -> SchemaRef {
    let field = |name, data_type| Field::new(name, data_type, true);
    Arc::new(Schema::new(vec![
        field("a", DataType::Int64),
        field("b", DataType::Int64),
        field("c", DataType::Utf8View),
        field("d", DataType::Timestamp(TimeUnit::Millisecond, None)),
    ]))
}

fn column(index: usize) -> Expr {
    Expr::Column(index)
}

fn int(value: i128) -> Expr {
    Expr::Literal(Literal::new(Value::Int(value), DataType::Int64).unwrap())
}

fn more_than(index: usize, value: i128) -> Expr {
    Expr::compare(CompareOp::Gt, column(index), int(value))
}

fn opaque() -> Expr {
    Expr::opaque("the node has no function f", Vec::new())
}

fn one_over_b() -> Expr {
    let quotient = Expr::arithmetic(ArithmeticOp::Divide, int(1), column(1));
    Expr::compare(CompareOp::Gt, quotient, int(0))
}

fn named(name: &str, expr: Expr) -> NamedExpr {
    NamedExpr { name: name.into(), expr }
}

fn sum_of_b() -> Aggregate {
    Aggregate {
        name: "s".into(),
        function: AggregateFunction::Sum,
        arguments: vec![column(1)],
        filter: None,
        data_type: DataType::Int64,
    }
}

fn program(filter: Option<Expr>, output: Output, limit: Option<u64>) -> Program {
    Program {
        table: TableName::new("t").unwrap(),
        version: None,
        lookups: Vec::new(),
        filter,
        output,
        having: None,
        order: Vec::new(),
        limit,
    }
}

fn rows(indices: &[usize]) -> Output {
    Output::Rows(indices.iter().map(|&i| NamedExpr::column(&schema(), i)).collect())
}

fn sum_by_a() -> Output {
    Output::Aggregate { keys: vec![named("a", column(0))], aggregates: vec![sum_of_b()] }
}

/// Prepares a program and compares the answers, given as pairs of operator name and answer, and the effective program
/// (the one that the node executes instead).
#[track_caller]
fn check(program: &Program, answers: &str, effective: (Option<Expr>, Output, Option<u64>)) -> Prepared {
    let prepared = prepare(program, &schema(), Version(7)).unwrap();
    let shown = prepared.answers.iter().map(|a| format!("{} {:?}", a.operator, a.answer).to_lowercase());
    assert_eq!(shown.collect::<Vec<_>>().join(", "), answers);
    let expected =
        Program { filter: effective.0, output: effective.1, limit: effective.2, ..program.clone() };
    assert_eq!(prepared.effective, expected);
    assert_eq!(prepared.schema, expected.result_schema(&schema()).unwrap());
    assert_eq!(prepared.version, Version(7));
    assert!(prepared.answers.iter().all(|a| (a.answer == Answer::Exact) == a.reason.is_none()));
    prepared
}

#[test]
fn what_can_run_runs_as_it_is() {
    let filter = Some(more_than(0, 5));
    let plain = program(filter.clone(), rows(&[1, 2]), Some(3));
    let prepared =
        check(&plain, "scan exact, filter exact, limit exact", (filter.clone(), rows(&[1, 2]), Some(3)));
    assert!(prepared.is_exact());
    assert_eq!(prepared.answers[0].detail, "t (a, b, c)");
    assert_eq!(prepared.answers[1].detail, "a > 5");

    let group = program(filter.clone(), sum_by_a(), None);
    let prepared = check(&group, "scan exact, filter exact, group exact", (filter, sum_by_a(), None));
    assert_eq!(prepared.answers[2].detail, "a: sum(b)");

    let distinct = Output::Aggregate { keys: vec![named("c", column(2))], aggregates: vec![] };
    check(&program(None, distinct.clone(), None), "scan exact, distinct exact", (None, distinct, None));
    let whole = Output::Aggregate { keys: vec![], aggregates: vec![sum_of_b()] };
    check(&program(None, whole.clone(), None), "scan exact, aggregate exact", (None, whole, None));
    let computed = Output::Rows(vec![named("x", Expr::arithmetic(ArithmeticOp::Add, column(0), column(1)))]);
    check(&program(None, computed.clone(), None), "scan exact, project exact", (None, computed, None));
}

#[test]
fn a_condition_on_groups_goes_with_the_groups() {
    let having = Some(more_than(1, 5));
    let groups = Program { having: having.clone(), ..program(None, sum_by_a(), Some(3)) };
    let prepared =
        check(&groups, "scan exact, group exact, having exact, limit exact", (None, sum_by_a(), Some(3)));
    assert_eq!(prepared.answers[2].detail, "sum(b) > 5");

    let unknown = Program { having: Some(opaque()), ..groups.clone() };
    let prepared = prepare(&unknown, &schema(), Version(7)).unwrap();
    let answers: Vec<Answer> = prepared.answers.iter().map(|answer| answer.answer).collect();
    assert_eq!(answers, [Answer::Exact, Answer::Exact, Answer::Refused, Answer::Refused]);
    assert_eq!((&prepared.effective.having, prepared.effective.limit), (&None, None));
    assert_eq!(prepared.effective.output, sum_by_a());

    let filtered = Program { filter: Some(opaque()), ..groups.clone() };
    let prepared = prepare(&filtered, &schema(), Version(7)).unwrap();
    let shown = prepared.answers.iter().map(|a| format!("{} {:?}", a.operator, a.answer).to_lowercase());
    let shown = shown.collect::<Vec<_>>().join(", ");
    assert_eq!(shown, "scan exact, filter refused, group refused, having refused, limit refused");
    assert_eq!(prepared.effective.having, None);

    for wrong in
        [Program { having: Some(column(1)), ..groups }, Program { having, ..program(None, rows(&[0]), None) }]
    {
        assert_eq!(prepare(&wrong, &schema(), Version(7)).unwrap_err().kind, ErrorKind::Invalid);
    }
}

#[test]
fn an_order_goes_with_its_limit() {
    let key = |column| SortKey { column, descending: true, nulls_first: false };
    let top = |output: Output, limit| Program { order: vec![key(1), key(0)], ..program(None, output, limit) };
    let by_sum = top(sum_by_a(), Some(5));
    let prepared = check(&by_sum, "scan exact, group exact, top-k exact", (None, sum_by_a(), Some(5)));
    assert_eq!(prepared.answers[2].detail, "5 by sum(b) DESC NULLS LAST, a DESC NULLS LAST");

    for (program, answers) in [
        (
            Program { filter: Some(opaque()), ..top(rows(&[0, 1]), Some(5)) },
            "scan exact, filter refused, top-k refused",
        ),
        (
            top(Output::Rows(vec![named("x", opaque()), named("a", column(0))]), Some(5)),
            "scan exact, project refused, top-k refused",
        ),
        (top(rows(&[0, 1]), Some(limits::TOP_ROWS_MAX as u64 + 1)), "scan exact, top-k refused"),
    ] {
        let prepared = prepare(&program, &schema(), Version(7)).unwrap();
        let shown = prepared.answers.iter().map(|a| format!("{} {:?}", a.operator, a.answer).to_lowercase());
        assert_eq!(shown.collect::<Vec<_>>().join(", "), answers);
        assert!(prepared.effective.order.is_empty() && prepared.effective.limit.is_none());
    }
    for wrong in [top(rows(&[0, 1]), None), top(rows(&[0]), Some(5))] {
        assert_eq!(prepare(&wrong, &schema(), Version(7)).unwrap_err().kind, ErrorKind::Invalid);
    }
}

#[test]
fn a_superset_filter_refuses_what_folds_or_cuts_rows() {
    let filter = Expr::And(vec![more_than(0, 5), opaque()]);
    let prepared = check(
        &program(Some(filter.clone()), sum_by_a(), Some(10)),
        "scan exact, filter superset, group refused, limit refused",
        (Some(more_than(0, 5)), rows(&[0, 1]), None),
    );
    assert_eq!(prepared.answers[1].reason.as_deref(), Some("the node has no function f"));
    check(
        &program(Some(filter), rows(&[2, 0]), Some(10)),
        "scan exact, filter superset, limit refused",
        (Some(more_than(0, 5)), rows(&[2, 0]), None),
    );
}

#[test]
fn a_refused_filter_leaves_its_columns_to_the_host() {
    let filter = Expr::Or(vec![more_than(3, 5), opaque()]);
    // A part that is refused anyway may be ill-typed: `d > 5` compares a timestamp with an integer.
    check(
        &program(Some(filter), rows(&[1]), None),
        "scan exact, filter refused, project refused",
        (None, rows(&[1, 3]), None),
    );
}

#[test]
fn the_columns_that_an_opaque_part_reads_are_given_to_the_host() {
    let filter = Expr::opaque("the node has no function f", vec![column(3), Expr::not(column(0))]);
    check(
        &program(Some(filter.clone()), rows(&[1]), None),
        "scan exact, filter refused, project refused",
        (None, rows(&[0, 1, 3]), None),
    );
    check(
        &program(Some(filter), sum_by_a(), None),
        "scan exact, filter refused, group refused",
        (None, rows(&[0, 1, 3]), None),
    );
}

#[test]
fn an_opaque_output_is_refused_and_the_filter_still_runs() {
    let filter = Some(more_than(0, 5));
    let output = Output::Rows(vec![named("x", opaque()), named("c", column(2))]);
    check(
        &program(filter.clone(), output, Some(4)),
        "scan exact, filter exact, project refused, limit exact",
        (filter.clone(), rows(&[0, 2]), Some(4)),
    );
    let opaque_sum = Aggregate { arguments: vec![opaque()], ..sum_of_b() };
    let output =
        Output::Aggregate { keys: vec![named("c", column(2))], aggregates: vec![sum_of_b(), opaque_sum] };
    check(
        &program(filter.clone(), output, Some(4)),
        "scan exact, filter exact, group refused, limit refused",
        (filter, rows(&[0, 1, 2]), None),
    );
}

#[test]
fn what_may_fail_does_not_run_behind_a_weakened_filter() {
    let filter = Expr::And(vec![opaque(), one_over_b(), more_than(0, 5)]);
    check(
        &program(Some(filter), rows(&[0, 1]), None),
        "scan exact, filter superset",
        (Some(more_than(0, 5)), rows(&[0, 1]), None),
    );
    let filter = Expr::And(vec![opaque(), one_over_b()]);
    check(
        &program(Some(filter), rows(&[0, 1]), None),
        "scan exact, filter refused",
        (None, rows(&[0, 1]), None),
    );
    let mut columns = vec![named("a", column(0)), named("x", one_over_b())];
    let filter = Expr::And(vec![opaque(), more_than(0, 5)]);
    check(
        &program(Some(filter), Output::Rows(std::mem::take(&mut columns)), None),
        "scan exact, filter superset, project refused",
        (Some(more_than(0, 5)), rows(&[0, 1]), None),
    );
}

#[test]
fn what_bounds_of_columns_rule_out_does_not_keep_a_projection_back() {
    let sum = Expr::arithmetic(ArithmeticOp::Add, column(0), column(1));
    let outputs = vec![named("a", column(0)), named("b", column(1)), named("x", sum)];
    let filter = Expr::And(vec![opaque(), more_than(0, 5)]);
    let filter = Expr::Or(vec![filter, Expr::opaque("of b", vec![column(1)])]);
    let program = program(Some(filter), Output::Rows(outputs), None);
    let refused = |most: i128| {
        let bound = |value| Some(Literal::new(Value::Int(value), DataType::Int64).unwrap());
        let known = ColumnStatistics { min: bound(0), max: bound(most), ..ColumnStatistics::default() };
        let statistics = vec![known; schema().fields().len()];
        let prepared = prepare(&program, Columns::new(&schema(), &statistics), Version(7)).unwrap();
        prepared.answers.iter().any(|a| a.operator == Operator::Project && a.answer == Answer::Refused)
    };
    assert!(!refused(1 << 40), "sums of these are far from the end");
    assert!(refused(i64::MAX.into()), "a row that the host removes may have a sum that does not fit");
}

#[test]
fn wrong_programs_are_errors_even_where_they_would_be_refused() {
    #[track_caller]
    fn fails(program: &Program, kind: ErrorKind) {
        assert_eq!(prepare(program, &schema(), Version(7)).unwrap_err().kind, kind);
    }
    fails(&program(Some(column(0)), rows(&[0]), None), ErrorKind::Invalid);
    let outside = Expr::Or(vec![opaque(), Expr::IsNull(Box::new(column(99)))]);
    fails(&program(Some(outside), rows(&[0]), None), ErrorKind::Invalid);
    let bad_sum = Aggregate { arguments: vec![column(2)], ..sum_of_b() };
    let output = Output::Aggregate { keys: vec![named("k", opaque())], aggregates: vec![bad_sum] };
    fails(&program(Some(opaque()), output, None), ErrorKind::Invalid);
    let nothing = Output::Aggregate { keys: vec![], aggregates: vec![] };
    fails(&program(None, nothing, None), ErrorKind::Invalid);
    let old = Program { version: Some(Version(6)), ..program(None, rows(&[0]), None) };
    fails(&old, ErrorKind::Stale);
}

#[test]
fn deep_and_large_expressions_are_over_the_limit_even_where_they_are_refused() {
    let deep = (0..limits::EXPR_DEPTH_MAX + 1).fold(opaque(), |e, _| Expr::not(e));
    let error = prepare(&program(Some(deep), rows(&[0]), None), &schema(), Version(7)).unwrap_err();
    assert_eq!(error.kind, ErrorKind::OverLimit);
    let wide = Expr::Or(vec![opaque(); limits::EXPR_BYTES_MAX / limits::EXPR_NODE_BYTES]);
    let error = prepare(&program(Some(wide), rows(&[0]), None), &schema(), Version(7)).unwrap_err();
    assert_eq!(error.kind, ErrorKind::OverLimit);
}

#[test]
fn long_details_are_cut_between_characters() {
    let like = Expr::Like {
        value: Box::new(column(2)),
        pattern: "ä".repeat(limits::DETAIL_CHARS_MAX * 2),
        case_insensitive: false,
    };
    let prepared = prepare(&program(Some(like), rows(&[0]), None), &schema(), Version(7)).unwrap();
    assert_eq!(prepared.answers[1].detail.chars().count(), limits::DETAIL_CHARS_MAX + 1);
}
