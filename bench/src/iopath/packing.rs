//! The parts of compression that both sides of the suite `iopath` share: splitting a buffer into blocks, and timing
//! packing and unpacking. Also compiled into the rivals' program.

use super::rounds::Timed;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// A codec that compresses blocks, perhaps followed by a cipher that encrypts them.
pub trait Packs {
    /// Writes the stored form of a block to the front of `stored`, and returns its length. `stored` is larger than the
    /// block.
    fn pack(&mut self, block: &[u8], stored: &mut [u8]) -> usize;
    /// Restores a block that [`Packs::pack`] has stored. `place` is its index among the blocks that were packed in
    /// sequence.
    fn unpack(&mut self, place: usize, stored: &mut [u8], block: &mut [u8]);
    /// Resets the state of previously packed blocks.
    fn begin(&mut self) {}
}

/// Returns the maximal bytes of a stored block.
pub fn room(block_bytes: usize) -> usize {
    block_bytes + block_bytes / 8 + 4096
}

/// Returns `bytes` bytes of the data, which is repeated if it is shorter.
pub fn cycled(data: &[u8], bytes: usize) -> Vec<u8> {
    data.iter().copied().cycle().take(bytes).collect()
}

/// A packed buffer: the stored form of all its blocks, each in a slot of fixed size.
pub struct Stored {
    bytes: Vec<u8>,
    lengths: Vec<usize>,
    block_bytes: usize,
}

impl Stored {
    pub fn new(bytes: usize, block_bytes: usize) -> Stored {
        let blocks = bytes.div_ceil(block_bytes);
        Stored { bytes: vec![0; blocks * room(block_bytes)], lengths: vec![0; blocks], block_bytes }
    }

    /// Packs all blocks of `data`.
    pub fn pack(&mut self, packs: &mut impl Packs, data: &[u8]) {
        packs.begin();
        let rooms = self.bytes.chunks_mut(room(self.block_bytes));
        for ((block, stored), length) in data.chunks(self.block_bytes).zip(rooms).zip(&mut self.lengths) {
            *length = packs.pack(block, stored);
        }
    }

    /// Unpacks all blocks into `data`.
    pub fn unpack(&mut self, packs: &mut impl Packs, data: &mut [u8]) {
        let rooms = self.bytes.chunks_mut(room(self.block_bytes));
        let blocks = data.chunks_mut(self.block_bytes).zip(rooms).zip(&self.lengths).enumerate();
        for (place, ((block, stored), length)) in blocks {
            packs.unpack(place, &mut stored[..*length], block);
        }
    }

    /// Returns the stored form of all blocks in the format that the other side of the comparison reads: each preceded
    /// by its length.
    pub fn to_file(&self) -> Vec<u8> {
        let stored = self.bytes.chunks(room(self.block_bytes)).zip(&self.lengths);
        stored
            .flat_map(|(bytes, length)| [&(*length as u32).to_le_bytes(), &bytes[..*length]].concat())
            .collect()
    }

    /// Parses blocks written by [`Stored::to_file`].
    pub fn from_file(mut file: &[u8], block_bytes: usize) -> Option<Stored> {
        let (mut bytes, mut lengths) = (Vec::new(), Vec::new());
        while let Some((length, rest)) = file.split_first_chunk() {
            let (block, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
            bytes.extend_from_slice(block);
            lengths.push(block.len());
            bytes.resize(lengths.len() * room(block_bytes), 0);
            file = rest;
        }
        file.is_empty().then_some(Stored { bytes, lengths, block_bytes })
    }

    /// Returns the total bytes of all stored blocks.
    pub fn bytes(&self) -> usize {
        self.lengths.iter().sum()
    }
}

/// Returns the nanoseconds of `repeats` operations on each of `threads` threads in parallel, each with a buffer of
/// `bytes` bytes of the data: the mean over the threads. Every timed packing follows an unpacking, and the other way
/// round.
pub fn time<P: Packs>(
    make: impl Fn() -> P + Sync,
    timed: Timed,
    data: &[u8],
    (bytes, repeats, threads): (usize, usize, usize),
    block_bytes: usize,
) -> f64 {
    let barrier = Barrier::new(threads);
    let one = || {
        let (mut packs, data) = (make(), cycled(data, bytes));
        let (mut stored, mut back) = (Stored::new(bytes, block_bytes), vec![0; bytes]);
        // The first operation warms up memory, contexts and the processor's clock, and is not timed.
        stored.pack(&mut packs, &data);
        stored.unpack(&mut packs, &mut back);
        assert!(back == data, "what was packed is not unpacked");
        barrier.wait();
        let mut total = Duration::ZERO;
        for _ in 0..repeats {
            let start = Instant::now();
            stored.pack(&mut packs, &data);
            let middle = Instant::now();
            stored.unpack(&mut packs, &mut back);
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
