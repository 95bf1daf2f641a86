//! What both sides of the suite `iopath` do alike: the data, the keys, and how an operation is timed. Farpool's side is in
//! the runner, that of other libraries in a program of its own (`bench/rivals/libraries/`), which is built from this file
//! too.

use std::sync::Barrier;
use std::time::{Duration, Instant};

/// Starts of chains and counters; the first bytes of it are the nonce.
pub const START: [u8; 16] = [0xc0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

/// A cipher that works in place, so that its decryption undoes its encryption.
pub trait InPlace {
    /// Encrypts `data`.
    fn encrypt(&mut self, data: &mut [u8]);
    /// Decrypts what [`InPlace::encrypt`] has encrypted last.
    fn decrypt(&mut self, data: &mut [u8]);
    /// The tag of the last encryption, where there is one.
    fn tag(&self) -> Option<[u8; 16]>;
}

/// Which direction is timed. The other one is done too, so that what is decrypted is always what was encrypted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Timed {
    Encryption,
    Decryption,
}

/// The key of so many bits.
pub fn key(bits: usize) -> Vec<u8> {
    (0..bits / 8).map(|i| (i * 7 + 1) as u8).collect()
}

/// Bytes that do not repeat (SplitMix64).
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

/// A digest of encrypted data and their tag (FNV-1a, eight bytes at a time).
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

/// Encrypts `bytes` of data and decrypts them again; returns the digest of what they were encrypted to, or `None` where
/// something else came back.
pub fn exchange(cipher: &mut impl InPlace, bytes: usize) -> Option<u64> {
    let mut buffer = data(bytes);
    cipher.encrypt(&mut buffer);
    let encrypted = digest(&buffer, cipher.tag());
    cipher.decrypt(&mut buffer);
    (buffer == data(bytes)).then_some(encrypted)
}

/// Nanoseconds that `repeats` operations take on each of `threads` threads at once, each with a buffer and a cipher of its
/// own: the mean over the threads.
pub fn time<C: InPlace>(
    make: impl Fn() -> C + Sync,
    timed: Timed,
    (bytes, repeats, threads): (usize, usize, usize),
) -> f64 {
    let barrier = Barrier::new(threads);
    let one = || {
        let (mut cipher, mut buffer) = (make(), data(bytes));
        // Caches, page tables and the clock of the processor are as they will be.
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
