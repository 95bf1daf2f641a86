//! The load generator: connections that send requests, and check the replies.
//!
//! In a *closed* loop each connection sends a batch, waits for all its replies, and sends the next. In an *open* loop
//! requests are due at fixed times, regardless of earlier ones, and latencies are measured from these times: a server
//! that stalls for a while delays all requests of that time, and not only one (no coordinated omission).
//!
//! Invariant: every reply is compared with the expected one, and a difference ends the run with an error.

#[cfg(test)]
mod tests;

use super::histogram::Histogram;
use super::keys::{Data, Draw, Skew};
use super::protocol::{Protocol, Reply, command};
use crate::machine;
use crate::random::Random;
use anyhow::{Context, Result, anyhow, bail};
use futures::future::{Either, join, select, try_join_all};
use serde::{Deserialize, Deserializer, Serialize};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::WriteHalf;

/// Initial size of a connection's input buffer, and maximal number of requests of an open loop that wait for a reply.
const INPUT_BYTES: usize = 4 << 10;
const WAITING_MAX: usize = 1 << 20;

/// Shares of all operations, in hundredths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Mix {
    pub read: u64,
    pub update: u64,
    pub insert: u64,
    pub delete: u64,
    /// Reads that are followed by an update of the same key; only the read counts in the mix.
    pub modify: u64,
}

/// The task of a generator.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    pub address: SocketAddr,
    pub protocol: Protocol,
    /// The server's process, whose CPU time is measured.
    pub process: u32,
    pub threads: usize,
    pub connections: usize,
    pub depth: usize,
    pub value_bytes: usize,
    pub prefixes: u64,
    pub mix: Mix,
    pub skew: Skew,
    /// Number of existing keys.
    pub keys: u64,
    /// Maximal number of operations, if the time does not end earlier.
    pub operations: Option<u64>,
    /// Operations that are due each second; a closed loop if `None`.
    pub rate: Option<f64>,
    pub warm_up_s: f64,
    pub seconds: f64,
    /// The condition of conditional reads, and whether all values meet it or none does.
    pub condition: Option<(String, bool)>,
}

/// The result of a job.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    pub operations: u64,
    pub seconds: f64,
    pub server_cpu_s: f64,
    /// Number of reads of keys whose insertion had not completed.
    pub misses: u64,
    /// Number of keys after the job.
    pub keys: u64,
    #[serde(deserialize_with = "nan_for_null")]
    pub p50_us: f64,
    #[serde(deserialize_with = "nan_for_null")]
    pub p99_us: f64,
    #[serde(deserialize_with = "nan_for_null")]
    pub p999_us: f64,
    pub most_us: f64,
    /// The reason why there is no result: the server refused connections, or closed one.
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

    /// Returns the operations per second of the server's CPU time.
    pub fn per_cpu(&self) -> f64 {
        self.operations as f64 / self.server_cpu_s
    }
}

/// The state that all threads of a run share.
struct Shared<'a> {
    job: &'a Job,
    data: Data,
    draw: Draw,
    inserted: AtomicU64,
    deleted: AtomicU64,
    asked: AtomicU64,
}

/// Carries out a job.
pub fn run(job: &Job) -> Result<Outcome> {
    let shared = Shared {
        job,
        data: Data::new(job.value_bytes, job.prefixes)?,
        draw: Draw::new(job.skew, job.keys.max(1)),
        inserted: AtomicU64::new(job.keys),
        deleted: AtomicU64::new(0),
        asked: AtomicU64::new(0),
    };
    let tallies = std::thread::scope(|scope| {
        let start = |number| (number, &shared);
        let threads = (0..job.threads).map(start).map(|(n, shared)| scope.spawn(move || thread(shared, n)));
        let threads: Vec<_> = threads.collect();
        let joined =
            threads.into_iter().map(|thread| thread.join().map_err(|_| anyhow!("a thread panicked"))?);
        joined.collect::<Result<Vec<Tally>>>()
    });
    match tallies {
        Ok(tallies) => Ok(outcome(&shared, &tallies)),
        Err(error) => match error.downcast_ref::<Refused>() {
            Some(Refused(why)) => Ok(Outcome { refused: Some(why.clone()), ..Outcome::default() }),
            None => Err(error),
        },
    }
}

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

/// A server that accepts no more connections, or closes one.
#[derive(Debug)]
struct Refused(String);

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

