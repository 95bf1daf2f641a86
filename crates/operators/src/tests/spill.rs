//! Tests groups that exceed the memory limit. Those that are emitted early, merged by group key, must equal the result
//! of an interpreter (`naive.rs`); those that must stay together end the execution.

use super::steps::Steps;
use super::{TestTable, compile, fitted_with, naive, run_steps, sorted};
use crate::group::HashKey;
use crate::plan::{Input, Memory, Paths, Plan};
use arrow_array::{ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringViewArray};
use arrow_schema::{DataType, Field, Schema};
use farpool_columns::RowGroup;
use farpool_model::partial::Merge;
use farpool_model::{
    Aggregate, AggregateFunction, ErrorKind, Expr, NamedExpr, Output, PartialForm, Program, Result,
    TableName, Value,
};
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Executes an aggregation with group keys whose output is partial results, with `room` bytes for the groups of each
/// worker. Merges the partial results row by row and compares them with the interpreter's result.
pub(crate) fn check_parts(program: &Program, table: &TestTable, workers: usize, room: usize) {
    let Output::Aggregate { keys, aggregates } = &program.output else { return };
    if keys.is_empty() || aggregates.iter().any(|a| a.data_type.is_floating()) {
        return;
    }
    let form = PartialForm::of(aggregates, &table.schema).expect("well typed");
    let output = Output::Aggregate { keys: keys.clone(), aggregates: form.aggregates };
    // The condition is on whole groups, and not on parts.
    let in_parts = Program { output, having: None, ..program.clone() };
    let Ok(expected) = naive::run(&in_parts, &table.schema, &table.rows) else { return };
    let expected = sorted(expected);
    for (bytes_max, paths) in [(0, Paths::ALL), (1 << 30, Paths::PARTITIONED)] {
        let plan = fitted_with(&in_parts, table, bytes_max, paths).expect("compiles");
        if !plan.partial_sums_fit() {
            return;
        }
        for steps in [&mut Steps::whole(), &mut Steps::random(room as u64)] {
            let parts = run_steps(&plan, table, workers, room, steps);
            let parts = parts.unwrap_or_else(|e| panic!("{e}\n{program:#?}"));
            let merged = merged(&in_parts, &table.schema, &parts).expect("merges");
            let way = format!("{paths:?}, {workers} workers, room {room}, {steps:?}");
            assert_eq!(sorted(merged), expected, "{way}, {program:#?}");
        }
    }
}

/// Merges rows that may be partial results of the same group, so that each group has one row.
fn merged(in_parts: &Program, table_schema: &Schema, parts: &[Vec<Value>]) -> Result<Vec<Vec<Value>>> {
    let Output::Aggregate { keys, aggregates } = &in_parts.output else { return Ok(parts.to_vec()) };
    let schema = in_parts.result_schema(table_schema)?;
    let key = |(i, k): (usize, &NamedExpr)| NamedExpr { name: k.name.clone(), expr: Expr::Column(i) };
    let merge = |(i, part): (usize, &Aggregate)| {
        let function = match PartialForm::of(std::slice::from_ref(part), table_schema)?.merges[0] {
            Merge::Count(_) | Merge::Sum(_) => AggregateFunction::Sum,
            Merge::Fold(..) | Merge::State(..) => part.function,
            Merge::Mean { .. } => unreachable!("a part is no mean"),
        };
        Ok(Aggregate {
            function,
            arguments: vec![Expr::Column(keys.len() + i)],
            filter: None,
            ..part.clone()
        })
    };
    let aggregates = aggregates.iter().enumerate().map(merge).collect::<Result<_>>()?;
    let output = Output::Aggregate { keys: keys.iter().enumerate().map(key).collect(), aggregates };
    naive::run(&Program { filter: None, output, ..in_parts.clone() }, &schema, parts)
}

fn aggregate(function: AggregateFunction, column: usize) -> Aggregate {
    let data_type = if function == AggregateFunction::Avg { DataType::Float64 } else { DataType::Int64 };
    let name = function.name().to_string();
    Aggregate { name, function, arguments: vec![Expr::Column(column)], filter: None, data_type }
}

fn by(keys: &[usize], aggregates: Vec<Aggregate>) -> Program {
    let key = |k: &usize| NamedExpr { name: format!("k{k}"), expr: Expr::Column(*k) };
    let output = Output::Aggregate { keys: keys.iter().map(key).collect(), aggregates };
    Program {
        table: TableName::new("t").unwrap(),
        version: None,
        lookups: Vec::new(),
        filter: None,
        output,
        having: None,
        order: Vec::new(),
        limit: None,
    }
}

