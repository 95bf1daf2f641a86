//! Tests group keys of strings, floats and many columns. They are packed into one integer if the table has few
//! distinct strings, and otherwise stored as sequences of words.

use super::random::Random;
use super::{POOL, Paths, TestTable, check, fitted_with, naive, run_plan, sorted};
use crate::aggregate::{Aggregation, FittedAggregation};
use crate::group::HashKey;
use crate::plan::{Memory, Plan};
use arrow_array::{
    ArrayRef, BinaryViewArray, Decimal128Array, Float32Array, Float64Array, Int64Array, StringViewArray,
    UInt32Array,
};
use arrow_schema::{DataType, Field, Schema};
use arrow_select::take::take;
use farpool_columns::{Chunk, RowGroup, encode_row_group};
use farpool_model::{
    Aggregate, AggregateFunction, ColumnStatistics, Columns, Expr, Literal, NamedExpr, Output, Program,
    TableName, TenantName, Value, limits,
};
use std::collections::HashMap;
use std::sync::Arc;

const FEW: usize = 0;
const BYTES: usize = 1;
const MANY: usize = 2;
const INT: usize = 3;
const EXTREME: usize = 4;
const DOUBLE: usize = 5;
const DOUBLE_NOT_NULL: usize = 6;
const SINGLE: usize = 7;
const DECIMAL: usize = 8;

/// Creates three row groups whose dictionaries share some strings: the second one has one string, and the third may
/// have none.
fn table(random: &mut Random) -> TestTable {
    let field = |name: &str, t| Field::new(name, t, true);
    let schema = Schema::new(vec![
        field("few", DataType::Utf8View),
        field("bytes", DataType::BinaryView),
        field("many", DataType::Utf8View),
        field("int", DataType::Int64),
        field("extreme", DataType::Int64),
        field("double", DataType::Float64),
        field("double_not_null", DataType::Float64),
        field("single", DataType::Float32),
        field("decimal", DataType::Decimal128(38, 0)),
    ]);
    let floats = [0.0, -0.0, f64::NAN, -f64::NAN, f64::INFINITY, f64::MIN_POSITIVE, 1.5, -7e300];
    let group = |number: usize| -> Vec<ArrayRef> {
        let rows = 400 + random.below(300);
        let all_null = random.chance(30) && number == 2;
        let mut each = |nulls: usize, values: usize| -> Vec<Option<usize>> {
            (0..rows).map(|_| (!random.chance(nulls)).then(|| random.below(values))).collect()
        };
        let name =
            |text: usize| (!all_null).then(|| format!("{} is the name", "x".repeat(text + number * 2)));
        let names = each(if number == 1 { 0 } else { 10 }, if number == 1 { 1 } else { 5 })
            .into_iter()
            .map(|text| text.and_then(name));
        let names: StringViewArray = names.collect();
        // Byte strings that differ only in the number of zero bytes at the end are different group keys.
        let bytes: BinaryViewArray = each(10, 4).into_iter().map(|b| b.map(|b| vec![0; b])).collect();
        let long = |text: usize| format!("{text} {}", "long ".repeat(text % 40));
        let many: StringViewArray = each(5, 300)
            .into_iter()
            .map(|t| t.map(|t| if t == 7 { String::new() } else { long(t) }))
            .collect();
        let extremes = [i64::MIN, i64::MAX, 0, -1];
        let float = |f: Option<usize>| f.map(|f| floats[f]);
        vec![
            Arc::new(names),
            Arc::new(bytes),
            Arc::new(many),
            Arc::new(Int64Array::from_iter(each(10, 50).into_iter().map(|i| i.map(|i| i as i64 - 9)))),
            Arc::new(Int64Array::from_iter(each(10, 4).into_iter().map(|i| i.map(|i| extremes[i])))),
            Arc::new(Float64Array::from_iter(each(10, 8).into_iter().map(float))),
            Arc::new(Float64Array::from_iter(each(0, 8).into_iter().map(float))),
            Arc::new(Float32Array::from_iter(each(10, 8).into_iter().map(|f| float(f).map(|f| f as f32)))),
            Arc::new(
                Decimal128Array::from_iter(
                    each(10, 6).into_iter().map(|d| d.map(|d| (d as i128 - 3) * 10_i128.pow(36))),
                )
                .with_precision_and_scale(38, 0)
                .unwrap(),
            ),
        ]
    };
    TestTable::new(Arc::new(schema), &(0..3).map(group).collect::<Vec<_>>())
}

