//! What both sides of the suite `iopath` do alike with compression: how a buffer is cut into blocks, and how packing and
//! unpacking are timed. Built into the rivals' program too.

use super::rounds::Timed;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// Compresses blocks, and encrypts them behind it where it does that too.
pub trait Packs {
    /// Makes of a block what is stored of it, at the front of `stored`, and returns how many bytes these are. There is room
    /// for more than the block has.
    fn pack(&mut self, block: &[u8], stored: &mut [u8]) -> usize;
    /// Makes the block again of what [`Packs::pack`] has stored of it. `place` is its place among those that were packed
    /// one after the other.
    fn unpack(&mut self, place: usize, stored: &mut [u8], block: &mut [u8]);
    /// Forgets what is known of blocks that were packed.
    fn begin(&mut self) {}
}

/// Bytes that a block may take when it is stored.
pub fn room(block_bytes: usize) -> usize {
    block_bytes + block_bytes / 8 + 4096
}

/// So many bytes of the data, from the front again where they end.
pub fn cycled(data: &[u8], bytes: usize) -> Vec<u8> {
    data.iter().copied().cycle().take(bytes).collect()
}

/// What packing a buffer has made: the stored bytes of all blocks, each with room behind it.
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

    /// All blocks as the other side reads them: each behind its length.
    pub fn to_file(&self) -> Vec<u8> {
        let stored = self.bytes.chunks(room(self.block_bytes)).zip(&self.lengths);
        stored
            .flat_map(|(bytes, length)| [&(*length as u32).to_le_bytes(), &bytes[..*length]].concat())
            .collect()
    }

    /// Blocks that [`Stored::to_file`] has written.
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

    /// Bytes that are stored of all blocks.
    pub fn bytes(&self) -> usize {
        self.lengths.iter().sum()
    }
}

/// Nanoseconds that `repeats` operations take on each of `threads` threads at once, each with a buffer of `bytes` of the data:
/// the mean over the threads. Every operation that is timed follows one in the other direction.
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
        // Memory, contexts and the clock of the processor are as they will be.
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
