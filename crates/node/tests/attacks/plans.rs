//! Hostile Substrait plans: small plans that request far more work than their size suggests, and computations that may
//! fail on rows that a filter should have removed.

use super::beside_an_honest_client;
use super::plan::{self, call, cast_to_decimal, decimal, field, filter, plan, project, table, text};
use crate::common::*;
use arrow_array::{ArrayRef, Int64Array, RecordBatch, UInt64Array};
use arrow_schema::DataType;
use farpool_model::{
    Answer, CompareOp, Error, ErrorKind, Expr, Literal, LoadMode, NamedExpr, Output, Prepared, Program, Value,
};
use farpool_transfer::Pool;
use farpool_wire::{FrameKind, Request, Response};
use std::sync::Arc;

/// The outcome of a plan that the node has executed: its answers for each operator, and the number of rows returned.
#[derive(Debug)]
struct Done {
    prepared: Prepared,
    rows: u64,
}

/// Sends `request` from a raw client and returns the answer or the error. Panics if the node sends neither, or if an
/// honest client does not get its answers in the meantime.
async fn asked(server: &Server, what: &str, request: &Request) -> Result<Done, Error> {
    let attack = async {
        let mut raw = Raw::connect(server).await;
        raw.send(1, request).await;
        let answer = answer(&mut raw).await;
        // The connection must still serve requests, whether the plan was executed or refused.
        raw.send(2, &Request::Status).await;
        assert_eq!(raw.next().await.expect("an answer").kind, FrameKind::StatusInfo, "after {what}");
        answer
    };
    beside_an_honest_client(server, what, attack).await
}

async fn answer(raw: &mut Raw) -> Result<Done, Error> {
    let mut answers = None;
    loop {
        let message = raw.next().await.expect("an answer");
        if matches!(message.kind, FrameKind::Batch) {
            let credit = Request::Credit { bytes: message.bytes_on_wire };
            raw.send(1, &credit).await;
            continue;
        }
        match Response::decode(&message, None).unwrap() {
            Response::Error(error) => return Err(error),
            Response::Prepared { prepared, .. } => answers = Some(prepared),
            Response::Receipt(receipt) => {
                let prepared = answers.expect("answers come before rows");
                return Ok(Done { prepared, rows: receipt.rows_returned });
            }
            other => panic!("{other:?}"),
        }
    }
}

async fn server() -> Server {
    let server = Server::start().await;
    load(&server.connect().await, "t", LoadMode::Create, 1000).await.unwrap();
    server
}

fn request(program: &Program) -> Request {
    let schema = farpool_model::schema::canonical_schema(&batch(0, 0).schema()).unwrap();
    let plan = farpool_wire::substrait::encode_program(program, &schema).unwrap();
    Request::Execute { plan, schema: None, results: farpool_model::ResultForm::Plain }
}

