//! Tests of the client-side cache of a node's columns: the bytes that are transferred, and changes, drops and
//! encryption of their tables.

use crate::support::pools::{self, Pools, Way, near};
use crate::versions::{Writer, load};
use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, StringViewArray};
use arrow::datatypes::Int64Type;
use farpool::model::limits;
use farpool::node::{Node, NodeConfig, PrivateKey, native};
use farpool::{
    ClientOptions, ErrorKind, LoadMode, LoadOptions, NearPool, Nearness, Pool, Proof, PublicKey, Receipt,
    RemotePool, Session, Statement, TableName, Tier, WorkMemory,
};
use futures::StreamExt;
use std::sync::Arc;

const ROWS: i64 = 300_000;

/// Returns rows that do not compress well, so that enough bytes are fetched to be measured.
fn rows(range: std::ops::Range<i64>) -> RecordBatch {
    let mixed = |id: i64, by: u64| ((id as u64).wrapping_mul(by) >> 20) as i64;
    let column =
        |by| Arc::new(Int64Array::from_iter_values(range.clone().map(|id| mixed(id, by)))) as ArrayRef;
    let id = Arc::new(Int64Array::from_iter_values(range.clone())) as ArrayRef;
    let text = StringViewArray::from_iter_values(
        range.clone().map(|id| format!("{:x}", mixed(id, 0x9E37_79B9_7F4A_7C15))),
    );
    RecordBatch::try_from_iter_with_nullable([
        ("id", id, true),
        ("a", column(0x9E37_79B9_7F4A_7C15), true),
        ("b", column(0xC2B2_AE3D_27D4_EB4F), true),
        ("s", Arc::new(text) as ArrayRef, true),
    ])
    .unwrap()
}

async fn started(nearness: Nearness) -> (Pools, Arc<NearPool>, Session) {
    let pools = Pools::start(512 << 20).await;
    let batch = rows(0..ROWS);
    pools::load(&*pools.remote, "t", batch.schema(), vec![batch]).await;
    let near = near(&format!("farpool://{}", pools.address), 64 << 20, nearness).await;
    let session = pools::session_over(near.clone(), true).await;
    (pools, near, session)
}

async fn cost(session: &Session, sql: &str) -> (i64, Receipt) {
    let query = session.sql(sql).await.unwrap_or_else(|error| panic!("{error}"));
    let batches = query.collect().await.unwrap_or_else(|error| panic!("{error}"));
    let number = batches.iter().find(|batch| batch.num_rows() > 0).map_or(0, |batch| {
        batch.column(0).as_primitive_opt::<Int64Type>().map_or(0, |numbers| numbers.value(0))
    });
    (number, query.receipt())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn columns_come_once_they_have_been_paid_for() {
    let (pools, near, session) = started(Nearness::Auto).await;
    // A program that returns little stays at the node, however often it runs.
    for _ in 0..50 {
        cost(&session, "select sum(a) from t where b > 0").await;
    }
    assert_eq!(near.bytes_fetched(), 0);
    // Reads most rows, and computes a number for each that only the engine can compute.
    let most =
        "select max(a + b + r) from (select a, b, row_number() over (order by a) as r from t where b > 1000)";
    let (first, cost_first) = cost(&session, most).await;
    assert!(near.bytes_fetched() == 0 && cost_first.bytes_on_wire > 1 << 20, "{cost_first:?}");
    let (second, cost_second) = cost(&session, most).await;
    let fetched = near.bytes_fetched();
    assert_eq!(fetched, column_bytes(&near, "a").await + column_bytes(&near, "b").await);
    assert_eq!(cost_second.bytes_on_wire, fetched, "{cost_second:?}");
    let (third, cost_third) = cost(&session, most).await;
    assert_eq!((cost_third.bytes_on_wire, cost_third.bytes_from_disk), (0, 0), "{cost_third:?}");
    assert!(cost_third.bytes_from_cache >= fetched);
    assert_eq!((first, second), (second, third));
    // Other programs use the cached columns as well, if they need no others.
    let (sum, cost_sum) = cost(&session, "select sum(a) from t where b > 1000").await;
    assert_eq!(cost_sum.bytes_on_wire, 0, "{cost_sum:?}");
    let at_node = pools.session(Way::Remote, true).await;
    assert_eq!(sum, cost(&at_node, "select sum(a) from t where b > 1000").await.0);
    assert_eq!(near.bytes_fetched(), fetched);
}

/// If a program returns whole columns, they are fetched as column chunks at once, which transfer no more bytes than its
/// result. With conditions of a join, a program may return fewer rows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whole_columns_come_at_once() {
    let (pools, near, _) = started(Nearness::Auto).await;
    let session = pools::session_over(near.clone(), false).await;
    let sql = "select count(*) from t where s > '8' and a > 1000";
    let (first, cost_first) = cost(&session, sql).await;
    let columns = column_bytes(&near, "a").await + column_bytes(&near, "s").await;
    assert_eq!((cost_first.bytes_on_wire, near.bytes_fetched()), (columns, columns));
    let explained = session.sql(sql).await.unwrap().explain();
    assert!(
        explained.contains("this process (columns of") && explained.contains(", 0 B of them"),
        "{explained}"
    );
    let (second, cost_second) = cost(&session, sql).await;
    assert_eq!((second, cost_second.bytes_on_wire), (first, 0));
    let few = rows(0..10);
    pools::load(&*pools.remote, "few", few.schema(), vec![few]).await;
    let session = pools::session_over(near.clone(), true).await;
    let (joined, cost_joined) = cost(&session, "select count(t.b) from t join few on t.id = few.id").await;
    assert!(joined == 10 && cost_joined.bytes_on_wire < 100_000, "{joined} rows, {cost_joined:?}");
    assert_eq!(near.bytes_fetched(), columns);
}

