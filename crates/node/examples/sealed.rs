//! Measures what it costs to have results encrypted (docs/decisions/2026-11-25-encrypted-results.md): sealing and
//! opening alone on one thread, then whole queries with a large and with a tiny result over loopback, with and without,
//! in turns.
//!
//! `cargo run --release -p farpool-node --example sealed [ROWS]`

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use bytes::Bytes;
use farpool_model::{Error, LoadMode, Program, Receipt, Result, ResultForm, TableName};
use farpool_node::clock::Stopwatch;
use farpool_node::{Node, NodeConfig, PrivateKey, native};
use farpool_transfer::{ClientOptions, Pool, Proof, RemotePool};
use farpool_wire::sealed::{NodeProof, Opener, SealedRequest, Sealer};
use farpool_wire::{Assembler, FrameKind, Message, Outgoing, Request, split_frame};
use futures::StreamExt;
use std::sync::Arc;
use tokio::net::TcpListener;

/// Number of pairs of runs, with and without encryption; the medians are reported.
const PAIRS: usize = 15;

const COLUMNS: usize = 4;

#[tokio::main]
async fn main() -> Result<()> {
    let rows = std::env::args().nth(1).and_then(|rows| rows.parse().ok()).unwrap_or(16 << 20);
    for bytes in [4 << 10, 64 << 10, 1 << 20, 4 << 20] {
        alone(bytes)?;
    }
    let node = Node::start(NodeConfig { memory_bytes: 4 << 30, workers: 2, ..NodeConfig::default() })?;
    let key = PrivateKey::random()?;
    let sealed = Some(Proof::NodeKey(key.public()));
    node.set_node_key(key);
    let failed = |error: std::io::Error| Error::unavailable(error.to_string());
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(failed)?;
    let url = listener.local_addr().map_err(failed)?.to_string().parse()?;
    tokio::spawn(native::serve(node, listener, std::future::pending()));
    let plain = RemotePool::connect(&url, ClientOptions::default()).await?;
    let sealed = RemotePool::connect(&url, ClientOptions { sealed, ..ClientOptions::default() }).await?;
    let (plain, sealed) = (plain.with_results(ResultForm::Plain), sealed.with_results(ResultForm::Plain));
    let tiny = load(&plain, 1).await?;
    in_turns("one row", [&plain, &sealed], &tiny, 200).await?;
    let large = load(&plain, rows).await?;
    in_turns("all rows", [&plain, &sealed], &large, 1).await
}

/// Measures sealing (encrypting) and opening (decrypting) messages of `bytes` bytes, a gigabyte in total, on one
/// thread; prints the rates.
fn alone(bytes: usize) -> Result<()> {
    let key = PrivateKey::random()?;
    let messages = (1 << 30) / bytes;
    let request = Request::Status.encode()?.pop().ok_or_else(|| Error::internal("no message"))?;
    let (request, opener) = Opener::new(request, &Proof::NodeKey(key.public()), [0; 32], None)?;
    let request = SealedRequest::read(&received(request)?)?;
    let sealer = Sealer::new(&request, None, NodeProof { key: Some(&key), ..NodeProof::default() })?;
    let body = Bytes::from(vec![7; bytes]);
    let (mut seal_ns, mut open_ns) = (0, 0);
    for _ in 0..messages {
        let message = Outgoing::new(FrameKind::Parcel, vec![body.clone()])?;
        let watch = Stopwatch::start();
        let message = sealer.seal_alone(message)?;
        seal_ns += watch.elapsed_ns();
        let message = received(message)?;
        let watch = Stopwatch::start();
        opener.check(&message)?;
        let opened = opener.open(message)?;
        open_ns += watch.elapsed_ns();
        assert_eq!(opened.body.len(), bytes, "what was sealed is opened");
    }
    let per_gb = |ns: u64| ns as f64 / 1e6 / ((messages * bytes) as f64 / 1e9);
    println!(
        "messages of {:>4} KiB: sealing {:.0} ms/GB, opening {:.0} ms/GB",
        bytes >> 10,
        per_gb(seal_ns),
        per_gb(open_ns)
    );
    Ok(())
}

