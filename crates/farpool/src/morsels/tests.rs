//! Tests that several streams of one execution of a program together return one result, regardless of the order in
//! which they are read.

use crate::{EmbeddedPool, stream_blocking};
use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Int64Type};
use farpool_model::limits::ROW_GROUP_ROWS;
use farpool_model::{
    Aggregate, AggregateFunction, Expr, LoadMode, NamedExpr, Output, Program, Result, TableName,
};
use farpool_transfer::{BatchStream, Execution, Pool};
use futures::StreamExt;
use std::sync::Arc;

const ROWS: usize = 5 * ROW_GROUP_ROWS + 17;

fn numbers() -> RecordBatch {
    let values = Int64Array::from_iter_values(0..i64::try_from(ROWS).unwrap());
    RecordBatch::try_from_iter([("n", Arc::new(values) as ArrayRef)]).unwrap()
}

async fn pool() -> Arc<EmbeddedPool> {
    let pool = EmbeddedPool::open(64 << 20).unwrap();
    let batches = stream_blocking(|| std::iter::once(Ok(numbers())));
    let table = TableName::new("numbers").unwrap();
    pool.load(&table, LoadMode::Create.into(), numbers().schema(), None, batches).await.unwrap();
    pool
}

fn program(output: Output) -> Program {
    Program {
        table: TableName::new("numbers").unwrap(),
        version: None,
        lookups: Vec::new(),
        filter: None,
        output,
        having: None,
        order: Vec::new(),
        limit: None,
    }
}

fn rows() -> Program {
    program(Output::Rows(vec![NamedExpr { name: "n".into(), expr: Expr::Column(0) }]))
}

fn sum() -> Program {
    let sum = Aggregate {
        name: "s".into(),
        function: AggregateFunction::Sum,
        arguments: vec![Expr::Column(0)],
        filter: None,
        data_type: DataType::Int64,
    };
    program(Output::Aggregate { keys: vec![], aggregates: vec![sum] })
}

/// Returns the number of remaining rows of the stream and the sum of their first column.
async fn drain(mut stream: BatchStream) -> Result<(usize, i64)> {
    let (mut rows, mut sum) = (0, 0);
    while let Some(batch) = stream.next().await {
        let batch = batch?;
        let column = batch.column(0).as_primitive::<Int64Type>();
        rows += column.len();
        sum += column.values().iter().sum::<i64>();
    }
    Ok((rows, sum))
}

async fn drain_on_tasks(execution: Execution) -> (usize, i64) {
    let tasks: Vec<_> = execution.streams.into_iter().map(|s| tokio::spawn(drain(s))).collect();
    let (mut rows, mut sum) = (0, 0);
    for task in tasks {
        let (more_rows, more) = task.await.unwrap().unwrap();
        rows += more_rows;
        sum += more;
    }
    (rows, sum)
}

fn total() -> i64 {
    let rows = i64::try_from(ROWS).unwrap();
    rows * (rows - 1) / 2
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn streams_read_at_once_give_every_row_once() {
    let pool = pool().await;
    for streams in [1, 2, 3, 16] {
        let execution = pool.execute(&rows(), streams).await.unwrap();
        assert!((1..=streams).contains(&execution.streams.len()));
        let receipt = execution.receipt.clone();
        assert!(receipt.get().is_none(), "nothing has run yet");
        assert_eq!(drain_on_tasks(execution).await, (ROWS, total()), "{streams} streams");
        let receipt = receipt.get().unwrap();
        assert_eq!(receipt.rows_returned, u64::try_from(ROWS).unwrap());
        assert_eq!(receipt.bytes_on_wire, 0);
        assert!(receipt.elapsed_ns > 0 && receipt.bytes_scanned > 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_aggregation_comes_out_of_one_of_the_streams() {
    let pool = pool().await;
    for streams in [1, 2, 7] {
        for _ in 0..20 {
            let execution = pool.execute(&sum(), streams).await.unwrap();
            assert_eq!(drain_on_tasks(execution).await, (1, total()));
        }
    }
}

#[tokio::test]
async fn streams_read_one_after_the_other_on_one_thread_end() {
    let pool = pool().await;
    let mut execution = pool.execute(&rows(), 3).await.unwrap();
    // Every stream is started, so that it holds batches of a morsel (a range of rows), before any of them is read
    // further.
    let mut begun = 0;
    for stream in &mut execution.streams {
        begun += stream.next().await.unwrap().unwrap().num_rows();
    }
    let mut rest = 0;
    for stream in execution.streams {
        rest += drain(stream).await.unwrap().0;
    }
    assert_eq!(begun + rest, ROWS);
    assert!(execution.receipt.get().is_some());
}

#[tokio::test]
async fn a_stream_that_nobody_reads_takes_nothing_with_it() {
    let pool = pool().await;
    let mut execution = pool.execute(&rows(), 2).await.unwrap();
    drop(execution.streams.pop());
    assert_eq!(drain(execution.streams.pop().unwrap()).await.unwrap(), (ROWS, total()));
    assert!(execution.receipt.get().is_some());
}

#[tokio::test]
async fn a_run_that_nobody_reads_any_more_is_cancelled_and_accounted() {
    let pool = pool().await;
    let mut execution = pool.execute(&rows(), 2).await.unwrap();
    let read = execution.streams[0].next().await.unwrap().unwrap().num_rows();
    assert!(read > 0);
    execution.streams.clear();
    let receipt = execution.receipt.get().unwrap();
    assert!(receipt.rows_scanned < u64::try_from(ROWS).unwrap(), "the rest was not scanned");
    let status = pool.status().await.unwrap();
    assert_eq!(status.tenants[0].bytes_scanned, receipt.bytes_scanned);
    pool.drop_table(&TableName::new("numbers").unwrap()).await.unwrap();
    assert_eq!(pool.status().await.unwrap().memory_bytes_used, 0, "the run let go of the table");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_error_reaches_every_stream() {
    let pool = pool().await;
    let divisor = Expr::arithmetic(farpool_model::ArithmeticOp::Subtract, Expr::Column(0), literal(70_000));
    let expr = Expr::arithmetic(farpool_model::ArithmeticOp::Divide, literal(1), divisor);
    let program = program(Output::Rows(vec![NamedExpr { name: "x".into(), expr }]));
    let execution = pool.execute(&program, 3).await.unwrap();
    let tasks: Vec<_> = execution.streams.into_iter().map(|s| tokio::spawn(drain(s))).collect();
    let mut failures = 0;
    for task in tasks {
        if let Err(error) = task.await.unwrap() {
            assert!(error.message.to_lowercase().contains("zero"), "{error}");
            failures += 1;
        }
    }
    assert!(failures > 0);
}

fn literal(value: i128) -> Expr {
    let literal = farpool_model::Literal::new(farpool_model::Value::Int(value), DataType::Int64);
    Expr::Literal(literal.unwrap())
}