async fn is_refused(server: &Server, what: &str, request: Request, kind: ErrorKind) {
    let error = asked(server, what, &request).await.expect_err(what);
    assert_eq!(error.kind, kind, "{what}: {error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_plan_refers_to_often_counts_as_often() {
    let server = server().await;
    let long = project(vec![text(&"x".repeat(64 << 10))], None, table());
    let often = project(vec![field(4); 4000], None, long.clone());
    is_refused(&server, "a constant of 64 KiB, 4000 times", plan(often, &[]), ErrorKind::OverLimit).await;
    let moved = project(Vec::new(), Some(vec![4; 4000]), long);
    is_refused(&server, "a column of it, 4000 times", plan(moved, &[]), ErrorKind::OverLimit).await;

    let keys = farpool_model::KeySet::new(&[0, 8_000_000]).unwrap().to_bytes();
    let once = project(vec![call(1, &[field(0), plan::bytes(&keys)])], Some(vec![0, 4]), table());
    let found = asked(&server, "a set of keys", &plan(filter(field(1), once.clone()), &["in_set"])).await;
    assert_eq!(found.unwrap().rows, 1);
    let often = project(vec![field(1); 1000], None, once);
    is_refused(&server, "a set of keys, 1000 times", plan(often, &["in_set"]), ErrorKind::OverLimit).await;

    let mut doubled = table();
    for _ in 0..60 {
        let columns = Some(vec![4, 1, 2, 3]);
        doubled = project(vec![call(1, &[field(0), field(0)])], columns, doubled);
    }
    is_refused(&server, "sums of sums", plan(doubled, &["add"]), ErrorKind::OverLimit).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn patterns_are_compiled_within_bounds() {
    let server = server().await;
    let patterns = (0..1000).map(|i| call(1, &[field(2), text(&format!(r"\w{{30}}{i}"))])).collect();
    let places = (4..1004).collect();
    let many = plan(project(patterns, Some(places), table()), &["regexp_is_match"]);
    // Patterns beyond the limit on compiled patterns are left for the client to evaluate: their answer is not `Exact`.
    let done = asked(&server, "1000 large patterns", &many).await.unwrap();
    assert!(
        done.prepared.answers.iter().any(|answer| answer.answer != Answer::Exact),
        "{:?}",
        done.prepared.answers
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deep_plans_run_or_are_refused() {
    let server = server().await;
    let nulls = Expr::IsNull(Box::new(Expr::Column(0)));
    let not = (0..120).fold(nulls.clone(), |inner, _| Expr::not(inner));
    let program = |filter| Program { filter: Some(filter), ..scan("t") };
    assert_eq!(asked(&server, "120 NOT", &request(&program(not))).await.unwrap().rows, 0);
    let and = |inner| Expr::Or(vec![nulls.clone(), Expr::And(vec![inner, Expr::not(nulls.clone())])]);
    let deep = (0..60).fold(Expr::not(nulls.clone()), |inner, _| and(inner));
    assert_eq!(asked(&server, "60 AND in OR", &request(&program(deep))).await.unwrap().rows, 1000);

    let not = (0..600).fold(call(2, &[field(0)]), |inner, _| call(1, &[inner]));
    let deeper = plan(filter(not, table()), &["not", "is_null"]);
    is_refused(&server, "600 NOT", deeper, ErrorKind::OverLimit).await;
    let filters = (0..600).fold(table(), |input, _| filter(call(1, &[field(0)]), input));
    is_refused(&server, "600 filters", plan(filters, &["is_null"]), ErrorKind::OverLimit).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ranges_in_thousands_give_the_right_rows() {
    let server = server().await;
    let pool = server.connect().await;
    let column: ArrayRef = Arc::new(UInt64Array::from(vec![0, 5, u64::MAX]));
    let rows = RecordBatch::try_from_iter_with_nullable([("c", column, true)]).unwrap();
    let batches = stream(vec![Ok(rows.clone())]);
    pool.load(&name("wide"), LoadMode::Create.into(), rows.schema(), None, batches).await.unwrap();
    let bound = |value: i128| Expr::Literal(Literal::new(Value::Int(value), DataType::UInt64).unwrap());
    let at_least = |value| Expr::compare(CompareOp::GtEq, Expr::Column(0), bound(value));
    let filter = Expr::And((0..20_000).map(at_least).collect());
    let program = Program { filter: Some(filter), ..Program::scan(name("wide"), &rows.schema(), &[0]) };
    let honest = async {
        for below in 0..20 {
            assert_eq!(counted(&pool, "t", below).await.unwrap().0, below);
        }
    };
    let (_, found) = tokio::join!(honest, run(&pool, &program));
    let expected: ArrayRef = Arc::new(UInt64Array::from(vec![u64::MAX]));
    let found = found.unwrap();
    assert_eq!(found.iter().map(RecordBatch::num_rows).sum::<usize>(), 1);
    assert!(found.iter().any(|batch| batch.num_rows() == 1 && batch.column(0) == &expected), "{found:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decimals_of_any_scale_are_taken_or_refused() {
    let server = server().await;
    for (precision, scale) in
        [(38, -128), (38, 128), (0, 0), (1 << 40, 5), (38, -38), (38, 38), (38, i64::MIN)]
    {
        let what = format!("decimal({precision}, {scale})");
        for value in [decimal(precision, scale), cast_to_decimal(precision, scale, field(0))] {
            let above = project(vec![value], Some(vec![4]), table());
            match asked(&server, &what, &plan(above, &[])).await {
                Ok(done) => assert_eq!(done.rows, 1000, "{what}"),
                Err(error) => assert!(
                    matches!(error.kind, ErrorKind::Invalid | ErrorKind::Corrupt | ErrorKind::OverLimit),
                    "{what}: {error}"
                ),
            }
        }
    }
    // Sums and products of decimals with extreme scales.
    for (left, right) in [(38, -38), (-38, 38), (38, 38)] {
        let product = call(1, &[decimal(38, left), cast_to_decimal(38, right, field(0))]);
        let request = plan(project(vec![product], Some(vec![4]), table()), &["multiply"]);
        let what = format!("scales {left} and {right}");
        if let Err(error) = asked(&server, &what, &request).await {
            assert_ne!(error.kind, ErrorKind::Internal, "{what}: {error}");
        }
    }
}

/// The filter is not known to the node, so the client has to evaluate it. The cast behind it could fail on rows that
/// the filter removes, so the node must leave it to the client, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_may_fail_is_not_done_behind_a_filter_that_was_refused() {
    let server = server().await;
    let number = Expr::Cast(Box::new(Expr::Column(2)), DataType::Int64);
    let program = Program {
        filter: Some(Expr::opaque("only known elsewhere", vec![Expr::Column(2)])),
        output: Output::Rows(vec![NamedExpr { name: "number".into(), expr: number.clone() }]),
        ..scan("t")
    };
    let done = asked(&server, "a cast behind a filter", &request(&program)).await.unwrap();
    let weak: Vec<_> = done.prepared.answers.iter().filter(|answer| answer.answer != Answer::Exact).collect();
    assert!(weak.len() >= 2, "the filter and what may fail behind it: {:?}", done.prepared.answers);
    assert_eq!(done.rows, 1000, "all rows go to whoever can filter them");
    // Without the filter, the node executes the cast, which fails.
    let failing = Program { filter: None, ..program };
    is_refused(&server, "a cast that fails", request(&failing), ErrorKind::Invalid).await;
}

/// Group keys that differ in high bits only, so that they would collide in a hash table without a random seed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_that_collide_elsewhere_do_not_here() {
    let server = server().await;
    let pool = server.connect().await;
    let column: ArrayRef = Arc::new(Int64Array::from_iter_values((0..200_000_i64).map(|key| key << 44)));
    let rows = RecordBatch::try_from_iter_with_nullable([("key", column, true)]).unwrap();
    let batches = stream(vec![Ok(rows.clone())]);
    pool.load(&name("keys"), LoadMode::Create.into(), rows.schema(), None, batches).await.unwrap();
    let keys = vec![NamedExpr { name: "key".into(), expr: Expr::Column(0) }];
    let program = Program {
        output: Output::Aggregate { keys, aggregates: Vec::new() },
        ..Program::scan(name("keys"), &rows.schema(), &[0])
    };
    let grouping = async { tokio::join!(run(&pool, &program), counted(&pool, "t", 7)) };
    let (groups, count) = tokio::time::timeout(PATIENCE, grouping).await.expect("hangs");
    assert_eq!(count.unwrap().0, 7);
    let groups: usize = groups.unwrap().iter().map(RecordBatch::num_rows).sum();
    assert_eq!(groups, 200_000);
}
