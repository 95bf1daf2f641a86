//! `farpool serve` over a data directory, in a separate process.

use crate::answers::Answer;
use crate::places;
use crate::pools::{self, milliseconds};
use crate::process::Process;
use anyhow::{Context, Result};
use farpool::{Pool, Receipt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Memory for work, in MiB.
const WORK_MIB: usize = 1024;

/// Bytes of the log after which a node makes a checkpoint, for a log that is to become long.
const LONG_LOG: &str = "4GiB";

/// Time limit for a node to make a checkpoint and end.
const STOP: Duration = Duration::from_secs(90);

/// A node's process.
pub struct Served {
    process: Process,
    url: String,
    /// The time at which the process was started.
    start: Instant,
    threads: usize,
}

/// An answer to a statement, with the time that it took.
pub struct Answered {
    pub answer: Answer,
    pub receipt: Receipt,
    /// Milliseconds since the process was started, and since the statement was submitted.
    pub since_start_ms: f64,
    pub ms: f64,
}

impl Served {
    /// Starts a node with `memory_mib` MiB for tables and waits until it listens.
    pub fn start(data: &Path, memory_mib: usize, threads: usize, has_long_log: bool) -> Result<Served> {
        let mut command = Command::new(places::program()?);
        command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(data);
        command.args(["--memory", &format!("{memory_mib}MiB"), "--work-memory", &format!("{WORK_MIB}MiB")]);
        command.args(["--workers", &threads.to_string()]);
        if has_long_log {
            command.args(["--log-size", LONG_LOG]);
        }
        let start = Instant::now();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = Process::start(&mut command)?;
        let line = process.first_line()?;
        let url = line.split_whitespace().find(|word| word.starts_with("farpool://"));
        let url = url.with_context(|| format!("the node did not start: {line}"))?.trim_end_matches(',');
        Ok(Served { process, url: url.to_string(), start, threads })
    }

    /// Connects a client; returns it with the milliseconds since the process was started.
    pub async fn connect(&self) -> Result<(Arc<dyn Pool>, f64)> {
        let pool = farpool::connect(&self.url, None).await?;
        Ok((pool, self.since_start_ms()))
    }

    /// Runs a statement in a new session.
    pub async fn query(&self, pool: &Arc<dyn Pool>, sql: &str) -> Result<Answered> {
        let start = Instant::now();
        let session = pools::session(pool.clone(), true, self.threads).await?;
        let ran = pools::run(&session, sql).await?;
        let (since_start_ms, ms) = (self.since_start_ms(), milliseconds(start));
        Ok(Answered { answer: ran.answer()?, receipt: ran.receipt, since_start_ms, ms })
    }

    /// Returns the milliseconds since the process was started.
    pub fn since_start_ms(&self) -> f64 {
        milliseconds(self.start)
    }

    /// Stops the process cleanly, or kills it.
    pub fn end(self, is_killed: bool) -> Result<()> {
        if is_killed { Ok(()) } else { self.process.stop(STOP) }
    }
}
