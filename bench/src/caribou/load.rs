//! The load generator: threads whose connections send requests to a server and check the replies.
//!
//! In a *closed* loop each connection sends a batch of requests, waits for all replies, and sends the next batch. In an
//! *open* loop requests are due at times that do not depend on earlier replies, and latencies are measured from these
//! times, so that a server that stalls delays all requests that are due meanwhile, and not only one (no coordinated
//! omission).
//!
//! Invariant: every reply is compared with the expected one, and a difference ends the run with an error.

mod open;
#[cfg(test)]
mod tests;
mod worker;

use super::histogram::Histogram;
use super::keys::{Data, Draw, Skew};
use super::protocol::Protocol;
use crate::threads;
use anyhow::Result;
use futures::future::{Either, select, try_join_all};
use serde::{Deserialize, Deserializer, Serialize};
use std::cell::RefCell;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use worker::{Input, Line, Tally, Worker};

/// Percentages of the kinds of operations, 100 in total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Mix {
    pub read: u64,
    pub update: u64,
    pub insert: u64,
    pub delete: u64,
    /// Reads that are followed by an update of the same key. The update is not counted in the percentages.
    pub modify: u64,
}

/// A run of the load generator.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    pub address: SocketAddr,
    pub protocol: Protocol,
    /// The server's process, whose CPU time is measured.
    pub process: u32,
    pub threads: usize,
    pub connections: usize,
    /// Number of requests that a connection sends before it reads their replies (pipeline depth).
    pub depth: usize,
    pub value_bytes: usize,
    /// Number of key prefixes; 1 for keys without a prefix.
    pub prefixes: u64,
    pub mix: Mix,
    pub skew: Skew,
    /// Number of keys that exist before the run.
    pub keys: u64,
    /// Maximum number of operations; the run ends before them when its time is over. `None` for no maximum.
    pub operations: Option<u64>,
    /// Requests per second that are due in an open loop; `None` for a closed loop.
    pub rate: Option<f64>,
    pub warm_up_s: f64,
    pub seconds: f64,
    /// The condition of conditional reads (`FP.CGET`), and whether all values match it or none does; `None` for plain
    /// reads.
    pub condition: Option<(String, bool)>,
}

/// The measurements of a job.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// Number of operations after the warm-up.
    pub operations: u64,
    /// Seconds after the warm-up, and the CPU time of the server's process in them.
    pub seconds: f64,
    pub server_cpu_s: f64,
    /// Number of reads of keys whose insertion had not completed.
    pub misses: u64,
    /// Number of keys after the job; deleted keys are included.
    pub keys: u64,
    /// Latencies in microseconds; percentiles are NaN if there was no reply.
    #[serde(deserialize_with = "nan_for_null")]
    pub p50_us: f64,
    #[serde(deserialize_with = "nan_for_null")]
    pub p99_us: f64,
    #[serde(deserialize_with = "nan_for_null")]
    pub p999_us: f64,
    pub most_us: f64,
    /// The reason why nothing was measured: the server refused a connection, or closed one. `None` if it did not.
    pub refused: Option<String>,
}

/// Reads null as NaN: JSON has no NaN, so that percentiles of a run without replies are written as null.
fn nan_for_null<'d, D: Deserializer<'d>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(f64::NAN))
}

impl Outcome {
    /// Returns the operations per second.
    pub fn rate(&self) -> f64 {
        self.operations as f64 / self.seconds
    }

    /// Returns the operations per CPU second of the server.
    pub fn per_cpu(&self) -> f64 {
        self.operations as f64 / self.server_cpu_s
    }
}

/// The state that all threads of a run share. `inserted` counts the keys that exist or are being inserted, `deleted`
/// and `asked` the requests to delete a key and all requests.
struct Shared<'a> {
    job: &'a Job,
    data: Data,
    draw: Draw,
    inserted: AtomicU64,
    deleted: AtomicU64,
    asked: AtomicU64,
}

/// Runs a job on the threads that it asks for. A server that refuses connections is an outcome, not an error.
///
/// # Errors
/// Fails if a reply is wrong.
pub fn run(job: &Job) -> Result<Outcome> {
    let shared = Shared {
        job,
        data: Data::new(job.value_bytes, job.prefixes)?,
        draw: Draw::new(job.skew, job.keys.max(1)),
        inserted: AtomicU64::new(job.keys),
        deleted: AtomicU64::new(0),
        asked: AtomicU64::new(0),
    };
    let tallies = threads::on_each(job.threads, |number| thread(&shared, number));
    match tallies {
        Ok(tallies) => Ok(outcome(&shared, &tallies)),
        Err(error) => match error.downcast_ref::<Refused>() {
            Some(Refused(why)) => Ok(Outcome { refused: Some(why.clone()), ..Outcome::default() }),
            None => Err(error),
        },
    }
}