/// The counters of a thread.
struct Tally {
    operations: u64,
    misses: u64,
    latencies: Histogram,
    seconds: f64,
    server_cpu_s: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Update,
    Insert,
    Delete,
    Modify,
}

/// A request that has no reply yet.
struct Asked {
    kind: Kind,
    number: u64,
    at: Instant,
}

/// A connection, without its socket.
#[derive(Default)]
struct Line {
    asked: VecDeque<Asked>,
    output: Vec<u8>,
    /// Keys that were read and will be updated next.
    to_change: VecDeque<u64>,
}

/// The received bytes of a connection.
struct Input {
    bytes: Vec<u8>,
    filled: usize,
}

impl Input {
    fn new() -> Input {
        Input { bytes: vec![0; INPUT_BYTES], filled: 0 }
    }

    async fn read(&mut self, from: &mut (impl AsyncReadExt + Unpin)) -> Result<()> {
        if self.filled == self.bytes.len() {
            self.bytes.resize(2 * self.filled, 0);
        }
        match from.read(&mut self.bytes[self.filled..]).await {
            Ok(0) => Err(Refused("the server closed a connection".to_string()).into()),
            Ok(count) => {
                self.filled += count;
                Ok(())
            }
            Err(error) => Err(Refused(format!("a connection broke: {error}")).into()),
        }
    }

    fn drop_first(&mut self, count: usize) {
        self.bytes.copy_within(count..self.filled, 0);
        self.filled -= count;
    }
}

/// The state of one thread of the generator.
struct Worker<'a> {
    shared: &'a Shared<'a>,
    random: Random,
    tally: Tally,
    key: Vec<u8>,
    value: Vec<u8>,
    /// The time from which operations count.
    counted_since: Option<Instant>,
    is_over: bool,
}

fn thread(shared: &Shared<'_>, number: usize) -> Result<Tally> {
    // Sockets are polled after each turn: with thousands of connections, some would otherwise wait for 61 turns.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().event_interval(1).build()?;
    let job = shared.job;
    let own = (number..job.connections).step_by(job.threads).count();
    let worker = RefCell::new(Worker {
        shared,
        random: Random(0xca51_b000 + number as u64 + job.keys),
        tally: Tally {
            operations: 0,
            misses: 0,
            latencies: Histogram::new(),
            seconds: 0.0,
            server_cpu_s: 0.0,
        },
        key: Vec::new(),
        value: Vec::new(),
        counted_since: None,
        is_over: false,
    });
    runtime.block_on(async {
        let mut streams = connect(job.address, own).await?;
        match job.rate {
            Some(rate) => open(&worker, &mut streams, rate / job.threads as f64).await,
            None => closed(&worker, &mut streams).await,
        }
    })?;
    Ok(worker.into_inner().tally)
}

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

async fn closed(worker: &RefCell<Worker<'_>>, streams: &mut [TcpStream]) -> Result<()> {
    let all = try_join_all(streams.iter_mut().map(|stream| closed_line(worker, stream)));
    let mut all = pin!(all);
    // The clock is polled first: busy sockets may use up the whole turn.
    match select(pin!(phases(worker)), all.as_mut()).await {
        Either::Left((ended, _)) => {
            ended?;
            all.await.map(drop)
        }
        // There are no more operations.
        Either::Right((all, _)) => {
            all?;
            worker.borrow_mut().end()
        }
    }
}

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

async fn open(worker: &RefCell<Worker<'_>>, streams: &mut [TcpStream], rate: f64) -> Result<()> {
    let lines: Vec<RefCell<Line>> = streams.iter().map(|_| RefCell::default()).collect();
    let halves = streams.iter_mut().map(|stream| stream.split());
    let (mut readers, writers): (Vec<_>, Vec<_>) = halves.unzip();
    let reading = readers.iter_mut().zip(&lines).map(|(reader, line)| async move {
        let mut input = Input::new();
        loop {
            input.read(reader).await?;
            worker.borrow_mut().take(&mut line.borrow_mut(), &mut input)?;
        }
    });
    let reading = pin!(try_join_all(reading));
    let sending = pin!(join(phases(worker), pace(worker, &writers, &lines, rate)));
    match select(sending, reading).await {
        Either::Left(((ended, paced), _)) => {
            // A request without a reply takes at least the time since it was sent.
            lines.iter().for_each(|line| worker.borrow_mut().give_up(&line.borrow()));
            ended.and(paced)
        }
        Either::Right((ended, _)) => ended.map(|_: Vec<()>| ()),
    }
}

