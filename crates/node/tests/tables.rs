//! Tests of requests about tables over a socket: load, query, append, replace and drop tables, read old versions, and
//! keep the tables of tenants apart.

use crate::common::*;
use arrow_array::cast::AsArray;
use farpool_model::{ErrorKind, Listing, LoadMode, Relation, ResultForm, TableName, View};
use farpool_transfer::{ClientOptions, Pool, RemotePool};
use futures::StreamExt;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_is_loaded_asked_extended_replaced_and_dropped() {
    let server = Server::start().await;
    let pool = server.connect().await;
    assert_eq!(pool.tables().await.unwrap(), vec![]);

    let info = load(&pool, "t", LoadMode::Create, 200_000).await.unwrap();
    assert_eq!((info.name.as_str(), info.rows, info.schema.fields().len()), ("t", 200_000, 4));
    for _ in ["as it comes", "as it is known"] {
        assert_eq!(pool.table(&name("t")).await.unwrap(), info);
    }
    let mut listed = info.clone();
    listed.columns.iter_mut().for_each(|column| column.spread = None);
    listed.bytes_resident = Some(info.bytes_encoded);
    let said = "a list leaves out how values are spread, and tells how much is in memory";
    assert_eq!(pool.tables().await.unwrap(), vec![listed], "{said}");
    assert_eq!(counted(&pool, "t", 1000).await.unwrap(), (1000, Some(499_500)));
    assert_eq!(counted(&pool, "t", 0).await.unwrap(), (0, None));

    let error = load(&pool, "t", LoadMode::Create, 10).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Exists);
    let longer = load(&pool, "t", LoadMode::Append, 1000).await.unwrap();
    assert_eq!(longer.rows, 201_000);
    assert!(longer.version > info.version);
    assert_eq!(pool.table(&name("t")).await.unwrap(), longer);
    assert_eq!(server.connect().await.table(&name("t")).await.unwrap(), longer);
    assert_eq!(counted(&pool, "t", 1000).await.unwrap(), (2000, Some(999_000)));

    load(&pool, "t", LoadMode::Replace, 10).await.unwrap();
    assert_eq!(counted(&pool, "t", 1000).await.unwrap(), (10, Some(45)));

    pool.drop_table(&name("t")).await.unwrap();
    assert_eq!(pool.drop_table(&name("t")).await.unwrap_err().kind, ErrorKind::NotFound);
    assert_eq!(pool.table(&name("t")).await.unwrap_err().kind, ErrorKind::NotFound);
    assert_eq!(run(&pool, &scan("t")).await.unwrap_err().kind, ErrorKind::NotFound);
    eventually("the pages come back", || server.memory_used() == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_view_is_made_seen_by_others_replaced_and_dropped() {
    let server = Server::start().await;
    let (pool, other) = (server.connect().await, server.connect().await);
    let view = |text: &str| View::new(name("v"), text).unwrap();
    load(&pool, "t", LoadMode::Create, 10).await.unwrap();
    pool.create_view(&view("select 1"), false).await.unwrap();
    assert_eq!(other.relation(&name("v")).await, Ok(Relation::View(view("select 1"))));
    assert_eq!(other.list(None).await.map(|list| list.views), Ok(vec![name("v")]));
    assert_eq!(other.create_view(&view("select 2"), false).await.unwrap_err().kind, ErrorKind::Exists);
    other.create_view(&view("select 2"), true).await.unwrap();
    assert_eq!(pool.relation(&name("v")).await, Ok(Relation::View(view("select 2"))));
    let table = pool.table(&name("t")).await.unwrap();
    for _ in ["as it comes", "as it is known"] {
        assert_eq!(pool.relation(&name("t")).await, Ok(Relation::Table(table.clone())));
    }

    // A table cannot be created under the name of a view.
    let exists = load(&pool, "v", LoadMode::Create, 10).await.unwrap_err();
    assert!(exists.kind == ErrorKind::Exists && exists.message.contains("view"), "{exists}");
    let exists = load(&pool, "v", LoadMode::Replace, 10).await.unwrap_err();
    assert!(exists.kind == ErrorKind::Exists && exists.message.contains("view"), "{exists}");
    for outcome in [
        load(&pool, "v", LoadMode::Append, 10).await.map(drop),
        pool.table(&name("v")).await.map(drop),
        pool.drop_table(&name("v")).await,
        run(&pool, &scan("t")).await.and(pool.statistics(&name("v"), None).await).map(drop),
    ] {
        let error = outcome.unwrap_err();
        assert!(error.kind == ErrorKind::NotFound && error.message.contains("is a view"), "{error}");
    }
    assert!(pool.drop_view(&name("t"), None).await.unwrap_err().message.contains("is a table"));

    // A client knows a table that another client has since replaced by a view of the same name.
    other.drop_table(&name("t")).await.unwrap();
    other.create_view(&View::new(name("t"), "select 3").unwrap(), false).await.unwrap();
    assert!(matches!(pool.relation(&name("t")).await, Ok(Relation::View(_))));
    assert_eq!(run(&pool, &scan("t")).await.unwrap_err().kind, ErrorKind::NotFound);

    for name in ["t", "v"] {
        pool.drop_view(&TableName::new(name).unwrap(), None).await.unwrap();
    }
    assert_eq!(other.list(None).await, Ok(Listing::default()));
    assert_eq!(other.relation(&name("v")).await.unwrap_err().kind, ErrorKind::NotFound);
    assert_eq!(other.drop_view(&name("v"), None).await.unwrap_err().kind, ErrorKind::NotFound);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_row_comes_back_as_it_was() {
    let server = Server::start().await;
    let pool = server.connect().await;
    load(&pool, "t", LoadMode::Create, 150_000).await.unwrap();
    let found = run(&pool, &scan("t")).await.unwrap();
    let rows: usize = found.iter().map(|b| b.num_rows()).sum();
    assert_eq!(rows, 150_000);
    for part in &found {
        let ids = part.column(0).as_primitive::<arrow_array::types::Int64Type>();
        let expected = batch(ids.value(0), ids.value(0) + 1);
        assert_eq!(part.column(3).slice(0, 1).as_ref(), expected.column(3).as_ref());
        for (id, word) in ids.values().iter().zip(part.column(2).as_string_view().iter()) {
            assert_eq!(word, Some(format!("word number {}", id % 100).as_str()));
        }
    }
    assert_eq!(integers(&found, 0), (0..150_000).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_without_rows_is_a_table() {
    let server = Server::start().await;
    let pool = server.connect().await;
    load(&pool, "t", LoadMode::Create, 0).await.unwrap();
    assert_eq!(run(&pool, &scan("t")).await.unwrap().iter().map(|b| b.num_rows()).sum::<usize>(), 0);
    assert_eq!(counted(&pool, "t", 5).await.unwrap(), (0, None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_query_keeps_its_version() {
    let server = Server::start().await;
    let pool = server.connect().await;
    load(&pool, "t", LoadMode::Create, 2_000_000).await.unwrap();
    let mut execution = pool.execute(&scan("t"), 1).await.unwrap();
    let first = execution.streams[0].next().await.unwrap().unwrap();
    assert_eq!(server.programs_running(), 1, "the result is larger than what may be under way");

    load(&pool, "t", LoadMode::Replace, 10).await.unwrap();
    let both = server.memory_used();
    let mut found = collect(execution).await.unwrap();
    found.push(first);
    assert_eq!(integers(&found, 0), (0..2_000_000).collect::<Vec<_>>());
    drop(found);
    eventually("the old version goes", || server.memory_used() < both).await;
    assert_eq!(counted(&pool, "t", 1000).await.unwrap(), (10, Some(45)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_keeps_its_version_while_others_append_change_and_drop() {
    let server = Server::start().await;
    let pool = server.connect().await;
    load(&pool, "t", LoadMode::Create, 2_000_000).await.unwrap();
    let mut execution = pool.execute(&scan("t"), 1).await.unwrap();
    let mut found = vec![execution.streams[0].next().await.unwrap().unwrap()];
    assert_eq!(server.programs_running(), 1, "the result is larger than what may be under way");
    let other = server.connect().await;
    for _ in 0..20 {
        load(&other, "t", LoadMode::Append, 10).await.unwrap();
    }
    found.push(execution.streams[0].next().await.unwrap().unwrap());
    let newest = other.table(&name("t")).await.unwrap();
    assert_eq!(newest.rows, 2_000_200);
    load(&other, "t", LoadMode::ReplaceVersion(newest.version), 30).await.unwrap();
    found.push(execution.streams[0].next().await.unwrap().unwrap());
    other.drop_table(&name("t")).await.unwrap();
    load(&other, "t", LoadMode::Create, 5).await.unwrap();
    assert_eq!(server.programs_running(), 1, "it still reads");
    found.extend(collect(execution).await.unwrap());
    assert_eq!(integers(&found, 0), (0..2_000_000).collect::<Vec<_>>());
    drop(found);
    assert_eq!(counted(&pool, "t", 1000).await.unwrap(), (5, Some(10)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_and_receipt_come_with_the_result() {
    let server = Server::start().await;
    let pool = server.connect().await;
    let table = load(&pool, "t", LoadMode::Create, 300_000).await.unwrap();
    let program = count_and_sum("t", 1000);
    assert!(pool.prepare(&program, &table.schema).await.unwrap().is_exact());
    let execution = pool.execute(&program, 1).await.unwrap();
    assert!(execution.prepared.is_exact());
    let receipt = execution.receipt.clone();
    assert_eq!(receipt.get(), None);
    collect(execution).await.unwrap();
    let receipt = receipt.get().unwrap();
    assert_eq!(receipt.rows_returned, 1);
    assert_eq!(receipt.rows_scanned + receipt.rows_skipped, 300_000);
    assert!(receipt.rows_skipped >= 200_000, "zone maps rule out all but the first row group");
    assert_eq!(receipt.bytes_scanned + receipt.bytes_skipped, table.bytes_encoded);
    assert!(receipt.bytes_on_wire > 200 && receipt.bytes_on_wire < 20_000, "{}", receipt.bytes_on_wire);
    assert!(receipt.cpu_ns > 0 && receipt.elapsed_ns > 0);
    assert!(!receipt.operators.is_empty());

    let status = pool.status().await.unwrap();
    assert_eq!((status.tables, status.connections, status.workers), (1, 1, 2));
    let tenant = &status.tenants[0];
    assert_eq!((tenant.tenant.as_str(), tenant.programs, tenant.tables), ("default", 1, 1));
    assert_eq!(tenant.bytes_scanned, receipt.bytes_scanned);
    assert_eq!(tenant.memory_bytes_used, status.memory_bytes_used);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_results_count_their_bytes() {
    let server = Server::start().await;
    let pool = server.connect().await.with_results(ResultForm::Plain);
    load(&pool, "t", LoadMode::Create, 300_000).await.unwrap();
    let execution = pool.execute(&scan("t"), 1).await.unwrap();
    let receipt = execution.receipt.clone();
    collect(execution).await.unwrap();
    let bytes = receipt.get().unwrap().bytes_on_wire;
    // A row takes at least 24 bytes: three integers of 8 bytes; its string comes on top.
    assert!(bytes > 300_000 * 24 && bytes < 300_000 * 80, "{bytes}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statistics_come_of_the_columns_that_are_asked_for() {
    let server = Server::start().await;
    let pool = server.connect().await;
    load(&pool, "t", LoadMode::Create, 1000).await.unwrap();
    let all = pool.statistics(&name("t"), None).await.unwrap();
    assert!(all.moments.is_some() && all.columns.iter().all(|states| states.sketch.is_some()));
    let one = pool.statistics(&name("t"), Some(&[1])).await.unwrap();
    assert_eq!(one, all.clone().of(&[1]));
    assert!(one.columns[1] == all.columns[1] && one.columns[0].sketch.is_none());
    let beyond = pool.statistics(&name("t"), Some(&[0, 77])).await.unwrap_err();
    assert_eq!(beyond.kind, ErrorKind::Invalid, "{beyond}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tenants_see_their_own_tables_only() {
    let server = Server::with(256 << 20, tokens(&[("a-token", "alice"), ("b-token", "bob")])).await;
    let alice = server.connect_as("a-token").await.unwrap();
    let bob = server.connect_as("b-token").await.unwrap();
    load(&alice, "t", LoadMode::Create, 1000).await.unwrap();
    load(&alice, "hers", LoadMode::Create, 1000).await.unwrap();
    load(&bob, "t", LoadMode::Create, 10).await.unwrap();

    assert_eq!(alice.tables().await.unwrap().len(), 2);
    assert_eq!(bob.tables().await.unwrap().len(), 1);
    assert_eq!(counted(&alice, "t", 1 << 40).await.unwrap().0, 1000);
    assert_eq!(counted(&bob, "t", 1 << 40).await.unwrap().0, 10);
    for outcome in [
        bob.table(&name("hers")).await.map(drop),
        bob.drop_table(&name("hers")).await,
        run(&bob, &scan("hers")).await.map(drop),
        load(&bob, "hers", LoadMode::Append, 1).await.map(drop),
    ] {
        let error = outcome.unwrap_err();
        assert_eq!(error.kind, ErrorKind::NotFound, "{error}");
    }
    let status = bob.status().await.unwrap();
    assert_eq!(status.tenants.iter().map(|t| t.tenant.as_str()).collect::<Vec<_>>(), ["bob"]);
    assert_eq!(status.tables, 1);
    bob.drop_table(&name("t")).await.unwrap();
    assert_eq!(counted(&alice, "t", 1 << 40).await.unwrap().0, 1000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_is_asked_for_and_looked_at() {
    let server = Server::with(64 << 20, tokens(&[("a-token", "alice")])).await;
    for outcome in [
        RemotePool::connect(&server.url(), ClientOptions::default()).await,
        server.connect_as("a-toke").await,
    ] {
        let error = outcome.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Denied);
        assert!(error.message.contains("token") && error.advice.is_some(), "{error}");
        assert!(!error.to_string().contains("a-token"));
    }
    // A node that requires no token accepts a client that sends one.
    let open = Server::with(64 << 20, Access::of_everybody()).await;
    open.connect_as("whatever").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_queries_run_at_once() {
    let server = Server::start().await;
    let shared = std::sync::Arc::new(server.connect().await);
    load(&*shared, "t", LoadMode::Create, 250_000).await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    // Runs more queries than one connection may have streams, so that the shared client needs several connections.
    // Every tenth query has a client of its own.
    for index in 0..120 {
        let pool = match index % 10 {
            0 => std::sync::Arc::new(server.connect().await),
            _ => shared.clone(),
        };
        tasks.spawn(async move {
            match index % 3 {
                0 => {
                    let below = i64::from(index) * 1000;
                    assert_eq!(counted(&*pool, "t", below).await.unwrap().0, below);
                }
                1 => {
                    let found = run(&*pool, &count_by_tens("t")).await.unwrap();
                    assert_eq!(integers(&found, 0), (0..10).collect::<Vec<_>>());
                    assert_eq!(integers(&found, 1), vec![25_000; 10]);
                }
                _ => {
                    let found = run(&*pool, &scan("t")).await.unwrap();
                    assert_eq!(found.iter().map(|b| b.num_rows()).sum::<usize>(), 250_000);
                }
            }
        });
    }
    let all = async {
        while let Some(done) = tasks.join_next().await {
            done.unwrap()
        }
    };
    tokio::time::timeout(PATIENCE * 2, all).await.expect("hangs");
    assert_eq!(server.programs_running(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_streams_than_a_connection_has_may_be_open_and_unread() {
    let server = Server::start().await;
    let pool = server.connect().await;
    load(&pool, "t", LoadMode::Create, 100_000).await.unwrap();
    let mut open = Vec::new();
    for _ in 0..70 {
        open.push(pool.execute(&scan("t"), 1).await.unwrap());
    }
    // The results are read in the opposite order, which needs streams that do not wait for one another.
    while let Some(execution) = open.pop() {
        let rows: usize = collect(execution).await.unwrap().iter().map(|b| b.num_rows()).sum();
        assert_eq!(rows, 100_000);
    }
}
