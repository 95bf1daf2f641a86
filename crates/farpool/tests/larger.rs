//! Tests of tables that are larger than the memory of a pool: every result equals that of a pool with enough memory,
//! also while other clients do not read their results, and after the process was killed.

use crate::cli_support::{GUARD, Server, farpool as program, text, trips_parquet, until};
use crate::support::pools::{self, Pools, Way, session_over};
use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringViewArray};
use farpool::Pool;
use futures::StreamExt;
use std::sync::Arc;

/// Number of rows of the tables: about twenty row groups, more than fit into the pool.
const ROWS: i64 = 1_500_000;

/// Memory of the pools in bytes: less than the tables take.
const POOL_BYTES: usize = 32 << 20;

/// Number of clients that begin to read a result and then stop reading.
const STALLED: usize = 64;

fn rows() -> RecordBatch {
    let ids = || 0..ROWS;
    let scattered = |id: i64| id.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64);
    let texts = ids().map(|id| format!("a text that is long enough, {:016x}", scattered(id)));
    let columns: [(&str, ArrayRef); 4] = [
        ("id", Arc::new(Int64Array::from_iter_values(ids()))),
        ("key", Arc::new(Int64Array::from_iter_values(ids().map(|id| scattered(id) >> 40)))),
        ("value", Arc::new(Int64Array::from_iter_values(ids().map(scattered)))),
        ("text", Arc::new(StringViewArray::from_iter_values(texts))),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

const QUERIES: [&str; 8] = [
    "select count(*), min(id), max(id) from t",
    "select sum(value % 1000), count(distinct key) from t",
    "select key % 10 as k, count(*), max(text) from t group by k order by k",
    "select id, text from t where text like '%ffff%' order by id",
    "select * from t order by value desc limit 20",
    "select count(*) from t a join t b on a.id = b.key where b.value > 0",
    "select sum(id) from t where value * 1.0 > 9.2e18",
    "select id from t where id between 400000 and 400020 and key is not null order by id",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_are_those_of_a_pool_with_enough_memory() {
    let folder = tempfile::tempdir().unwrap();
    let roomy = Pools::start(1 << 30).await;
    let tight = Pools::start_durable(POOL_BYTES, folder.path()).await;
    let mut encoded = 0;
    for pools in [&roomy, &tight] {
        let rows = rows();
        encoded = pools::load(&*pools.embedded, "t", rows.schema(), vec![rows]).await.bytes_encoded;
    }
    assert!(encoded > POOL_BYTES as u64, "{encoded}");
    let (mut from_disk, mut from_cache, changes) =
        (0, 0, ["delete from t where id % 7 = 3", "update t set value = id where id < 90000"]);
    for change in [None, Some(changes[0]), Some(changes[1])] {
        let expected = roomy.session(Way::Embedded, true).await;
        if let Some(change) = change {
            for pools in [&roomy, &tight] {
                let session = pools.session(Way::Remote, true).await;
                session.sql(change).await.unwrap().collect().await.unwrap();
            }
        }
        for way in [Way::Embedded, Way::Remote] {
            for pushdown in [true, false] {
                let session = tight.session(way, pushdown).await;
                for sql in QUERIES {
                    let query = session.sql(sql).await.unwrap();
                    let found = query.collect().await.unwrap_or_else(|error| panic!("{sql}: {error}"));
                    let receipt = query.receipt();
                    from_disk += receipt.bytes_from_disk;
                    from_cache += receipt.bytes_from_cache;
                    let expected = expected.sql(sql).await.unwrap().collect().await.unwrap();
                    assert_eq!(pretty(&found), pretty(&expected), "{sql} {way:?} {pushdown} {change:?}");
                }
            }
        }
    }
    assert!(from_disk > 3 * encoded, "{from_disk} bytes were read again");
    assert!(from_cache > 0);
    for (pools, is_whole) in [(&roomy, true), (&tight, false)] {
        for pool in [pools.embedded.clone() as Arc<dyn Pool>, pools.remote.clone()] {
            let tables = pool.tables().await.unwrap();
            let (resident, encoded) = (tables[0].bytes_resident.unwrap(), tables[0].bytes_encoded);
            assert!(resident > 0 && (resident == encoded) == is_whole, "{resident} of {encoded}");
        }
    }
}

fn pretty(batches: &[RecordBatch]) -> String {
    arrow::util::pretty::pretty_format_batches(batches).unwrap().to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_do_not_read_hold_nobody_back() {
    let folder = tempfile::tempdir().unwrap();
    let pools = Pools::start_durable(POOL_BYTES, folder.path()).await;
    let rows = rows();
    pools::load(&*pools.embedded, "t", rows.schema(), vec![rows]).await;
    let mut stalled = Vec::new();
    for _ in 0..STALLED {
        let pool = farpool::connect(&format!("farpool://{}", pools.address), None).await.unwrap();
        let session = session_over(pool, true).await;
        let query = session.sql("select text, value, id from t where value <> 7").await.unwrap();
        let mut stream = query.execute().await.unwrap();
        assert!(stream.next().await.unwrap().unwrap().num_rows() > 0);
        stalled.push(stream);
    }
    for way in [Way::Remote, Way::Embedded] {
        let session = pools.session(way, true).await;
        let sum = session.sql("select sum(id), max(text) from t").await.unwrap().collect().await.unwrap();
        assert!(pretty(&sum).contains(&(ROWS * (ROWS - 1) / 2).to_string()), "{}", pretty(&sum));
    }
    // A stalled client that reads again gets the rest of its result.
    let mut last = stalled.pop().unwrap();
    let mut rest = 0;
    while let Some(batch) = last.next().await {
        rest += batch.unwrap().num_rows();
    }
    assert!(rest > 0);
}

/// Returns queries over rows that exist from the beginning, so that rows appended later change no result. Some queries
/// share a filter.
fn lasting_queries() -> Vec<String> {
    let queries = [
        "select count(*), sum(value % 1000) from t where id < ROWS and key % 5 = 2",
        "select max(text) from t where id < ROWS and key % 5 = 2",
        "select key % 10 as k, count(*) from t where id < ROWS and key % 5 = 2 group by k order by k",
        "select key % 10 as k, count(*), max(text) from t where id < ROWS group by k order by k",
        "select id, text from t where id < ROWS and text like '%ffff%' order by id",
        "select id, value from t where id < ROWS order by value desc limit 20",
        "select count(*) from t a join t b on a.id = b.key where b.value > 0 and a.id < ROWS and b.id < ROWS",
    ];
    queries.iter().map(|sql| sql.replace("ROWS", &ROWS.to_string())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_scan_together_come_and_go_as_they_like() {
    const CLIENTS: usize = 8;
    const TURNS: usize = 6;
    let folder = tempfile::tempdir().unwrap();
    let pools = Pools::start_durable(POOL_BYTES, folder.path()).await;
    let roomy = Pools::start(1 << 30).await;
    let rows = rows();
    pools::load(&*pools.embedded, "t", rows.schema(), vec![rows.clone()]).await;
    pools::load(&*roomy.embedded, "t", rows.schema(), vec![rows.clone()]).await;
    let session = roomy.session(Way::Embedded, false).await;
    let mut expected = Vec::new();
    for sql in lasting_queries() {
        expected
            .push((sql.clone(), pretty(&session.sql(sql.as_str()).await.unwrap().collect().await.unwrap())));
    }
    let url = format!("farpool://{}", pools.address);
    let client = |number: usize| {
        let (url, expected) = (url.clone(), expected.clone());
        tokio::spawn(async move {
            let mut whole = farpool::Receipt::default();
            for turn in 0..TURNS {
                // Each query has a connection of its own; some of the connections break.
                let session = session_over(farpool::connect(&url, None).await.unwrap(), true).await;
                let (sql, answer) = &expected[(number * 5 + turn * 3) % expected.len()];
                match (number + turn) % 4 {
                    0 => {
                        let query =
                            session.sql("select text, value, id from t where value <> 7").await.unwrap();
                        let mut stream = query.execute().await.unwrap();
                        assert!(stream.next().await.unwrap().unwrap().num_rows() > 0);
                        // One query of the client stalls while its other queries proceed, and ends with its connection.
                        let found = session.sql(sql.as_str()).await.unwrap().collect().await.unwrap();
                        assert_eq!(&pretty(&found), answer, "{sql}");
                    }
                    1 => {
                        let query = session.sql(sql.as_str()).await.unwrap();
                        let mut stream = query.execute().await.unwrap();
                        let begun = tokio::time::timeout(std::time::Duration::from_millis(20), stream.next());
                        drop(begun.await);
                    }
                    _ => {
                        let query = session.sql(sql.as_str()).await.unwrap();
                        let found = query.collect().await.unwrap_or_else(|error| panic!("{sql}: {error}"));
                        assert_eq!(&pretty(&found), answer, "{sql}");
                        whole.merge(&query.receipt());
                    }
                }
            }
            whole
        })
    };
    let clients: Vec<_> = (0..CLIENTS).map(client).collect();
    // Meanwhile this task loads, changes and drops tables.
    let session = pools.session(Way::Remote, true).await;
    let run = async |sql: String| drop(session.sql(sql.as_str()).await.unwrap().collect().await.unwrap());
    let mut turn = 0;
    while !clients.iter().all(|client| client.is_finished()) {
        let id = ROWS + turn;
        run(format!("insert into t values ({id}, 2, {id}, 'ffff')")).await;
        run(format!("create table u as select id, key from t where key % 50 = {}", turn % 50)).await;
        run(format!("update t set value = 1 where id = {id}")).await;
        run("drop table u".to_string()).await;
        turn += 1;
    }
    assert!(turn > 0);
    let mut whole = farpool::Receipt::default();
    for client in clients {
        whole.merge(&client.await.unwrap());
    }
    assert!(whole.bytes_shared > 0 && whole.rows_known > 0, "{whole:?}");
    // The programs of queries whose clients have gone must end.
    let ended = async {
        while pools.embedded.status().await.unwrap().programs_running > 0 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(GUARD, ended).await.expect("programs of clients that are gone run on");
}

#[test]
fn a_node_with_little_memory_is_killed_and_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("d");
    let file = trips_parquet(folder.path(), "t.parquet", 1_500_000);
    let serve = || Server::start(&["--data-dir", text(&data), "--memory", "8MiB"]);
    let sql = |name: &str| {
        format!("select city, count(*), sum(id), round(avg(fare), 3) from {name} group by city order by city")
    };
    let expected = program(&["sql", "--format", "csv", "-c", &sql(&format!("'{}'", text(&file)))]).ok();
    let server = serve();
    server.load("trips", &file);
    assert_eq!(server.csv(&sql("trips")), expected);
    server.stop("KILL");
    let server = serve();
    until("the table", || server.csv("select count(*) from trips") == "count(*)\n1500000\n");
    assert_eq!(server.csv(&sql("trips")), expected);
    server.stop("TERM");
    assert!(program(&["check", "--data-dir", text(&data)]).ok().contains("1 table"));
}

#[test]
fn what_stays_in_memory_is_said_and_told() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("d");
    let file = trips_parquet(folder.path(), "t.parquet", 600_000);
    let serve = || Server::start(&["--data-dir", text(&data), "--memory", "64MiB"]);
    let described = |server: &Server, name: &str| -> serde_json::Value {
        let tables = server.run(&["tables", "--format", "json"]).ok();
        let mut tables = tables.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        tables.find(|table| table["name"] == name).unwrap()
    };
    let resident = |server: &Server, name: &str| {
        let table = described(server, name);
        let [resident, encoded] =
            ["bytes_resident", "bytes_encoded"].map(|name| table[name].as_u64().unwrap());
        assert!(resident <= encoded && encoded > 1 << 20, "{table}");
        resident as f64 / encoded as f64
    };
    let server = serve();
    server.run(&["load", "--pin", "kept", text(&file)]).ok();
    server.run(&["load", "--no-cache", "passing", text(&file)]).ok();
    server
        .run(&["load", "--append", "--pin", "passing", text(&file)])
        .fails(1, &["is not pinned", "--replace"]);
    assert_eq!((described(&server, "kept")["pinned"].clone(), resident(&server, "kept")), (true.into(), 1.0));
    assert_eq!(described(&server, "passing")["pinned"], false);
    // The table leaves memory some time after the load, because its profile is computed first.
    until("a table that leaves memory", || resident(&server, "passing") < 0.1);
    assert!(server.run(&["tables"]).ok().contains("100%, pinned"));
    server.stop("TERM");
    let server = serve();
    assert_eq!(described(&server, "kept")["pinned"], true);
    until("a pinned table in memory", || resident(&server, "kept") == 1.0);
    drop(server);
    Server::start(&[]).run(&["load", "--pin", "kept", text(&file)]).fails(1, &["no data directory"]);
}
