//! Tests of statements whose tables change, and whose prepared programs are lost, between planning and running: the
//! result is that of the current table, or an error that describes the change of the table.

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, StringViewArray};
use arrow::datatypes::Int64Type;
use farpool::model::{Program, limits};
use farpool::node::{Node, NodeConfig, native};
use farpool::{
    EmbeddedPool, Error, ErrorKind, LoadMode, Pool, Result, Session, SessionOptions, TableName, connect,
};
use farpool_transfer::Handle;
use futures::{StreamExt, TryStreamExt};
use std::sync::{Arc, Mutex};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

fn name(text: &str) -> TableName {
    TableName::new(text).unwrap()
}

fn ids(count: i64) -> RecordBatch {
    numbers("id", count)
}

fn numbers(column: &str, count: i64) -> RecordBatch {
    let numbers = Arc::new(Int64Array::from_iter_values(0..count));
    RecordBatch::try_from_iter_with_nullable([(column, numbers as ArrayRef, true)]).unwrap()
}

fn texts(column: &str) -> RecordBatch {
    let text = Arc::new(StringViewArray::from_iter_values(["a", "b", "c"]));
    RecordBatch::try_from_iter_with_nullable([(column, text as ArrayRef, true)]).unwrap()
}

async fn load(pool: &dyn Pool, table: &str, mode: LoadMode, batch: RecordBatch) {
    let batches = futures::stream::iter([Ok(batch.clone())]).boxed();
    pool.load(&name(table), mode.into(), batch.schema(), None, batches).await.unwrap();
}

/// A memory node, and a client connection to it that a test can break.
struct Bench {
    writer: Arc<dyn Pool>,
    pool: Arc<dyn Pool>,
    session: Session,
    connections: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

impl Bench {
    /// Starts a node with a table `t` of a thousand rows.
    async fn start() -> Bench {
        let config = NodeConfig { memory_bytes: 256 << 20, workers: 2, ..NodeConfig::default() };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let direct = listener.local_addr().unwrap();
        tokio::spawn(native::serve(Node::start(config).unwrap(), listener, std::future::pending()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let by_the_way = listener.local_addr().unwrap().to_string();
        let connections = Arc::new(Mutex::new(Vec::new()));
        let open = connections.clone();
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let between = tokio::spawn(async move {
                    let mut node = TcpStream::connect(direct).await.unwrap();
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut node).await;
                });
                open.lock().unwrap().push(between);
            }
        });
        let writer = connect(&direct.to_string(), None).await.unwrap();
        load(&*writer, "t", LoadMode::Create, ids(1000)).await;
        let pool = connect(&by_the_way, None).await.unwrap();
        let session = Session::new(SessionOptions::default());
        session.register_pool("farpool", pool.clone()).await.unwrap();
        Bench { writer, pool, session, connections }
    }

    /// Resets all connections of the session to the node.
    fn cut(&self) {
        self.connections.lock().unwrap().drain(..).for_each(|connection| connection.abort());
    }

    /// Makes the node drop the session's prepared programs, by preparing as many other programs as the node keeps for a
    /// connection.
    async fn crowd_out(&self) -> Vec<Handle> {
        load(&*self.writer, "other", LoadMode::Replace, ids(1)).await;
        let schema = self.pool.table(&name("other")).await.unwrap().schema;
        let program = Program::scan(name("other"), &schema, &[0]);
        let mut handles = Vec::new();
        for _ in 0..limits::HANDLES_PER_CONNECTION_MAX {
            handles.push(self.pool.prepare(&program, &schema).await.unwrap());
        }
        handles
    }

    async fn run(&self, statement: &str) -> Result<Vec<RecordBatch>> {
        self.session.sql(statement).await?.collect().await
    }
}

fn number(batches: &[RecordBatch]) -> i64 {
    let batch = batches.iter().find(|batch| batch.num_rows() > 0).unwrap();
    batch.column(0).as_primitive::<Int64Type>().value(0)
}

/// Asserts that the message of the error contains `what` and does not mention handles, which users do not know.
fn told(error: &Error, what: &str) {
    assert!(matches!(error.kind, ErrorKind::Invalid | ErrorKind::NotFound), "{:?}: {error}", error.kind);
    assert!(error.to_string().contains(what), "{error}");
}

