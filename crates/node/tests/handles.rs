//! Tests of prepared programs and their handles (as of prepared statements): each program runs on the table version
//! that it was prepared for, however the table changes.

use crate::common::*;
use farpool_model::{
    CompareOp, ErrorKind, Expr, Literal, LoadMode, Program, Result, SchemaFingerprint, Value, limits,
};
use farpool_transfer::{Handle, Pool, RemotePool};
use farpool_wire::{FrameKind, Request, Response, substrait};
use std::time::Duration;

async fn prepare(pool: &RemotePool, program: &Program) -> Result<Handle> {
    let schema = farpool_model::schema::canonical_schema(&batch(0, 0).schema()).unwrap();
    pool.prepare(program, &schema).await
}

fn below(id: i64) -> Expr {
    let literal = Literal::new(Value::Int(id.into()), arrow_schema::DataType::Int64).unwrap();
    Expr::compare(CompareOp::Lt, Expr::Column(0), Expr::Literal(literal))
}

async fn ids(pool: &RemotePool, handle: &Handle, conditions: Option<&Expr>) -> Result<Vec<i64>> {
    let batches = collect(pool.execute_prepared(handle, conditions, 2).await?).await?;
    Ok(integers(&batches, 0))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handle_reads_its_version_and_conditions_thin_it_out() {
    let server = Server::start().await;
    let pool = server.connect().await;
    let table = load(&pool, "t", LoadMode::Create, 1000).await.unwrap();
    let handle = prepare(&pool, &scan("t")).await.unwrap();
    assert!(handle.is_exact() && handle.version == table.version);
    load(&server.connect().await, "t", LoadMode::Replace, 10).await.unwrap();
    assert_eq!(ids(&pool, &handle, None).await.unwrap(), (0..1000).collect::<Vec<_>>());
    assert_eq!(ids(&pool, &handle, Some(&below(20))).await.unwrap(), (0..20).collect::<Vec<_>>());
    // Other programs may name this old version as long as a handle holds it; other old versions are `Stale`.
    let named = Program { version: Some(table.version), ..count_and_sum("t", 500) };
    let counted = prepare(&pool, &named).await.unwrap();
    let batches =
        collect(pool.execute_prepared(&counted, Some(&below(400)), 1).await.unwrap()).await.unwrap();
    assert_eq!(integers(&batches, 0), [400]);
    let missing = Program { version: Some(farpool_model::Version(999)), ..scan("t") };
    assert_eq!(prepare(&pool, &missing).await.unwrap_err().kind, ErrorKind::Stale);
    // Only these handles hold the replaced rows, so after they are dropped the old version is `Stale`, too.
    drop((handle, counted));
    let goes = async {
        while prepare(&pool, &named).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), goes).await.expect("the old version goes");
    assert_eq!(prepare(&pool, &named).await.unwrap_err().kind, ErrorKind::Stale);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conditions_that_cannot_be_carried_out_are_refused() {
    let server = Server::start().await;
    let pool = server.connect().await;
    load(&pool, "t", LoadMode::Create, 1000).await.unwrap();
    let handle = prepare(&pool, &count_and_sum("t", 500)).await.unwrap();
    let strange = Expr::opaque("strange(id)".to_string(), vec![Expr::Column(0)]);
    let error = pool.execute_prepared(&handle, Some(&strange), 1).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Invalid, "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_with_other_columns_is_another_table() {
    let server = Server::start().await;
    let pool = server.connect().await;
    load(&pool, "t", LoadMode::Create, 1000).await.unwrap();
    let schema = std::sync::Arc::new(batch(0, 0).schema().project(&[0, 1]).unwrap());
    let rows = vec![Ok(batch(0, 10).project(&[0, 1]).unwrap())];
    pool.load(&name("t"), LoadMode::Replace.into(), schema, None, stream(rows)).await.unwrap();
    let narrow = Program::scan(name("t"), &batch(0, 0).schema(), &[0]);
    assert_eq!(prepare(&pool, &narrow).await.unwrap_err().kind, ErrorKind::Stale);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_version_is_prepared_for_its_own_columns() {
    let server = Server::start().await;
    let pool = server.connect().await;
    let table = load(&pool, "t", LoadMode::Create, 1000).await.unwrap();
    let handle = prepare(&pool, &scan("t")).await.unwrap();
    let named = Program { version: Some(table.version), ..count_and_sum("t", 500) };
    for other in ["replaced", "dropped"] {
        match other {
            "replaced" => {
                let schema = std::sync::Arc::new(batch(0, 0).schema().project(&[1, 0]).unwrap());
                let rows = vec![Ok(batch(0, 10).project(&[1, 0]).unwrap())];
                pool.load(&name("t"), LoadMode::Replace.into(), schema, None, stream(rows)).await.unwrap();
            }
            _ => pool.drop_table(&name("t")).await.unwrap(),
        }
        let counted = prepare(&pool, &named).await.unwrap();
        let batches = collect(pool.execute_prepared(&counted, None, 1).await.unwrap()).await.unwrap();
        assert_eq!(integers(&batches, 0), [500], "{other}");
    }
    // A program without a version asks for the newest, but the table was dropped.
    assert_eq!(prepare(&pool, &count_and_sum("t", 500)).await.unwrap_err().kind, ErrorKind::Stale);
    drop(handle);
    eventually("the version goes", || server.memory_used() == 0).await;
    assert_eq!(prepare(&pool, &named).await.unwrap_err().kind, ErrorKind::NotFound);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_for_other_columns_is_stale_before_it_is_looked_at() {
    let server = Server::start().await;
    let table = load(&server.connect().await, "t", LoadMode::Create, 100).await.unwrap();
    let mut raw = Raw::connect(&server).await;
    let right = SchemaFingerprint::of(&table.schema);
    let plan = substrait::encode_program(&scan("t"), &table.schema).unwrap();
    // A plan over columns that the table does not have is refused.
    let strange = arrow_schema::Schema::new(vec![arrow_schema::Field::new(
        "strange",
        arrow_schema::DataType::Int64,
        true,
    )]);
    let of_strange = substrait::encode_program(&Program::scan(name("t"), &strange, &[0]), &strange).unwrap();
    let results = farpool_model::ResultForm::Plain;
    let requests = [
        (Request::Prepare { plan: plan.clone(), schema: Some(right) }, None),
        (
            Request::Prepare { plan: plan.clone(), schema: Some(SchemaFingerprint(right.0 + 1)) },
            Some(ErrorKind::Stale),
        ),
        (Request::Execute { plan, schema: Some(SchemaFingerprint(0)), results }, Some(ErrorKind::Stale)),
        (
            Request::Prepare { plan: of_strange.clone(), schema: Some(SchemaFingerprint::of(&strange)) },
            Some(ErrorKind::Stale),
        ),
        (Request::Prepare { plan: of_strange, schema: None }, Some(ErrorKind::NotFound)),
    ];
    for (stream, (request, expected)) in (1..).zip(requests) {
        raw.send(stream, &request).await;
        let message = raw.next().await.unwrap();
        let error = match Response::decode(&message, None).unwrap() {
            Response::Error(error) => Some(error.kind),
            _ => None,
        };
        assert_eq!(error, expected, "request {stream}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handle_that_was_lost_runs_if_its_version_is_there() {
    let server = Server::start().await;
    let pool = server.connect().await;
    load(&pool, "t", LoadMode::Create, 1000).await.unwrap();
    let handle = prepare(&pool, &scan("t")).await.unwrap();
    // More handles than a connection keeps: the first is evicted.
    let mut others = Vec::new();
    for _ in 0..limits::HANDLES_PER_CONNECTION_MAX {
        others.push(prepare(&pool, &scan("t")).await.unwrap());
    }
    assert_eq!(ids(&pool, &handle, Some(&below(7))).await.unwrap(), (0..7).collect::<Vec<_>>());
    drop(others);
    load(&pool, "t", LoadMode::Append, 5).await.unwrap();
    let error = pool.execute_prepared(&handle, None, 1).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Stale, "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handle_outlives_its_connection_if_the_version_does() {
    let mut server = Server::start().await;
    let pool = server.connect().await;
    load(&pool, "t", LoadMode::Create, 1000).await.unwrap();
    let handle = prepare(&pool, &scan("t")).await.unwrap();
    server.kill().await;
    let anew = Server::at(&server.address.to_string(), 64 << 20, Access::of_everybody()).await;
    assert_eq!(pool.execute_prepared(&handle, None, 1).await.unwrap_err().kind, ErrorKind::NotFound);
    load(&anew.connect().await, "t", LoadMode::Create, 3).await.unwrap();
    let found = ids(&pool, &handle, None).await;
    match anew.connect().await.table(&name("t")).await.unwrap().version == handle.version {
        true => assert_eq!(found.unwrap(), [0, 1, 2]),
        false => assert_eq!(found.unwrap_err().kind, ErrorKind::Stale),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handles_of_a_raw_client_are_numbers_of_streams() {
    let server = Server::start().await;
    let table = load(&server.connect().await, "t", LoadMode::Create, 100).await.unwrap();
    let mut raw = Raw::connect(&server).await;
    let plan = substrait::encode_program(&scan("t"), &table.schema).unwrap();
    raw.send(4, &Request::Prepare { plan, schema: None }).await;
    assert_eq!(raw.next().await.unwrap().kind, FrameKind::Prepared);
    let results = farpool_model::ResultForm::Plain;
    let execute = |handle| Request::ExecutePrepared { handle, conditions: None, results };
    for stream in [5, 6] {
        raw.send(stream, &execute(4)).await;
        for kind in [FrameKind::Unchanged, FrameKind::Batch, FrameKind::Receipt] {
            assert_eq!(raw.next().await.unwrap().kind, kind);
        }
    }
    raw.send(4, &Request::Cancel).await;
    for (stream, handle) in [(7, 4), (8, 5), (9, 99)] {
        raw.send(stream, &execute(handle)).await;
        let message = raw.next().await.unwrap();
        let Response::Error(error) = Response::decode(&message, None).unwrap() else { panic!() };
        assert_eq!(error.kind, ErrorKind::Stale, "{error}");
    }
}
