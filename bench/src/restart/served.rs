//! `farpool serve` over a data directory, in a separate process.

use crate::answers::Answer;
use anyhow::{Context, Result, anyhow, bail};
use farpool::{Pool, Receipt, Session, SessionOptions};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Memory for work, in MiB.
const WORK_MIB: usize = 1024;

/// Bytes of the log after which a node makes a checkpoint, for a log that is to become long.
const LONG_LOG: &str = "4GiB";

/// Time limit for a node to make a checkpoint and end.
const STOP: Duration = Duration::from_secs(90);

/// A node's process, which is killed when this value is dropped.
pub struct Served {
    process: Child,
    url: String,
    /// The time at which the process was started.
    start: Instant,
    threads: usize,
}

/// An answer, with the time that it took.
pub struct Answered {
    pub answer: Answer,
    pub receipt: Receipt,
    /// Milliseconds since the process was started, and since the statement was submitted.
    pub since_start_ms: f64,
    pub ms: f64,
}

/// Returns farpool's program, which is next to this one.
pub fn program() -> Result<PathBuf> {
    let program = std::env::current_exe()?.with_file_name("farpool");
    if !program.exists() {
        bail!("{} is not there: build it with --bin farpool", program.display());
    }
    Ok(program)
}

impl Served {
    /// Starts a node with `memory_mib` MiB for tables and waits until it listens.
    pub fn start(data: &Path, memory_mib: usize, threads: usize, has_long_log: bool) -> Result<Served> {
        let mut command = Command::new(program()?);
        command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(data);
        command.args(["--memory", &format!("{memory_mib}MiB"), "--work-memory", &format!("{WORK_MIB}MiB")]);
        command.args(["--workers", &threads.to_string()]);
        if has_long_log {
            command.args(["--log-size", LONG_LOG]);
        }
        let start = Instant::now();
        let mut process = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start farpool")?;
        let output = process.stdout.take().context("the node has no standard output")?;
        let mut served = Served { process, url: String::new(), start, threads };
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        let url = line.split_whitespace().find(|word| word.starts_with("farpool://"));
        served.url =
            url.ok_or_else(|| anyhow!("the node did not start: {line}"))?.trim_end_matches(',').to_string();
        Ok(served)
    }

    /// Connects a client; returns it with the milliseconds since the process was started.
    pub async fn connect(&self) -> Result<(Arc<dyn Pool>, f64)> {
        let pool = farpool::connect(&self.url, None).await?;
        Ok((pool, self.since_start_ms()))
    }

    /// Runs a statement in a new session.
    pub async fn query(&self, pool: &Arc<dyn Pool>, sql: &str) -> Result<Answered> {
        let start = Instant::now();
        let session = Session::new(SessionOptions {
            target_partitions: Some(self.threads),
            ..SessionOptions::default()
        });
        session.register_pool("farpool", pool.clone()).await?;
        let query = session.sql(sql).await?;
        let batches = query.collect().await?;
        let (since_start_ms, ms) = (self.since_start_ms(), start.elapsed().as_secs_f64() * 1e3);
        let columns = query.schema().fields().iter().map(|field| field.name().clone()).collect();
        let answer = Answer::from_batches(columns, &batches).map_err(anyhow::Error::msg)?;
        Ok(Answered { answer, receipt: query.receipt(), since_start_ms, ms })
    }

    /// Returns the milliseconds since the process was started.
    pub fn since_start_ms(&self) -> f64 {
        self.start.elapsed().as_secs_f64() * 1e3
    }

    /// Stops the process cleanly, or kills it.
    pub fn end(mut self, is_killed: bool) -> Result<()> {
        if is_killed {
            return Ok(());
        }
        let id = self.process.id().to_string();
        if !Command::new("kill").args(["-TERM", &id]).status().context("cannot start kill")?.success() {
            bail!("the node has ended by itself");
        }
        let asked = Instant::now();
        while self.process.try_wait()?.is_none() {
            if asked.elapsed() > STOP {
                bail!("the node does not end");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
