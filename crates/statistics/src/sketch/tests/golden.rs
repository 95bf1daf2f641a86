//! Tests sketches against published values, and against recomputed values of other implementations. SKT is the sketch
//! accelerator of Chiosa et al. (VLDB 2021), on whose thesis the sketches are based; tests of the hash function are
//! in `hash.rs`.

use super::super::counters::{Shape, Table, median};
use super::*;
use crate::hash::murmur3;

/// Seed with which SKT hashes the 4 bytes of a key.
const SKT_SEED: u64 = 0xdead_f00d;

fn skt_hashes(keys: u32) -> impl Iterator<Item = Hash> {
    (0..keys).map(|key| murmur3(&key.to_le_bytes(), SKT_SEED))
}

fn feed(hashes: impl Iterator<Item = Hash>, mut take: impl FnMut(&Hashes)) {
    let mut hashes = hashes.peekable();
    let mut block = Hashes::default();
    while hashes.peek().is_some() {
        block.fill(hashes.by_ref().take(block::BLOCK));
        take(&block);
    }
}

/// Compares the rows of Fast-AGMS with those in SKT's repository, for SKT's 128-bit hash (recomputed from its
/// arithmetic).
#[test]
fn skt_counts_the_same_second_moments() {
    let mut table = Table::new(Shape { rows: 6, bits: 14, stride: 14 });
    feed(skt_hashes(10_000_000), |hashes| {
        table.update(&Block { hashes, counts: None, value: &|_| None });
    });
    let rows = table.products(&table);
    assert_eq!(rows, [9_823_380, 9_818_614, 9_778_312, 9_858_574, 10_019_358, 10_307_512]);
    assert_eq!(median(rows), 9_840_977.0);
}

/// SKT's HyperLogLog has its own layout of hashes and the estimator of 2007. The estimator of this crate must be as
/// good on the same registers.
#[test]
fn skt_estimates_as_many_distinct_keys() {
    for (keys, golden) in [(1_000, 1001.6), (10_000_000, 10_008_585.4)] {
        let mut registers = vec![0_u8; 1 << 16];
        for hash in skt_hashes(keys) {
            let all = u128::from(hash.high) << 64 | u128::from(hash.low);
            let (place, rank) = ((all >> 112) as usize, ((all << 16) | 1 << 15).leading_zeros() as u8 + 1);
            registers[place] = registers[place].max(rank);
        }
        let classic = classic_estimate(&registers);
        assert!((classic - golden).abs() < 0.06, "{keys} keys: {classic}");
        let ours = distinct::estimate(&registers);
        assert!((ours / golden - 1.0).abs() < 0.005, "{keys} keys: {ours}");
    }
}

/// Computes the estimate of Flajolet et al. 2007, figure 3, as SKT does.
fn classic_estimate(registers: &[u8]) -> f64 {
    let m = registers.len() as f64;
    let raw =
        0.7213 / (1.0 + 1.079 / m) * m * m / registers.iter().map(|r| 0.5_f64.powi((*r).into())).sum::<f64>();
    let empty = registers.iter().filter(|rank| **rank == 0).count() as f64;
    if raw <= 2.5 * m && empty > 0.0 { m * (m / empty).ln() } else { raw }
}

/// Six rows of counters do not fit a 64-bit hash, such as SKT's; four do.
#[test]
fn rows_that_share_bits_are_not_made() {
    let four = SketchParameters { second_moment: Some(Counters { rows: 4, precision: 15 }), ..all() };
    assert!(check(&SketchParameters { frequency: None, top: 0, ..four }).is_ok());
    for (rows, bits) in (1..=8).flat_map(|rows| (5..=16).map(move |bits| (rows, bits))) {
        let shape = Shape::new(rows, bits);
        assert!(
            shape.stride >= bits && u32::from(rows - 1) * u32::from(shape.stride) + u32::from(bits) <= 128
        );
    }
}

/// Every row of counters spreads values independently: two values in one cell of a row are seldom in one cell of
/// another.
#[test]
fn no_row_puts_all_values_in_one_place() {
    for (rows, bits) in [(6, 14), (8, 16), (7, 17), (9, 14), (25, 5)] {
        let mut table = Table::new(Shape::new(rows, bits));
        feed(skt_hashes(50_000), |hashes| table.update(&Block { hashes, counts: None, value: &|_| None }));
        for row in 0..rows.into() {
            let most = table.row(row).into_iter().max().unwrap() as f64;
            let mean = 50_000.0 / table.shape().width() as f64;
            assert!(most < mean + 8.0 * mean.sqrt() + 8.0, "row {row} of {rows}, {bits} bits: {most}");
        }
    }
}
