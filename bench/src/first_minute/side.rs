//! Runs the process of one side of a comparison (farpool or a rival), from start to exit.

use crate::answers::Answer;
use crate::places;
use crate::pools::milliseconds;
use crate::rival::{self, RivalDefinition};
use anyhow::{Context, Result, bail};
use arrow::ipc::reader::StreamReader;
use serde::Deserialize;
use serde_json::json;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// A side of the comparison.
#[derive(Clone, Debug)]
pub enum Side {
    /// Farpool's program from this build.
    Farpool(PathBuf),
    /// A Python process with the rival as a library.
    Rival { name: String, python: PathBuf, version: String },
}

/// The input of a process: a statement and its files.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    pub sql: &'a str,
    pub file: Option<&'a Path>,
    /// The file that the statement writes; `None` if it returns rows.
    pub out: Option<&'a Path>,
    /// A folder for answers.
    pub scratch: &'a Path,
}

/// Times of a process, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Time from the start of the process to its exit.
    pub whole: f64,
    /// Time without the start of an interpreter and imports.
    pub own: f64,
}

/// The output of a rival's process.
#[derive(Deserialize)]
struct Said {
    import_ms: f64,
    run_ms: f64,
    version: String,
}

impl Side {
    /// Returns farpool's side, whose program is next to this one.
    pub fn farpool() -> Result<Side> {
        Ok(Side::Farpool(places::program()?))
    }

    /// Returns the side of a rival.
    ///
    /// # Errors
    /// Fails if the rival is not installed. The error goes to the report; the suite continues without the rival.
    pub fn rival(name: &str) -> Result<Side> {
        let definition = RivalDefinition::named(name)?;
        let python = definition.python()?;
        let mut side = Side::Rival { name: definition.name, python, version: String::new() };
        let scratch = tempfile::tempdir()?;
        let request = Request { sql: "SELECT 1 AS one", file: None, out: None, scratch: scratch.path() };
        let said = side.said(&request)?;
        if let Side::Rival { version, .. } = &mut side {
            *version = said.version;
        }
        Ok(side)
    }

    pub fn name(&self) -> &str {
        match self {
            Side::Farpool(_) => "farpool",
            Side::Rival { name, .. } => name,
        }
    }

    pub fn version(&self) -> &str {
        match self {
            Side::Farpool(_) => env!("CARGO_PKG_VERSION"),
            Side::Rival { version, .. } => version,
        }
    }

    /// Runs the process; returns its times and its answer, unless it writes a file.
    pub fn run(&self, request: &Request<'_>) -> Result<(Times, Option<Answer>)> {
        let start = Instant::now();
        let ms = || milliseconds(start);
        let answer_file = request.answer_file();
        let times = match self {
            Side::Farpool(program) => {
                let mut command = Command::new(program);
                command.args(["sql", "--format", "arrow", "-c", &request.statement()]);
                command.stdin(Stdio::null()).stdout(File::create(&answer_file)?);
                let status = command.status().context("cannot start farpool")?;
                let whole = ms();
                if !status.success() {
                    bail!("farpool failed ({status})");
                }
                Times { whole, own: whole }
            }
            Side::Rival { .. } => {
                let said = self.said(request)?;
                let whole = ms();
                debug_assert!(said.import_ms + said.run_ms <= whole);
                Times { whole, own: said.run_ms }
            }
        };
        let answer = match request.out {
            Some(_) => None,
            None => Some(read_answer(&answer_file, matches!(self, Side::Farpool(_)))?),
        };
        Ok((times, answer))
    }

    /// Runs a rival's process.
    fn said(&self, request: &Request<'_>) -> Result<Said> {
        let Side::Rival { name, python, .. } = self else { bail!("farpool is no rival") };
        let asked = json!({
            "engine": name.to_lowercase(),
            "sql": request.sql,
            "file": request.file,
            "out": request.out,
            "answer": request.out.is_none().then(|| request.answer_file()),
        });
        let script = places::root().join("bench/rivals/first_minute.py");
        let mut command = Command::new(python);
        command.arg("-B").arg(script).arg(asked.to_string()).stdin(Stdio::null());
        let output = command.stderr(Stdio::inherit()).output().context("cannot start Python")?;
        if !output.status.success() {
            bail!("{name} failed ({})", output.status);
        }
        serde_json::from_slice(&output.stdout).with_context(|| format!("{name} did not say its times"))
    }
}

impl Request<'_> {
    /// Returns the statement with the paths of its files inserted.
    fn statement(&self) -> String {
        let quoted = |path: &Path| path.display().to_string().replace('\'', "''");
        let file = self.file.map(|file| format!("'{}'", quoted(file))).unwrap_or_default();
        self.sql.replace("{file}", &file).replace("{out}", &self.out.map(quoted).unwrap_or_default())
    }

    fn answer_file(&self) -> PathBuf {
        self.scratch.join("answer.arrow")
    }
}

fn read_answer(file: &Path, is_stream: bool) -> Result<Answer> {
    if !is_stream {
        return rival::read_answer(file);
    }
    let reader = StreamReader::try_new(File::open(file)?, None)?;
    let columns = reader.schema().fields().iter().map(|field| field.name().clone()).collect();
    let batches = reader.collect::<Result<Vec<_>, _>>()?;
    Answer::from_batches(columns, &batches).map_err(anyhow::Error::msg)
}
