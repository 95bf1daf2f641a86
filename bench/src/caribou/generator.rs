//! The load generator (`load.rs`) in a separate process, so that it can be pinned to another processor than the server.
//! Its jobs and their outcomes are lines of JSON on its standard input and output.

use super::load::{self, Job, Outcome};
use super::server::on_processors;
use crate::process::Process;
use anyhow::{Context, Result, anyhow};
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout, Stdio};

/// The process of a load generator, which is killed when this value is dropped.
pub struct Generator {
    _process: Process,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Generator {
    /// Starts this program again as a generator on these processors.
    pub fn start(processors: &str) -> Result<Generator> {
        let mut command = on_processors(processors, &std::env::current_exe()?);
        command.arg("load").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process::start(&mut command)?;
        let input = process.stdin.take().context("the generator has no standard input")?;
        let output = process.stdout.take().context("the generator has no standard output")?;
        Ok(Generator { _process: process, input, output: BufReader::new(output) })
    }

    /// Sends a job to the process, and waits for its outcome.
    ///
    /// # Errors
    /// Fails if a reply of the server was wrong, or if the process has ended.
    pub fn run(&mut self, job: &Job) -> Result<Outcome> {
        writeln!(self.input, "{}", serde_json::to_string(job)?)?;
        self.input.flush()?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        let said: Result<Outcome, String> =
            serde_json::from_str(&line).context("the generator has ended without a word")?;
        said.map_err(|error| anyhow!(error))
    }
}

/// Runs one job after the other until the standard input ends: the body of the process.
pub fn serve() -> Result<()> {
    let mut output = std::io::stdout();
    for line in std::io::stdin().lock().lines() {
        let outcome = load::run(&serde_json::from_str(&line?)?).map_err(|error| format!("{error:#}"));
        writeln!(output, "{}", serde_json::to_string(&outcome)?)?;
        output.flush()?;
    }
    Ok(())
}