fn program(schema: &Schema, keys: &[usize]) -> Program {
    let aggregate = |function, argument: Option<usize>| Aggregate {
        name: format!("{function:?} {argument:?}"),
        function,
        arguments: argument.map(Expr::Column).into_iter().collect(),
        filter: None,
        data_type: DataType::Int64,
    };
    let aggregates = vec![
        aggregate(AggregateFunction::Count, None),
        aggregate(AggregateFunction::Count, Some(MANY)),
        aggregate(AggregateFunction::Sum, Some(INT)),
        aggregate(AggregateFunction::Max, Some(INT)),
    ];
    let keys = keys.iter().map(|key| NamedExpr::column(schema, *key)).collect();
    Program {
        table: TableName::new("t").unwrap(),
        version: None,
        lookups: Vec::new(),
        filter: None,
        output: Output::Aggregate { keys, aggregates },
        having: None,
        order: Vec::new(),
        limit: None,
    }
}

fn fitted(program: &Program, table: &TestTable) -> FittedAggregation {
    let Output::Aggregate { keys, aggregates } = &program.output else { unreachable!() };
    let schema = program.result_schema(&table.schema).unwrap();
    let aggregation = Aggregation::new(keys, aggregates, &table.schema, schema).unwrap();
    let groups: Vec<&RowGroup> = table.groups.iter().collect();
    FittedAggregation::of_table(aggregation.with_paths(Paths::PARTITIONED), &groups, 1 << 30).unwrap()
}

#[test]
fn keys_of_all_kinds_agree_with_the_interpreter() {
    // For each set of group keys (column indices), whether they fit 64 bits together.
    let cases: [(&[usize], bool); 12] = [
        (&[FEW], true),
        (&[FEW, INT], true),
        (&[INT, BYTES, FEW], true),
        (&[FEW, SINGLE], true),
        (&[SINGLE], true),
        (&[DOUBLE_NOT_NULL], true),
        (&[DOUBLE], true),
        (&[EXTREME], false),
        (&[MANY], false),
        (&[MANY, FEW, EXTREME, BYTES], false),
        (&[DECIMAL, DOUBLE], false),
        (&[MANY, MANY, DECIMAL, SINGLE, INT], false),
    ];
    for seed in 0..6 {
        let table = table(&mut Random::new(seed));
        for (keys, packed) in cases {
            let program = program(&table.schema, keys);
            let aggregation = fitted(&program, &table);
            assert_eq!(aggregation.is_packed(), packed, "{keys:?}");
            assert!(aggregation.is_whole() || aggregation.is_partitioned(), "{keys:?}");
            check(&program, &table);
        }
    }
}

/// Returns the least and the greatest integer of each column of a table.
fn statistics(table: &TestTable) -> Vec<ColumnStatistics> {
    let of_column = |(column, field): (usize, &Arc<Field>)| {
        let ints = table.rows.iter().filter_map(|row| match row[column] {
            Value::Int(value) => Some(value),
            _ => None,
        });
        let literal = |value| Literal::new(Value::Int(value), field.data_type().clone()).unwrap();
        let (min, max) = (ints.clone().min().map(literal), ints.max().map(literal));
        ColumnStatistics { min, max, ..ColumnStatistics::default() }
    };
    table.schema.fields().iter().enumerate().map(of_column).collect()
}

/// Returns the row groups of a table as those behind lookups are: encoded as they are, and with a row group in which
/// all values are NULL.
fn as_joined(table: TestTable) -> TestTable {
    let schema = table.schema.clone();
    let of_group = |group: &RowGroup| {
        let chunks = group.chunks.iter();
        let chunks =
            chunks.map(|chunk| Arc::new(Chunk::of_array(&chunk.decode(0..group.rows).unwrap()).unwrap()));
        RowGroup { rows: group.rows, chunks: chunks.collect() }
    };
    let mut groups: Vec<RowGroup> = table.groups.iter().map(of_group).collect();
    let nulls = schema.fields().iter().map(|f| Arc::new(Chunk::of_nulls(f.data_type(), 70).unwrap()));
    groups.push(RowGroup { rows: 70, chunks: nulls.collect() });
    let mut rows = table.rows;
    rows.extend(vec![vec![Value::Null; schema.fields().len()]; 70]);
    TestTable { schema, groups, rows }
}

#[test]
fn keys_of_joined_rows_are_packed_within_the_bounds_of_their_columns() {
    let cases: [(&[usize], bool); 7] = [
        (&[INT], true),
        (&[INT, SINGLE], true),
        (&[INT, INT, SINGLE], true),
        (&[DOUBLE, INT], false),
        (&[EXTREME, INT], false),
        (&[DECIMAL, INT], false),
        (&[INT, FEW], false),
    ];
    let memory = Memory { bytes_max: 1 << 30, workers: 1, hash_key: HashKey::new(5) };
    for seed in 0..6 {
        let table = table(&mut Random::new(seed));
        let bounds = statistics(&table);
        let table = as_joined(table);
        for (keys, packed) in cases {
            let program = program(&table.schema, keys);
            let Output::Aggregate { keys: named, aggregates } = &program.output else { unreachable!() };
            let known = Columns::new(&table.schema, &bounds);
            let schema = program.result_schema(&table.schema).unwrap();
            let aggregation = Aggregation::new(named, aggregates, known, schema).unwrap();
            let aggregation =
                FittedAggregation::of_rows(aggregation, |column| known.integer_bounds(column)).unwrap();
            assert_eq!(aggregation.is_packed(), packed, "{keys:?}");
            let expected = sorted(naive::run(&program, &table.schema, &table.rows).unwrap());
            let plan = Plan::compile_rows(&program, &table.schema, &bounds, memory).unwrap();
            for workers in [1, 3] {
                let got = sorted(run_plan(&plan, &table, workers, usize::MAX).unwrap());
                assert!(got == expected, "{keys:?}, {workers} workers: {} of {}", got.len(), expected.len());
            }
        }
    }
}