/// Columns that the joins of a batch would return several times are fetched once, starting with the first join.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_of_joins_fetches_what_they_would_return_several_times() {
    let (pools, near, _) = started(Nearness::Auto).await;
    let keys = rows(0..ROWS).project(&[0, 2]).unwrap();
    pools::load(&*pools.remote, "d", keys.schema(), vec![keys]).await;
    let session = pools::session_over(near.clone(), true).await;
    let columns = column_bytes(&near, "id").await + column_bytes(&near, "a").await;
    // One of a thousand rows is cheaper to transfer as results than as columns, for any number of joins.
    let few = batch_of_joins(&session, 1).await;
    assert!(near.bytes_fetched() == 0 && few < columns / 4, "{few} of {columns} bytes");
    // A sixth of the rows is more expensive than the columns if each of eight joins needs it. The rows of `d` are
    // returned for each join, and take more than that; if the columns were fetched only after as many bytes had been
    // returned, three times their size would be transferred.
    let more = batch_of_joins(&session, 167).await;
    assert!(near.bytes_fetched() >= columns && more < columns * 5 / 2, "{more} of {columns} bytes");
}

/// Runs a batch of eight joins with `of_thousand` of a thousand keys. Returns the bytes received from the node for
/// them.
async fn batch_of_joins(session: &Session, of_thousand: i64) -> u64 {
    let statement = |n| {
        format!(
            "select sum((t.a + d.b) % 10) from t join d on t.id = d.id where (d.b + {n}) % 1000 < {of_thousand}"
        )
    };
    let (table, mut bytes) = (rows(0..ROWS), 0);
    let column = |name| table.column_by_name(name).unwrap().as_primitive::<Int64Type>().values();
    let (a, b) = (column("a"), column("b"));
    let mut batch = session.batch((0..8).map(|n| Statement::from(statement(n).as_str())));
    for n in 0..8 {
        let query = batch.next().await.unwrap().unwrap();
        let answer = query.collect().await.unwrap()[0].column(0).as_primitive::<Int64Type>().value(0);
        let joined = a.iter().zip(b).filter(|(_, b)| (**b + n) % 1000 < of_thousand);
        assert_eq!(answer, joined.map(|(a, b)| (a + b) % 10).sum::<i64>(), "{}", statement(n));
        bytes += query.receipt().bytes_on_wire;
    }
    bytes
}