/// Adds up what all threads have counted.
fn outcome(shared: &Shared<'_>, tallies: &[Tally]) -> Outcome {
    let mut latencies = Histogram::new();
    tallies.iter().for_each(|tally| latencies.merge(&tally.latencies));
    let of = |value: &dyn Fn(&Tally) -> f64| tallies.iter().map(value).fold(0.0, f64::max);
    let us = |part| latencies.percentile(part) / 1e3;
    Outcome {
        operations: tallies.iter().map(|tally| tally.operations).sum(),
        seconds: of(&|tally| tally.seconds),
        server_cpu_s: of(&|tally| tally.server_cpu_s),
        misses: tallies.iter().map(|tally| tally.misses).sum(),
        keys: shared.inserted.load(Ordering::Relaxed),
        p50_us: us(0.5),
        p99_us: us(0.99),
        p999_us: us(0.999),
        most_us: latencies.most() as f64 / 1e3,
        refused: None,
    }
}

/// The error of a server that refuses a connection, or closes one.
#[derive(Debug)]
struct Refused(String);

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

/// Runs the share of one thread in the connections of a job.
fn thread(shared: &Shared<'_>, number: usize) -> Result<Tally> {
    // Polls the sockets after each task: tokio's default of 61 tasks would delay replies if there are thousands of
    // connections.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().event_interval(1).build()?;
    let job = shared.job;
    let own = (number..job.connections).step_by(job.threads).count();
    let worker = RefCell::new(Worker::new(shared, number));
    runtime.block_on(async {
        let mut streams = connect(job.address, own).await?;
        match job.rate {
            Some(rate) => open::open(&worker, &mut streams, rate / job.threads as f64).await,
            None => closed(&worker, &mut streams).await,
        }
    })?;
    Ok(worker.into_inner().tally)
}

/// Opens connections, one after the other.
///
/// # Errors
/// Fails with [`Refused`] if the server does not accept one of them.
async fn connect(address: SocketAddr, count: usize) -> Result<Vec<TcpStream>> {
    let mut streams = Vec::with_capacity(count);
    for number in 0..count {
        let refused = |error| Refused(format!("connection {number} of {count}: {error}"));
        let stream = TcpStream::connect(address).await.map_err(refused)?;
        stream.set_nodelay(true)?;
        streams.push(stream);
    }
    Ok(streams)
}

/// Runs the closed loops of all connections until the run ends.
async fn closed(worker: &RefCell<Worker<'_>>, streams: &mut [TcpStream]) -> Result<()> {
    let all = try_join_all(streams.iter_mut().map(|stream| closed_line(worker, stream)));
    let mut all = pin!(all);
    // Polls the clock first, because busy sockets may use up the time slice of the task.
    match select(pin!(phases(worker)), all.as_mut()).await {
        Either::Left((ended, _)) => {
            ended?;
            all.await.map(drop)
        }
        // All operations of the job have run before its time was over.
        Either::Right((all, _)) => {
            all?;
            worker.borrow_mut().end()
        }
    }
}

/// Runs the closed loop of one connection.
async fn closed_line(worker: &RefCell<Worker<'_>>, stream: &mut TcpStream) -> Result<()> {
    let (mut line, mut input) = (Line::default(), Input::new());
    while worker.borrow_mut().ask_batch(&mut line) {
        let written = stream.write_all(&line.output).await;
        written.map_err(|error| Refused(format!("a connection broke: {error}")))?;
        line.output.clear();
        while !line.asked.is_empty() {
            input.read(stream).await?;
            worker.borrow_mut().take(&mut line, &mut input)?;
        }
    }
    Ok(())
}

/// Waits for the end of the warm-up, starts counting, waits for the end of the run, and ends it.
async fn phases(worker: &RefCell<Worker<'_>>) -> Result<()> {
    let job = worker.borrow().shared.job;
    if job.warm_up_s > 0.0 {
        tokio::time::sleep(Duration::from_secs_f64(job.warm_up_s)).await;
    }
    worker.borrow_mut().begin()?;
    tokio::time::sleep(Duration::from_secs_f64(job.seconds)).await;
    worker.borrow_mut().end()
}