/// Returns the message as its receiver assembles it from its frames.
fn received(message: Outgoing) -> Result<Message> {
    let mut bytes = bytes::BytesMut::from(&message.frames(1).concat()[..]);
    let mut assembler = Assembler::new();
    while let Some((header, payload)) = split_frame(&mut bytes)? {
        if let Some(message) = assembler.push(header, payload)? {
            return Ok(message);
        }
    }
    Err(Error::internal("a message without an end"))
}

async fn load(pool: &RemotePool, rows: i64) -> Result<Program> {
    let table = TableName::new(format!("t{rows}"))?;
    let batch = |start: i64, end: i64| {
        // Integers that need all 64 bits, so that they do not compress.
        let values = (start..end).map(|row| row.wrapping_mul(0x9E37_79B9_7F4A_7C15_u64 as i64));
        let column: ArrayRef = Arc::new(Int64Array::from_iter_values(values));
        RecordBatch::try_from_iter((0..COLUMNS).map(|index| (format!("c{index}"), column.clone())))
            .map_err(|error| Error::invalid(error.to_string()))
    };
    let schema = batch(0, 0)?.schema();
    let parts = (0..rows).step_by(65_536).map(move |start| batch(start, rows.min(start + 65_536)));
    let parts = Box::pin(futures::stream::iter(parts));
    pool.load(&table, LoadMode::Replace.into(), schema.clone(), None, parts).await?;
    Ok(Program::scan(table, &schema, &(0..COLUMNS).collect::<Vec<_>>()))
}

/// Runs a program on both pools in turns, `times` in a row, and prints medians: time, the process' CPU time (node and
/// client), and what the node has counted for its workers.
async fn in_turns(name: &str, pools: [&RemotePool; 2], program: &Program, times: u32) -> Result<()> {
    let mut measured: [[Vec<f64>; 3]; 2] = Default::default();
    let mut bytes = 0;
    for pair in 0..=PAIRS {
        for (pool, measured) in pools.iter().zip(&mut measured) {
            let (watch, cpu) = (Stopwatch::start(), cpu_ms());
            let mut counted = 0;
            for _ in 0..times {
                let receipt = run(pool, program).await?;
                (counted, bytes) = (counted + receipt.cpu_ns, receipt.bytes_plain);
            }
            // The first pair of runs only warms up and is not counted.
            if pair > 0 {
                let each = f64::from(times);
                measured[0].push(watch.elapsed_ns() as f64 / 1e6 / each);
                measured[1].push((cpu_ms() - cpu) / each);
                measured[2].push(counted as f64 / 1e6 / each);
            }
        }
    }
    println!("{name}, {:.1} MB:", bytes as f64 / 1e6);
    let ratio = |what: usize| {
        let (plain, sealed) = (&measured[0][what], &measured[1][what]);
        median(plain.iter().zip(sealed).map(|(plain, sealed)| sealed / plain).collect())
    };
    for (what, label) in ["time", "CPU of both", "of the node's workers"].into_iter().enumerate() {
        let [plain, sealed] = [0, 1].map(|side: usize| median(measured[side][what].clone()));
        println!("  {label:22} plain {plain:9.3} ms, sealed {sealed:9.3} ms, ratio {:.2}", ratio(what));
    }
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Returns the CPU time of this process, to 10 ms.
fn cpu_ms() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks = after_name.split_whitespace().skip(11).take(2);
    ticks.filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() * 10.0
}

/// Executes a program and reads its whole result; returns the execution statistics.
async fn run(pool: &RemotePool, program: &Program) -> Result<Receipt> {
    let mut execution = pool.execute(program, 2).await?;
    let mut readers = Vec::new();
    for mut stream in execution.streams.drain(..) {
        readers.push(tokio::spawn(async move {
            while let Some(batch) = stream.next().await {
                batch?;
            }
            Result::Ok(())
        }));
    }
    for reader in readers {
        reader.await.map_err(|error| Error::internal(error.to_string()))??;
    }
    execution.receipt.get().ok_or_else(|| Error::internal("a result without a receipt"))
}
