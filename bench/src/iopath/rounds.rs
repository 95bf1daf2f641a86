//! The parts that both sides of the suite `iopath` share: the data, the keys, and the timing of an operation. Farpool's
//! side is in the runner, that of other libraries in a separate program (`bench/rivals/libraries/`), which compiles
//! this file as well.

use std::sync::Barrier;
use std::time::{Duration, Instant};

/// First value of chains (initialization vector) and counters; its first bytes are the nonce of modes that have one.
pub const START: [u8; 16] = [0xc0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

/// A cipher that works in place, so that decryption reverts encryption.
pub trait InPlace {
    /// Encrypts `data`.
    fn encrypt(&mut self, data: &mut [u8]);
    /// Decrypts the data that [`InPlace::encrypt`] has encrypted last.
    fn decrypt(&mut self, data: &mut [u8]);
    /// Returns the tag of the last encryption, if the mode has one.
    fn tag(&self) -> Option<[u8; 16]>;
}

/// The direction that is timed. The opposite direction runs as well, so that decryption always gets the ciphertext.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Timed {
    Encryption,
    Decryption,
}

/// Returns the key of `bits` bits.
pub fn key(bits: usize) -> Vec<u8> {
    (0..bits / 8).map(|i| (i * 7 + 1) as u8).collect()
}

/// Returns bytes that do not repeat (SplitMix64).
pub fn data(bytes: usize) -> Vec<u8> {
    let mut state = bytes as u64;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let mut data = Vec::with_capacity(bytes.next_multiple_of(8));
    while data.len() < bytes {
        data.extend_from_slice(&next().to_le_bytes());
    }
    data.truncate(bytes);
    data
}

/// Returns a digest of ciphertext and tag (FNV-1a, eight bytes at a time).
pub fn digest(data: &[u8], tag: Option<[u8; 16]>) -> u64 {
    let words = |bytes: &[u8], sum: u64| {
        bytes.chunks(8).fold(sum, |sum, chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            (sum ^ u64::from_le_bytes(word)).wrapping_mul(0x0100_0000_01b3).rotate_left(29)
        })
    };
    words(&tag.unwrap_or_default(), words(data, 0xcbf2_9ce4_8422_2325 ^ data.len() as u64))
}

/// Encrypts `bytes` bytes of data and decrypts them again; returns the digest of the ciphertext, or `None` if
/// decryption yields other data.
pub fn exchange(cipher: &mut impl InPlace, bytes: usize) -> Option<u64> {
    let mut buffer = data(bytes);
    cipher.encrypt(&mut buffer);
    let encrypted = digest(&buffer, cipher.tag());
    cipher.decrypt(&mut buffer);
    (buffer == data(bytes)).then_some(encrypted)
}

/// Returns the nanoseconds of `repeats` operations on each of `threads` threads in parallel, each with a separate
/// buffer and cipher: the mean over the threads.
pub fn time<C: InPlace>(
    make: impl Fn() -> C + Sync,
    timed: Timed,
    (bytes, repeats, threads): (usize, usize, usize),
) -> f64 {
    let barrier = Barrier::new(threads);
    let one = || {
        let (mut cipher, mut buffer) = (make(), data(bytes));
        // Warms up caches, page tables and the processor's clock.
        cipher.encrypt(&mut buffer);
        cipher.decrypt(&mut buffer);
        barrier.wait();
        let mut total = Duration::ZERO;
        for _ in 0..repeats {
            let start = Instant::now();
            cipher.encrypt(&mut buffer);
            let middle = Instant::now();
            cipher.decrypt(&mut buffer);
            total += match timed {
                Timed::Encryption => middle - start,
                Timed::Decryption => middle.elapsed(),
            };
        }
        total.as_nanos() as f64
    };
    let total: f64 = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(one)).collect();
        running.into_iter().map(|thread| thread.join().unwrap_or(f64::NAN)).sum()
    });
    total / threads as f64
}
