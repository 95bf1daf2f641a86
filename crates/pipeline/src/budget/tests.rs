//! Tests the answers (exact, superset or refused) to groupings whose groups may exceed the memory budget.

use super::*;
use arrow_array::{ArrayRef, Decimal128Array, Int64Array, RecordBatch, StringViewArray};
use arrow_schema::{DataType, Field, Schema};
use farpool_columns::TableBuilder;
use farpool_memory::{Pool, PoolConfig};
use farpool_model::{
    Aggregate, AggregateFunction, Expr, NamedExpr, Operator, StateFunction, TableName, TenantName,
};
use std::sync::Arc;

const ROWS: i64 = 20_000;

/// Creates a table: `k` has 5 000 consecutive values, `s` as many strings, `d` is a decimal of 38 digits, which does
/// not fit 64 bits.
fn table() -> Table {
    let pool = Pool::new(PoolConfig { bytes_limit: 64 << 20 }).unwrap();
    let schema = Arc::new(Schema::new(vec![
        Field::new("k", DataType::Int64, true),
        Field::new("s", DataType::Utf8View, true),
        Field::new("d", DataType::Decimal128(38, 2), true),
    ]));
    let large = Decimal128Array::from_iter_values((0..ROWS).map(|r| 10_i128.pow(37) + i128::from(r)));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values((0..ROWS).map(|r| r % 5000))),
        Arc::new(StringViewArray::from_iter_values((0..ROWS).map(|r| format!("text {}", r % 5000)))),
        Arc::new(large.with_precision_and_scale(38, 2).unwrap()),
    ];
    let mut builder = TableBuilder::new(pool, TenantName::default(), &schema, None).unwrap();
    builder.push(&RecordBatch::try_new(schema, columns).unwrap()).unwrap();
    builder.finish().unwrap()
}

fn aggregate(function: AggregateFunction, column: usize, data_type: DataType) -> Aggregate {
    let name = function.name().to_string();
    Aggregate { name, function, arguments: vec![Expr::Column(column)], filter: None, data_type }
}

/// Returns the answer to a grouping within `bytes` of memory for two workers, and the prepared program.
fn answer(keys: &[usize], aggregates: Vec<Aggregate>, bytes: usize) -> (Answer, Prepared) {
    let table = table();
    let keys = keys.iter().map(|k| NamedExpr::column(&table.schema, *k)).collect();
    let output = Output::Aggregate { keys, aggregates };
    let program = Program {
        table: TableName::new("t").unwrap(),
        version: None,
        lookups: Vec::new(),
        filter: None,
        output,
        having: None,
        order: Vec::new(),
        limit: Some(9),
    };
    let budget = Budget { state_bytes_max: bytes, workers: 2, ..Budget::default() };
    let prepared = prepare_within(&program, &table, Version(1), budget, Overflow::Parts).unwrap().prepared;
    let answers = prepared.answers.iter().filter(|a| a.operator != farpool_model::Operator::Scan);
    assert!(answers.clone().all(|a| (a.answer == Answer::Exact) == a.reason.is_none()));
    let first = answers.clone().next().unwrap().answer;
    let limit = answers.clone().next_back().unwrap();
    let expected = if first == Answer::Exact { (Answer::Exact, Some(9)) } else { (Answer::Refused, None) };
    assert_eq!((limit.answer, prepared.effective.limit), expected);
    assert_eq!(prepared.schema, prepared.effective.result_schema(&table.schema).unwrap());
    (first, prepared)
}

#[test]
fn what_surely_fits_is_exact_and_what_may_not_comes_in_parts() {
    let count = || vec![aggregate(AggregateFunction::Count, 1, DataType::Int64)];
    assert_eq!(answer(&[0], count(), 1 << 20).0, Answer::Exact, "an array of 5 000 groups, twice");
    assert_eq!(answer(&[0], count(), 10 << 10).0, Answer::Superset);
    assert_eq!(answer(&[0], Vec::new(), 10 << 10).0, Answer::Exact, "a bit for each group, twice");
    assert_eq!(answer(&[1], Vec::new(), 64 << 20).0, Answer::Exact);
    assert_eq!(answer(&[1], Vec::new(), 1 << 20).0, Answer::Superset);
    assert_eq!(answer(&[], count(), 0).0, Answer::Exact, "there is one group");
}

#[test]
fn an_exact_aggregation_says_which_way_it_goes_and_why() {
    let count = || vec![aggregate(AggregateFunction::Count, 1, DataType::Int64)];
    let detail = |keys: &[usize], aggregates| {
        let (_, prepared) = answer(keys, aggregates, 64 << 20);
        prepared.answers.into_iter().find(|a| a.operator != Operator::Scan).unwrap().detail
    };
    let whole = "[by one array for the table: the keys are within a domain of 5000]";
    assert_eq!(detail(&[0], count()), format!("k: count(s) {whole}"));
    assert_eq!(detail(&[0], Vec::new()), format!("k {whole}"));
    let zones = "[from zone maps: every row passes and zone maps tell all]";
    assert_eq!(detail(&[], count()), format!("count(s) {zones}"));
    let by_text = detail(&[1], Vec::new());
    assert!(by_text.contains("by hash table") && by_text.contains("domain"), "{by_text}");
}

#[test]
fn means_come_as_sums_and_counts() {
    let avg = vec![aggregate(AggregateFunction::Avg, 0, DataType::Float64)];
    let (answer, prepared) = answer(&[1], avg, 0);
    assert_eq!(answer, Answer::Superset);
    let types: Vec<_> = prepared.schema.fields().iter().map(|f| f.data_type().clone()).collect();
    assert_eq!(types, [DataType::Utf8View, DataType::Decimal128(38, 0), DataType::Int64]);
}

#[test]
fn sums_that_might_not_fit_in_parts_are_refused() {
    let sum = vec![aggregate(AggregateFunction::Sum, 2, DataType::Decimal128(38, 2))];
    let (answer, prepared) = answer(&[0], sum, 0);
    assert_eq!(answer, Answer::Refused);
    assert_eq!(prepared.schema.fields().len(), 2, "the columns that the host needs");
}

#[test]
fn states_come_in_parts_while_new_ones_are_small_and_are_refused_otherwise() {
    let sketch = |parameters: &str| {
        let function = StateFunction::Sketch(parameters.parse().unwrap()).into();
        vec![aggregate(function, 1, DataType::BinaryView)]
    };
    assert_eq!(answer(&[], sketch("distinct=14"), 64 << 20).0, Answer::Exact);
    assert_eq!(answer(&[], sketch("distinct=14"), 100 << 10).0, Answer::Refused);
    assert_eq!(answer(&[0], sketch("distinct=14"), 1 << 30).0, Answer::Exact);
    assert_eq!(answer(&[0], sketch("distinct=14"), 1 << 20).0, Answer::Superset);
    let (answer, prepared) = answer(&[0], sketch("frequency=6x13"), 1 << 20);
    assert_eq!(answer, Answer::Refused);
    assert_eq!(prepared.schema.fields().len(), 2, "the columns that the host needs");
}