/// Sends requests when they are due.
async fn pace(
    worker: &RefCell<Worker<'_>>,
    writers: &[WriteHalf<'_>],
    lines: &[RefCell<Line>],
    rate: f64,
) -> Result<()> {
    let mut pace = Pace { rate, due: Instant::now(), turn: 0, waiting: 0, to_write: Vec::new() };
    while !worker.borrow().is_over {
        pace.ask(&mut worker.borrow_mut(), lines);
        pace.write(writers, lines)?;
        // Polls the sockets without waiting: timers are too coarse for requests that are due within some microseconds.
        tokio::task::yield_now().await;
    }
    Ok(())
}

/// The schedule of an open loop.
struct Pace {
    rate: f64,
    /// The time at which the next request is due, and its connection.
    due: Instant,
    turn: usize,
    /// The largest number of requests of a connection without a reply.
    waiting: usize,
    /// Connections with output to write.
    to_write: Vec<usize>,
}

impl Pace {
    /// Queues the requests that are due by now.
    fn ask(&mut self, worker: &mut Worker<'_>, lines: &[RefCell<Line>]) {
        let now = Instant::now();
        while self.due <= now && self.waiting < WAITING_MAX {
            worker.ask(&mut lines[self.turn].borrow_mut(), self.due);
            self.to_write.push(self.turn);
            self.turn = (self.turn + 1) % lines.len();
            self.due += worker.gap(self.rate);
        }
        self.waiting = 0;
    }

    /// Writes as much as the sockets accept.
    fn write(&mut self, writers: &[WriteHalf<'_>], lines: &[RefCell<Line>]) -> Result<()> {
        let mut blocked = Vec::new();
        for place in self.to_write.drain(..) {
            let mut line = lines[place].borrow_mut();
            self.waiting = self.waiting.max(line.asked.len());
            // Requests that were due at the same time have been written together.
            if line.output.is_empty() {
                continue;
            }
            match writers[place].try_write(&line.output) {
                Ok(count) => drop(line.output.drain(..count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => bail!(Refused(format!("a connection broke: {error}"))),
            }
            if !line.output.is_empty() {
                blocked.push(place);
            }
        }
        self.to_write = blocked;
        Ok(())
    }
}

/// Starts counting after the warm-up, and ends the run.
async fn phases(worker: &RefCell<Worker<'_>>) -> Result<()> {
    let job = worker.borrow().shared.job;
    if job.warm_up_s > 0.0 {
        tokio::time::sleep(Duration::from_secs_f64(job.warm_up_s)).await;
    }
    worker.borrow_mut().begin()?;
    tokio::time::sleep(Duration::from_secs_f64(job.seconds)).await;
    worker.borrow_mut().end()
}

impl Worker<'_> {
    fn begin(&mut self) -> Result<()> {
        self.tally.server_cpu_s = -self.cpu()?;
        self.counted_since = Some(Instant::now());
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        let since = self.counted_since.take().context("it ended before the warm-up did")?;
        self.tally.seconds = since.elapsed().as_secs_f64();
        self.tally.server_cpu_s += self.cpu()?;
        self.is_over = true;
        Ok(())
    }

    fn cpu(&self) -> Result<f64> {
        let process = self.shared.job.process.to_string();
        machine::cpu_seconds_of(&process)
            .with_context(|| format!("process {process} does not say its CPU time"))
    }

    /// Returns the time until the next request is due: exponentially distributed, as if from very many clients.
    fn gap(&mut self, rate: f64) -> Duration {
        let part = ((self.random.next() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
        Duration::from_secs_f64(-part.ln() / rate)
    }

    /// Queues as many operations as the depth allows; returns whether there was one.
    fn ask_batch(&mut self, line: &mut Line) -> bool {
        let now = Instant::now();
        (0..self.shared.job.depth).take_while(|_| !self.is_over && self.ask(line, now)).count() > 0
    }

    /// Queues one operation; returns whether there was one.
    fn ask(&mut self, line: &mut Line, at: Instant) -> bool {
        let Some((kind, number)) = self.operation(line) else { return false };
        let Shared { job, data, .. } = self.shared;
        self.key.clear();
        data.key(number, &mut self.key);
        match kind {
            Kind::Read | Kind::Modify => match &job.condition {
                Some((condition, _)) => {
                    command(&[b"FP.CGET", &self.key, condition.as_bytes()], &mut line.output);
                }
                None => job.protocol.get(&self.key, &mut line.output),
            },
            Kind::Delete => job.protocol.delete(&self.key, &mut line.output),
            Kind::Update | Kind::Insert => {
                self.value.clear();
                data.value(number, &self.key, self.random.next() as u32, &mut self.value);
                job.protocol.set(&self.key, &self.value, &mut line.output);
            }
        }
        line.asked.push_back(Asked { kind, number, at });
        true
    }

    /// Returns the next operation and its key; `None` if there are no more.
    fn operation(&mut self, line: &mut Line) -> Option<(Kind, u64)> {
        let Shared { job, draw, inserted, deleted, asked, .. } = self.shared;
        if let Some(number) = line.to_change.pop_front() {
            return Some((Kind::Update, number));
        }
        let is_done = |most: u64| asked.fetch_add(1, Ordering::Relaxed) >= most;
        if job.operations.is_some_and(is_done) {
            return None;
        }
        let Mix { read, update, insert, delete, .. } = job.mix;
        let drawn = self.random.next() % 100;
        match drawn {
            _ if drawn < insert => return Some((Kind::Insert, inserted.fetch_add(1, Ordering::Relaxed))),
            _ if drawn < insert + delete => {
                let number = deleted.fetch_add(1, Ordering::Relaxed);
                return (number < job.keys).then_some((Kind::Delete, number));
            }
            _ => {}
        }
        let there = match job.skew {
            Skew::Latest => inserted.load(Ordering::Relaxed),
            _ => job.keys,
        };
        let number = draw.next(&mut self.random, there);
        let kind = match drawn - insert - delete {
            drawn if drawn < read => Kind::Read,
            drawn if drawn < read + update => Kind::Update,
            _ => Kind::Modify,
        };
        Some((kind, number))
    }

    /// Processes the replies that have arrived.
    fn take(&mut self, line: &mut Line, input: &mut Input) -> Result<()> {
        let (mut start, now) = (0, Instant::now());
        while let Some((reply, length)) = self.shared.job.protocol.reply(&input.bytes[start..input.filled]) {
            let asked = line.asked.pop_front().context("a reply that nobody asked for")?;
            self.check(&asked, &reply)?;
            if asked.kind == Kind::Modify {
                line.to_change.push_back(asked.number);
            }
            self.count(&asked, now);
            start += length;
        }
        input.drop_first(start);
        Ok(())
    }

    fn check(&mut self, asked: &Asked, reply: &Reply<'_>) -> Result<()> {
        let Shared { job, data, .. } = self.shared;
        let is_right = match (asked.kind, reply) {
            (Kind::Read | Kind::Modify, Reply::Value(value)) => {
                self.key.clear();
                data.key(asked.number, &mut self.key);
                let is_wanted = job.condition.as_ref().is_none_or(|(_, matches)| *matches);
                is_wanted && data.is_value(asked.number, &self.key, value)
            }
            (Kind::Read | Kind::Modify, Reply::Absent) => {
                // The key is being inserted on another connection.
                let is_new = asked.number >= job.keys;
                self.tally.misses += u64::from(is_new && self.counted_since.is_some());
                is_new || job.condition.as_ref().is_some_and(|(_, matches)| !matches)
            }
            (Kind::Update | Kind::Insert | Kind::Delete, Reply::Done) => true,
            _ => false,
        };
        if is_right {
            return Ok(());
        }
        let shown = match reply {
            Reply::Value(bytes) | Reply::Other(bytes) => {
                String::from_utf8_lossy(&bytes[..bytes.len().min(80)])
            }
            other => format!("{other:?}").into(),
        };
        bail!("a wrong reply to {:?} of key {}: {shown}", asked.kind, asked.number)
    }

    fn count(&mut self, asked: &Asked, now: Instant) {
        // In an open loop, operations count that were due during the measurement.
        let is_open = self.shared.job.rate.is_some();
        if self.counted_since.is_some_and(|since| !is_open || asked.at >= since) {
            self.tally.operations += 1;
            self.tally.latencies.add((now - asked.at).as_nanos() as u64);
        }
    }

    fn give_up(&mut self, line: &Line) {
        let now = Instant::now();
        line.asked.iter().for_each(|asked| {
            self.tally.latencies.add(now.saturating_duration_since(asked.at).as_nanos() as u64);
        });
    }
}
