//! Hot keys inside the library, without sockets: with as many threads as the server has, each with a separate client.

use super::definition::Definition;
use super::results::LibraryResult;
use crate::random::Random;
use crate::stats::median;
use anyhow::{Result, anyhow, bail};
use farpool_kv::resp::{Protocol, Replies};
use farpool_kv::{Args, Keyspace, NoHost, Session, TimeAndRandom};
use farpool_memory::{Pool, PoolConfig};
use farpool_model::TenantName;
use std::sync::Barrier;
use std::time::Instant;

const THREADS: usize = 2;

/// Number of shards, as in a node with this number of processors.
const SHARDS: usize = 4 * THREADS;

/// Number of hot keys.
const HOT: u64 = 128;

/// Number of commands between two readings of the clock.
const COMMANDS: u64 = 4096;

/// One command in this many is an update.
const UPDATES: u64 = 10;

const NOW: TimeAndRandom = TimeAndRandom { now: 1_700_000_000_000, random: 7 };

/// A client of the library.
struct Client<'k> {
    keys: &'k Keyspace,
    session: Session,
    replies: Vec<u8>,
}

impl Client<'_> {
    /// Carries out a command, whose reply must begin with `expected`.
    fn run(&mut self, args: &Args<'_>, expected: &[u8]) -> Result<()> {
        self.replies.clear();
        let mut replies = Replies::new(&mut self.replies, Protocol::Resp2);
        self.session.execute(self.keys, args, NOW, &mut NoHost, &mut replies);
        if !self.replies.starts_with(expected) {
            let reply = self.replies.escape_ascii();
            bail!("{}: {reply}", args.join(&b' ').escape_ascii());
        }
        Ok(())
    }
}

/// Measures the operations per second of all threads, with a uniform distribution and with 128 hot keys, in turns.
pub fn measure(definition: &Definition) -> Result<LibraryResult> {
    let value_bytes = 64;
    let pool = Pool::new(PoolConfig { bytes_limit: 1 << 30 }).map_err(|error| anyhow!(error.message))?;
    let keys = Keyspace::new(&pool, &TenantName::default(), [9; 16], SHARDS);
    let value = vec![b'v'; value_bytes];
    let mut client = Client { keys: &keys, session: Session::default(), replies: Vec::new() };
    for number in 0..definition.keys {
        client.run(&[b"SET", key(number).as_bytes(), &value], b"+OK")?;
    }
    let (mut uniform, mut hot) = (Vec::new(), Vec::new());
    for _ in 0..definition.runs {
        uniform.push(rate(&keys, definition.keys, &value, definition.seconds)?);
        hot.push(rate(&keys, HOT.min(definition.keys), &value, definition.seconds)?);
    }
    Ok(LibraryResult { threads: THREADS, uniform: median(&uniform), hot: median(&hot) })
}

fn key(number: u64) -> String {
    format!("key:{number:012}")
}

/// Returns the operations per second of all threads on the first `keys` keys.
fn rate(keyspace: &Keyspace, keys: u64, value: &[u8], seconds: f64) -> Result<f64> {
    let (barrier, expected) = (Barrier::new(THREADS), format!("${}\r\n", value.len()));
    let work = |thread: usize| -> Result<f64> {
        let mut client = Client { keys: keyspace, session: Session::default(), replies: Vec::new() };
        let mut random = Random(thread as u64);
        // Created in advance, so that only commands are measured.
        let names: Vec<String> = (0..COMMANDS).map(|_| key(random.next() % keys)).collect();
        barrier.wait();
        let (start, mut commands) = (Instant::now(), 0);
        while start.elapsed().as_secs_f64() < seconds {
            for (number, name) in names.iter().enumerate() {
                if (number as u64).is_multiple_of(UPDATES) {
                    client.run(&[b"SET", name.as_bytes(), value], b"+OK")?;
                } else {
                    client.run(&[b"GET", name.as_bytes()], expected.as_bytes())?;
                }
            }
            commands += COMMANDS;
        }
        Ok(commands as f64 / start.elapsed().as_secs_f64())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn({
                    let work = &work;
                    move || work(thread)
                })
            })
            .collect();
        threads.into_iter().try_fold(0.0, |sum, thread| {
            Ok(sum + thread.join().map_err(|_| anyhow!("a thread of the library panicked"))??)
        })
    })
}
