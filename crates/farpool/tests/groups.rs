//! Tests of DISTINCT, GROUP BY and COUNT DISTINCT in SQL, in-process and over TCP, with memory for all groups, for some
//! and for hardly any: the results are those without push-down.

use crate::support::answers::{Answer, difference};
use crate::support::pools::{Pools, Way, load, session_over};
use arrow::array::{ArrayRef, Decimal128Array, Float64Array, Int64Array, RecordBatch, StringViewArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use farpool::model::{Answer as NodeAnswer, Receipt};
use farpool::node::{Node, NodeConfig};
use farpool::{EmbeddedPool, Pool, Session, SessionOptions, TenantName};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const POOL_BYTES: usize = 1 << 30;

const ROWS: i64 = 150_000;

/// The greatest value. Its sum with its negative does not overflow.
const LARGEST: i64 = i64::MAX;

fn schema() -> SchemaRef {
    let field = |name: &str, data_type| Field::new(name, data_type, true);
    Arc::new(Schema::new(vec![
        field("one", DataType::Int64),
        field("few", DataType::Int64),
        field("many", DataType::Int64),
        field("spread", DataType::Int64),
        field("sorted", DataType::Int64),
        field("skewed", DataType::Int64),
        field("text", DataType::Utf8View),
        field("float", DataType::Float64),
        field("price", DataType::Decimal128(15, 2)),
        field("extreme", DataType::Int64),
    ]))
}

fn batch(from: i64, rows: i64) -> RecordBatch {
    let mixed = |r: i64| (r.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64.cast_signed()) as u64 >> 20) as i64;
    let ints = |value: &dyn Fn(i64) -> Option<i64>| -> ArrayRef {
        Arc::new((from..from + rows).map(value).collect::<Int64Array>())
    };
    let skewed = |r: i64| 1_i64 << (mixed(r) % 17) | (mixed(r) % 3);
    let text = |r: i64| {
        let number = mixed(r) % 20_000;
        (number % 97 != 0)
            .then(|| format!("{} number {number}", "a long text ".repeat((number % 4) as usize * 8)))
    };
    let float = |r: i64| match mixed(r) % 1000 {
        0 => Some(f64::NAN),
        1 => Some(-0.0),
        2 => Some(0.0),
        3 => None,
        number => Some(number as f64 / 4.0),
    };
    let extreme = |r: i64| match r % 4 {
        0 => Some(LARGEST),
        1 => Some(-LARGEST),
        2 => Some(mixed(r) % 1000),
        _ => None,
    };
    let price = Decimal128Array::from_iter(
        (from..from + rows).map(|r| (r % 7 != 0).then_some(i128::from(mixed(r) % 10_000_000))),
    );
    let columns: Vec<ArrayRef> = vec![
        ints(&|_| Some(1)),
        ints(&|r| (r % 50 != 0).then_some(r % 16)),
        ints(&|r| Some(mixed(r) % 100_000)),
        ints(&|r| Some(mixed(mixed(r) % 100_000).wrapping_mul(1 << 18))),
        ints(&|r| Some(r / 3 * 1_000_003)),
        ints(&|r| Some(skewed(r))),
        Arc::new((from..from + rows).map(text).collect::<StringViewArray>()),
        Arc::new((from..from + rows).map(float).collect::<Float64Array>()),
        Arc::new(price.with_precision_and_scale(15, 2).expect("fits")),
        ints(&extreme),
    ];
    RecordBatch::try_new(schema(), columns).expect("a batch")
}

