//! Nodes and gateways that speak the protocols of other databases.

use crate::postgres::Endpoint;
use anyhow::{Context, Result, ensure};
use std::io::{BufRead, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

/// The name of the only user and the only database that a node shows.
pub const NAME: &str = "farpool";

/// A server of PostgreSQL's protocol; dropping it ends its process.
pub struct Node {
    /// The door for clients of PostgreSQL.
    pub postgres: Endpoint,
    /// The port of the door for clients of Flight SQL.
    pub flight: String,
    _process: Process,
}

impl Node {
    /// Starts a node without a data directory and waits until it listens.
    pub fn start(program: &Path) -> Result<Node> {
        Self::of(program, &["serve", "--listen", "127.0.0.1:0", "--memory", "1GiB"])
    }

    /// Starts a gateway over a pool.
    pub fn gateway(program: &Path, pool: &str) -> Result<Node> {
        Self::of(program, &["gateway", "--pool", pool])
    }

    fn of(program: &Path, arguments: &[&str]) -> Result<Node> {
        let mut command = Command::new(program);
        command.args(arguments).args(["--postgres", "127.0.0.1:0", "--flight", "127.0.0.1:0"]);
        let mut process = Process::start(&mut command)?;
        let line = process.told("postgresql://127.0.0.1:")?;
        let port = port_behind(&line, "postgresql://127.0.0.1:");
        let postgres = Endpoint { port, user: NAME.into(), database: NAME.into() };
        let flight = port_behind(&line, "grpc://127.0.0.1:");
        Ok(Node { postgres, flight, _process: process })
    }

    /// Runs statements through the door, and fails at the first error.
    pub fn execute(&self, script: &str) -> Result<()> {
        execute(&self.postgres, script)
    }
}

/// The pool of `farpool demo`, with TPC-H's tables; dropping it ends its process.
pub struct Demo {
    /// The address in the node's own protocol.
    pub url: String,
    _process: Process,
}

impl Demo {
    /// Makes the tables at a scale.
    pub fn start(program: &Path, scale: &str) -> Result<Demo> {
        let mut command = Command::new(program);
        command.args(["demo", "--scale", scale, "--runs", "1", "--keep"]);
        let mut process = Process::start(&mut command)?;
        // The address is printed behind the results, when all tables are there.
        let before = "farpool://127.0.0.1:";
        let url = format!("{before}{}", port_behind(&process.told(before)?, before));
        Ok(Demo { url, _process: process })
    }
}

/// A process whose output is read as long as it is of interest.
struct Process {
    child: Child,
    output: Lines<BufReader<ChildStdout>>,
}

impl Process {
    fn start(command: &mut Command) -> Result<Process> {
        let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut child = child.with_context(|| format!("cannot start {command:?}"))?;
        let output = BufReader::new(child.stdout.take().context("the process has no output")?).lines();
        Ok(Process { child, output })
    }

    /// Reads until a line with this part, and returns it.
    fn told(&mut self, part: &str) -> Result<String> {
        for line in self.output.by_ref() {
            let line = line?;
            if line.contains(part) {
                return Ok(line);
            }
        }
        anyhow::bail!("the process ended before it printed {part}…")
    }
}

/// Returns the port that a line has behind `before`.
fn port_behind(line: &str, before: &str) -> String {
    let behind = line.split_once(before).map_or("", |(_, behind)| behind);
    behind.chars().take_while(char::is_ascii_digit).collect()
}

impl Drop for Process {
    fn drop(&mut self) {
        // Killing fails if the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs statements by psql, and fails at the first error, which psql prints.
pub fn execute(endpoint: &Endpoint, script: &str) -> Result<()> {
    let done = "all statements were run";
    let script = format!("\\set ON_ERROR_STOP on\n{script}\n\\echo {done}\n");
    let output = endpoint.psql_with(&["-q", "-A", "-t"], &script, Stdio::inherit())?;
    ensure!(output.trim_end().ends_with(done), "a statement failed (see above)");
    Ok(())
}
