//! Measures the limits of the machine: memory read bandwidth, memory copy, fresh memory, loopback TCP.

use anyhow::{Context, Result};
use serde::Serialize;
use std::fmt::{Display, Formatter};
use std::hint::black_box;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Words of the array that is read: 1 GiB, because virtual machines have shared caches of half that size.
const WORDS: usize = 128 << 20;

/// Bytes sent over TCP, in writes of [`WRITE_BYTES`].
const TCP_BYTES: usize = 1 << 30;

/// The size at which loopback TCP measured fastest.
const WRITE_BYTES: usize = 512 << 10;

/// Repetitions; the best counts, because this is a limit.
const REPEATS: usize = 5;

/// Time after which the allocator has returned freed blocks of the array's size to the system.
const GIVEN_BACK: Duration = Duration::from_millis(1200);

/// Measured limits of the machine in GB/s.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Limits {
    /// Reading memory with one thread.
    pub memory_read_1: f64,
    /// Reading memory with two threads.
    pub memory_read_2: f64,
    /// Copying memory with one thread, bytes copied.
    pub memory_copy: f64,
    /// Writing with one thread to memory that the system must map first: the cost of a new result.
    pub memory_fresh: f64,
    /// Sending over loopback TCP from one thread to another.
    pub loopback_tcp: f64,
}

impl Display for Limits {
    fn fmt(&self, out: &mut Formatter<'_>) -> std::fmt::Result {
        write!(
            out,
            "limits of the machine, GB/s: memory read {:.1} with one thread, {:.1} with two; copy {:.1}; \
             fresh memory {:.1}; loopback TCP {:.1}",
            self.memory_read_1, self.memory_read_2, self.memory_copy, self.memory_fresh, self.loopback_tcp
        )
    }
}

/// Measures all limits, which takes a few seconds.
pub fn measure() -> Result<Limits> {
    measure_for(REPEATS)
}

/// Measures all limits for a suite with this number of counted runs: with one, as in a quick run, each limit is measured
/// twice, since the first copy writes to memory that the system must map.
pub fn measure_for(runs: usize) -> Result<Limits> {
    let repeats = runs.clamp(2, REPEATS);
    let words: Vec<u64> = (0..WORDS as u64).collect();
    let mut target = vec![0u64; WORDS];
    let bytes = (WORDS * size_of::<u64>()) as f64;
    let best = |pause: Duration, run: &mut dyn FnMut()| {
        let times = (0..repeats).map(|_| {
            std::thread::sleep(pause);
            let start = Instant::now();
            run();
            start.elapsed().as_secs_f64()
        });
        bytes / times.fold(f64::INFINITY, f64::min) / 1e9
    };
    Ok(Limits {
        memory_read_1: best(Duration::ZERO, &mut || read(&words, 1)),
        memory_read_2: best(Duration::ZERO, &mut || read(&words, 2)),
        memory_copy: best(Duration::ZERO, &mut || black_box(&mut target).copy_from_slice(black_box(&words))),
        memory_fresh: best(GIVEN_BACK, &mut || _ = black_box(fresh(&words))),
        loopback_tcp: loopback().context("loopback TCP")?,
    })
}

fn sum(words: &[u64]) -> u64 {
    words.iter().fold(0, |sum, word| sum.wrapping_add(*word))
}

/// Reads all words once, split among `threads` threads.
pub fn read(words: &[u64], threads: usize) {
    let mut parts = words.chunks(words.len().div_ceil(threads.max(1)).max(1));
    let own = parts.next().unwrap_or_default();
    std::thread::scope(|scope| {
        for part in parts {
            scope.spawn(|| black_box(sum(part)));
        }
        black_box(sum(own));
    });
}

/// Copies to memory that comes from the system, if the last copy was freed longer ago than [`GIVEN_BACK`].
fn fresh(words: &[u64]) -> Vec<u64> {
    words.to_vec()
}

fn loopback() -> Result<f64> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let sender = std::thread::spawn(move || -> std::io::Result<()> {
        let mut socket = TcpStream::connect(address)?;
        let buffer = vec![1u8; WRITE_BYTES];
        (0..TCP_BYTES / WRITE_BYTES).try_for_each(|_| socket.write_all(&buffer))
    });
    let (mut socket, _) = listener.accept()?;
    let mut buffer = vec![0u8; WRITE_BYTES];
    let start = Instant::now();
    let mut received = 0;
    while received < TCP_BYTES {
        match socket.read(&mut buffer)? {
            0 => break,
            bytes => received += bytes,
        }
    }
    let elapsed = start.elapsed().as_secs_f64();
    sender.join().map_err(|_| anyhow::anyhow!("the sender failed"))??;
    Ok(received as f64 / elapsed / 1e9)
}
