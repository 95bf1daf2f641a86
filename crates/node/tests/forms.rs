//! Tests of the forms in which results are sent (`ResultForm`: plain Arrow batches, compressed batches, or packed in
//! the encoding of the pool). Each form gives the same rows, packed results take fewer bytes, and the receipts
//! (execution statistics) say so.

use crate::common::*;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use farpool_model::{
    CompareOp, Compression, Encoding, Expr, Literal, LoadMode, Program, Receipt, ResultForm, Value,
};
use farpool_transfer::{Pool, RemotePool};
use farpool_wire::{FrameKind, Request, Response};

const ROWS: i64 = 300_000;

/// Returns a program that selects the rows of `t` with an id below `limit`. With a limit of 100,000, all rows of the
/// first row group pass, some rows of the second, and the other row groups are skipped.
fn below(limit: i64) -> Program {
    let bound = Literal::new(Value::Int(limit.into()), arrow_schema::DataType::Int64).unwrap();
    let filter = Expr::compare(CompareOp::Lt, Expr::Column(0), Expr::Literal(bound));
    Program { filter: Some(filter), ..scan("t") }
}

/// Executes a program over all columns; returns the ids of the rows as text, sorted, and the receipt (execution
/// statistics).
async fn rows(pool: &RemotePool, program: &Program) -> (Vec<String>, Receipt) {
    let mut execution = pool.execute(program, 3).await.unwrap();
    assert_eq!(execution.streams.len(), 3);
    let receipt = execution.receipt.clone();
    execution.streams.rotate_left(1);
    let batches = collect(execution).await.unwrap();
    let mut rows: Vec<String> = Vec::new();
    for batch in &batches {
        assert_eq!(batch.num_columns(), 4);
        let column = |column: usize| batch.column(column).as_primitive::<Int64Type>().values();
        rows.extend(column(0).iter().map(|id| format!("{id:08}")));
        assert!(column(0).iter().zip(column(1)).all(|(id, tens)| *tens == id % 10));
    }
    rows.sort();
    (rows, receipt.get().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_form_gives_the_same_rows() {
    let server = Server::start().await;
    load(&server.connect().await, "t", LoadMode::Create, ROWS).await.unwrap();
    let programs =
        [scan("t"), below(100_000), below(70), below(0), Program { limit: Some(70_000), ..scan("t") }];
    for (place, program) in programs.iter().enumerate() {
        let mut plain_bytes = 0;
        let mut expected = 0;
        let [lz4, zstd] = [Compression::Lz4, Compression::Zstd].map(ResultForm::Compressed);
        for form in [ResultForm::Plain, ResultForm::Packed, ResultForm::Auto, lz4, zstd] {
            let pool = server.connect().await.with_results(form);
            let (rows, receipt) = rows(&pool, program).await;
            assert_eq!(receipt.rows_returned, rows.len() as u64, "{form} {program:?}");
            if form == ResultForm::Plain {
                (plain_bytes, expected) = (receipt.bytes_on_wire, rows.len());
                let encoding = if rows.is_empty() { Encoding::None } else { Encoding::Plain };
                assert_eq!(receipt.encoding, encoding);
                assert!(receipt.bytes_plain <= receipt.bytes_on_wire);
                continue;
            }
            assert_eq!(rows.len(), expected);
            if place < 4 {
                assert!(rows.iter().enumerate().all(|(id, row)| *row == format!("{id:08}")));
            }
            if rows.len() > 1000 {
                let expected = match form {
                    ResultForm::Packed => Encoding::Packed,
                    ResultForm::Compressed(_) => Encoding::Compressed,
                    _ => receipt.encoding,
                };
                assert_eq!(receipt.encoding, expected, "{form}");
                assert!(receipt.bytes_on_wire < plain_bytes * 2 / 3, "{form}: {receipt:?}");
                assert!(receipt.bytes_on_wire < receipt.bytes_plain, "{form}: {receipt:?}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_does_not_ask_gets_no_parcels() {
    let server = Server::start().await;
    let pool = server.connect().await;
    load(&pool, "t", LoadMode::Create, 1000).await.unwrap();
    let table = pool.table(&name("t")).await.unwrap();
    let plan = farpool_wire::substrait::encode_program(&scan("t"), &table.schema).unwrap();
    for (results, kind) in [(ResultForm::Plain, FrameKind::Batch), (ResultForm::Packed, FrameKind::Parcel)] {
        let mut raw = Raw::connect(&server).await;
        raw.send(1, &Request::Execute { plan: plan.clone(), schema: None, results }).await;
        let mut kinds = Vec::new();
        let receipt = loop {
            let message = raw.next().await.unwrap();
            kinds.push(message.kind);
            if let Response::Receipt(receipt) = Response::decode(&message, Some(&table.schema)).unwrap() {
                break receipt;
            }
        };
        assert_eq!(kinds, [FrameKind::Prepared, kind, FrameKind::Receipt]);
        assert!(receipt.bytes_plain > 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropping_the_streams_cancels_the_program() {
    let server = Server::start().await;
    let pool = server.connect().await;
    load(&pool, "t", LoadMode::Create, 2_000_000).await.unwrap();
    let mut execution = pool.execute(&scan("t"), 2).await.unwrap();
    let first = futures::StreamExt::next(&mut execution.streams[1]).await;
    assert!(first.unwrap().unwrap().num_rows() > 0);
    execution.streams.pop();
    assert_eq!(server.programs_running(), 1);
    drop(execution);
    eventually("the program ends", || server.programs_running() == 0).await;
}
