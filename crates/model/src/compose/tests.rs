//! Tests the composition of pushed-down programs from stacks of relations (such as a filter over a projection
//! over a table): the resulting programs, and stacks that are refused.

use super::*;
use crate::{AggregateFunction, ArithmeticOp, CompareOp, ErrorKind, Literal, Value};
use arrow_schema::DataType;

fn table() -> Stack {
    Stack::scan((0..3).map(|i| Slot::new(format!("c{i}"), Expr::Column(i))).collect())
}

fn less(left: Expr, right: i128) -> Expr {
    let right = Literal::new(Value::Int(right), DataType::Int64).unwrap();
    Expr::compare(CompareOp::Lt, left, Expr::Literal(right))
}

fn count() -> Aggregate {
    let function = AggregateFunction::Count;
    let (name, data_type) = ("n".to_string(), DataType::Int64);
    Aggregate { name, function, arguments: Vec::new(), filter: None, data_type }
}

fn program(stack: Stack) -> Result<Program> {
    stack.program(TableName::new("t").unwrap(), None, None)
}

/// Replaces the last column of the stack by `column + column`.
fn doubled(stack: &mut Stack, budget: &Allowance) -> Result<()> {
    let last = stack.width() - 1;
    stack.append(|columns| {
        let operand = || columns[last].copied(1, budget);
        Ok::<_, Error>(vec![Slot::new("d", Expr::arithmetic(ArithmeticOp::Add, operand()?, operand()?))])
    })?;
    stack.select(&[last + 1], budget)
}

fn by_first(stack: &mut Stack) -> Result<()> {
    let key = SortKey { column: 0, descending: true, nulls_first: false };
    stack.sort(|_| Ok::<_, Error>(vec![key]))
}

fn grouped(stack: &mut Stack) -> Result<()> {
    stack.aggregate(|columns| Ok::<_, Error>((columns[..2].to_vec(), vec![count()])))
}

#[test]
fn expressions_are_over_the_table_wherever_they_stood() {
    let (mut stack, budget) = (table(), Allowance::default());
    stack.select(&[2, 1], &budget).unwrap();
    stack.filter(|columns| Ok::<_, Error>(less(columns[0].copied(1, &budget)?, 5))).unwrap();
    doubled(&mut stack, &budget).unwrap();
    stack.fetch(9);
    stack.fetch(7);
    let names = Some(vec!["sum".to_string()]);
    let program = stack.program(TableName::new("t").unwrap(), Some(Version(4)), names).unwrap();
    assert_eq!(program.filter, Some(less(Expr::Column(2), 5)));
    let expr = Expr::arithmetic(ArithmeticOp::Add, Expr::Column(1), Expr::Column(1));
    assert_eq!(program.output, Output::Rows(vec![NamedExpr { name: "sum".into(), expr }]));
    assert_eq!((program.version, program.limit), (Some(Version(4)), Some(7)));
}

#[test]
fn columns_that_double_one_another_are_refused_before_they_are_made() {
    let (mut stack, budget) = (table(), Allowance::default());
    let error = (0..100).find_map(|_| doubled(&mut stack, &budget).err()).unwrap();
    assert_eq!(error.kind, ErrorKind::OverLimit);
    assert!(stack.columns().unwrap()[0].bytes <= 2 * limits::EXPR_BYTES_MAX);
}

#[test]
fn what_a_program_does_last_nothing_comes_after() {
    let condition = |_: &[Slot]| Ok::<_, Error>(less(Expr::Column(0), 1));
    let message = Refusal::into_error;
    let mut cut = table();
    cut.fetch(3);
    assert_eq!(cut.filter(condition).unwrap_err(), message(Refusal::FilterAfterCut));
    assert_eq!(grouped(&mut cut).unwrap_err(), message(Refusal::AggregationAfterCut));
    assert_eq!(by_first(&mut cut).unwrap_err(), message(Refusal::SortAfterCut));
    let mut groups = table();
    grouped(&mut groups).unwrap();
    assert_eq!(grouped(&mut groups).unwrap_err(), message(Refusal::AggregationOfAggregates));
    let nothing = |_: &[Slot]| Ok::<_, Error>(Vec::new());
    assert_eq!(groups.append(nothing).unwrap_err(), message(Refusal::ComputesWithAggregates));
    let mut sorted = table();
    by_first(&mut sorted).unwrap();
    assert_eq!(program(sorted).unwrap_err(), message(Refusal::SortWithoutLimit));
}

#[test]
fn a_filter_of_groups_follows_its_columns_through_projections() {
    let budget = Allowance::default();
    let mut groups = table();
    grouped(&mut groups).unwrap();
    let rows =
        Schema::new((0..3).map(|i| Field::new(format!("c{i}"), DataType::Int64, true)).collect::<Vec<_>>());
    let schema = groups.groups_schema(&rows, &budget).unwrap().unwrap();
    let names: Vec<&String> = schema.fields().iter().map(|field| field.name()).collect();
    assert_eq!(names, ["c0", "c1", "n"]);
    assert!(table().groups_schema(&rows, &budget).unwrap().is_none());
    groups.filter(|columns| Ok::<_, Error>(less(columns[2].copied(1, &budget)?, 5))).unwrap();
    groups.filter(|columns| Ok::<_, Error>(less(columns[0].copied(1, &budget)?, 7))).unwrap();
    assert_eq!(groups.select(&[0, 1], &budget).unwrap_err(), Refusal::DropsFiltered.into_error());
    groups.select(&[1, 0, 2], &budget).unwrap();
    let having = Expr::And(vec![less(Expr::Column(2), 5), less(Expr::Column(1), 7)]);
    let made = program(groups).unwrap();
    assert_eq!((made.filter.as_ref(), made.having.as_ref()), (None, Some(&having)));
    let wrong = Program { output: Output::Rows(Vec::new()), ..made.clone() };
    assert_eq!(wrong.result_schema(&rows).unwrap_err().kind, ErrorKind::Invalid);
    let wrong = Program { having: Some(Expr::Column(2)), ..made.clone() };
    assert_eq!(wrong.result_schema(&rows).unwrap_err().kind, ErrorKind::Invalid);
    assert_eq!(made.output.shown(&having, &rows).to_string(), "(count(*) < 5 AND c0 < 7)");
}

#[test]
fn a_sort_follows_its_columns_through_projections() {
    let budget = Allowance::default();
    let mut stack = table();
    by_first(&mut stack).unwrap();
    stack.append(|columns| Ok::<_, Error>(columns.to_vec())).unwrap();
    stack.select(&[4, 3], &budget).unwrap();
    assert_eq!(stack.select(&[0], &budget).unwrap_err(), Refusal::DropsSortKey.into_error());
    let mut groups = table();
    grouped(&mut groups).unwrap();
    by_first(&mut groups).unwrap();
    groups.select(&[1, 0, 2], &budget).unwrap();
    groups.fetch(5);
    let key = SortKey { column: 1, descending: true, nulls_first: false };
    assert_eq!(program(groups.clone()).unwrap().order, [key]);
    assert_eq!(groups.select(&[2, 0, 1], &budget).unwrap_err(), Refusal::ReordersKeys.into_error());
}
