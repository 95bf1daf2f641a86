//! The load generator as a separate process, so that it can run on a separate processor.

use super::load::{self, Job, Outcome};
use super::server::on_processors;
use anyhow::{Context, Result, anyhow};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

/// A generator's process, which ends when this value is dropped.
pub struct Generator {
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Generator {
    /// Starts this program again, on these processors.
    pub fn start(processors: &str) -> Result<Generator> {
        let mut command = on_processors(processors, &std::env::current_exe()?);
        let mut process = command
            .arg("load")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the generator")?;
        let output = process.stdout.take().context("the generator has no standard output")?;
        Ok(Generator { input: process.stdin.take(), output: BufReader::new(output), process })
    }

    /// Lets the process carry out a job.
    pub fn run(&mut self, job: &Job) -> Result<Outcome> {
        let input = self.input.as_mut().context("the generator has no standard input")?;
        writeln!(input, "{}", serde_json::to_string(job)?)?;
        input.flush()?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        let said: Result<Outcome, String> =
            serde_json::from_str(&line).context("the generator has ended without a word")?;
        said.map_err(|error| anyhow!(error))
    }
}

impl Drop for Generator {
    fn drop(&mut self) {
        drop(self.input.take());
        // The process ends by itself when its input ends.
        let _ = self.process.wait();
    }
}

/// Carries out one job after the other until the input ends: the body of the process.
pub fn serve() -> Result<()> {
    let mut output = std::io::stdout();
    for line in std::io::stdin().lock().lines() {
        let outcome = load::run(&serde_json::from_str(&line?)?).map_err(|error| format!("{error:#}"));
        writeln!(output, "{}", serde_json::to_string(&outcome)?)?;
        output.flush()?;
    }
    Ok(())
}
