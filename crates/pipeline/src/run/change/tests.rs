//! Tests of runs that change rows (UPDATE and DELETE), against a loop over the rows.

#![expect(clippy::disallowed_methods, reason = "a test has threads of its own")]

use super::super::tests::{Ticking, bound, id_compares, int, sum_and_count_by_k, table, table_of};
use super::*;
use crate::Budget;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use farpool_memory::{Pool, PoolConfig};
use farpool_model::{ArithmeticOp, CompareOp, ErrorKind, Expr, NamedExpr, TenantName};
use proptest::prelude::*;
use std::sync::Arc;

fn encoder(schema: SchemaRef) -> Encoder {
    let pool = Pool::new(PoolConfig { bytes_limit: 64 << 20 }).unwrap();
    Encoder::new(pool, TenantName::default(), schema)
}

fn named(name: &str, expr: Expr) -> NamedExpr {
    NamedExpr { name: name.into(), expr }
}

fn sum(left: Expr, right: Expr) -> Expr {
    Expr::arithmetic(ArithmeticOp::Add, left, right)
}

fn row_change(table: &Arc<Table>, filter: Option<Expr>, columns: Vec<NamedExpr>) -> Result<Arc<Run>> {
    let program = bound(table, filter, Output::Rows(columns), None, Budget::default());
    Run::start_changing(&program, encoder)
}

