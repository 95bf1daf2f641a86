//! Tests of batches of statements over real pools: they read all tables at one point in time, rows that several
//! statements need are read only once, and the results are those of the statements run one after the other, even while
//! tables change.

use crate::versions::{Writer, load};
use arrow::array::{AsArray, Int64Array, RecordBatch};
use arrow::datatypes::Int64Type;
use farpool::node::{Node, NodeConfig, native};
use farpool::{Batch, EmbeddedPool, LoadMode, Pool, Receipt, Session, SessionOptions, connect};
use std::sync::Arc;

fn rows(range: std::ops::Range<i64>) -> RecordBatch {
    let id = Arc::new(Int64Array::from_iter_values(range.clone()));
    let k = Arc::new(Int64Array::from_iter_values(range.map(|id| id % 7)));
    RecordBatch::try_from_iter_with_nullable([("id", id as _, true), ("k", k as _, true)]).unwrap()
}

async fn session(pool: &Arc<dyn Pool>) -> Session {
    let session = Session::new(SessionOptions { target_partitions: Some(2), ..SessionOptions::default() });
    session.register_pool("farpool", Arc::clone(pool)).await.unwrap();
    session
}

/// Returns two pools: one in this process, and one over TCP.
async fn pools() -> [Arc<dyn Pool>; 2] {
    let config = NodeConfig { memory_bytes: 256 << 20, workers: 2, ..NodeConfig::default() };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = listener.local_addr().unwrap().to_string();
    tokio::spawn(native::serve(Node::start(config).unwrap(), listener, std::future::pending()));
    [EmbeddedPool::open(256 << 20).unwrap(), connect(&url, None).await.unwrap()]
}

/// Returns the first number of each statement's result, and the execution statistics of the batch.
async fn numbers(mut batch: Batch) -> (Vec<i64>, Receipt) {
    let (mut numbers, mut total) = (Vec::new(), Receipt::default());
    while let Some(query) = batch.next().await {
        let query = query.unwrap_or_else(|error| panic!("{error}"));
        let batches = query.collect().await.unwrap_or_else(|error| panic!("{error}"));
        let batch = batches.iter().find(|batch| batch.num_rows() > 0).unwrap();
        numbers.push(batch.column(0).as_primitive::<Int64Type>().value(0));
        total.merge(&query.receipt());
    }
    (numbers, total)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statements_that_differ_in_what_they_compute_read_their_rows_once() {
    for pool in pools().await {
        load(&*pool, LoadMode::Create, rows(0..200_000)).await;
        let session = session(&pool).await;
        let statements = [
            "select sum(id) from t where k < 3",
            "select count(*) from t where k < 3",
            "select max(id) from t where k < 3",
            "select min(id) + max(k) from t where k < 3",
        ];
        let (together, cost) = numbers(session.batch(statements)).await;
        let (mut alone, mut each) = (Vec::new(), 0);
        for statement in statements {
            let (number, cost) = numbers(session.batch([statement])).await;
            alone.extend(number);
            each += cost.rows_scanned;
        }
        assert_eq!(together, alone);
        assert_eq!((cost.rows_scanned, each), (200_000, 800_000));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_reads_one_moment_beside_a_writer() {
    for pool in pools().await {
        load(&*pool, LoadMode::Create, rows(0..1000)).await;
        let writer = Writer::start(pool.clone(), 1000, rows);
        let session = session(&pool).await;
        let statements = [
            "select count(*) from t",
            "select max(id) + 1 from t",
            "select count(*) from t a full join t b on a.id = b.id",
            "select count(id) from t where id >= 0",
            "select sum(n) from (select k, count(*) as n from t group by k)",
            "select count(*) from (select id, row_number() over (order by id) from t)",
        ];
        let mut last = 0;
        for _ in 0..20 {
            let (counts, _) = numbers(session.batch(statements)).await;
            assert_eq!(counts, vec![counts[0]; statements.len()]);
            assert!(counts[0] >= last, "{} rows after {last}", counts[0]);
            last = counts[0];
        }
        let written = writer.stop().await;
        assert!(last > 1000 && last <= written, "{last} of {written}");
    }
}

/// Runs a batch of more statements than are planned at a time, some of which change the table.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_batch_reads_one_moment_between_changes() {
    for pool in pools().await {
        load(&*pool, LoadMode::Create, rows(0..1000)).await;
        let session = session(&pool).await;
        let count = |_| "select count(*) from t".to_string();
        let mut statements: Vec<String> = (0..50).map(count).collect();
        statements.push("insert into t values (5000, 1)".to_string());
        statements.extend((0..3).map(count));
        let mut batch = session.batch(statements.iter().map(String::as_str));
        let mut counts = Vec::new();
        let mut taken = 0;
        while let Some(query) = batch.next().await {
            let batches = query.unwrap().collect().await.unwrap();
            taken += 1;
            if taken == 1 {
                load(&*pool, LoadMode::Append, rows(1000..1010)).await;
            }
            if taken != 51 {
                counts.push(batches[0].column(0).as_primitive::<Int64Type>().value(0));
            }
        }
        assert_eq!(counts[..50], [1000; 50]);
        assert_eq!(counts[50..], [1011; 3]);
    }
}
