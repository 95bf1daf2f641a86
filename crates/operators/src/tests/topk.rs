//! Tests top-k (`ORDER BY … LIMIT k`) against sorting all rows. Of rows that tie, any may be returned; so the
//! sort keys must be equal to those of the sorted rows, and every row must be a row of the whole result.

use super::random::{self, Random};
use super::steps::Steps;
use super::{TestTable, compile, compile_with, fixed_cases, naive, rows_of, sorted};
use crate::pace::Progress;
use crate::plan::{Paths, Shared};
use arrow_array::{ArrayRef, Float64Array, Int64Array, StringViewArray};
use arrow_schema::{DataType, Field, Schema};
use farpool_model::{Expr, NamedExpr, Output, Program, SortKey, TableName, Value, limits};
use proptest::prelude::*;
use std::cmp::Ordering;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Returns the rows of the result, and the number of row groups that were read. The states of `workers` workers
/// process row groups in turn.
fn run(program: &Program, table: &TestTable, paths: Paths, workers: usize) -> (Vec<Vec<Value>>, usize) {
    run_steps(program, table, paths, workers, &mut Steps::whole())
}

/// Runs a program as [`run`] does, in steps whose ends are given by `steps`.
fn run_steps(
    program: &Program,
    table: &TestTable,
    paths: Paths,
    workers: usize,
    steps: &mut Steps,
) -> (Vec<Vec<Value>>, usize) {
    let plan = compile_with(program, &table.schema, paths).unwrap();
    let shared = Shared::default();
    let mut states: Vec<_> = (0..workers).map(|_| plan.new_state_in(&shared)).collect();
    let mut rows = Vec::new();
    let mut emit = |batch: arrow_array::RecordBatch| {
        assert_eq!(batch.schema(), *plan.schema());
        rows.extend(rows_of(batch.columns(), batch.num_rows()));
        ControlFlow::Continue(())
    };
    let mut scanned = 0;
    let sequence = plan.favourable(table.groups.iter()).unwrap_or_else(|| (0..table.groups.len()).collect());
    let mut turn = 0;
    for place in sequence {
        let group = &table.groups[place];
        if paths.encoded && plan.is_beaten(group, &shared) {
            continue;
        }
        scanned += 1;
        let mut progress = Progress::default();
        while !progress.is_done() {
            steps.begin();
            plan.process_part(group, &mut progress, &mut states[turn % workers], steps, &mut emit).unwrap();
            turn += 1;
        }
    }
    let merge = plan.merge(states);
    (0..merge.tasks()).for_each(|task| merge.run(task, &mut emit).unwrap());
    (rows, scanned)
}

fn compare(key: &SortKey, a: &[Value], b: &[Value]) -> Ordering {
    let (a, b) = (&a[key.column], &b[key.column]);
    key.compare((*a == Value::Null, *b == Value::Null), || match (a, b) {
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Int(a), Value::Int(b)) => a.cmp(b),
        (Value::Float(a), Value::Float(b)) => a.total_cmp(b),
        (Value::Text(a), Value::Text(b)) => a.as_bytes().cmp(b.as_bytes()),
        (Value::Bytes(a), Value::Bytes(b)) => a.cmp(b),
        _ => unreachable!("values of one column"),
    })
}

fn check(program: &Program, table: &TestTable) {
    let whole = Program { order: Vec::new(), limit: None, ..program.clone() };
    let Ok(mut all) = naive::run(&whole, &table.schema, &table.rows) else { return };
    let order = |a: &Vec<Value>, b: &Vec<Value>| {
        program.order.iter().map(|key| compare(key, a, b)).find(|o| o.is_ne()).unwrap_or(Ordering::Equal)
    };
    all.sort_by(order);
    let wanted = usize::try_from(program.limit.unwrap()).unwrap().min(all.len());
    let keys = |rows: &[Vec<Value>]| {
        let of_row = |row: &Vec<Value>| program.order.iter().map(|key| row[key.column].clone()).collect();
        sorted(rows.iter().map(of_row).collect())
    };
    let expected = keys(&all[..wanted]);
    let members = sorted(all);
    for (paths, workers) in [(Paths::NONE, 1), (Paths::ALL, 1), (Paths::ALL, 3), (Paths::ENCODED, 2)] {
        for steps in [&mut Steps::whole(), &mut Steps::random(workers as u64)] {
            let (got, _) = run_steps(program, table, paths, workers, steps);
            assert_eq!(keys(&got), expected, "{paths:?}, {workers} workers, {steps:?}, {program:#?}");
            let mut left = members.clone();
            for row in sorted(got) {
                let at = left.iter().position(|member| *member == row);
                left.swap_remove(at.unwrap_or_else(|| panic!("{row} is no row of {program:#?}")));
            }
        }
    }
}

/// Adds a random sort order to a random program. Computed floats are not sort keys, since the sign of their NaNs is
/// not defined.
fn ordered(random: &mut Random, mut program: Program, schema: &Schema) -> Option<Program> {
    let plain = |named: &NamedExpr| {
        let float = named.expr.data_type(schema).is_ok_and(|t| t.is_floating());
        !float || matches!(named.expr, Expr::Column(_))
    };
    let mut places: Vec<usize> = match &program.output {
        Output::Rows(columns) => (0..columns.len()).filter(|i| plain(&columns[*i])).collect(),
        Output::Aggregate { keys, aggregates } => {
            let exact = |i: &usize| !aggregates[*i].data_type.is_floating();
            let aggregates = (0..aggregates.len()).filter(exact).map(|i| keys.len() + i);
            (0..keys.len()).filter(|i| plain(&keys[*i])).chain(aggregates).collect()
        }
    };
    for _ in 0..1 + random.below(3) {
        if places.is_empty() {
            break;
        }
        let column = places.swap_remove(random.below(places.len()));
        program.order.push(SortKey { column, descending: random.chance(50), nulls_first: random.chance(50) });
    }
    program.limit = Some(random.pick(&[0, 1, 2, 5, 5, 17, 100, 700]));
    (!program.order.is_empty()).then_some(program)
}

