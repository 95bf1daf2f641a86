//! Tables of counters: Count-Min (Cormode and Muthukrishnan 2005; thesis, section 4.2.2) and Fast-AGMS
//! (Cormode and Garofalakis 2005; section 4.2.3).
//!
//! A row of Fast-AGMS is kept as twice as many plain counts: a cell for the values that add to a counter and
//! one for those that take away from it. The counter is the difference of the two, and their sum is what a
//! row of Count-Min counts in the same place. So where the shapes agree one table serves both, at half the
//! work. Row j of a table has bits j·b up to (j+1)·b of the hash for itself, b being the bits of a cell's
//! number; the sign is the highest of them (SKT's layout).
//!
//! Invariant: the cells of each row add up to the number of values.

use super::block::{Block, Hashes};
use crate::hash::Hash;

/// The rows of cells.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Table {
    rows: u8,
    /// Bits of the number of a cell in its row.
    bits: u8,
    /// Row after row.
    cells: Vec<u64>,
}

impl Table {
    pub fn new(rows: u8, bits: u8) -> Table {
        Table { rows, bits, cells: vec![0; usize::from(rows) << bits] }
    }

    /// A table of these cells.
    pub fn from_cells(rows: u8, bits: u8, cells: Vec<u64>) -> Table {
        Table { rows, bits, cells }
    }

    pub fn bytes_held(&self) -> usize {
        self.cells.capacity() * size_of::<u64>()
    }

    /// The cells of each row.
    pub fn rows(&self) -> impl Iterator<Item = &[u64]> {
        self.cells.chunks_exact(1 << self.bits)
    }

    /// Counts each value of a block.
    pub fn update(&mut self, block: &Block<'_>) {
        match block.counts {
            None => self.add(block.hashes, |_| 1),
            Some(counts) => self.add(block.hashes, |i| counts[i]),
        }
    }

    fn add(&mut self, hashes: &Hashes, count: impl Fn(usize) -> u64) {
        let bits = self.bits;
        for (row, cells) in self.cells.chunks_exact_mut(1 << bits).enumerate() {
            for (i, hash) in hashes.iter().enumerate() {
                cells[place(hash, row, bits)] += count(i);
            }
        }
    }

    pub fn merge(&mut self, other: &Table) {
        self.cells.iter_mut().zip(&other.cells).for_each(|(ours, theirs)| *ours += theirs);
    }

    /// What each row counted where `hash` belongs.
    pub fn at(&self, hash: Hash) -> impl Iterator<Item = u64> {
        self.rows().enumerate().map(move |(row, cells)| cells[place(hash, row, self.bits)])
    }

    /// What each row counted where `hash` belongs, with the sign of the value: an estimate without bias.
    pub fn signed_at(&self, hash: Hash) -> impl Iterator<Item = i128> {
        let half = 1 << (self.bits - 1);
        self.rows().enumerate().map(move |(row, cells)| {
            let place = place(hash, row, self.bits);
            i128::from(cells[place]) - i128::from(cells[place ^ half])
        })
    }

    /// What each row counted where `hash` belongs, whichever the sign.
    pub fn unsigned_at(&self, hash: Hash) -> impl Iterator<Item = u64> {
        let half = 1 << (self.bits - 1);
        self.rows().enumerate().map(move |(row, cells)| {
            let place = place(hash, row, self.bits);
            cells[place] + cells[place ^ half]
        })
    }

    /// For each row the sum over its counters with signs of the products with those of `other`.
    pub fn products(&self, other: &Table) -> Vec<i128> {
        self.rows().zip(other.rows()).map(|(ours, theirs)| product(ours, theirs)).collect()
    }
}

#[inline(always)]
fn place(hash: Hash, row: usize, bits: u8) -> usize {
    hash.slice(row as u32 * u32::from(bits), bits.into()) as usize
}

fn product(ours: &[u64], theirs: &[u64]) -> i128 {
    let half = ours.len() / 2;
    let counter = |cells: &[u64], i: usize| i128::from(cells[i]) - i128::from(cells[i + half]);
    (0..half).map(|i| counter(ours, i) * counter(theirs, i)).sum()
}

/// The middle one, or the mean of the two in the middle.
pub(crate) fn median(values: impl IntoIterator<Item = i128>) -> f64 {
    let mut values: Vec<i128> = values.into_iter().collect();
    values.sort_unstable();
    let middle = values.len() / 2;
    match values.len() % 2 {
        1 => values[middle] as f64,
        _ => f64::midpoint(values[middle - 1] as f64, values[middle] as f64),
    }
}
