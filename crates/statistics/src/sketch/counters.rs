//! Tables of counters for two sketches of a column: Count-Min, which estimates how often a value occurs (Cormode and
//! Muthukrishnan 2005; M. Chiosa's thesis, ETH Zurich no. 29551, section 4.2.2), and Fast-AGMS, which estimates join
//! sizes and second moments (Cormode and Garofalakis 2005; section 4.2.3).
//!
//! A row of Fast-AGMS is stored as two plain counts per counter: one cell counts the values that increment the counter,
//! and one those that decrement it. The counter is the difference of the two cells; their sum is the counter of
//! Count-Min at the same position. So where the shapes of Fast-AGMS and Count-Min agree, one table serves both, at half
//! the cost. The sign is the highest bit of a cell's index.
//!
//! Row j uses the bits of the hash from j·s to j·s + b, where b is the number of bits of a cell's index. The
//! stride s is 16 if the hash has that many bits, because the bits of each row then fill a 16-bit lane of the hash;
//! otherwise s is b, as in SKT (Chiosa et al., VLDB 2021), the sketch accelerator of the thesis.
//!
//! The values of a block are first counted in bytes, which for four rows fit the L1 cache. A byte that overflows adds
//! 256 to its cell.
//!
//! Invariant: the cells of each row add up to the number of values.

use super::block::{Block, Hashes};
use crate::arch::{Kernel, Level};
use crate::hash::Hash;
use farpool_model::limits;

/// Number of bits of a lane, and stride of rows whose bits are in lanes.
const LANE: u8 = 16;

/// Byte counters of one row. There are as many as a 16-bit lane can address, so that no index needs a bounds check;
/// those beyond the row's own cells are never used.
type Bytes = [u8; 1 << LANE];

/// The bits of a hash that the rows of a table use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub rows: u8,
    /// Number of bits of a cell's index within its row.
    pub bits: u8,
    /// Distance in the hash, in bits, from the first bit of a row to that of the next row.
    pub stride: u8,
}

impl Shape {
    pub fn new(rows: u8, bits: u8) -> Shape {
        let lanes = u32::from(rows) * u32::from(LANE) <= 128 && bits <= LANE;
        Shape { rows, bits, stride: if lanes { LANE } else { bits } }
    }

    /// Returns the number of cells per row.
    pub fn width(self) -> usize {
        1 << self.bits
    }

    /// Returns the bytes of a table of this shape once it has values: its cells, and their byte counters.
    pub fn bytes(self) -> usize {
        usize::from(self.rows) * self.width() * (size_of::<u64>() + size_of::<u8>())
    }

    #[inline(always)]
    fn place(self, hash: Hash, row: usize) -> usize {
        hash.slice(row as u32 * u32::from(self.stride), self.bits.into()) as usize
    }
}

/// A table of counters.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    shape: Shape,
    /// Cells, row after row; empty while there are no values.
    cells: Vec<u64>,
    /// Byte counters, whose counts are not added to the cells yet; empty before the first whole block.
    bytes: Vec<Bytes>,
    /// Cells whose byte counters overflowed in the current block; empty between blocks.
    carries: Vec<u32>,
}

impl Table {
    pub fn new(shape: Shape) -> Table {
        Table { shape, cells: Vec::new(), bytes: Vec::new(), carries: Vec::new() }
    }

    /// Creates a table with these cells.
    pub fn from_cells(shape: Shape, cells: Vec<u64>) -> Table {
        Table { shape, cells, bytes: Vec::new(), carries: Vec::new() }
    }

    pub fn shape(&self) -> Shape {
        self.shape
    }

    pub fn bytes_held(&self) -> usize {
        self.cells.capacity() * size_of::<u64>() + self.bytes.len() * self.shape.width()
    }

    /// Returns the cells of a row.
    pub fn row(&self, row: usize) -> Vec<u64> {
        let width = self.shape.width();
        let mut cells =
            self.cells.get(row * width..(row + 1) * width).map_or(vec![0; width], <[u64]>::to_vec);
        if let Some(bytes) = self.bytes.get(row) {
            cells.iter_mut().zip(bytes).for_each(|(cell, byte)| *cell += u64::from(*byte));
        }
        cells
    }

    fn cell(&self, row: usize, place: usize) -> u64 {
        let cell = self.cells.get(row << self.shape.bits | place);
        let byte = self.bytes.get(row).map(|row| row[place]);
        cell.copied().unwrap_or(0) + u64::from(byte.unwrap_or(0))
    }

    /// Counts each value of a block.
    pub fn update(&mut self, block: &Block<'_>) {
        if block.hashes.len() > 0 && self.cells.is_empty() {
            self.cells = vec![0; usize::from(self.shape.rows) * self.shape.width()];
        }
        // Byte counters pay only if there are many values.
        let many = !self.bytes.is_empty() || block.hashes.len() >= limits::BLOCK_ROWS;
        match block.counts {
            None if self.shape.stride == LANE && many => self.add_lanes(block.hashes),
            None => self.add(block.hashes, |_| 1),
            Some(counts) => self.add(block.hashes, |i| counts[i]),
        }
    }

    fn add(&mut self, hashes: &Hashes, count: impl Fn(usize) -> u64) {
        let shape = self.shape;
        for (row, cells) in self.cells.chunks_exact_mut(shape.width()).enumerate() {
            if shape.stride == LANE {
                let (words, mask) = (hashes.of_lanes(row / 4), cells.len() - 1);
                let places = words.iter().map(|word| (word >> (row % 4 * usize::from(LANE))) as usize & mask);
                places.enumerate().for_each(|(i, place)| cells[place] += count(i));
            } else {
                let places = hashes.iter().map(|hash| shape.place(hash, row));
                places.enumerate().for_each(|(i, place)| cells[place] += count(i));
            }
        }
    }

