//! Tests the kernels of moments (sums of products of pairs of columns) on every level of CPU instructions that
//! this machine supports, against plain loops.

use super::Level;
use crate::moments::matrix::{Bytes, Floats, GROUP, LANES};

/// Returns a simple random number generator; its quality does not matter here.
fn numbers(mut state: u64) -> impl FnMut() -> u64 {
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    }
}

#[test]
fn levels_agree_on_bytes() {
    for (columns, rows, low) in [(16, 64, 0), (48, 4096, 0), (80, 1000, 255), (33, 65, 250)] {
        let mut next = numbers(columns as u64);
        let mut matrix = Bytes::default();
        matrix.reshape(columns, rows);
        for column in 0..matrix.columns() {
            let values = matrix.column_mut(column);
            values.iter_mut().for_each(|value| *value = low.max(next() as u8));
            values[rows..].fill(0);
        }
        let all = matrix.columns();
        let ranges = (all / GROUP / 2 * GROUP..all, 0..all);
        let mut sums = vec![0; all];
        let mut expected = vec![0; ranges.0.len() * all];
        Level::all().for_each(|level| {
            level.byte_sums(&matrix, &mut sums);
            level.interleave(&mut matrix);
            let mut products = vec![7; expected.len()];
            level.byte_products(&matrix, &sums, ranges.clone(), &mut products, all);
            if level == Level::all().next().unwrap() {
                expected.clone_from(&products);
            }
            assert!(products == expected, "{level:?} {columns} {rows}");
        });
        let sum: u32 = matrix.column(3).iter().map(|byte| u32::from(*byte)).sum();
        assert_eq!(sums[3], sum);
        let products = matrix.column(all - 1).iter().zip(matrix.column(1));
        let product: u32 = products.map(|(a, b)| u32::from(*a) * u32::from(*b)).sum();
        assert_eq!(expected[(ranges.0.len() - 1) * all + 1], product);
    }
}

#[test]
fn levels_agree_on_floats() {
    for (columns, rows) in [(8, 1), (24, 100), (40, 1024), (19, 77)] {
        let mut next = numbers(columns as u64);
        let mut matrix = Floats::default();
        matrix.reshape(columns, rows);
        for column in 0..matrix.columns() {
            matrix.column_mut(column).iter_mut().for_each(|value| *value = (next() % 2000) as f64 - 1000.0);
        }
        matrix.interleave();
        let all = matrix.columns();
        let ranges = (all / LANES / 2 * LANES..all, 0..all);
        for level in Level::all() {
            let mut products = vec![f64::NAN; ranges.0.len() * all];
            level.float_products(&matrix, ranges.clone(), &mut products, all);
            for i in ranges.0.clone() {
                for j in ranges.1.clone() {
                    let terms = matrix.column(i).iter().zip(matrix.column(j));
                    let expected: f64 = terms.map(|(a, b)| a * b).sum();
                    assert_eq!(products[(i - ranges.0.start) * all + j], expected, "{level:?} {i} {j}");
                }
            }
        }
    }
}
