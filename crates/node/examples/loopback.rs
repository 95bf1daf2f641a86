//! What a query costs beyond its work when it crosses a socket: a tiny program's latency, and the rate of
//! a large result, on this machine's loopback.
//!
//! `cargo run --release -p farpool-node --example loopback [ROWS]`

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use farpool_model::{Error, LoadMode, Program, Result, TableName};
use farpool_node::clock::Stopwatch;
use farpool_node::{Node, NodeConfig, server};
use farpool_transfer::{Pool, RemotePool};
use futures::StreamExt;
use std::sync::Arc;

const COLUMNS: usize = 4;

#[tokio::main]
async fn main() -> Result<()> {
    let rows = std::env::args().nth(1).and_then(|rows| rows.parse().ok()).unwrap_or(4_000_000);
    let node = Node::start(NodeConfig { memory_bytes: 2 << 30, workers: 2, tokens: None })?;
    let io = |error: std::io::Error| Error::unavailable(error.to_string());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.map_err(io)?;
    let url = listener.local_addr().map_err(io)?.to_string().parse()?;
    tokio::spawn(server::serve(node, listener, std::future::pending()));
    let pool = RemotePool::connect(&url, None).await?;

    let tiny = load(&pool, "tiny", 1).await?;
    let large = load(&pool, "large", rows).await?;
    latency(&pool, &tiny).await?;
    for _ in 0..3 {
        throughput(&pool, &large).await?;
    }
    Ok(())
}

async fn load(pool: &RemotePool, table: &str, rows: i64) -> Result<Program> {
    let table = TableName::new(table)?;
    let batch = |start: i64, end: i64| {
        // Full 64 bits, so that the scan is as wide in the pool as on the wire.
        let values = (start..end).map(|v| v.wrapping_mul(0x9E37_79B9_7F4A_7C15_u64 as i64));
        let column: ArrayRef = Arc::new(Int64Array::from_iter_values(values));
        let columns = (0..COLUMNS).map(|index| (format!("c{index}"), column.clone()));
        RecordBatch::try_from_iter(columns).map_err(|error| Error::invalid(error.to_string()))
    };
    let schema = batch(0, 0)?.schema();
    let parts = (0..rows).step_by(65_536).map(move |start| batch(start, rows.min(start + 65_536)));
    let watch = Stopwatch::start();
    let parts = Box::pin(futures::stream::iter(parts));
    pool.load(&table, LoadMode::Create, schema.clone(), None, parts).await?;
    println!("load {table}: {rows} rows in {:.1} ms", watch.elapsed_ns() as f64 / 1e6);
    Ok(Program::scan(table, &schema, &(0..COLUMNS).collect::<Vec<_>>()))
}

/// Runs a program to its end; the bytes of its result.
async fn run(pool: &RemotePool, program: &Program) -> Result<usize> {
    let mut execution = pool.execute(program, 1).await?;
    let mut bytes = 0;
    for stream in &mut execution.streams {
        while let Some(batch) = stream.next().await {
            bytes += batch?.num_rows() * COLUMNS * 8;
        }
    }
    Ok(bytes)
}

async fn latency(pool: &RemotePool, program: &Program) -> Result<()> {
    let mut times_ns = Vec::new();
    for _ in 0..2000 {
        let watch = Stopwatch::start();
        run(pool, program).await?;
        times_ns.push(watch.elapsed_ns());
    }
    times_ns.sort_unstable();
    let at = |part: f64| times_ns[(times_ns.len() as f64 * part) as usize] / 1000;
    println!("one row: median {} us, 99 % within {} us", at(0.5), at(0.99));
    Ok(())
}

async fn throughput(pool: &RemotePool, program: &Program) -> Result<()> {
    let watch = Stopwatch::start();
    let bytes = run(pool, program).await?;
    let elapsed_ns = watch.elapsed_ns();
    println!("scan: {} MB, {:.2} GB/s", bytes / 1_000_000, bytes as f64 / elapsed_ns as f64);
    Ok(())
}
