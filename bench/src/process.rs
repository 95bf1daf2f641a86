//! Child processes of benchmarks, which are killed when the values that represent them are dropped.

use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader};
use std::ops::{Deref, DerefMut};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// A process that is killed when this value is dropped.
pub struct Process(pub Child);

impl Process {
    /// Starts a process that is killed when the returned value is dropped.
    pub fn start(command: &mut Command) -> Result<Process> {
        let program = command.get_program().to_os_string();
        command.spawn().map(Process).with_context(|| format!("cannot start {}", program.display()))
    }

    /// Reads the first line of the process's standard output, and closes it.
    pub fn first_line(&mut self) -> Result<String> {
        let output = self.0.stdout.take().context("the process has no standard output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        Ok(line)
    }

    /// Asks the process to stop, and waits at most `within` for its end.
    pub fn stop(mut self, within: Duration) -> Result<()> {
        let id = self.0.id().to_string();
        if !Command::new("kill").args(["-TERM", &id]).status().context("cannot start kill")?.success() {
            bail!("the process has ended by itself");
        }
        let asked = Instant::now();
        while self.0.try_wait()?.is_none() {
            if asked.elapsed() > within {
                bail!("the process does not end");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

impl Deref for Process {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Process {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Killing fails if the process has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
