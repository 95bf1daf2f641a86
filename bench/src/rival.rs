//! A rival (a system with which farpool is compared) in a separate process: see `bench/rivals/driver.py` for the
//! protocol, and `bench/definitions/rivals.toml` for the list of rivals.

use crate::answers::Answer;
use crate::digest::Digest;
use crate::places;
use crate::process::Process;
use anyhow::{Context, Result, anyhow, bail, ensure};
use arrow::ipc::reader::FileReader;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

/// Location of a rival's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// In the process that runs the query.
    Local,
    /// Behind a socket.
    Remote,
}

/// A rival; `bench/definitions/rivals.toml` explains the fields.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RivalDefinition {
    pub name: String,
    pub driver: String,
    pub environment: String,
    #[serde(default)]
    pub program: bool,
    pub place: Place,
    #[serde(default)]
    pub dialects: Vec<String>,
    #[serde(default)]
    pub only: bool,
    pub about: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rivals {
    rivals: Vec<RivalDefinition>,
}

impl RivalDefinition {
    /// Finds a rival by name, ignoring case.
    pub fn named(name: &str) -> Result<RivalDefinition> {
        let Rivals { rivals } = places::definition("rivals")?;
        let found = rivals.into_iter().find(|rival| rival.name.eq_ignore_ascii_case(name));
        found.with_context(|| format!("there is no rival {name:?} in bench/definitions/rivals.toml"))
    }

    /// Returns the interpreter of the rival's Python environment.
    ///
    /// # Errors
    /// Fails if the rival is not installed.
    pub fn python(&self) -> Result<PathBuf> {
        let environment = places::rivals()?.join(&self.environment);
        // Written when all packages are there: an environment without it was interrupted, or made by other means.
        ensure!(environment.join("installed").exists(), "not installed: run `cargo xtask rivals`");
        Ok(environment.join("bin/python"))
    }

    /// Returns the program that drives the rival, and its argument if it has one.
    ///
    /// # Errors
    /// Fails if the rival is not installed.
    pub fn command(&self) -> Result<(PathBuf, Option<PathBuf>)> {
        let driver = format!("{}_driver", self.driver);
        if !self.program {
            return Ok((self.python()?, Some(places::root().join(format!("bench/rivals/{driver}.py")))));
        }
        let program = places::rivals()?.join(&self.environment).join("bin").join(driver);
        ensure!(program.exists(), "not installed: run `cargo xtask rivals`");
        Ok((program, None))
    }
}

/// A statement for a rival.
#[derive(Clone, Debug)]
pub struct Statement<'a> {
    /// The statement in the rival's dialect.
    pub text: &'a str,
    /// The table that the statement reads; empty if it reads several.
    pub table: &'a str,
    /// The columns that the statement needs.
    pub columns: &'a [String],
    /// Number of clients that run the statement concurrently.
    pub clients: usize,
}

/// Statements that several clients ran concurrently.
pub struct Mix {
    /// Milliseconds until the last one had its result.
    pub ms: f64,
    /// CPU time of the rival's process.
    pub cpu_s: f64,
    /// The time and the result of each statement.
    pub each: Vec<(f64, Answer)>,
}

