//! Measures the overhead of a query over a socket, on this machine's loopback: the latency of a tiny program,
//! and the rate of large results, for several kinds of values, in every form in which rows may be sent.
//!
//! `cargo run --release -p farpool-node --example loopback [ROWS [LINK_MBIT_PER_S]]`
//!
//! With a rate, clients connect through a relay that limits throughput to it.

use arrow_array::{ArrayRef, Decimal128Array, Int64Array, RecordBatch, StringViewArray};
use farpool_model::{
    CompareOp, Error, Expr, Literal, LoadMode, Program, Receipt, Result, ResultForm, TableName, Value,
};
use farpool_node::clock::Stopwatch;
use farpool_node::{Node, NodeConfig, native};
use farpool_transfer::{ClientOptions, Pool, PoolUrl, RemotePool};
use futures::StreamExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Number of times that each query is executed; the fastest execution is reported.
const RUNS: usize = 3;

#[tokio::main]
async fn main() -> Result<()> {
    let number = |place: usize| std::env::args().nth(place).and_then(|number| number.parse::<u64>().ok());
    let rows = number(1).unwrap_or(4_000_000) as i64;
    let node = Node::start(NodeConfig { memory_bytes: 4 << 30, workers: 2, ..NodeConfig::default() })?;
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(io_error)?;
    let address = listener.local_addr().map_err(io_error)?.to_string();
    tokio::spawn(native::serve(node, listener, std::future::pending()));
    let direct = RemotePool::connect(&address.parse()?, ClientOptions::default()).await?;
    let url: PoolUrl = match number(2) {
        Some(mbit_per_s) => relay(address, mbit_per_s).await?,
        None => address,
    }
    .parse()?;

    let tiny = load(&direct, Kind::ALL[0], 1).await?;
    latency(&direct, &tiny).await?;
    println!("{:24} {:>8} {:>9} {:>9} {:>9} {:>9}", "rows", "form", "ms", "MB wire", "MB plain", "GB/s");
    for kind in Kind::ALL {
        let program = load(&direct, kind, rows).await?;
        let half = Program { filter: Some(odd(kind, rows)?), ..program.clone() };
        for (name, program) in [("all", &program), ("half of them", &half)] {
            for form in ResultForm::ALL {
                let pool = RemotePool::connect(&url, ClientOptions::default()).await?.with_results(form);
                throughput(&pool, &format!("{} {name}", kind.name), form, program).await?;
            }
        }
        direct.drop_table(&program.table).await?;
    }
    Ok(())
}

fn io_error(error: std::io::Error) -> Error {
    Error::unavailable(error.to_string())
}

/// A kind of column values for which results are measured.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    columns: usize,
    value: fn(std::ops::Range<i64>) -> ArrayRef,
}

impl Kind {
    const ALL: [Kind; 5] = [
        Kind { name: "wide integers", columns: 4, value: wide },
        Kind { name: "integers of 20 bits", columns: 8, value: narrow },
        Kind { name: "prices", columns: 4, value: price },
        Kind { name: "ship modes", columns: 4, value: mode },
        Kind { name: "comments", columns: 2, value: comment },
    ];
}

fn spread(value: i64) -> i64 {
    value.wrapping_mul(0x9E37_79B9_7F4A_7C15_u64 as i64)
}

/// Returns integers that need all 64 bits, so that they do not compress, and a scan reads as many bytes in the pool as
/// are sent.
fn wide(rows: std::ops::Range<i64>) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(rows.map(spread)))
}

fn narrow(rows: std::ops::Range<i64>) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(rows.map(|row| spread(row) & 0xF_FFFF)))
}

fn price(rows: std::ops::Range<i64>) -> ArrayRef {
    let values = rows.map(|row| i128::from(90_000 + (spread(row) & 0x7F_FFFF)));
    Arc::new(Decimal128Array::from_iter_values(values).with_precision_and_scale(15, 2).expect("it fits"))
}

fn mode(rows: std::ops::Range<i64>) -> ArrayRef {
    let modes = ["AIR", "FOB", "MAIL", "RAIL", "REG AIR", "SHIP", "TRUCK"];
    Arc::new(StringViewArray::from_iter_values(rows.map(|row| modes[(spread(row) >> 40) as usize % 7])))
}