/// Creates two row groups: group keys that are far apart, strings of which some are long, floats with NaN and both
/// zeros, values with extremes and NULLs, and a column that is all NULL in one of them.
fn table() -> TestTable {
    let fields = [
        ("spread", DataType::Int64),
        ("text", DataType::Utf8View),
        ("float", DataType::Float64),
        ("value", DataType::Int64),
        ("dense", DataType::Int64),
    ];
    let schema = Schema::new(fields.map(|(name, t)| Field::new(name, t, true)).to_vec());
    let rows = 3_000_i64;
    let group = |group: i64| -> Vec<ArrayRef> {
        let row = move |r: i64| (group * rows + r).wrapping_mul(0x9e37_79b9_7f4a_7c15_u64.cast_signed());
        let unless = |n: i64, r: i64, v: i64| (r % n != 0).then_some(v);
        let text =
            |r: i64| (r % 11 != 0).then(|| format!("{}{}", "long ".repeat((r % 3 * 20) as usize), r % 900));
        let float = |r: i64| match r % 8 {
            0 => f64::NAN,
            1 => -0.0,
            2 => 0.0,
            _ => (r % 500) as f64,
        };
        let value = |r: i64| match r % 1000 {
            1 => i64::MAX,
            2 => i64::MIN,
            _ => row(r) % 100,
        };
        let dense = |r: i64| if group == 1 { None } else { Some(r % 300 - 100) };
        vec![
            Arc::new((0..rows).map(|r| unless(13, r, row(r % 1500))).collect::<Int64Array>()),
            Arc::new((0..rows).map(text).collect::<StringViewArray>()),
            Arc::new((0..rows).map(|r| Some(float(r))).collect::<Float64Array>()),
            Arc::new((0..rows).map(|r| unless(7, r, value(r))).collect::<Int64Array>()),
            Arc::new((0..rows).map(dense).collect::<Int64Array>()),
        ]
    };
    TestTable::new(Arc::new(schema), &[group(0), group(1)])
}

#[test]
fn parts_of_groups_merge_to_the_groups() {
    let table = table();
    let all = || {
        use AggregateFunction::{Avg, BitAnd, BitOr, BitXor, Count, Max, Min, Sum};
        let parts = [Count, Sum, Min, Max, BitAnd, BitOr, BitXor].map(|function| aggregate(function, 3));
        let avg = PartialForm::of(&[aggregate(Avg, 3)], &table.schema).unwrap().aggregates;
        [parts.to_vec(), avg].concat()
    };
    for keys in [&[0][..], &[1], &[2], &[4], &[0, 1], &[2, 4, 1]] {
        for aggregates in [Vec::new(), all()] {
            for (workers, room) in [(1, 0), (1, 50_000), (2, 20_000), (4, 1 << 30)] {
                check_parts(&by(keys, aggregates.clone()), &table, workers, room);
            }
        }
    }
}

/// Returns the percentage of rows that bypass grouping if each worker has `room` bytes for groups.
fn bypassed(program: &Program, table: &TestTable, room: usize) -> u64 {
    let groups: Vec<&RowGroup> = table.groups.iter().collect();
    let memory = Memory { bytes_max: 0, workers: 1, hash_key: HashKey::new(5) };
    let plan = Plan::compile_with(program, &table.schema, Input::Known(&groups, memory), Paths::ALL).unwrap();
    assert!(!plan.fits(memory));
    let mut state = plan.new_state();
    state.set_room(room);
    let (mut bypassed, mut rows) = (0, 0);
    for group in &table.groups {
        let work = plan.process(group, &mut state, &mut |_| ControlFlow::Continue(())).unwrap();
        assert!(room == usize::MAX || state.bytes() < room + (4 << 20), "{} bytes held", state.bytes());
        bypassed += work.rows_bypassed;
        rows += work.rows_in;
    }
    bypassed * 100 / rows
}

