//! Tests of changes of tables (UPDATE and DELETE) that the node executes: programs that make a new version of their
//! table.

use crate::common::*;
use farpool_model::{
    Error, ErrorKind, Expr, Literal, LoadMode, NamedExpr, Output, Program, Result, TableInfo, Value, limits,
};
use farpool_transfer::{Pool, RemotePool};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const ROWS: i64 = 400_000;

/// Returns an UPDATE program that sets `tens` to -1 in the rows with an id below `below`.
fn setting(below: i64) -> Program {
    let value = Literal::new(Value::Int(-1), arrow_schema::DataType::Int64).unwrap();
    let tens = NamedExpr { name: "tens".into(), expr: Expr::Literal(value) };
    Program { output: Output::Rows(vec![tens]), ..removing("t", below) }
}

async fn change(pool: &RemotePool, program: &Program, rows: u64) -> Result<TableInfo> {
    let handle = pool.prepare(program, &canonical_schema()).await?;
    pool.change_rows(&handle, rows).await
}

/// Returns the number of rows whose column `tens` is `wanted`.
async fn with_tens(pool: &RemotePool, wanted: i64) -> usize {
    let batches = run(pool, &scan("t")).await.unwrap();
    integers(&batches, 1).into_iter().filter(|tens| *tens == wanted).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_change_stays_where_it_is() {
    let server = Server::start().await;
    let pool = server.connect().await;
    let before = load(&pool, "t", LoadMode::Create, ROWS).await.unwrap();
    let memory = server.memory_used();
    let updated = change(&pool, &setting(70), 70).await.unwrap();
    assert!(updated.version > before.version);
    assert_eq!(
        (updated.rows, updated.columns[1].min.clone().unwrap().value().clone()),
        (ROWS as u64, Value::Int(-1))
    );
    let page = limits::PAGE_BYTES as u64;
    eventually("one column of one row group is new", || server.memory_used() <= memory + page).await;
    assert_eq!(with_tens(&pool, -1).await, 70);
    assert_eq!(with_tens(&pool, 3).await, ROWS as usize / 10 - 7);

    let removed = change(&pool, &removing("t", ROWS - 5), ROWS as u64 - 5).await.unwrap();
    assert_eq!(removed.rows, 5);
    let batches = run(&pool, &scan("t")).await.unwrap();
    assert_eq!(integers(&batches, 0), (ROWS - 5..ROWS).collect::<Vec<_>>());
    eventually("the other rows are free", || server.memory_used() <= page).await;
    assert_eq!(change(&pool, &removing("t", ROWS), 5).await.unwrap().rows, 0);
    assert_eq!(counted(&pool, "t", ROWS).await.unwrap().0, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_is_made_of_the_version_and_the_rows_that_were_counted_or_not_at_all() {
    let server = Server::start().await;
    let pool = server.connect().await;
    let before = load(&pool, "t", LoadMode::Create, 1_000).await.unwrap();
    for (program, rows) in [(removing("t", 10), 11), (setting(10), 9), (removing("t", 0), 1)] {
        assert_eq!(change(&pool, &program, rows).await.unwrap_err().kind, ErrorKind::Internal);
    }
    let handle = pool.prepare(&removing("t", 10), &canonical_schema()).await.unwrap();
    assert_eq!(pool.table(&name("t")).await.unwrap().version, before.version);
    // The change does not affect rows that were appended after the version that it reads; these rows follow the changed
    // ones.
    load(&pool, "t", LoadMode::Append, 1).await.unwrap();
    let changed = pool.change_rows(&handle, 10).await.unwrap();
    assert_eq!(changed.rows, 991);
    let left = integers(&run(&pool, &scan("t")).await.unwrap(), 0);
    assert_eq!(left, [0].into_iter().chain(10..1_000).collect::<Vec<_>>());
    assert_eq!(pool.change_rows(&handle, 10).await.unwrap_err().kind, ErrorKind::Stale);
    let aggregate = pool.prepare(&count_and_sum("t", 10), &canonical_schema()).await.unwrap();
    let error: Error = pool.change_rows(&aggregate, 10).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Invalid);
    assert_eq!(counted(&pool, "t", 10).await.unwrap().0, 1);
    pool.drop_table(&name("t")).await.unwrap();
    assert_eq!(pool.change_rows(&handle, 10).await.unwrap_err().kind, ErrorKind::NotFound);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_do_not_give_way_to_a_stream_of_appends() {
    let server = Server::start().await;
    let pool = server.connect().await;
    load(&pool, "t", LoadMode::Create, ROWS).await.unwrap();
    let writer = server.connect().await;
    let is_over = Arc::new(AtomicBool::new(false));
    let appending = tokio::spawn({
        let is_over = is_over.clone();
        async move {
            let mut appended = 0_u64;
            while !is_over.load(Ordering::Relaxed) {
                load(&writer, "t", LoadMode::Append, 1).await.unwrap();
                appended += 1;
            }
            appended
        }
    });
    let mut removed = 0;
    while removed < 20 {
        let handle = pool.prepare(&removing("t", 1), &canonical_schema()).await.unwrap();
        let counting = Program { version: Some(handle.version), ..count_and_sum("t", 1) };
        let found = counted_by(&pool, &counting).await.unwrap().0.cast_unsigned();
        if found > 0 {
            pool.change_rows(&handle, found).await.unwrap();
        }
        removed += found;
    }
    is_over.store(true, Ordering::Relaxed);
    let appended = appending.await.unwrap();
    // One of the rows with id 0 was loaded, and all others were appended.
    assert_eq!(counted(&pool, "t", 1).await.unwrap().0.cast_unsigned(), 1 + appended - removed);
    assert_eq!(
        counted(&pool, "t", ROWS).await.unwrap().0.cast_unsigned(),
        ROWS.cast_unsigned() + appended - removed
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_leaves_nothing_half_changed() {
    let server = Server::start().await;
    let keeper = server.connect().await;
    for round in 0..6 {
        load(&keeper, "t", LoadMode::Replace, ROWS).await.unwrap();
        let leaver = Arc::new(server.connect().await);
        let handle = leaver.prepare(&setting(ROWS), &canonical_schema()).await.unwrap();
        let changing = tokio::spawn(async move { leaver.change_rows(&handle, ROWS as u64).await });
        for _ in 0..round * 40 {
            tokio::task::yield_now().await;
        }
        changing.abort();
        let _ = changing.await;
        eventually("nothing runs", || server.programs_running() == 0).await;
        let changed = with_tens(&keeper, -1).await;
        assert!(changed == 0 || changed == ROWS as usize, "{changed} rows");
    }
    keeper.drop_table(&name("t")).await.unwrap();
    eventually("all memory is free", || server.memory_used() == 0).await;
    let held = || server.node.status().work_bytes_used;
    eventually("nothing is held for it", || held() < 1 << 20).await;
}