#[test]
fn strings_are_numbered_only_where_they_are_short() {
    let schema = Schema::new(vec![
        Field::new("few", DataType::Utf8View, true),
        Field::new("int", DataType::Int64, true),
    ]);
    let rows = 600;
    let ints: ArrayRef = Arc::new(Int64Array::from_iter_values((0..rows).map(|row| row % 7)));
    let numbers = UInt32Array::from_iter_values((0..rows).map(|row| row as u32 % 10));
    let output = Output::Aggregate {
        keys: [0, 1].map(|key| NamedExpr::column(&schema, key)).to_vec(),
        aggregates: Vec::new(),
    };
    let program = Program { output, ..program(&schema, &[]) };
    let schema = Arc::new(schema);
    let numbered = |bytes: usize| {
        let values = (0..10).map(|text| format!("{text}{}", "x".repeat(bytes / 10)));
        // The array refers to ten strings many times.
        let texts = take(&StringViewArray::from_iter_values(values), &numbers, None).unwrap();
        let group = encode_row_group(&POOL, &TenantName::default(), &schema, &[texts, ints.clone()]);
        fitted(
            &program,
            &TestTable { schema: schema.clone(), groups: vec![group.unwrap()], rows: Vec::new() },
        )
        .is_packed()
    };
    assert!(numbered(1000));
    assert!(!numbered(limits::TEXTS_NUMBERED_BYTES_MAX));
}

#[test]
fn strings_that_are_put_aside_again_and_again_come_out_once() {
    let rows = 60_000;
    let schema = Schema::new(vec![
        Field::new("s", DataType::Utf8View, true),
        Field::new("k", DataType::Int64, true),
        Field::new("v", DataType::Int64, true),
    ]);
    // One string in some hundred is so long that a batch of them needs more memory than the partitions of the rows
    // initially have.
    let key = |row: usize| row * 7919 % 30_011;
    let text = |key: usize| match key % 701 {
        0 => None,
        1 => Some(format!("{key}{}", "long".repeat(80_000))),
        length => Some(format!("{key} {}", "s".repeat(length % 90))),
    };
    let group = |number: usize| -> Vec<ArrayRef> {
        let rows = || number * rows / 2..number * rows / 2 + rows;
        vec![
            Arc::new(StringViewArray::from_iter(rows().map(|row| text(key(row))))),
            Arc::new(Int64Array::from_iter(
                rows().map(|row| (key(row) % 11 != 0).then_some(key(row) as i64)),
            )),
            Arc::new(Int64Array::from_iter_values(rows().map(|row| row as i64))),
        ]
    };
    let table = TestTable::new(Arc::new(schema), &(0..3).map(group).collect::<Vec<_>>());
    let sum = Aggregate {
        name: "sum".into(),
        function: AggregateFunction::Sum,
        arguments: vec![Expr::Column(2)],
        filter: None,
        data_type: DataType::Int64,
    };
    for keys in [&[0][..], &[0, 1], &[1, 0]] {
        let named = keys.iter().map(|key| NamedExpr::column(&table.schema, *key)).collect();
        let output = Output::Aggregate { keys: named, aggregates: vec![sum.clone()] };
        let program = Program { output, ..program(&table.schema, keys) };
        let mut expected: HashMap<Vec<String>, i128> = HashMap::new();
        for row in &table.rows {
            let Value::Int(value) = row[2] else { unreachable!() };
            let key = keys.iter().map(|key| format!("{:?}", row[*key])).collect();
            *expected.entry(key).or_default() += value;
        }
        let expected: Vec<String> =
            expected.into_iter().map(|(key, sum)| format!("{} | Int({sum})", key.join(" | "))).collect();
        let plan: Plan = fitted_with(&program, &table, 64 << 20, Paths::PARTITIONED).unwrap();
        for workers in [1, 3] {
            let got = sorted(run_plan(&plan, &table, workers, usize::MAX).unwrap());
            let mut expected = expected.clone();
            expected.sort();
            assert!(got == expected, "{keys:?}, {workers} workers: {} of {}", got.len(), expected.len());
        }
    }
}