#[test]
fn rows_pass_by_where_grouping_does_not_make_them_fewer() {
    let schema = Arc::new(Schema::new(vec![Field::new("k", DataType::Int64, true)]));
    let rows = farpool_model::limits::ROW_GROUP_ROWS as i64;
    let group = |key: &dyn Fn(i64) -> i64| -> Vec<ArrayRef> {
        vec![Arc::new(Int64Array::from_iter_values((0..rows).map(key)))]
    };
    let spread = |n: i64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64.cast_signed());
    let unique = |g: i64| group(&move |r| spread(g * rows + r));
    let repeated = || group(&|r| spread(r % 5000));
    let distinct = by(&[0], Vec::new());
    let all_unique = TestTable::new(schema.clone(), &(0..5).map(unique).collect::<Vec<_>>());
    assert!((85..100).contains(&bypassed(&distinct, &all_unique, 50_000)));
    assert_eq!(bypassed(&distinct, &all_unique, usize::MAX), 0);
    let few = TestTable::new(schema.clone(), &[repeated(), repeated()]);
    assert_eq!(bypassed(&distinct, &few, 400_000), 0, "5000 groups fit");
    let halves = [repeated(), repeated(), unique(8), unique(9)];
    let half = bypassed(&distinct, &TestTable::new(schema.clone(), &halves), 400_000);
    assert!((25..=50).contains(&half), "{half} %");
    let sorted = TestTable::new(
        schema,
        &(0..3).map(|g| group(&move |r| spread((g * rows + r) / 4))).collect::<Vec<_>>(),
    );
    assert_eq!(bypassed(&distinct, &sorted, 50_000), 0, "sorted groups are complete when they leave");
}

/// Creates ten row groups with group keys that are far apart, group keys with NULLs, booleans, and small values. Also
/// returns the sums of the values by both group keys.
fn many_rows() -> (TestTable, HashMap<String, i128>) {
    let rows = farpool_model::limits::ROW_GROUP_ROWS as i64;
    let fields = [("k", DataType::Int64), ("b", DataType::Boolean), ("v", DataType::Int64)];
    let schema = Schema::new(fields.map(|(name, t)| Field::new(name, t, true)).to_vec());
    let spread = |n: i64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64.cast_signed()) >> 20;
    let mut sums = HashMap::new();
    let mut group = |group: i64| -> Vec<ArrayRef> {
        // A third of the rows have the same group key, so that the partitions of the rows differ in size.
        let key = |r: i64| {
            (r % 1000 != 7).then(|| spread(if r % 3 == 0 { 1 } else { (group * rows + r) % 50_021 }))
        };
        let flag = |r: i64| (r % 7 != 0).then_some(r % 2 == 0);
        let value = |r: i64| (r % 11 != 0).then_some(r % 100 - 20);
        for r in 0..rows {
            *sums.entry(format!("{:?} {:?}", key(r), flag(r))).or_default() +=
                i128::from(value(r).unwrap_or(0));
        }
        vec![
            Arc::new((0..rows).map(key).collect::<Int64Array>()),
            Arc::new((0..rows).map(flag).collect::<BooleanArray>()),
            Arc::new((0..rows).map(value).collect::<Int64Array>()),
        ]
    };
    let groups: Vec<Vec<ArrayRef>> = (0..10).map(&mut group).collect();
    (TestTable::new(Arc::new(schema), &groups), sums)
}

#[test]
fn rows_that_are_put_aside_again_and_again_come_out_once() {
    let (table, expected) = many_rows();
    let program = by(&[0, 1], vec![aggregate(AggregateFunction::Sum, 2)]);
    let key = |value: &Value| match value {
        Value::Int(key) => format!("Some({key})"),
        Value::Bool(key) => format!("Some({key})"),
        _ => "None".to_string(),
    };
    // The least memory with which rows are partitioned: it is used up several times.
    let plan = fitted_with(&program, &table, 64 << 20, Paths::PARTITIONED).unwrap();
    for (workers, room, is_whole) in [(1, usize::MAX, true), (3, usize::MAX, true), (2, 4 << 20, false)] {
        let mut got: HashMap<String, i128> = HashMap::new();
        let mut steps = if workers == 1 { Steps::whole() } else { Steps::random(5) };
        let rows = run_steps(&plan, &table, workers, room, &mut steps).unwrap();
        assert_eq!(rows.len() == expected.len(), is_whole, "{} rows", rows.len());
        for row in &rows {
            let sum = if let Value::Int(sum) = row[2] { sum } else { 0 };
            *got.entry(format!("{} {}", key(&row[0]), key(&row[1]))).or_default() += sum;
        }
        assert!(got == expected, "{workers} workers, room {room}");
    }
}

