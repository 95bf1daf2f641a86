//! Tests aggregation into one array for the whole table (the *whole-table way*) against an interpreter, with
//! group keys of enough possible values for it to be chosen.

use super::random::Random;
use super::{TestTable, check};
use crate::aggregate::{Aggregation, FittedAggregation};
use arrow_array::{ArrayRef, BooleanArray, Date32Array, Int64Array};
use arrow_schema::{DataType, Field, Schema};
use farpool_columns::RowGroup;
use farpool_model::{
    Aggregate, AggregateFunction, ArithmeticOp, CompareOp, Expr, Literal, NamedExpr, Output, Program,
    TableName, Value,
};
use std::sync::Arc;

fn int(value: i64) -> Expr {
    Expr::Literal(Literal::new(Value::Int(value.into()), DataType::Int64).unwrap())
}

/// Creates three row groups: two group keys of some hundred values with and without NULLs, a boolean, and values near
/// the limit for sums to fit 64 bits. Whole columns of a row group may be NULL or constant.
fn table(random: &mut Random) -> TestTable {
    let field = |name: &str, t| Field::new(name, t, true);
    let schema = Schema::new(vec![
        field("k", DataType::Int64),
        field("day", DataType::Date32),
        field("flag", DataType::Boolean),
        field("v", DataType::Int64),
        field("w", DataType::Int64),
    ]);
    let group = |_: usize| -> Vec<ArrayRef> {
        let rows = 200 + random.below(300);
        let mut ints = |low: i64, high: i64, nulls: usize| -> Vec<Option<i64>> {
            let (low, high) = if random.chance(15) { (low, low) } else { (low, high) };
            let nulls = if random.chance(15) { 100 } else { nulls };
            let value = |_| {
                let value = low + (random.next() % (high.abs_diff(low) + 1)) as i64;
                (!random.chance(nulls)).then_some(value)
            };
            (0..rows).map(value).collect()
        };
        let (k, day, v, w) =
            (ints(-150, 150, 5), ints(8000, 8009, 0), ints(-(1 << 40), 1 << 50, 20), ints(0, 3, 0));
        let flag: BooleanArray = ints(0, 1, 10).into_iter().map(|f| f.map(|f| f == 1)).collect();
        vec![
            Arc::new(Int64Array::from(k)),
            Arc::new(day.into_iter().map(|d| d.map(|d| d as i32)).collect::<Date32Array>()),
            Arc::new(flag),
            Arc::new(Int64Array::from(v)),
            Arc::new(Int64Array::from(w)),
        ]
    };
    TestTable::new(Arc::new(schema), &(0..3).map(group).collect::<Vec<_>>())
}

fn program(random: &mut Random) -> Program {
    use AggregateFunction::{Avg, BitAnd, BitOr, BitXor, Count, Max, Min, Sum};
    let twice = Expr::arithmetic(ArithmeticOp::Add, Expr::Column(0), Expr::Column(4));
    let keys = [
        vec![Expr::Column(0)],
        vec![Expr::Column(1), twice],
        vec![0, 1, 2].into_iter().map(Expr::Column).collect(),
    ];
    let key = |(i, expr)| NamedExpr { name: format!("k{i}"), expr };
    let keys = random.pick(&keys).into_iter().enumerate().map(key).collect();
    let aggregate = |random: &mut Random, i: usize| {
        let function = random.pick(&[Count, Sum, Min, Max, Avg, BitAnd, BitOr, BitXor]);
        let argument = random.pick(&[Some(3), Some(4), None]);
        let argument = if function == Count { argument } else { argument.or(Some(3)) };
        let filter = random.chance(30).then(|| Expr::compare(CompareOp::Lt, Expr::Column(4), int(2)));
        let data_type = if function == Avg { DataType::Float64 } else { DataType::Int64 };
        Aggregate {
            name: format!("a{i}"),
            function,
            arguments: argument.map(Expr::Column).into_iter().collect(),
            filter,
            data_type,
        }
    };
    let count = random.below(4);
    let aggregates = (0..count).map(|i| aggregate(random, i)).collect();
    let filters = [None, Some(int(0)), Some(int(140))];
    let filter = random.pick(&filters).map(|least| Expr::compare(CompareOp::GtEq, Expr::Column(0), least));
    let output = Output::Aggregate { keys, aggregates };
    Program {
        table: TableName::new("t").unwrap(),
        version: None,
        lookups: Vec::new(),
        filter,
        output,
        having: None,
        order: Vec::new(),
        limit: None,
    }
}

#[test]
fn arrays_indexed_by_keys_agree_with_the_interpreter() {
    let mut reached = 0;
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let table = table(&mut random);
        let program = program(&mut random);
        let Output::Aggregate { keys, aggregates } = &program.output else { unreachable!() };
        let schema = program.result_schema(&table.schema).unwrap();
        let aggregation = Aggregation::new(keys, aggregates, &table.schema, schema).unwrap();
        let groups: Vec<&RowGroup> = table.groups.iter().collect();
        let fitted = FittedAggregation::of_table(aggregation, &groups, 1 << 30).unwrap();
        reached += usize::from(fitted.is_whole());
        check(&program, &table);
    }
    assert!(reached > 20, "{reached} of 60");
}