/// Concurrent programs that need the same chunks receive them once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_several_want_at_once_is_sent_once() {
    let (_pools, near, session) = started(Nearness::Always).await;
    let statements: Vec<String> =
        (0..8).map(|n| format!("select sum(a * 2 + {n}) + count(b) from t where s <> '{n}'")).collect();
    let session = Arc::new(session);
    let mut tasks = tokio::task::JoinSet::new();
    for sql in statements.clone() {
        let session = session.clone();
        tasks.spawn(async move { cost(&session, &sql).await.1.bytes_on_wire });
    }
    let told: u64 = tasks.join_all().await.into_iter().sum();
    let fetched = near.bytes_fetched();
    let mut alone = 0;
    for column in ["a", "b", "s"] {
        alone += column_bytes(&near, column).await;
    }
    assert_eq!(fetched, alone);
    // Two programs that begin to wait at the same moment may both count the received bytes in their execution
    // statistics.
    assert!(told >= alone && told < 2 * alone, "{told} bytes in receipts, {alone} of the columns");
    for sql in &statements {
        cost(&session, sql).await;
    }
    assert_eq!(near.bytes_fetched(), fetched);
}

async fn column_bytes(pool: &NearPool, column: &str) -> u64 {
    let table = pool.table(&TableName::new("t").unwrap()).await.unwrap();
    let place = table.schema.index_of(column).unwrap();
    table.columns[place].bytes_encoded
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_table_that_grew_only_new_chunks_are_fetched() {
    let (pools, near, session) = started(Nearness::Always).await;
    let count = "select count(a) + sum(b) * 0 from t";
    assert_eq!(cost(&session, count).await.0, ROWS);
    let before = near.bytes_fetched();
    let more = rows(ROWS..ROWS + 100_000);
    pools::load_with(&*pools.remote, "t", more.schema(), vec![more], LoadMode::Append.into()).await;
    assert_eq!(cost(&session, count).await.0, ROWS + 100_000);
    let added = near.bytes_fetched() - before;
    assert!(added > 0 && added < before / 2, "{added} of {before} bytes are new");
    // Another column is fetched without the columns that are cached already.
    let (_, with_s) = cost(&session, "select count(a) from t where s > '8'").await;
    assert_eq!(with_s.bytes_on_wire, near.bytes_fetched() - before - added);
    assert_eq!(with_s.bytes_on_wire, column_bytes(&near, "s").await);
    // The cache has nothing of a dropped table.
    pools.remote.drop_table(&TableName::new("t").unwrap()).await.unwrap();
    let gone = session.sql(count).await.map(drop).unwrap_err();
    assert_eq!(gone.kind, ErrorKind::NotFound, "{gone}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_reads_one_version_beside_a_writer() {
    let pools = Pools::start(256 << 20).await;
    let one = |range: std::ops::Range<i64>| rows(range);
    load(&*pools.remote, LoadMode::Replace, one(0..100_000)).await;
    let writer = Writer::start(pools.remote.clone(), 100_000, rows);
    let session = pools::session_over(pools.near.clone(), true).await;
    let mut last = 0;
    for _ in 0..30 {
        let sql = "select count(a.id) - count(*) + count(b.id) from t a full join t b on a.id = b.id";
        let (count, _) = cost(&session, sql).await;
        assert!(count >= last.max(100_000), "{count} after {last}");
        let (least, _) = cost(&session, "select max(id) + 1 - count(a) from t").await;
        assert_eq!(least, 0);
        last = count;
    }
    let written = writer.stop().await;
    assert!(last <= written, "{last} of {written}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_that_are_encrypted_in_memory_stay_at_the_node() {
    let pools = Pools::start(256 << 20).await;
    let batch = rows(0..100_000);
    let options = LoadOptions { encryption: Some(Tier::Standard), ..LoadMode::Replace.into() };
    pools::load_with(&*pools.remote, "t", batch.schema(), vec![batch], options).await;
    let session = pools::session_over(pools.near.clone(), true).await;
    assert_eq!(cost(&session, "select count(a) from t where b > -1").await.0, 100_000);
    assert_eq!(pools.near.bytes_fetched(), 0);
}

/// Depending on `number`, runs a join of a table with itself, or reads only the first rows of a query and drops it.
async fn join_or_look(session: Arc<Session>, number: usize) {
    if number % 3 == 2 {
        let query = session.sql("select a, b, s from t").await.unwrap();
        query.execute().await.unwrap().next().await.unwrap().unwrap();
        return;
    }
    let sql = "select count(*) from t x join t y on x.a = y.a where x.s = y.s and x.b = y.b";
    assert_eq!(cost(&session, sql).await.0, 8 * ROWS);
}

/// Queries over more columns than fit in the cache succeed, even if several run at a time and some are abandoned.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_than_fits_is_fetched_again() {
    let (pools, _, _) = started(Nearness::Auto).await;
    let more = rows(ROWS..8 * ROWS);
    pools::load_with(&*pools.remote, "t", more.schema(), vec![more], LoadMode::Append.into()).await;
    let small = near(&format!("farpool://{}", pools.address), limits::NEAR_BYTES_MIN, Nearness::Always).await;
    let session = Arc::new(pools::session_over(small.clone(), true).await);
    let whole = "select count(*) from t where s > '8' and a > 1000 and b > 1000";
    let mut columns = 0;
    for column in ["a", "b", "s"] {
        columns += column_bytes(&small, column).await;
    }
    assert!(columns > limits::NEAR_BYTES_MIN as u64, "{columns}");
    // Values that were evicted before they were used are fetched again; all others are fetched once.
    let (first, first_cost) = cost(&session, whole).await;
    assert_eq!(first_cost.bytes_on_wire - first_cost.bytes_again, columns, "{first_cost:?}");
    let (again, again_cost) = cost(&session, whole).await;
    assert_eq!(first, again);
    assert!(again_cost.bytes_again > 0, "{again_cost:?}");
    assert_eq!(again_cost.bytes_again, again_cost.bytes_on_wire, "{again_cost:?}");
    for number in 0..4 {
        join_or_look(session.clone(), number).await;
    }
    let mut tasks = tokio::task::JoinSet::new();
    (0..6).for_each(|number| drop(tasks.spawn(join_or_look(session.clone(), number))));
    tasks.join_all().await;
    assert!(small.bytes_fetched() > columns, "{} of {columns}", small.bytes_fetched());
}

/// Starts a node whose server can be stopped.
async fn stoppable() -> (String, PublicKey, tokio::task::JoinHandle<()>) {
    let config = NodeConfig { memory_bytes: 512 << 20, workers: 2, ..NodeConfig::default() };
    let node = Node::start(config).unwrap();
    let key = PrivateKey::random().unwrap();
    let public = key.public();
    node.set_node_key(key);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("farpool://{}", listener.local_addr().unwrap());
    let serving = tokio::spawn(async move {
        native::serve(node, listener, std::future::pending()).await.unwrap();
    });
    (url, public, serving)
}

async fn connected(url: &str, options: ClientOptions, bytes_max: usize) -> Arc<NearPool> {
    let remote = RemotePool::connect(&url.parse().unwrap(), options).await.unwrap();
    let work = WorkMemory::new(limits::WORK_BYTES_DEFAULT);
    NearPool::open(Arc::new(remote), bytes_max, work, Nearness::Always).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_goes_away_ends_queries_with_an_error() {
    let (url, _, serving) = stoppable().await;
    let pool = connected(&url, ClientOptions::default(), limits::NEAR_BYTES_MIN).await;
    let batch = rows(0..12 * ROWS);
    pools::load(&*pool, "t", batch.schema(), vec![batch]).await;
    let session = pools::session_over(pool.clone(), true).await;
    let query = session.sql("select a, b, s from t").await.unwrap();
    let mut rows = query.execute().await.unwrap();
    rows.next().await.unwrap().unwrap();
    serving.abort();
    let error = loop {
        match rows.next().await.expect("not all rows are here") {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind, ErrorKind::Unavailable, "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chunks_come_encrypted_where_answers_do() {
    let (url, key, _serving) = stoppable().await;
    let options = ClientOptions { sealed: Some(Proof::NodeKey(key)), ..ClientOptions::default() };
    let pool = connected(&url, options, 64 << 20).await;
    let batch = rows(0..ROWS);
    pools::load(&*pool, "t", batch.schema(), vec![batch]).await;
    let session = pools::session_over(pool.clone(), true).await;
    let (count, first) = cost(&session, "select count(*) from t where a > 1000 and s > '8'").await;
    assert!(count > 0 && first.encrypted && first.bytes_on_wire == pool.bytes_fetched(), "{first:?}");
    let (again, second) = cost(&session, "select count(*) from t where a > 1000 and s > '8'").await;
    assert_eq!((again, second.bytes_on_wire, second.encrypted), (count, 0, false));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_little_memory_for_columns_is_refused() {
    let pools = Pools::start(64 << 20).await;
    let url = format!("farpool://{}", pools.address).parse().unwrap();
    let remote = RemotePool::connect(&url, ClientOptions::default()).await.unwrap();
    let work = WorkMemory::new(limits::WORK_BYTES_DEFAULT);
    let refused = NearPool::open(Arc::new(remote), limits::NEAR_BYTES_MIN - 1, work, Nearness::Auto);
    assert_eq!(refused.unwrap_err().kind, ErrorKind::Invalid);
}

/// A small result of a program at the node is cached, and not requested again while its table version is current.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_results_are_kept_while_their_version_stands() {
    let (pools, _near, session) = started(Nearness::Auto).await;
    let sql = "select sum(n) from (select id % 100 as k, count(*) as n from t where b > 1000 group by k)";
    let (first, cost_first) = cost(&session, sql).await;
    assert!(cost_first.bytes_on_wire > 0 && cost_first.bytes_saved == 0, "{cost_first:?}");
    for _ in 0..3 {
        let (again, cost_again) = cost(&session, sql).await;
        assert_eq!(again, first);
        let expected = (0, 0, cost_first.bytes_on_wire, cost_first.rows_returned);
        let Receipt { bytes_on_wire, rows_scanned, bytes_saved, rows_returned, .. } = cost_again;
        assert_eq!((bytes_on_wire, rows_scanned, bytes_saved, rows_returned), expected);
    }
    let query = session.sql(sql).await.unwrap();
    query.collect().await.unwrap();
    assert!(query.outcome().contains(": the result was kept here, "), "{}", query.outcome());
    // The cached result is used neither for another program nor for another table version.
    let (other, cost_other) = cost(&session, &sql.replace("1000", "1001")).await;
    assert!(other <= first && cost_other.bytes_saved == 0, "{cost_other:?}");
    load(&*pools.remote, LoadMode::Append, rows(ROWS..ROWS + 1000)).await;
    let (grown, cost_grown) = cost(&session, sql).await;
    assert!(grown > first && cost_grown.bytes_saved == 0, "{grown} after {first}, {cost_grown:?}");
    load(&*pools.remote, LoadMode::Replace, rows(0..ROWS)).await;
    assert_eq!(cost(&session, sql).await.0, first);
    // A result that was not read to its end is not cached, and neither is a large one.
    let many = "select id, a from t where b > 1000";
    let query = session.sql(many).await.unwrap();
    let taken = query.execute().await.unwrap().next().await;
    assert!(taken.unwrap().unwrap().num_rows() > 0);
    assert_eq!(cost(&session, many).await.1.bytes_saved, 0);
    assert_eq!(cost(&session, many).await.1.bytes_saved, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn results_of_encrypted_tables_are_not_kept() {
    let (pools, _near, session) = started(Nearness::Auto).await;
    let sql = "select count(*) from t where b > 1000";
    let (first, _) = cost(&session, sql).await;
    assert!(cost(&session, sql).await.1.bytes_saved > 0);
    let batch = rows(0..ROWS);
    let options = LoadOptions { encryption: Some(Tier::Standard), ..LoadMode::Replace.into() };
    pools::load_with(&*pools.remote, "t", batch.schema(), vec![batch], options).await;
    for _ in 0..3 {
        let (again, cost) = cost(&session, sql).await;
        assert_eq!((again, cost.bytes_saved), (first, 0));
    }
}
