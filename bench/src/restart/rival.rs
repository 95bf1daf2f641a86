//! DuckDB with a database file, in a separate process for each statement: `bench/rivals/restart.py`.

use super::definition::{APPEND_ROWS, Store};
use crate::answers::Answer;
use crate::places;
use crate::pools::milliseconds;
use crate::process::Process;
use crate::rival::{RivalDefinition, read_answer};
use crate::tables::{Content, batches_between};
use anyhow::{Context, Result, bail};
use arrow::ipc::writer::StreamWriter;
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// Rows of a batch that is passed on.
const BATCH_ROWS: u64 = 64 << 10;

/// DuckDB's Python environment, in which its processes run.
pub struct Duckdb {
    python: PathBuf,
    pub version: String,
}

/// Times of a process, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Time from the start of the process to the answer.
    pub whole: f64,
    /// Time without the start of an interpreter and imports.
    pub own: f64,
}

/// The output of a process after all rows of its statement have arrived.
#[derive(Deserialize)]
struct Said {
    own_ms: f64,
    version: String,
}

impl Duckdb {
    /// Finds DuckDB's Python environment.
    ///
    /// # Errors
    /// Fails if it is not installed.
    pub fn find() -> Result<Duckdb> {
        let python = RivalDefinition::named("duckdb")?.python()?;
        let mut duckdb = Duckdb { python, version: String::new() };
        duckdb.version = duckdb.warm()?;
        Ok(duckdb)
    }

    /// Loads the interpreter and the libraries into the page cache; returns DuckDB's version.
    pub fn warm(&self) -> Result<String> {
        let (mut process, _) = self.start(&json!({ "do": "version" }))?;
        let line = process.first_line()?;
        Ok(said(&mut process, &line)?.version)
    }

    /// Creates the file of a store, with `appends` appends in its log.
    pub fn fill(
        &self,
        store: &Store,
        columns: &[(String, Content)],
        file: &Path,
        appends: u64,
    ) -> Result<()> {
        let rows = store.rows * store.tables;
        let batch_rows = if store.tables == 1 { BATCH_ROWS } else { store.rows };
        let names = if store.tables == 1 { "one" } else { "many" };
        self.feed(&json!({ "do": names, "file": file }), columns, 0..rows, batch_rows)?;
        if appends > 0 {
            let behind = rows..rows + appends * APPEND_ROWS;
            self.feed(&json!({ "do": "append", "file": file }), columns, behind, APPEND_ROWS)?;
        }
        Ok(())
    }

    fn feed(
        &self,
        request: &Value,
        columns: &[(String, Content)],
        rows: std::ops::Range<u64>,
        batch_rows: u64,
    ) -> Result<()> {
        let (mut process, _) = self.start(request)?;
        let input = process.stdin.take().context("the process has no standard input")?;
        let all = rows.end;
        let mut batches = batches_between(columns, all, rows, batch_rows).peekable();
        let schema = match batches.peek() {
            Some(Ok(first)) => first.schema(),
            _ => bail!("a store without rows"),
        };
        let mut writer = StreamWriter::try_new(BufWriter::new(input), &schema)?;
        for batch in batches {
            writer.write(&batch?)?;
        }
        writer.finish()?;
        drop(writer);
        let line = process.first_line()?;
        said(&mut process, &line).map(|_| ())
    }

    /// Opens the file in a new process and runs a statement.
    pub fn query(
        &self,
        file: &Path,
        sql: &str,
        (memory_mib, threads): (usize, usize),
        scratch: &Path,
    ) -> Result<(Times, Answer)> {
        let answer = scratch.join("answer.arrow");
        let memory = format!("{memory_mib}MiB");
        let request = json!({
            "do": "query", "file": file, "sql": sql, "memory": memory, "threads": threads, "answer": answer,
        });
        let (mut process, start) = self.start(&request)?;
        let line = process.first_line()?;
        let whole = milliseconds(start);
        Ok((Times { whole, own: said(&mut process, &line)?.own_ms }, read_answer(&answer)?))
    }

    fn start(&self, request: &Value) -> Result<(Process, Instant)> {
        let script = places::root().join("bench/rivals/restart.py");
        let mut command = Command::new(&self.python);
        command.arg("-B").arg(script).arg(request.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let start = Instant::now();
        Ok((Process::start(&mut command)?, start))
    }
}

/// Parses the line that a process printed when its statement was complete, and waits for its end.
fn said(process: &mut Process, line: &str) -> Result<Said> {
    if !process.wait()?.success() {
        bail!("DuckDB failed");
    }
    serde_json::from_str(line).context("DuckDB did not say its time")
}
