//! Hot keys inside the library of keys and values (`farpool_kv`), without sockets: several threads, each with a session
//! of its own, so that contention for the shards of hot keys is measured alone.

use super::definition::Definition;
use super::results::LibraryResult;
use crate::random::Random;
use crate::suite::{Samples, turns};
use crate::threads;
use anyhow::{Result, anyhow, bail};
use farpool_kv::resp::{Protocol, Replies};
use farpool_kv::{Args, Keyspace, NoHost, Session, TimeAndRandom};
use farpool_memory::{Pool, PoolConfig};
use farpool_model::TenantName;
use std::sync::Barrier;
use std::time::Instant;

/// Number of threads, as of a server that has both processors.
const THREADS: usize = 2;

/// Number of shards of the keyspace, as in a node with [`THREADS`] processors.
const SHARDS: usize = 4 * THREADS;

/// Number of hot keys.
const HOT: u64 = 128;

/// Number of commands between two readings of the clock, so that these do not slow the loop down.
const COMMANDS: u64 = 4096;

/// One command in this many is an update.
const UPDATES: u64 = 10;

/// Time in milliseconds since 1970 and random number of all commands: constants, so that the clock is not measured,
/// too.
const NOW: TimeAndRandom = TimeAndRandom { now: 1_700_000_000_000, random: 7 };

/// A session over the keyspace, and the buffer of its replies.
struct Client<'k> {
    keys: &'k Keyspace,
    session: Session,
    replies: Vec<u8>,
}

impl Client<'_> {
    /// Executes a command.
    ///
    /// # Errors
    /// Fails if its reply does not begin with `expected`.
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

/// Measures the operations per second of all threads on all keys, uniformly chosen, and on [`HOT`] keys, in turns.
pub fn measure(definition: &Definition) -> Result<LibraryResult> {
    let value_bytes = 64;
    let pool = Pool::new(PoolConfig { bytes_limit: 1 << 30 }).map_err(|error| anyhow!(error.message))?;
    let keys = Keyspace::new(&pool, &TenantName::default(), [9; 16], SHARDS);
    let value = vec![b'v'; value_bytes];
    let mut client = Client { keys: &keys, session: Session::default(), replies: Vec::new() };
    for number in 0..definition.keys {
        client.run(&[b"SET", key(number).as_bytes(), &value], b"+OK")?;
    }
    let counts = [definition.keys, HOT.min(definition.keys)];
    let mut samples = Samples::new(counts.len());
    for turn in turns(counts.len(), definition.runs) {
        samples.add(turn, rate(&keys, counts[turn.side], &value, definition.seconds)?);
    }
    let [uniform, hot] = [0, 1].map(|side| samples.median(side, |rate| *rate));
    Ok(LibraryResult { threads: THREADS, uniform, hot })
}

/// Returns the name of the key with a number.
fn key(number: u64) -> String {
    format!("key:{number:012}")
}

/// Returns the operations per second of all threads together on the first `keys` keys, which each thread chooses
/// uniformly.
fn rate(keyspace: &Keyspace, keys: u64, value: &[u8], seconds: f64) -> Result<f64> {
    let (barrier, expected) = (Barrier::new(THREADS), format!("${}\r\n", value.len()));
    let rates = threads::on_each(THREADS, |thread| {
        let mut client = Client { keys: keyspace, session: Session::default(), replies: Vec::new() };
        let mut random = Random(thread as u64);
        // Creates the names in advance, so that only commands are measured.
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
    })?;
    Ok(rates.into_iter().sum())
}
