//! DuckDB in a Python process of its own: see `bench/rivals/duckdb_driver.py` for the protocol.

use crate::answers::Answer;
use crate::places;
use anyhow::{Context, Result, anyhow, bail};
use arrow::ipc::reader::FileReader;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The running driver. The process ends with it.
pub struct DuckDb {
    process: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    result_file: PathBuf,
    /// DuckDB's version.
    pub version: String,
    /// Milliseconds that loading all tables took.
    pub load_ms: f64,
}

impl DuckDb {
    /// Starts DuckDB and loads the tables in `folder`; `None` when it is not installed.
    pub fn start(folder: &Path, threads: usize) -> Result<Option<DuckDb>> {
        let python = places::rivals()?.join("bin/python");
        if !python.exists() {
            return Ok(None);
        }
        let mut process = Command::new(&python)
            .arg(places::root().join("bench/rivals/duckdb_driver.py"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", python.display()))?;
        let requests = process.stdin.take().context("the driver has no standard input")?;
        let answers = BufReader::new(process.stdout.take().context("the driver has no standard output")?);
        let result_file = std::env::temp_dir().join(format!("farpool-bench-{}.arrow", std::process::id()));
        let (version, load_ms) = (String::new(), 0.0);
        let mut duckdb = DuckDb { process, requests, answers, result_file, version, load_ms };
        let loaded = duckdb.request(&json!({ "load": folder, "threads": threads }))?;
        duckdb.version = loaded["version"].as_str().unwrap_or_default().to_string();
        duckdb.load_ms = milliseconds(&loaded)?;
        Ok(Some(duckdb))
    }

    /// Runs a query: its time in milliseconds, and its answer.
    pub fn run(&mut self, sql: &str) -> Result<(f64, Answer)> {
        let ran = self.request(&json!({ "run": sql, "answer": self.result_file }))?;
        let reader = FileReader::try_new(File::open(&self.result_file)?, None)?;
        let columns = reader.schema().fields().iter().map(|field| field.name().clone()).collect();
        let batches = reader.collect::<Result<Vec<_>, _>>()?;
        let answer = Answer::from_batches(columns, &batches).map_err(anyhow::Error::msg)?;
        Ok((milliseconds(&ran)?, answer))
    }

    fn request(&mut self, request: &Value) -> Result<Value> {
        writeln!(self.requests, "{request}").context("DuckDB's driver has ended")?;
        self.requests.flush()?;
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        let answer: Value = serde_json::from_str(&line).map_err(|_| {
            anyhow!("DuckDB's driver ended without an answer: is `cargo xtask rivals` complete?")
        })?;
        match answer.get("error").and_then(Value::as_str) {
            Some(error) => bail!("DuckDB: {error}"),
            None => Ok(answer),
        }
    }
}

fn milliseconds(answer: &Value) -> Result<f64> {
    answer["ms"].as_f64().context("DuckDB's driver gave no time")
}

impl Drop for DuckDb {
    fn drop(&mut self) {
        // Nothing can be done about a process that is gone or a file that was never written.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_file(&self.result_file);
    }
}
