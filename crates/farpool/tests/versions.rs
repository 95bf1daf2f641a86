//! Tests that a statement reads one version of each table, however often other clients insert rows meanwhile.

use arrow::array::{AsArray, Int64Array, RecordBatch};
use arrow::datatypes::Int64Type;
use farpool::node::{Node, NodeConfig, native};
use farpool::{EmbeddedPool, LoadMode, Pool, Session, SessionOptions, TableName, connect};
use futures::StreamExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn rows(range: std::ops::Range<i64>) -> RecordBatch {
    let id = Arc::new(Int64Array::from_iter_values(range));
    RecordBatch::try_from_iter_with_nullable([("id", id as _, true)]).unwrap()
}

pub async fn load(pool: &dyn Pool, mode: LoadMode, batch: RecordBatch) {
    let batches = futures::stream::iter([Ok(batch.clone())]).boxed();
    pool.load(&TableName::new("t").unwrap(), mode.into(), batch.schema(), None, batches).await.unwrap();
}

/// A task that appends rows to a table one by one, with numbers from `first` on.
pub struct Writer {
    stop: Arc<AtomicBool>,
    next: tokio::task::JoinHandle<i64>,
}

impl Writer {
    pub fn start(pool: Arc<dyn Pool>, first: i64, rows: fn(std::ops::Range<i64>) -> RecordBatch) -> Writer {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let next = tokio::spawn(async move {
            let mut next = first;
            while !stopped.load(Ordering::Relaxed) {
                load(&*pool, LoadMode::Append, rows(next..next + 1)).await;
                next += 1;
                // Sleeps briefly, so that the tasks under test get processor time.
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
            next
        });
        Writer { stop, next }
    }

    /// Stops the task, and returns the number of the row that would have been next.
    pub async fn stop(self) -> i64 {
        self.stop.store(true, Ordering::Relaxed);
        self.next.await.unwrap()
    }
}

/// Runs joins of two scans of a table, while `writer` appends to it continuously.
async fn join_beside_a_writer(pool: Arc<dyn Pool>, writer: Arc<dyn Pool>) {
    load(&*pool, LoadMode::Create, rows(0..1000)).await;
    let writer = Writer::start(writer, 1000, rows);
    let session = Session::new(SessionOptions::default());
    session.register_pool("farpool", pool).await.unwrap();
    // Joins every row with itself by its id: if the two scans read different versions, one side has rows without a
    // partner.
    let statement = "select count(*), count(a.id), count(b.id) from t a full join t b on a.id = b.id";
    let inner = "select count(*) as n, (select max(id) + 1 from t) as m, (select count(*) from t where id >= 0) as k \
                 from t a join t b on a.id = b.id";
    let mut last = 0;
    for round in 0..60 {
        let statement = if round % 2 == 0 { statement } else { inner };
        let query = session.sql(statement).await.unwrap_or_else(|error| panic!("{error}"));
        let batches = query.collect().await.unwrap_or_else(|error| panic!("{error}"));
        let counts: Vec<i64> =
            (0..3).map(|i| batches[0].column(i).as_primitive::<Int64Type>().value(0)).collect();
        assert!(counts.iter().all(|count| *count == counts[0]), "{counts:?}");
        assert!(counts[0] >= last, "{} rows after {last}", counts[0]);
        last = counts[0];
    }
    let written = writer.stop().await;
    assert!(last > 1000 && last <= written, "{last} of {written}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn joins_beside_a_writer_in_the_process() {
    let pool = EmbeddedPool::open(256 << 20).unwrap();
    join_beside_a_writer(pool.clone(), pool).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn joins_beside_a_writer_over_tcp() {
    let config = NodeConfig { memory_bytes: 256 << 20, workers: 2, ..NodeConfig::default() };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = listener.local_addr().unwrap().to_string();
    tokio::spawn(native::serve(Node::start(config).unwrap(), listener, std::future::pending()));
    let (pool, writer) = (connect(&url, None).await.unwrap(), connect(&url, None).await.unwrap());
    join_beside_a_writer(pool, writer).await;
}