const QUERIES: [&str; 28] = [
    "select distinct one from t",
    "select one, sum(many), count(*) from t group by one",
    "select few, count(*), sum(many), avg(many), min(text), max(price) from t group by few",
    "select distinct many from t",
    "select many, sum(few), count(few) from t group by many",
    "select many, avg(price), sum(price), avg(few) from t where sorted > 50000000 group by many",
    "select distinct spread from t",
    "select spread, sum(cast(extreme as decimal(25, 0))), avg(many), count(extreme) from t group by spread having count(*) > 5",
    "select sorted, count(*), max(price) from t group by sorted",
    "select skewed, count(*), min(extreme), max(extreme), sum(price) from t group by skewed",
    "select text, count(*), min(many) from t group by text",
    "select few, bit_and(many), bit_or(skewed), bit_xor(extreme), bool_and(many > 5), any_value(few) from t group by few",
    "select many, bit_xor(skewed), bit_and(extreme), bool_or(price > 5000), any_value(many) from t group by many",
    "select text, bit_or(extreme) filter (where few > 3), bit_xor(few), any_value(text) from t group by text",
    "select bit_and(skewed), bit_or(extreme), bit_xor(many), bool_and(few > 0), bool_or(price is null), any_value(one) from t",
    "select distinct text, few from t",
    "select float, count(*), sum(one) from t group by float",
    "select many, few, count(*) filter (where price > 50000) from t group by many, few",
    "select text, few, avg(price) from t group by text, few",
    "select count(distinct many) from t",
    "select count(distinct text) from t",
    "select count(distinct float) from t",
    "select few, count(distinct spread) from t group by few",
    "select few, count(distinct text), count(distinct text) filter (where one = 1) from t group by few",
    "select count(*), count(price), sum(extreme), min(extreme), max(text), avg(price) from t",
    "select count(*), avg(many), min(price) from t where few = 3 and many < 50000",
    "select count(*) from (select spread from t group by spread limit 1000)",
    "select a.many, b.n from (select many, count(*) n from t group by many) b join (select distinct many from t where few = 1) a on a.many = b.many",
];

async fn run(session: &Session, sql: &str) -> (Answer, Receipt) {
    let query = session.sql(sql).await.unwrap_or_else(|e| panic!("{sql}: {e}"));
    let batches = query.collect().await.unwrap_or_else(|e| panic!("{sql}: {e}"));
    let columns = query.schema().fields().iter().map(|f| f.name().clone()).collect();
    let answer = Answer::from_batches(columns, &batches).unwrap_or_else(|e| panic!("{sql}: {e}"));
    (answer, query.receipt())
}

async fn loaded(group_bytes: usize) -> Pools {
    let pools = Pools::start_within(POOL_BYTES, group_bytes).await;
    fill(&pools).await;
    pools
}

async fn fill(pools: &Pools) {
    let batches = (0..10).map(|part| batch(part * ROWS / 10, ROWS / 10)).collect();
    load(&*pools.embedded, "t", schema(), batches).await;
}

fn in_parts(receipt: &Receipt) -> bool {
    receipt.operators.iter().any(|o| o.answer == NodeAnswer::Superset)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_do_not_depend_on_the_memory_for_groups() {
    let plain = Pools::start(POOL_BYTES).await;
    fill(&plain).await;
    let session = plain.session(Way::Embedded, false).await;
    let mut expected = Vec::new();
    for sql in QUERIES {
        expected.push(run(&session, sql).await.0);
    }
    for (group_bytes, ways) in [
        (4 << 30, &[Way::Embedded][..]),
        (1 << 20, &[Way::Embedded, Way::Remote]),
        (1 << 10, &[Way::Embedded, Way::Remote]),
    ] {
        let pools = loaded(group_bytes).await;
        let (mut parted, mut bypassed) = (0, 0);
        for way in ways {
            let session = pools.session(*way, true).await;
            for (sql, expected) in QUERIES.iter().zip(&expected) {
                let (actual, receipt) = run(&session, sql).await;
                if let Some(difference) = difference(expected, &actual) {
                    panic!("{group_bytes} bytes for groups, {way:?}: {sql}\n{difference}");
                }
                parted += usize::from(in_parts(&receipt));
                bypassed += receipt.rows_bypassed;
            }
        }
        let all = QUERIES.len() * ways.len();
        match group_bytes {
            1024 => assert!(parted * 2 > all && bypassed > 300_000, "{parted} of {all}, {bypassed} rows"),
            1_048_576 => assert!(parted > 8, "{parted} of {all}"),
            _ => assert_eq!((parted, bypassed), (0, 0)),
        }
    }
}

/// The results of pools with different memory are compared with one another, because DataFusion's own result for NaN
/// depends on the order of rows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn extremes_of_floats_do_not_depend_on_the_memory_for_groups() {
    let (ample, tight) = (loaded(4 << 30).await, loaded(0).await);
    let sql = "select few, spread % 10 as k, min(float), max(float) from t group by few, k";
    let (expected, _) = run(&ample.session(Way::Embedded, true).await, sql).await;
    let (actual, receipt) = run(&tight.session(Way::Remote, true).await, sql).await;
    assert_eq!(difference(&expected, &actual), None);
    assert!(in_parts(&receipt), "{receipt:?}");
}