/// Executes the run on `threads` threads, and returns the changed row groups.
fn run(run: &Run, threads: usize) -> Result<ChangedGroups> {
    let outcomes: Vec<Result<()>> = std::thread::scope(|scope| {
        let step_all = || loop {
            match run.step(&Ticking::default())? {
                Step::Done => return Ok(()),
                Step::Busy => std::thread::yield_now(),
                Step::Worked => {}
                step => panic!("{step:?} of a change"),
            }
        };
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(step_all)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    outcomes.into_iter().collect::<Result<Vec<()>>>()?;
    Ok(run.take_changed())
}

/// Returns the rows of the table after its changes.
fn rows(table: &Table, changed: &ChangedGroups) -> Vec<Vec<i64>> {
    let groups =
        table.row_groups.iter().enumerate().filter_map(|(place, group)| {
            changed.groups.get(&place).map_or(Some(group.clone()), Clone::clone)
        });
    let values = |group: Arc<RowGroup>| {
        let columns: Vec<_> = group.chunks.iter().map(|chunk| chunk.decode(0..group.rows).unwrap()).collect();
        let value = |row: usize, column: usize| columns[column].as_primitive::<Int64Type>().value(row);
        (0..group.rows).map(|row| (0..columns.len()).map(|column| value(row, column)).collect()).collect()
    };
    groups.flat_map::<Vec<Vec<i64>>, _>(values).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn rows_that_pass_change_and_others_stay(
        low in 0..9_000_i64, length in 0..9_000_i64, k in 0..8_i64, threads in 1..4_usize,
    ) {
        let table = table(8);
        let within = Expr::all(vec![
            id_compares(CompareOp::GtEq, low).unwrap(),
            id_compares(CompareOp::Lt, low + length).unwrap(),
            Expr::compare(CompareOp::NotEq, Expr::Column(1), int(k)),
        ]);
        let passes = |row: &Vec<i64>| row[0] >= low && row[0] < low + length && row[1] != k;
        let before = rows(&table, &ChangedGroups::default());
        let passed = before.iter().filter(|row| passes(row)).count() as u64;

        let gone = run(&row_change(&table, within.clone(), Vec::new()).unwrap(), threads).unwrap();
        let left: Vec<Vec<i64>> = before.iter().filter(|row| !passes(row)).cloned().collect();
        prop_assert_eq!((rows(&table, &gone), gone.rows), (left, passed));

        let new = vec![named("v", sum(Expr::Column(0), Expr::Column(1))), named("k", int(-1))];
        let updated = run(&row_change(&table, within, new).unwrap(), threads).unwrap();
        let update = |row: &Vec<i64>| if passes(row) { vec![row[0], -1, row[0] + row[1]] } else { row.clone() };
        prop_assert_eq!((rows(&table, &updated), updated.rows), (before.iter().map(update).collect(), passed));
        for (place, group) in &updated.groups {
            let old = &table.row_groups[*place];
            prop_assert!(Arc::ptr_eq(&group.as_ref().unwrap().chunks[0], &old.chunks[0]));
        }
        let touched = before.chunks(1_000).map(|rows| rows.iter().any(passes));
        let touched: Vec<usize> = touched.enumerate().filter_map(|(place, any)| any.then_some(place)).collect();
        prop_assert_eq!(updated.groups.keys().copied().collect::<Vec<_>>(), touched.clone());
        prop_assert_eq!(gone.groups.keys().copied().collect::<Vec<_>>(), touched);
    }
}

#[test]
fn all_rows_may_change_or_go() {
    let table = table_of(3, 7_000);
    let gone = run(&row_change(&table, None, Vec::new()).unwrap(), 1).unwrap();
    assert_eq!(gone.rows, 21_000);
    assert!(gone.groups.len() == 3 && gone.groups.values().all(Option::is_none));
    let updated = run(&row_change(&table, None, vec![named("k", Expr::Column(0))]).unwrap(), 1).unwrap();
    assert!(rows(&table, &updated).iter().all(|row| row[0] == row[1]));
}

#[test]
fn what_is_no_change_is_refused() {
    let table = table(1);
    let refused = |columns: Vec<NamedExpr>| row_change(&table, None, columns).unwrap_err();
    for (columns, expected) in [
        (vec![named("w", int(1))], "no column \"w\""),
        (vec![named("v", int(1)), named("v", int(2))], "twice"),
        (vec![named("v", Expr::IsNull(Box::new(Expr::Column(0))))], "its new values are of type Boolean"),
    ] {
        let error = refused(columns);
        assert_eq!(error.kind, ErrorKind::Invalid);
        assert!(error.message.contains(expected), "{}", error.message);
    }
    let limited = bound(&table, None, Output::Rows(Vec::new()), Some(3), Budget::default());
    assert_eq!(Run::start_changing(&limited, encoder).unwrap_err().kind, ErrorKind::Invalid);
    let counted = bound(&table, None, sum_and_count_by_k(), None, Budget::default());
    assert_eq!(Run::start_changing(&counted, encoder).unwrap_err().kind, ErrorKind::Invalid);
}

#[test]
fn a_value_that_fails_or_a_full_pool_ends_it_and_leaves_nothing() {
    let table = table_of(60, 4_000);
    let divide = Expr::arithmetic(ArithmeticOp::Divide, int(1), Expr::Column(1));
    let failing = row_change(&table, None, vec![named("v", divide.clone())]).unwrap();
    assert_eq!(run(&failing, 2).unwrap_err().kind, ErrorKind::Invalid);
    assert!(failing.take_changed().groups.is_empty());
    // The division is not evaluated on rows that do not pass the filter, so that it does not fail.
    let not_zero = Expr::compare(CompareOp::NotEq, Expr::Column(1), int(0));
    run(&row_change(&table, Some(not_zero), vec![named("v", divide)]).unwrap(), 2).unwrap();

    let pool = Pool::new(PoolConfig { bytes_limit: 2 << 20 }).unwrap();
    let small = |schema| Encoder::new(pool.clone(), TenantName::default(), schema);
    let product =
        Expr::arithmetic(ArithmeticOp::Multiply, Expr::Column(2), sum(Expr::Column(0), int(1 << 20)));
    let output = Output::Rows(["id", "k", "v"].map(|name| named(name, product.clone())).to_vec());
    let program = bound(&table, None, output, None, Budget::default());
    let full = Run::start_changing(&program, small).unwrap();
    assert_eq!(run(&full, 2).unwrap_err().kind, ErrorKind::OverLimit);
    drop(full);
    assert_eq!(pool.usage().bytes_used, 0);
}

#[test]
fn one_that_is_cancelled_gives_back_what_it_made() {
    let table = table_of(8, 4_000);
    let run = row_change(&table, None, vec![named("v", Expr::Column(0))]).unwrap();
    while run.row_change().unwrap().changed.lock().groups.len() < 2 {
        run.step(&Ticking::default()).unwrap();
    }
    run.cancel();
    assert_eq!(run.step(&Ticking::default()).unwrap_err().kind, ErrorKind::Cancelled);
    assert!(run.take_changed().groups.is_empty());
}