fn comment(rows: std::ops::Range<i64>) -> ArrayRef {
    let words =
        ["furiously ", "regular ", "deposits ", "sleep ", "carefully ", "about ", "the ", "packages "];
    let text =
        |row| (0..4).map(|word| words[(spread(row) >> (20 + 3 * word)) as usize & 7]).collect::<String>();
    Arc::new(StringViewArray::from_iter_values(rows.map(text)))
}

/// Loads a table of `rows` rows: columns of the kind, and a counter.
async fn load(pool: &RemotePool, kind: Kind, rows: i64) -> Result<Program> {
    let table = TableName::new(format!("t{rows}"))?;
    let batch = move |start: i64, end: i64| {
        let column = (kind.value)(start..end);
        let columns = (0..kind.columns).map(|index| (format!("c{index}"), column.clone()));
        let parity: ArrayRef =
            Arc::new(Int64Array::from_iter_values((start..end).map(|v| spread(v) >> 60 & 1)));
        RecordBatch::try_from_iter(columns.chain([("parity".to_string(), parity)]))
            .map_err(|error| Error::invalid(error.to_string()))
    };
    let schema = batch(0, 0)?.schema();
    let parts = (0..rows).step_by(65_536).map(move |start| batch(start, rows.min(start + 65_536)));
    let parts = Box::pin(futures::stream::iter(parts));
    pool.load(&table, LoadMode::Replace.into(), schema.clone(), None, parts).await?;
    Ok(Program::scan(table, &schema, &(0..kind.columns).collect::<Vec<_>>()))
}

/// Returns a filter that every other row passes.
fn odd(kind: Kind, _rows: i64) -> Result<Expr> {
    let one = Literal::new(Value::Int(1), arrow_schema::DataType::Int64)?;
    Ok(Expr::compare(CompareOp::Eq, Expr::Column(kind.columns), Expr::Literal(one)))
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

async fn throughput(pool: &RemotePool, name: &str, form: ResultForm, program: &Program) -> Result<()> {
    let mut best: Option<(u64, Receipt)> = None;
    for _ in 0..RUNS {
        let watch = Stopwatch::start();
        let receipt = run(pool, program).await?;
        let elapsed_ns = watch.elapsed_ns();
        if best.as_ref().is_none_or(|(fastest, _)| elapsed_ns < *fastest) {
            best = Some((elapsed_ns, receipt));
        }
    }
    let Some((ns, receipt)) = best else { return Ok(()) };
    println!(
        "{name:24} {:>8} {:>9.1} {:>9.1} {:>9.1} {:>9.2}  {:?}",
        form.name(),
        ns as f64 / 1e6,
        receipt.bytes_on_wire as f64 / 1e6,
        receipt.bytes_plain as f64 / 1e6,
        receipt.bytes_plain as f64 / ns as f64,
        receipt.encoding,
    );
    Ok(())
}

/// Relays connections to `address` at a limited rate; returns the address on which it listens.
async fn relay(address: String, mbit_per_s: u64) -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(io_error)?;
    let place = listener.local_addr().map_err(io_error)?.to_string();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let Ok(node) = TcpStream::connect(&address).await else { return };
            let (from_client, to_client) = client.into_split();
            let (from_node, to_node) = node.into_split();
            tokio::spawn(pass(from_client, to_node, mbit_per_s));
            tokio::spawn(pass(from_node, to_client, mbit_per_s));
        }
    });
    Ok(place)
}

async fn pass(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    mbit_per_s: u64,
) -> std::io::Result<()> {
    let mut buffer = vec![0; 256 << 10];
    let (watch, mut bytes) = (Stopwatch::start(), 0);
    let mut start_ns = 0;
    loop {
        let count = from.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        to.write_all(&buffer[..count]).await?;
        bytes += count as u64;
        let due_ns = start_ns + bytes * 8_000 / mbit_per_s.max(1);
        let now_ns = watch.elapsed_ns();
        if due_ns > now_ns + 1_000_000 {
            tokio::time::sleep(Duration::from_nanos(due_ns - now_ns)).await;
        } else if now_ns > due_ns + 10_000_000 {
            // The rate is measured anew after a pause, so that unused time does not allow a burst.
            (start_ns, bytes) = (now_ns, 0);
        }
    }
}
