//! Tests of the limit on memory outside the pool that executing requests takes ("memory for work"): a request that
//! needs more than is free takes less, waits or is refused, and a request without progress is ended if others wait for
//! its memory.

use crate::common::*;
use arrow_schema::DataType;
use farpool_memory::{Account, Reservation};
use farpool_model::{
    Aggregate, AggregateFunction, ErrorKind, Expr, Literal, LoadMode, NamedExpr, Output, Program, ResultForm,
    TenantName, Value, limits,
};
use farpool_transfer::Pool;
use farpool_wire::{FrameHeader, FrameKind, Request, Response};
use std::time::Duration;
use tokio::time::{sleep, timeout};

const WORK: usize = limits::WORK_BYTES_MIN;
const ROWS: i64 = 200_000;

fn account(server: &Server) -> Account {
    server.node.work().account(&TenantName::default())
}

/// Waits until the node has released the memory of answered requests, and reserves all free memory but `bytes` bytes.
async fn leave(server: &Server, bytes: usize) -> Reservation {
    let account = account(server);
    let mut free = 0;
    while free != account.free() {
        free = account.free();
        sleep(Duration::from_millis(30)).await;
    }
    account.try_reserve(free - bytes).unwrap()
}

/// Returns the program `select id, count(*) group by id`, which has as many groups as rows and so needs much memory.
fn many_groups() -> Program {
    let schema = batch(0, 0).schema();
    let count = Aggregate {
        name: "n".to_string(),
        function: AggregateFunction::Count,
        arguments: Vec::new(),
        filter: None,
        data_type: DataType::Int64,
    };
    let keys = vec![NamedExpr::column(&schema, 3)];
    Program {
        output: Output::Aggregate { keys, aggregates: vec![count] },
        ..Program::scan(name("t"), &schema, &[])
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_waits_for_memory_and_runs_when_there_is_some() {
    let server = Server::working_within(WORK).await;
    let pool = server.connect().await;
    load(&pool, "t", LoadMode::Create, ROWS).await.unwrap();
    let held = leave(&server, 1 << 20).await;
    let program = scan("t");
    let waiting = run(&pool, &program);
    tokio::pin!(waiting);
    assert!(timeout(Duration::from_millis(300), &mut waiting).await.is_err(), "there is no memory for it");
    assert!(account(&server).is_short());
    // A request that needs little memory does not wait behind the program.
    assert_eq!(server.connect().await.tables().await.unwrap().len(), 1);
    drop(held);
    let batches = timeout(PATIENCE, waiting).await.expect("it runs").unwrap();
    assert_eq!(batches.iter().map(arrow_array::RecordBatch::num_rows).sum::<usize>(), ROWS as usize);
    eventually("all is given back", || account(&server).free() > WORK - (1 << 20)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_no_longer_waits_is_out_of_the_way() {
    let server = Server::working_within(WORK).await;
    let pool = server.connect().await;
    load(&pool, "t", LoadMode::Create, ROWS).await.unwrap();
    let held = leave(&server, 1 << 20).await;
    for end in ["cancel", "hang up"] {
        let mut raw = Raw::connect(&server).await;
        raw.execute(1, "t").await;
        eventually("it waits", || account(&server).is_short()).await;
        if end == "cancel" {
            raw.send(1, &Request::Cancel).await;
            eventually("it does not wait any more", || !account(&server).is_short()).await;
        }
        drop(raw);
        eventually("nobody waits", || !account(&server).is_short()).await;
    }
    drop(held);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_that_may_leave_in_parts_do_with_less() {
    let server = Server::working_within(WORK).await;
    let pool = server.connect().await;
    load(&pool, "t", LoadMode::Create, 2 * ROWS).await.unwrap();
    let schema = farpool_model::schema::canonical_schema(&batch(0, 0).schema()).unwrap();
    let handle = pool.prepare(&many_groups(), &schema).await.unwrap();
    assert!(handle.prepared().is_partial(), "even alone they may not fit so little memory");
    let held = leave(&server, 20 << 20).await;
    let batches = timeout(PATIENCE, run(&pool, &many_groups())).await.expect("no wait").unwrap();
    let counted: i64 = integers(&batches, 1).iter().sum();
    assert_eq!(counted, 2 * ROWS);
    drop(held);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_never_fits_is_refused_with_sizes() {
    let server = Server::working_within(WORK).await;
    let account = account(&server);
    let error = account.reserve(2 * WORK).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::OverLimit);
    assert!(error.message.contains("128.0 MiB") && error.message.contains("64.0 MiB"), "{error:?}");
    let refused = farpool_node::Node::start(farpool_node::NodeConfig {
        memory_bytes: 64 << 20,
        work: farpool_memory::WorkMemory::new(WORK - 1),
        ..Default::default()
    });
    assert!(refused.unwrap_err().message.contains("64.0 MiB"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_waits_for_memory_and_its_rows_are_all_there() {
    let server = Server::working_within(WORK).await;
    let pool = server.connect().await;
    load(&pool, "t", LoadMode::Create, 10).await.unwrap();
    // Enough for the messages in flight of the load (its window), but not for decoding its rows.
    let held = leave(&server, limits::STREAM_WINDOW_BYTES + (1 << 20)).await;
    let loading = load(&pool, "more", LoadMode::Create, ROWS);
    tokio::pin!(loading);
    let early = timeout(Duration::from_millis(500), &mut loading).await;
    assert!(early.is_err(), "there is no memory for it: {early:?}");
    drop(held);
    assert_eq!(timeout(PATIENCE, loading).await.expect("it goes on").unwrap().rows, ROWS as u64);
    // Not even enough for the messages in flight (the window), so the load is refused at once.
    let held = leave(&server, 64 << 10).await;
    let error = load(&pool, "less", LoadMode::Create, 10).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::OverLimit, "{error:?}");
    drop(held);
    load(&pool, "less", LoadMode::Create, 10).await.unwrap();
}

/// Returns a filter of `id` by some thousand values, whose plan takes megabytes while it is decoded.
fn one_of_many() -> Program {
    let int = |value: i128| Literal::new(Value::Int(value), DataType::Int64).unwrap();
    let list = (0..8000).map(|value| int(3 * value)).collect();
    Program { filter: Some(Expr::InList(Box::new(Expr::Column(0)), list)), ..scan("t") }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_plan_waits_for_memory_to_be_decoded() {
    let server = Server::working_within(WORK).await;
    let pool = server.connect().await;
    load(&pool, "t", LoadMode::Create, 100).await.unwrap();
    let schema = farpool_model::schema::canonical_schema(&batch(0, 0).schema()).unwrap();
    let held = leave(&server, 2 << 20).await;
    let before = server.node.work().usage().bytes_used;
    let program = one_of_many();
    let preparing = pool.prepare(&program, &schema);
    tokio::pin!(preparing);
    assert!(timeout(Duration::from_millis(300), &mut preparing).await.is_err(), "there is no memory for it");
    assert!(server.node.work().is_short());
    // A plan that waits for memory holds only its encoded bytes, and a small request does not wait behind it.
    eventually("it waits", || server.node.work().usage().bytes_used < before + (1 << 20)).await;
    pool.prepare(&scan("t"), &schema).await.unwrap();
    drop(held);
    let handle = timeout(PATIENCE, preparing).await.expect("it is decoded").unwrap();
    let rows = collect(pool.execute_prepared(&handle, None, 1).await.unwrap()).await.unwrap();
    assert_eq!(integers(&rows, 0), (0..34).map(|id| 3 * id).collect::<Vec<i64>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn programs_wait_where_there_is_no_memory_even_for_themselves() {
    let server = Server::working_within(WORK).await;
    let pool = server.connect().await;
    load(&pool, "t", LoadMode::Create, 100).await.unwrap();
    let schema = farpool_model::schema::canonical_schema(&batch(0, 0).schema()).unwrap();
    let handle = pool.prepare(&one_of_many(), &schema).await.unwrap();
    let before = server.node.work().usage().bytes_used;
    let held = leave(&server, 0).await;
    let run = || async { collect(pool.execute_prepared(&handle, None, 1).await?).await };
    let waiting = futures::future::join_all((0..20).map(|_| run()));
    tokio::pin!(waiting);
    let early = timeout(Duration::from_millis(300), &mut waiting).await;
    assert!(early.is_err(), "they wait: {:?}", early.unwrap().into_iter().find_map(Result::err));
    assert!(server.node.work().is_short());
    drop(held);
    for rows in timeout(PATIENCE, waiting).await.expect("they run") {
        assert_eq!(integers(&rows.unwrap(), 0), (0..34).map(|id| 3 * id).collect::<Vec<i64>>());
    }
    eventually("all is given back", || server.node.work().usage().bytes_used < before + (1 << 20)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_plan_that_nobody_wants_any_more_does_not_wait() {
    let server = Server::working_within(WORK).await;
    let pool = server.connect().await;
    load(&pool, "t", LoadMode::Create, 100).await.unwrap();
    let held = leave(&server, 1 << 20).await;
    let schema = farpool_model::schema::canonical_schema(&batch(0, 0).schema()).unwrap();
    let plan = farpool_wire::substrait::encode_program(&one_of_many(), &schema).unwrap();
    let mut raw = Raw::connect(&server).await;
    raw.send(1, &Request::Execute { plan, schema: None, results: ResultForm::Plain }).await;
    eventually("it waits", || server.node.work().is_short()).await;
    raw.send(1, &Request::Cancel).await;
    eventually("nobody waits", || !server.node.work().is_short()).await;
    drop(held);
}

/// Returns the node's last message to `raw` on `stream`, other than credit.
async fn last_word(raw: &mut Raw, stream: u32) -> Response {
    loop {
        let message = timeout(PATIENCE, raw.next()).await.expect("a word").expect("a connection");
        if message.stream == stream && message.kind == FrameKind::Error {
            return Response::decode(&message, None).unwrap();
        }
    }
}

#[tokio::test]
async fn a_load_that_falls_silent_makes_way_when_others_wait() {
    let local = Local::fast();
    let mut raw = local.connect().await;
    let schema = farpool_model::schema::canonical_schema(&batch(0, 0).schema()).unwrap();
    let begin = Request::LoadBegin {
        table: name("t"),
        options: LoadMode::Create.into(),
        schema,
        rows_hint: None,
        id: None,
    };
    raw.send(1, &begin).await;
    raw.send(1, &Request::LoadBatch(canonical_batch(0, 1000))).await;
    let work = local.node.work();
    let account = work.account(&TenantName::default());
    eventually("the load has begun", || work.usage().bytes_used > 0).await;
    // A silent load keeps its memory as long as nobody else waits for memory.
    sleep(Duration::from_millis(100)).await;
    assert!(work.usage().bytes_used > 0);
    let waiting = account.reserve(work.limit());
    let (reserved, word) = tokio::join!(waiting, last_word(&mut raw, 1));
    assert_eq!(reserved.unwrap().bytes(), work.limit());
    let Response::Error(error) = word else { panic!("{word:?}") };
    assert!(error.message.contains("no rows came"), "{error:?}");
}

#[tokio::test]
async fn half_a_message_makes_way_when_others_wait() {
    let local = Local::fast();
    let mut raw = local.connect().await;
    let schema = farpool_model::schema::canonical_schema(&batch(0, 0).schema()).unwrap();
    let begin = Request::LoadBegin {
        table: name("t"),
        options: LoadMode::Create.into(),
        schema,
        rows_hint: None,
        id: None,
    };
    raw.send(1, &begin).await;
    let header = FrameHeader { length: 200 << 10, kind: FrameKind::LoadBatch, more: true, stream: 1 };
    raw.socket.write_all(&[&header.encode()[..], &[7; 200 << 10]].concat()).await.unwrap();
    let work = local.node.work();
    let account = work.account(&TenantName::default());
    eventually("it is accounted for", || {
        work.usage().bytes_used >= (200 << 10) + limits::STREAM_WINDOW_BYTES as u64
    })
    .await;
    let last_words = async {
        let mut errors = 0;
        while let Some(message) = timeout(PATIENCE, raw.next()).await.expect("the node hangs up") {
            errors += usize::from(message.kind == FrameKind::Error);
        }
        errors
    };
    let (reserved, errors) = tokio::join!(account.reserve(work.limit()), last_words);
    assert_eq!(reserved.unwrap().bytes(), work.limit());
    assert!(errors > 0, "the node says why");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_holds_what_it_takes_outside_the_pool() {
    let server = Server::working_within(WORK).await;
    let pool = server.connect().await;
    // Not counted: the memory for outcomes of loads, which are remembered longer than the table exists.
    let used = || server.node.work().usage().bytes_used - server.node.remembered_bytes();
    let before = used();
    load(&pool, "t", LoadMode::Create, ROWS).await.unwrap();
    eventually("only the table is left", || {
        let held = used() - before;
        held > 0 && held < 8 << 20
    })
    .await;
    pool.drop_table(&name("t")).await.unwrap();
    eventually("nothing is left", || used() == before).await;
}