/// A node in the engine's process has no worker threads; its memory for groups is taken from the same limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_of_ones_own_takes_its_memory_for_groups_too() {
    let config = NodeConfig { memory_bytes: POOL_BYTES, ..NodeConfig::default() };
    let node = Node::start_within(config, 0).expect("a node");
    let pool = EmbeddedPool::over(node, TenantName::default());
    load(&*pool, "t", schema(), vec![batch(0, 100_000)]).await;
    let session = Session::new(SessionOptions::default());
    session.register_pool("farpool", pool.clone() as Arc<dyn Pool>).await.expect("registers");
    let (answer, receipt) = run(&session, "select count(distinct sorted), sum(1) from t").await;
    assert!(in_parts(&receipt) || !receipt.operators.is_empty(), "{answer:?}");
    let (_, receipt) = run(&session, "select many, sum(few) from t group by many limit 10").await;
    assert!(in_parts(&receipt) && receipt.rows_bypassed > 10, "{receipt:?}");
}

/// Relays connections to `node`, and replaces the function name `bit_or` in requests by an unknown one.
async fn renaming(node: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let node = TcpStream::connect(&node).await.expect("the node listens");
            tokio::spawn(relay(client, node));
        }
    });
    format!("farpool://{address}")
}

async fn relay(client: TcpStream, node: TcpStream) {
    let ((mut from_client, mut to_client), (mut from_node, mut to_node)) =
        (client.into_split(), node.into_split());
    let answers = tokio::spawn(async move { tokio::io::copy(&mut from_node, &mut to_client).await });
    let mut bytes = vec![0; 64 << 10];
    while let Ok(read @ 1..) = from_client.read(&mut bytes).await {
        let (known, unknown) = (b"bit_or", b"bit_zz");
        while let Some(at) = bytes[..read].windows(known.len()).position(|bytes| bytes == known) {
            bytes[at..at + known.len()].copy_from_slice(unknown);
        }
        if to_node.write_all(&bytes[..read]).await.is_err() {
            break;
        }
    }
    answers.abort();
}

/// Tests a newer client that is connected to an older node, which does not know a function.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_that_the_node_does_not_know_is_refused_by_its_name_and_left_to_the_engine() {
    let pools = loaded(4 << 30).await;
    let older =
        farpool::connect(&renaming(pools.address.clone()).await, None).await.expect("the node answers");
    let session = session_over(older, true).await;
    let plain = pools.session(Way::Embedded, false).await;
    for sql in [
        "select few, bit_or(skewed), count(*), max(price) from t where many < 70000 group by few",
        "select bit_or(skewed) from t",
    ] {
        let (expected, _) = run(&plain, sql).await;
        let (actual, receipt) = run(&session, sql).await;
        assert_eq!(difference(&expected, &actual), None, "{sql}");
        let refused = receipt.operators.iter().filter(|o| o.answer == NodeAnswer::Refused);
        let reasons: Vec<String> = refused.map(|o| o.reason.clone().unwrap_or_default()).collect();
        assert!(reasons.iter().any(|reason| reason.contains("bit_zz")), "{sql}: {:?}", receipt.operators);
    }
}
