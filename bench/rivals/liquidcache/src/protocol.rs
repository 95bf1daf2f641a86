//! Requests and answers, a line each. An error is sent as an answer; the benchmark decides how to handle it.

use crate::client::Client;
use crate::digest::Digest;
use anyhow::{Context, Result};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::Schema;
use datafusion::arrow::ipc::writer::FileWriter;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

#[derive(Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
enum Request {
    Start { threads: usize },
    Load { table: String, file: PathBuf },
    Drop { table: String },
    Run { statement: String, clients: usize, answer: Option<PathBuf> },
}

/// The answer to the request to run a statement.
#[derive(Serialize)]
struct Ran {
    ms: f64,
    /// Bytes that client and server have sent each other.
    wire: u64,
    #[serde(flatten)]
    digest: Option<Digest>,
}

/// Answers requests until the input ends.
pub fn serve() -> Result<()> {
    // A panic of the client becomes an error in an answer, and need not be printed as well.
    std::panic::set_hook(Box::new(|_| {}));
    let mut client = None;
    for line in std::io::stdin().lock().lines() {
        let request = serde_json::from_str(&line?).context("not a request");
        let value = match request.and_then(|request| answer(&mut client, request)) {
            Ok(value) => value,
            Err(error) => json!({ "error": format!("{error:#}") }),
        };
        let mut output = std::io::stdout().lock();
        writeln!(output, "{value}")?;
        output.flush()?;
    }
    Ok(())
}

fn answer(client: &mut Option<Client>, request: Request) -> Result<Value> {
    match request {
        Request::Start { threads } => {
            *client = Some(Client::start(threads)?);
            Ok(json!({ "version": env!("CARGO_PKG_VERSION") }))
        }
        Request::Load { table, file } => {
            let start = Instant::now();
            started(client)?.load(&table, &file)?;
            Ok(json!({ "ms": milliseconds(start) }))
        }
        Request::Drop { table } => started(client)?.drop_table(&table).map(|()| json!({})),
        Request::Run { statement, clients, answer } => {
            let ran = run(started(client)?, &statement, clients, answer.as_deref())?;
            Ok(serde_json::to_value(ran)?)
        }
    }
}

fn started(client: &mut Option<Client>) -> Result<&mut Client> {
    client.as_mut().context("the first request has to be `start`")
}

fn run(client: &mut Client, statement: &str, clients: usize, answer: Option<&Path>) -> Result<Ran> {
    let before = client.bytes_on_wire()?;
    let (results, ms) = client.run(statement, clients)?;
    let wire = client.bytes_on_wire()? - before;
    let first = results.first().context("no client ran it")?;
    if let Some(file) = answer {
        write(file, &first.schema, &first.batches)?;
        return Ok(Ran { ms, wire, digest: None });
    }
    let digest = Digest::of(&first.batches)?;
    for other in &results[1..] {
        anyhow::ensure!(Digest::of(&other.batches)? == digest, "the clients' answers differ");
    }
    Ok(Ran { ms, wire, digest: Some(digest) })
}

fn write(file: &Path, schema: &Schema, batches: &[RecordBatch]) -> Result<()> {
    let mut writer = FileWriter::try_new(File::create(file)?, schema)?;
    for batch in batches {
        writer.write(batch)?;
    }
    Ok(writer.finish()?)
}

/// Returns the milliseconds since `start`.
pub fn milliseconds(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}