    fn add_lanes(&mut self, hashes: &Hashes) {
        if self.bytes.is_empty() {
            self.bytes = vec![[0; 1 << LANE]; self.shape.rows.into()];
        }
        let half = self.bytes.len().min(4);
        let (first, second) = self.bytes.split_at_mut(half);
        let (carries, bits) = (&mut self.carries, self.shape.bits);
        count_lanes(first, 0, carries, hashes.of_lanes(0), bits);
        count_lanes(second, half, carries, hashes.of_lanes(1), bits);
        // Carries are added one by one, which is fast because their cache misses overlap.
        carries.drain(..).for_each(|cell| self.cells[cell as usize] += 1 << u8::BITS);
    }

    pub fn merge(&mut self, other: &Table) {
        if self.cells.is_empty() {
            return self.clone_from(other);
        }
        self.cells.iter_mut().zip(&other.cells).for_each(|(ours, theirs)| *ours += theirs);
        for (row, bytes) in other.bytes.iter().enumerate() {
            let cells = &mut self.cells[row << self.shape.bits..][..self.shape.width()];
            cells.iter_mut().zip(bytes).for_each(|(ours, theirs)| *ours += u64::from(*theirs));
        }
    }

    /// Returns for each row the count in the cell of `hash`.
    pub fn at(&self, hash: Hash) -> impl Iterator<Item = u64> {
        (0..usize::from(self.shape.rows)).map(move |row| self.cell(row, self.shape.place(hash, row)))
    }

    /// Returns for each row the counts of two cells: that of `hash`, and the cell at the same position with the other
    /// sign.
    fn both_at(&self, hash: Hash) -> impl Iterator<Item = (u64, u64)> {
        let half = self.shape.width() / 2;
        (0..usize::from(self.shape.rows)).map(move |row| {
            let place = self.shape.place(hash, row);
            (self.cell(row, place), self.cell(row, place ^ half))
        })
    }

    /// Returns for each row the signed counter of Fast-AGMS for `hash`, multiplied by the sign of `hash`: an unbiased
    /// estimate of the value's frequency.
    pub fn signed_at(&self, hash: Hash) -> impl Iterator<Item = i128> {
        self.both_at(hash).map(|(with, against)| i128::from(with) - i128::from(against))
    }

    /// Returns for each row the counter of Count-Min for `hash`, which is the sum of the counts of both signs.
    pub fn unsigned_at(&self, hash: Hash) -> impl Iterator<Item = u64> {
        self.both_at(hash).map(|(with, against)| with + against)
    }

    /// Returns for each row the inner product of its signed counters and those of `other`.
    pub fn products(&self, other: &Table) -> Vec<i128> {
        let product = |row| product(&self.row(row), &other.row(row));
        (0..usize::from(self.shape.rows)).map(product).collect()
    }
}

fn product(ours: &[u64], theirs: &[u64]) -> i128 {
    let half = ours.len() / 2;
    let counter = |cells: &[u64], place: usize| i128::from(cells[place]) - i128::from(cells[place + half]);
    (0..half).map(|place| counter(ours, place) * counter(theirs, place)).sum()
}

/// Counts the 16-bit lanes of `words` in up to four rows: lane j of each word in row `first` + j.
fn count_lanes(bytes: &mut [Bytes], first: usize, carries: &mut Vec<u32>, words: &[u64], bits: u8) {
    match bytes {
        [] => {}
        [a] => Level::best().run(Lanes { bytes: [a], first, carries, words, bits }),
        [a, b] => Level::best().run(Lanes { bytes: [a, b], first, carries, words, bits }),
        [a, b, c] => Level::best().run(Lanes { bytes: [a, b, c], first, carries, words, bits }),
        [a, b, c, d] => Level::best().run(Lanes { bytes: [a, b, c, d], first, carries, words, bits }),
        _ => unreachable!("a word has four lanes"),
    }
}

/// Counts several rows in one loop. With one row at a time, equal values in sequence would wait for each other's store
/// to the same byte; with more than four, the bytes do not fit the L1 cache.
struct Lanes<'a, const ROWS: usize> {
    bytes: [&'a mut Bytes; ROWS],
    /// Index of the first of these rows.
    first: usize,
    carries: &'a mut Vec<u32>,
    words: &'a [u64],
    bits: u8,
}

impl<const ROWS: usize> Kernel for Lanes<'_, ROWS> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Lanes { mut bytes, first, carries, words, bits } = self;
        let mask = ((1_u32 << bits) - 1) as u16;
        for word in words {
            for (row, bytes) in bytes.iter_mut().enumerate() {
                let place = usize::from((word >> (row * usize::from(LANE))) as u16 & mask);
                let byte = &mut bytes[place];
                *byte = byte.wrapping_add(1);
                if *byte == 0 {
                    carry(carries, (first + row) << bits | place);
                }
            }
        }
    }
}

/// Not inlined, so that the loop that calls it stays small.
#[cold]
#[inline(never)]
fn carry(carries: &mut Vec<u32>, cell: usize) {
    carries.push(cell as u32);
}

/// Returns the median: the middle value, or the mean of the two middle ones.
pub(crate) fn median(values: impl IntoIterator<Item = i128>) -> f64 {
    let mut values: Vec<i128> = values.into_iter().collect();
    values.sort_unstable();
    let middle = values.len() / 2;
    match values.len() % 2 {
        1 => values[middle] as f64,
        _ => f64::midpoint(values[middle - 1] as f64, values[middle] as f64),
    }
}
