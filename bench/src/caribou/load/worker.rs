//! One thread of the load generator: its connections' requests and replies, without sockets.

use super::{Mix, Refused, Shared};
use crate::caribou::histogram::Histogram;
use crate::caribou::keys::Skew;
use crate::caribou::protocol::{Reply, command};
use crate::machine;
use crate::random::Random;
use anyhow::{Context, Result, bail};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::io::AsyncReadExt;

/// Initial size of a connection's input buffer.
const INPUT_BYTES: usize = 4 << 10;

/// Counts of one thread since the warm-up ended.
pub struct Tally {
    pub operations: u64,
    /// Number of reads of keys whose insertion had not completed.
    pub misses: u64,
    pub latencies: Histogram,
    pub seconds: f64,
    pub server_cpu_s: f64,
}

/// The kind of an operation; [`Mix`] describes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Update,
    Insert,
    Delete,
    Modify,
}

/// A request whose reply has not arrived yet.
pub struct Asked {
    kind: Kind,
    /// Number of the key.
    number: u64,
    /// Start of the latency: the time when the batch was queued, or, in an open loop, when the request was due.
    at: Instant,
}

/// The state of a connection, apart from its socket.
#[derive(Default)]
pub struct Line {
    /// Requests without a reply, in the order in which they were queued.
    pub asked: VecDeque<Asked>,
    /// Encoded requests that are not written to the socket yet.
    pub output: Vec<u8>,
    /// Numbers of the keys that [`Kind::Modify`] has read and that are updated next.
    to_change: VecDeque<u64>,
}

/// The input buffer of a connection.
pub struct Input {
    bytes: Vec<u8>,
    /// Number of received bytes, at the beginning of `bytes`.
    filled: usize,
}

impl Input {
    /// Creates an empty buffer.
    pub fn new() -> Input {
        Input { bytes: vec![0; INPUT_BYTES], filled: 0 }
    }

    /// Waits for bytes from the socket, and appends them. A full buffer doubles its size.
    ///
    /// # Errors
    /// Fails with [`Refused`] if the connection is closed or breaks.
    pub async fn read(&mut self, from: &mut (impl AsyncReadExt + Unpin)) -> Result<()> {
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

    /// Removes the first `count` bytes, which have been processed.
    fn drop_first(&mut self, count: usize) {
        self.bytes.copy_within(count..self.filled, 0);
        self.filled -= count;
    }
}

/// A thread of the generator: chooses operations for its connections, checks their replies and counts them.
pub struct Worker<'a> {
    pub shared: &'a Shared<'a>,
    random: Random,
    pub tally: Tally,
    /// Scratch buffers for a key and a value.
    key: Vec<u8>,
    value: Vec<u8>,
    /// Time at which the warm-up ended; `None` before that, and after the end of the run.
    counted_since: Option<Instant>,
    /// Whether the run has ended, so that no more requests are sent.
    pub is_over: bool,
}

impl<'a> Worker<'a> {
    /// Creates the thread `number` of a run. Threads draw different random numbers.
    pub fn new(shared: &'a Shared<'a>, number: usize) -> Worker<'a> {
        let latencies = Histogram::new();
        Worker {
            shared,
            random: Random(0xca51_b000 + number as u64 + shared.job.keys),
            tally: Tally { operations: 0, misses: 0, latencies, seconds: 0.0, server_cpu_s: 0.0 },
            key: Vec::new(),
            value: Vec::new(),
            counted_since: None,
            is_over: false,
        }
    }

    /// Starts counting: the warm-up has ended.
    pub fn begin(&mut self) -> Result<()> {
        self.tally.server_cpu_s = -self.cpu()?;
        self.counted_since = Some(Instant::now());
        Ok(())
    }

    /// Ends the run. Operations that are still without a reply no longer count.
    ///
    /// # Errors
    /// Fails if the warm-up has not ended, because all operations ran during it.
    pub fn end(&mut self) -> Result<()> {
        let since = self.counted_since.take().context("it ended before the warm-up did")?;
        self.tally.seconds = since.elapsed().as_secs_f64();
        self.tally.server_cpu_s += self.cpu()?;
        self.is_over = true;
        Ok(())
    }

    /// Returns the CPU seconds that the server's process has used.
    fn cpu(&self) -> Result<f64> {
        let process = self.shared.job.process.to_string();
        machine::cpu_seconds_of(&process)
            .with_context(|| format!("process {process} does not say its CPU time"))
    }

    /// Returns a random time between two due requests of an open loop with `rate` requests per second: exponentially
    /// distributed, so that requests arrive as from very many independent clients.
    pub fn gap(&mut self, rate: f64) -> Duration {
        let part = ((self.random.next() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
        Duration::from_secs_f64(-part.ln() / rate)
    }

    /// Queues a batch of requests, as many as the pipeline depth. Returns `false` if the run has ended or all
    /// operations of the job are queued.
    pub fn ask_batch(&mut self, line: &mut Line) -> bool {
        let now = Instant::now();
        (0..self.shared.job.depth).take_while(|_| !self.is_over && self.ask(line, now)).count() > 0
    }

    /// Queues one request, whose latency starts at `at`. Returns `false` if all operations of the job are queued.
    pub fn ask(&mut self, line: &mut Line, at: Instant) -> bool {
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

    /// Chooses the next operation and the number of its key; `None` if all operations of the job are queued.
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

    /// Checks and counts the replies in `input`, which arrive in the order of the requests.
    ///
    /// # Errors
    /// Fails if a reply is not the expected one.
    pub fn take(&mut self, line: &mut Line, input: &mut Input) -> Result<()> {
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

    /// Compares a reply with the expected one.
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
                // A key that is new in this run may still be in flight on the connection that inserts it.
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

    /// Counts an operation and its latency, if the warm-up has ended.
    fn count(&mut self, asked: &Asked, now: Instant) {
        // In an open loop, only requests count that were due after the warm-up.
        let is_open = self.shared.job.rate.is_some();
        if self.counted_since.is_some_and(|since| !is_open || asked.at >= since) {
            self.tally.operations += 1;
            self.tally.latencies.add((now - asked.at).as_nanos() as u64);
        }
    }

    /// Adds a latency for each request without a reply: the time since it was due, which is a lower bound. Without
    /// these, requests to a server that has stalled would be missing in the percentiles.
    pub fn give_up(&mut self, line: &Line) {
        let now = Instant::now();
        line.asked.iter().for_each(|asked| {
            self.tally.latencies.add(now.saturating_duration_since(asked.at).as_nanos() as u64);
        });
    }
}