/// Executes a plan whose groups are never emitted early, with `limit` bytes for those of each worker. Returns the
/// number of groups.
fn groups_within(plan: &Plan, table: &TestTable, workers: usize, limit: usize) -> Result<usize> {
    let mut states: Vec<_> = (0..workers).map(|_| plan.new_state()).collect();
    let empty = states[0].bytes();
    let mut none = |_: RecordBatch| panic!("groups were emitted early");
    for (index, group) in table.groups.iter().enumerate() {
        let state = &mut states[index % workers];
        state.set_limit(limit);
        plan.process(group, state, &mut none)?;
        // Scratch memory comes on top, and records in the chunks that were written to.
        let most = limit + empty + (4 << 20);
        assert!(state.bytes() <= most, "{} bytes held, more than {most}", state.bytes());
    }
    let merge = plan.merge(states);
    let mut groups = 0;
    for task in 0..merge.tasks() {
        merge.run(task, &mut |batch| {
            groups += batch.num_rows();
            ControlFlow::Continue(())
        })?;
    }
    Ok(groups)
}

#[test]
fn groups_that_must_stay_together_end_the_execution_at_their_limit() {
    let (table, expected) = many_rows();
    let program = by(&[0, 1], vec![aggregate(AggregateFunction::Sum, 2)]);
    let partitioned = fitted_with(&program, &table, 64 << 20, Paths::PARTITIONED).unwrap();
    let direct = fitted_with(&program, &table, 1 << 20, Paths::ALL).unwrap();
    let any = compile(&program, &table.schema).unwrap();
    for (plan, way) in [(&partitioned, "partitioned"), (&direct, "direct"), (&any, "any rows")] {
        for workers in [1, 3] {
            let way = format!("{way}, {workers} workers");
            let groups = groups_within(plan, &table, workers, 64 << 20).unwrap();
            assert_eq!(groups, expected.len(), "{way}");
            for limit in [0, 100_000, 1 << 20] {
                let error = groups_within(plan, &table, workers, limit).unwrap_err();
                assert_eq!(error.kind, ErrorKind::OverLimit, "{way}: {error}");
                assert!(error.message.contains(&format!("may take {} KiB", limit.div_ceil(1024))), "{error}");
            }
        }
    }
}

#[test]
fn partitioned_rows_are_grouped_before_their_groups_are_too_many() {
    let (table, expected) = many_rows();
    let program = by(&[0, 1], vec![aggregate(AggregateFunction::Sum, 2)]);
    // Records may take 8 MiB.
    let plan = fitted_with(&program, &table, 64 << 20, Paths::PARTITIONED).unwrap();
    let fits = |mebibytes: &usize| match groups_within(&plan, &table, 1, mebibytes << 20) {
        Ok(groups) => groups == expected.len(),
        Err(error) => {
            assert_eq!(error.kind, ErrorKind::OverLimit, "{error}");
            false
        }
    };
    let least = (4..40).step_by(3).find(fits).expect("a limit that is enough");
    let mut state = plan.new_state();
    for group in &table.groups {
        plan.process(group, &mut state, &mut |_| ControlFlow::Continue(())).unwrap();
    }
    let without_limit = state.bytes() >> 20;
    assert!(least < without_limit, "{least} MiB are enough, {without_limit} MiB are taken without a limit");
}

#[test]
fn merged_groups_have_a_limit_too() {
    // Each worker has groups of its own, few enough for one merge task.
    let long = |r: i64| format!("{r}{}", "long".repeat(50));
    let texts = |group: i64| -> Vec<ArrayRef> {
        vec![Arc::new(StringViewArray::from_iter_values((group * 1_000..(group + 1) * 1_000).map(long)))]
    };
    let schema = Arc::new(Schema::new(vec![Field::new("s", DataType::Utf8View, true)]));
    let table = TestTable::new(schema, &(0..4).map(texts).collect::<Vec<_>>());
    let plan = compile(&by(&[0], Vec::new()), &table.schema).unwrap();
    let limit = 500 << 10;
    for worker in 0..4 {
        let mut state = plan.new_state();
        plan.process(&table.groups[worker], &mut state, &mut |_| ControlFlow::Continue(())).unwrap();
        assert!(state.bytes() < limit, "the groups of one worker fit: {}", state.bytes());
    }
    assert_eq!(groups_within(&plan, &table, 4, 8 << 20).unwrap(), 4_000);
    let error = groups_within(&plan, &table, 4, limit).unwrap_err();
    assert_eq!(error.kind, ErrorKind::OverLimit, "{error}");
}