const COUNT: &str = "select count(id) from t where id >= 0";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handle_that_was_crowded_out_is_made_again_for_the_newest_version() {
    let bench = Bench::start().await;
    let query = bench.session.sql(COUNT).await.unwrap();
    let _others = bench.crowd_out().await;
    load(&*bench.writer, "t", LoadMode::Replace, ids(7)).await;
    assert_eq!(number(&query.collect().await.unwrap()), 7);
    // The execution statistics and the explanation describe the plan that ran, which was made after the table was
    // replaced.
    assert_eq!(query.receipt().rows_scanned + query.receipt().rows_skipped, 7);
    assert!(query.explain().contains("At the pool"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_sides_of_a_join_are_of_one_version_again() {
    let bench = Bench::start().await;
    let join = "select count(*), count(a.id), count(b.id) from t a full join t b on a.id = b.id";
    let query = bench.session.sql(join).await.unwrap();
    bench.cut();
    load(&*bench.writer, "t", LoadMode::Replace, ids(12)).await;
    let batches = query.collect().await.unwrap();
    for column in 0..3 {
        assert_eq!(batches[0].column(column).as_primitive::<Int64Type>().value(0), 12);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_connection_is_not_seen() {
    let bench = Bench::start().await;
    let (same, newest) = (bench.session.sql(COUNT).await.unwrap(), bench.session.sql(COUNT).await.unwrap());
    bench.cut();
    assert_eq!(number(&same.collect().await.unwrap()), 1000);
    load(&*bench.writer, "t", LoadMode::Append, ids(5)).await;
    assert_eq!(number(&newest.collect().await.unwrap()), 1005);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_columns_give_the_right_answer_or_are_named() {
    let bench = Bench::start().await;
    let session = &bench.session;
    let rows = session.sql("select count(*) from t").await.unwrap();
    let count = session.sql(COUNT).await.unwrap();
    let column = session.sql("select id from t").await.unwrap();
    bench.cut();
    bench.writer.drop_table(&name("t")).await.unwrap();
    load(&*bench.writer, "t", LoadMode::Create, texts("label")).await;
    assert_eq!(number(&rows.collect().await.unwrap()), 3);
    told(&count.collect().await.unwrap_err(), "there is no column id");
    told(&column.collect().await.unwrap_err(), "there is no column id");
    let column = session.sql("select label from t").await.unwrap();
    bench.cut();
    load(&*bench.writer, "t", LoadMode::Replace, numbers("label", 4)).await;
    told(&column.collect().await.unwrap_err(), "column \"label\" has type Int64");
    let column = session.sql("select label from t").await.unwrap();
    bench.cut();
    bench.writer.drop_table(&name("t")).await.unwrap();
    told(&column.collect().await.unwrap_err(), "there is no table t");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_are_inserted_once() {
    let bench = Bench::start().await;
    load(&*bench.writer, "sum", LoadMode::Create, ids(1)).await;
    let insert = bench.session.sql("insert into sum select id from t where id >= 0").await.unwrap();
    bench.cut();
    load(&*bench.writer, "t", LoadMode::Replace, ids(20)).await;
    insert.collect().await.unwrap();
    assert_eq!(bench.writer.table(&name("sum")).await.unwrap().rows, 21);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_kept_across_statements_reads_the_newest_version() {
    let bench = Bench::start().await;
    bench.run("create temporary view v as select id from t").await.unwrap();
    bench.run(&format!("prepare p as {COUNT}")).await.unwrap();
    let copy = bench.session.sql("create table copy as select id from t").await.unwrap();
    for rows in [1003, 1006] {
        load(&*bench.writer, "t", LoadMode::Append, ids(3)).await;
        assert_eq!(number(&bench.run("select count(id) from v").await.unwrap()), rows);
        assert_eq!(number(&bench.run("execute p").await.unwrap()), rows);
    }
    copy.collect().await.unwrap();
    // The table `copy` has the thousand rows that the table `t` had when the statement was planned.
    assert_eq!(number(&bench.run("select count(*) from copy").await.unwrap()), 1000);
    load(&*bench.writer, "t", LoadMode::Replace, texts("label")).await;
    for statement in ["select count(id) from v", "execute p"] {
        told(&bench.run(statement).await.unwrap_err(), "there is no column \"id\" any more");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_in_the_process_keeps_what_a_statement_reads() {
    let pool = EmbeddedPool::open(64 << 20).unwrap();
    load(&*pool, "t", LoadMode::Create, ids(1000)).await;
    let session = Session::new(SessionOptions::default());
    session.register_pool("farpool", pool.clone()).await.unwrap();
    let (replaced, dropped) = (session.sql(COUNT).await.unwrap(), session.sql(COUNT).await.unwrap());
    load(&*pool, "t", LoadMode::Replace, texts("label")).await;
    assert_eq!(number(&replaced.collect().await.unwrap()), 1000);
    pool.drop_table(&name("t")).await.unwrap();
    assert_eq!(number(&dropped.collect().await.unwrap()), 1000);
    told(&session.sql(COUNT).await.unwrap_err(), "there is no table t");
}

/// Regardless of another client's changes, a statement returns a result that was correct at some moment, or an error
/// that describes the change of the table.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_told_of_handles() {
    let bench = Bench::start().await;
    let writer = bench.writer.clone();
    let writing = tokio::spawn(async move {
        for round in 0..60 {
            match round % 3 {
                0 => load(&*writer, "t", LoadMode::Replace, texts("label")).await,
                1 => load(&*writer, "t", LoadMode::Replace, ids(1000)).await,
                _ => {
                    writer.drop_table(&name("t")).await.unwrap();
                    load(&*writer, "t", LoadMode::Create, ids(1000)).await;
                }
            }
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
    });
    let mut answers = 0;
    while !writing.is_finished() {
        let query = match bench.session.sql(COUNT).await {
            Ok(query) => query,
            Err(error) => {
                assert!(error.to_string().contains('t') && error.kind != ErrorKind::Stale, "{error}");
                continue;
            }
        };
        if answers % 2 == 0 {
            bench.cut();
        }
        match query.execute().await.unwrap().try_collect::<Vec<_>>().await {
            Ok(batches) => {
                assert_eq!(number(&batches), 1000);
                answers += 1;
            }
            Err(error) => assert_ne!(error.kind, ErrorKind::Stale, "{error}"),
        }
    }
    writing.await.unwrap();
    assert_eq!(number(&bench.run(COUNT).await.unwrap()), 1000);
}