proptest! {
    #![proptest_config(fixed_cases())]

    #[test]
    fn random_programs_agree_with_a_sort(seed in any::<u64>()) {
        let mut random = Random::new(seed);
        let table = random::table(&mut random, 200);
        for _ in 0..8 {
            let program = random::program(&mut random, &table.schema);
            if let Some(program) = ordered(&mut random, program, &table.schema) {
                check(&program, &table);
            }
        }
    }

    #[test]
    fn random_programs_agree_with_a_sort_across_cuts(seed in any::<u64>()) {
        let mut random = Random::new(seed);
        let table = random::table(&mut random, 4500);
        let output = Output::Rows((0..table.schema.fields().len()).map(|i| NamedExpr::column(&table.schema, i)).collect());
        let filter = random.chance(50).then(|| random::condition(&mut random, &table.schema, 1));
        let program = program(filter, output, Vec::new(), 0);
        if let Some(program) = ordered(&mut random, program, &table.schema) {
            check(&program, &table);
        }
    }
}

fn program(filter: Option<Expr>, output: Output, order: Vec<SortKey>, limit: u64) -> Program {
    let table = TableName::new("t").unwrap();
    Program {
        table,
        version: None,
        lookups: Vec::new(),
        filter,
        output,
        having: None,
        order,
        limit: Some(limit),
    }
}

fn ascending(column: usize) -> SortKey {
    SortKey { column, descending: false, nulls_first: false }
}

/// Creates row groups in which `a` counts up, `s` is the same number as a string, and `f` alternates between 0.0 and
/// -0.0.
fn counting(groups: usize, rows: usize) -> TestTable {
    let schema = Arc::new(Schema::new(vec![
        Field::new("a", DataType::Int64, true),
        Field::new("s", DataType::Utf8View, true),
        Field::new("f", DataType::Float64, true),
    ]));
    let group = |number: usize| -> Vec<ArrayRef> {
        let numbers = || (0..rows).map(|row| number * rows + row);
        vec![
            Arc::new(numbers().map(|n| n as i64).collect::<Int64Array>()),
            Arc::new(numbers().map(|n| Some(format!("text {n:09}"))).collect::<StringViewArray>()),
            Arc::new(numbers().map(|n| if n % 2 == 0 { 0.0 } else { -0.0 }).collect::<Float64Array>()),
        ]
    };
    TestTable::new(schema, &(0..groups).map(group).collect::<Vec<_>>())
}

#[test]
fn row_groups_that_cannot_hold_a_first_row_are_skipped() {
    let table = counting(8, 3000);
    let all = || Output::Rows((0..3).map(|i| NamedExpr::column(&table.schema, i)).collect());
    for (column, descending) in [(0, false), (0, true), (1, true)] {
        let key = SortKey { column, descending, nulls_first: descending };
        let top = program(None, all(), vec![key], 10);
        check(&top, &table);
        assert_eq!(run(&top, &table, Paths::ALL, 2).1, 1, "column {column}, descending {descending}");
    }
    let ties = program(None, all(), vec![ascending(2), ascending(0)], 3);
    check(&ties, &table);
}

#[test]
fn only_what_may_leave_is_read_whole() {
    let table = counting(4, 3000);
    let output = Output::Rows(vec![NamedExpr::column(&table.schema, 0), NamedExpr::column(&table.schema, 1)]);
    let top = program(None, output, vec![SortKey { descending: true, ..ascending(0) }], 5);
    let plan = compile(&top, &table.schema).unwrap();
    let mut state = plan.new_state();
    let mut read = |group: usize| {
        let work = plan.process(&table.groups[group], &mut state, &mut |_| ControlFlow::Continue(()));
        (work.unwrap().bytes_read, table.groups[group].chunks[0].bytes_encoded() as u64)
    };
    let (last, key) = read(3);
    assert!(last > key, "both columns of the rows that leave");
    let (first, key) = read(0);
    assert_eq!(first, key, "the texts of rows that cannot leave stay where they are");
}

#[test]
fn states_stay_small_whatever_passes() {
    let table = counting(3, limits::ROW_GROUP_ROWS);
    let output = Output::Rows(vec![NamedExpr::column(&table.schema, 1), NamedExpr::column(&table.schema, 0)]);
    // The worst case for a top-k: every row sorts before all earlier ones.
    let top = program(None, output, vec![SortKey { descending: true, ..ascending(1) }], 10);
    let plan = compile(&top, &table.schema).unwrap();
    let mut state = plan.new_state();
    for group in &table.groups {
        plan.process(group, &mut state, &mut |_| ControlFlow::Continue(())).unwrap();
        assert!(state.bytes() < 4 << 20, "{} bytes", state.bytes());
    }
}

#[test]
fn more_rows_than_a_node_keeps_are_refused() {
    let table = counting(1, 10);
    let output = Output::Rows(vec![NamedExpr::column(&table.schema, 0)]);
    let top = program(None, output, vec![ascending(0)], limits::TOP_ROWS_MAX as u64 + 1);
    let error = compile(&top, &table.schema).unwrap_err();
    assert_eq!(error.kind, farpool_model::ErrorKind::OverLimit);
}