/// A running driver. Its process ends when this value is dropped.
pub struct Rival {
    pub definition: RivalDefinition,
    /// The rival's version.
    pub version: String,
    /// Bytes on the wire in the last run, if the driver counts them.
    pub bytes_on_wire: Option<u64>,
    process: Process,
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Rival {
    /// Starts the rival. An error goes to the report; the suite continues without the rival.
    pub fn start(definition: RivalDefinition, threads: usize) -> Result<Rival> {
        let (program, driver) = definition.command()?;
        let mut command = Command::new(&program);
        command.args(driver.iter().flat_map(|driver| [OsStr::new("-B"), driver.as_os_str()]));
        Rival::run_by(definition, command, threads)
    }

    /// Starts a process that speaks the protocol of a driver.
    pub fn run_by(definition: RivalDefinition, mut command: Command, threads: usize) -> Result<Rival> {
        let mut process = Process::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()))?;
        let requests = Some(process.stdin.take().context("the driver has no standard input")?);
        let answers = BufReader::new(process.stdout.take().context("the driver has no standard output")?);
        let (version, bytes_on_wire) = (String::new(), None);
        let mut rival = Rival { definition, version, bytes_on_wire, process, requests, answers };
        let started = rival.request(&json!({ "do": "start", "threads": threads }))?;
        rival.version = started["version"].as_str().unwrap_or_default().to_string();
        Ok(rival)
    }

    /// Returns the id of the process.
    pub fn process_id(&self) -> u32 {
        self.process.id()
    }

    /// Ends the process cleanly, and waits for it.
    pub fn end(mut self) -> Result<()> {
        // The process ends when its input does.
        drop(self.requests.take());
        self.process.wait()?;
        Ok(())
    }

    /// Loads a file into the rival's own memory; returns the milliseconds.
    pub fn load(&mut self, table: &str, file: &Path) -> Result<f64> {
        milliseconds(&self.request(&json!({ "do": "load", "table": table, "file": file }))?)
    }

    /// Drops a table.
    pub fn drop_table(&mut self, table: &str) -> Result<()> {
        self.request(&json!({ "do": "drop", "table": table })).map(|_| ())
    }

    /// Runs a statement; returns its time in milliseconds, and the digest of its result.
    pub fn run(&mut self, statement: &Statement<'_>) -> Result<(f64, Digest)> {
        let ran = self.request(&run_request(statement, None))?;
        let ms = milliseconds(&ran)?;
        Ok((ms, serde_json::from_value(ran).context("the driver gave no digest")?))
    }

    /// Runs a statement; returns its time in milliseconds, and its result.
    pub fn run_for_answer(&mut self, statement: &Statement<'_>) -> Result<(f64, Answer)> {
        let file = std::env::temp_dir().join(format!("farpool-bench-{}.arrow", self.process.id()));
        let ran = self.request(&run_request(statement, Some(&file)));
        let answer = ran.and_then(|ran| Ok((milliseconds(&ran)?, read_answer(&file)?)));
        // The file does not exist if the run failed.
        let _ = std::fs::remove_file(&file);
        answer
    }

    /// Runs statements with several clients, each of which takes the next one as soon as it is free.
    pub fn run_mix(&mut self, statements: &[&str], clients: usize) -> Result<Mix> {
        let folder = tempfile::tempdir()?;
        let request =
            json!({ "do": "mix", "statements": statements, "clients": clients, "folder": folder.path() });
        let ran = self.request(&request)?;
        let each_ms: Vec<f64> =
            serde_json::from_value(ran["each_ms"].clone()).context("no times of a mix")?;
        let cpu_s = ran["cpu_s"].as_f64().context("the driver gave no CPU time")?;
        let answer = |(place, ms)| Ok((ms, read_answer(&folder.path().join(format!("{place}.arrow")))?));
        let each = each_ms.into_iter().enumerate().map(answer).collect::<Result<_>>()?;
        Ok(Mix { ms: milliseconds(&ran)?, cpu_s, each })
    }

    /// Sends a request that only this rival's driver knows, and returns its answer.
    pub fn ask(&mut self, request: &Value) -> Result<Value> {
        self.request(request)
    }

    fn request(&mut self, request: &Value) -> Result<Value> {
        let requests = self.requests.as_mut().context("the driver has ended")?;
        writeln!(requests, "{request}").context("the driver has ended")?;
        requests.flush()?;
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        let answer: Value = serde_json::from_str(&line)
            .map_err(|_| anyhow!("the driver ended without an answer: is `cargo xtask rivals` complete?"))?;
        self.bytes_on_wire = answer["wire"].as_u64();
        match answer.get("error").and_then(Value::as_str) {
            Some(error) => bail!("{error}"),
            None => Ok(answer),
        }
    }
}

fn run_request(statement: &Statement<'_>, answer: Option<&Path>) -> Value {
    json!({
        "do": "run",
        "statement": statement.text,
        "table": statement.table,
        "columns": statement.columns,
        "clients": statement.clients,
        "answer": answer,
    })
}

/// Reads an answer from an Arrow IPC file.
pub fn read_answer(file: &Path) -> Result<Answer> {
    let reader = FileReader::try_new(File::open(file)?, None)?;
    let columns = reader.schema().fields().iter().map(|field| field.name().clone()).collect();
    let batches = reader.collect::<Result<Vec<_>, _>>()?;
    Answer::from_batches(columns, &batches).map_err(anyhow::Error::msg)
}

fn milliseconds(answer: &Value) -> Result<f64> {
    answer["ms"].as_f64().context("the driver gave no time")
}

#[cfg(test)]
mod tests {
    use super::{RivalDefinition, Rivals};
    use crate::places;

    #[test]
    fn every_rival_has_a_driver() {
        let Rivals { rivals } = places::definition("rivals").expect("it can be read");
        assert!(!rivals.is_empty());
        for rival in rivals {
            let file = if rival.program { "/Cargo.toml" } else { "_driver.py" };
            let driver = places::root().join(format!("bench/rivals/{}{file}", rival.driver));
            assert!(driver.exists(), "{}", driver.display());
        }
        assert!(RivalDefinition::named("duckdb").is_ok());
        assert!(RivalDefinition::named("nobody").is_err());
    }
}
