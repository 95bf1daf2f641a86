//! Tests every kernel on every level of CPU instructions against `fastlanes` and plain loops.

use super::*;
use crate::arch::Level;
use crate::arch::tests::numbers;
use crate::kernels::retain::{Condition, Plain};
use crate::packed::with_lane;

/// Packs values of `width` bits into blocks with the `fastlanes` library.
fn packed<L: Lane>(width: u32, values: &[u64]) -> Vec<L> {
    let mut lanes = vec![L::default(); values.len() / BLOCK_ROWS * lanes::block_lanes::<L>(width)];
    let blocks = lanes.chunks_exact_mut(lanes::block_lanes::<L>(width));
    for (values, out) in values.chunks_exact(BLOCK_ROWS).zip(blocks) {
        let block: Vec<L> = values.iter().map(|v| L::truncate(*v)).collect();
        lanes::pack_block(width, block.first_chunk().expect("a block"), out);
    }
    lanes
}

/// Clears the bits of `alive` whose value does not pass; the expected result of a predicate.
fn plain(alive: &[u64], values: &[u64], passes: impl Fn(u64) -> bool) -> Vec<u64> {
    let bit = |row: usize| u64::from(passes(values[row])) << (row % 64);
    let word = |(w, word): (usize, &u64)| word & (w * 64..w * 64 + 64).map(bit).fold(0, |a, b| a | b);
    alive.iter().enumerate().map(word).collect()
}

/// Returns random bitmap words; in each block of 1024 bits, few, many or none are set.
fn some_bits(seed: u64, words: usize) -> Vec<u64> {
    let (a, b) = (numbers(seed, words, 64), numbers(!seed, words, 64));
    let word = |i: usize| match (seed as usize + i / BLOCK_WORDS) % 4 {
        0 => 0,
        1 => {
            if i % BLOCK_WORDS == 5 {
                a[i] & b[i] & 0x1111
            } else {
                0
            }
        }
        2 => u64::MAX,
        _ => a[i] | b[i],
    };
    (0..words).map(word).collect()
}

#[test]
fn every_width_unpacks_as_the_library_packed_it() {
    for width in 1..=64 {
        let values = numbers(width.into(), 2 * BLOCK_ROWS, width);
        with_lane!(width, L => {
            let packed = packed::<L>(width, &values);
            let blocks = Blocks { width, lanes: &packed };
            let rows: Vec<u32> = (0..2048).filter(|row| row % 71 < 3 || *row > 1400).collect();
            for level in Level::all() {
                let mut out = [[0u64; BLOCK_ROWS]; 2];
                let map = |v: L| v.widen().wrapping_add(7);
                level.run(UnpackBlocks { blocks, out: &mut out, map });
                let expected = values.iter().map(|v| v.wrapping_add(7));
                assert!(out.as_flattened().iter().copied().eq(expected), "{width} bits, {level:?}");
                let mut out = [L::default(); BLOCK_ROWS];
                level.run(UnpackBlock { blocks, index: 1, out: &mut out });
                let expected = values[BLOCK_ROWS..].iter().map(|v| L::truncate(*v));
                assert!(out.iter().copied().eq(expected), "{width} bits, {level:?}");
                for rows in [&rows[..], &rows[..40]] {
                    let mut got = Vec::new();
                    level.run(Gather { blocks, rows, visit: |v: L| got.push(v.widen()) });
                    let expected: Vec<u64> = rows.iter().map(|row| values[*row as usize]).collect();
                    assert_eq!(got, expected, "{width} bits, {level:?}");
                }
            }
        });
    }
}

#[test]
fn picked_values_are_packed_as_a_loop_packs_them() {
    for width in 1..=64 {
        let values = numbers(u64::from(width) + 300, 4 * BLOCK_ROWS, width);
        with_lane!(width, L => {
            let packed = packed::<L>(width, &values);
            let blocks = Blocks { width, lanes: &packed };
            for (seed, level) in (0..8).flat_map(|seed| Level::all().map(move |level| (seed, level))) {
                let selected = some_bits(seed, 4 * BLOCK_WORDS);
                let set = |row: &usize| selected[row / 64] >> (row % 64) & 1 == 1;
                let mut expected: Vec<u64> = (0..values.len()).filter(set).map(|row| values[row]).collect();
                expected.resize(expected.len().next_multiple_of(BLOCK_ROWS), 0);
                let expected = self::packed::<L>(width, &expected);
                let mut out = Vec::new();
                level.run(Pick { blocks, selected: &selected, out: &mut out });
                assert_eq!(out, expected, "{width} bits, {level:?}");
            }
        });
    }
}

#[test]
fn every_predicate_keeps_what_a_loop_keeps() {
    for width in 1..=64 {
        let values = numbers(u64::from(width) + 100, 4 * BLOCK_ROWS, width);
        let mask = u64::MAX >> (64 - width);
        let edges = numbers(u64::from(width) + 200, 8, width);
        with_lane!(width, L => {
            let packed = packed::<L>(width, &values);
            let blocks = Blocks { width, lanes: &packed };
            for (seed, level) in (0..8).flat_map(|seed| Level::all().map(move |level| (seed, level))) {
                let before = some_bits(seed, 4 * BLOCK_WORDS);
                let inside = seed % 2 == 0;
                let (low, high) = (edges[seed as usize] & mask, edges[7 - seed as usize] & mask);
                let (low, high) = (low.min(high), low.max(high));
                let mut alive = before.clone();
                let condition = Within { low: L::truncate(low), span: L::truncate(high - low) };
                level.run(Retain { blocks, condition, inside, alive: &mut alive });
                let expected = plain(&before, &values, |v| (low..=high).contains(&v) == inside);
                assert_eq!(alive, expected, "{width} bits within {low} to {high}, {level:?}");
            }
        });
    }
}

/// Checks conditions that test whether values are members of a set (a bitmap).
fn check_members<L: Lane>(width: u32)
where
    for<'a> Member<'a>: Condition<L>,
{
    let values = numbers(u64::from(width) + 100, 4 * BLOCK_ROWS, width);
    let set: Vec<u32> = numbers(width.into(), 60, 32).iter().map(|v| *v as u32).collect();
    let lanes = packed::<L>(width, &values);
    let blocks = Blocks { width, lanes: &lanes };
    for (seed, level) in (0..8).flat_map(|seed| Level::all().map(move |level| (seed, level))) {
        let before = some_bits(seed, 4 * BLOCK_WORDS);
        let (inside, offset) = (seed % 2 == 0, [0, 5, 900, 0u32.wrapping_sub(3)][seed as usize % 4]);
        let mut alive = before.clone();
        level.run(Retain { blocks, condition: Member { offset, set: &set }, inside, alive: &mut alive });
        let member = |v: u64| {
            let index = (v as u32).wrapping_add(offset);
            index < 32 * 60 && set[index as usize / 32] >> (index % 32) & 1 == 1
        };
        let expected = plain(&before, &values, |v| member(v) == inside);
        assert_eq!(alive, expected, "{width} bits, members from {offset}, {level:?}");
    }
}

#[test]
fn members_are_found_as_a_loop_does() {
    (9..=16).for_each(check_members::<u16>);
    (17..=32).for_each(check_members::<u32>);
}

#[test]
fn bytes_are_looked_up_as_a_loop_does() {
    let set: [u8; 32] = std::array::from_fn(|i| (i * 37 + 11) as u8);
    for width in 1..=8 {
        let values = numbers(width.into(), 4 * BLOCK_ROWS, width);
        let lanes = packed::<u8>(width, &values);
        let blocks = Blocks { width, lanes: &lanes };
        for (seed, level) in (0..8).flat_map(|seed| Level::all().map(move |level| (seed, level))) {
            let before = some_bits(seed, 4 * BLOCK_WORDS);
            let mut alive = before.clone();
            let inside = seed % 2 == 0;
            level.run(Retain { blocks, condition: MemberByte { set: &set }, inside, alive: &mut alive });
            let member = |v: u64| set[v as usize / 8] >> (v % 8) & 1 == 1;
            assert_eq!(alive, plain(&before, &values, |v| member(v) == inside), "{width} bits, {level:?}");
        }
    }
}

#[test]
fn columns_compare_as_a_loop_does() {
    for (left_width, right_width) in [(3, 7), (0, 12), (12, 12), (9, 20), (31, 16), (40, 8), (64, 64), (5, 0)]
    {
        let value = |seed, width| match width {
            0 => vec![0; 2 * BLOCK_ROWS],
            _ => numbers(seed, 2 * BLOCK_ROWS, width),
        };
        let (left, right) = (value(1, left_width), value(2, right_width));
        let (left_offset, right_offset) = if left_width == 64 { (0, 0) } else { (3, 40) };
        let sums: Vec<u64> =
            left.iter().zip(&right).map(|(l, r)| u64::from(l + left_offset <= r + right_offset)).collect();
        with_lane!(left_width, L => with_lane!(right_width, R => {
            let lefts = if left_width > 0 { packed::<L>(left_width, &left) } else { Vec::new() };
            let rights = if right_width > 0 { packed::<R>(right_width, &right) } else { Vec::new() };
            for (seed, level) in (0..8).flat_map(|seed| Level::all().map(move |level| (seed, level))) {
                let before = some_bits(seed, 2 * BLOCK_WORDS);
                let mut alive = before.clone();
                let inside = seed % 2 == 0;
                level.run(RetainAtMost {
                    left: Blocks { width: left_width, lanes: &lefts },
                    left_offset,
                    right: Blocks { width: right_width, lanes: &rights },
                    right_offset,
                    inside,
                    alive: &mut alive,
                });
                let expected = plain(&before, &sums, |holds| (holds == 1) == inside);
                assert_eq!(alive, expected, "{left_width} and {right_width} bits, {level:?}");
            }
        }));
    }
}

#[test]
fn sums_are_those_of_a_loop() {
    for width in 1..=64 {
        let values = numbers(u64::from(width) + 400, 3 * BLOCK_ROWS, width);
        with_lane!(width, L => {
            let packed = packed::<L>(width, &values);
            let blocks = Blocks { width, lanes: &packed };
            for rows in [0, 1, 64, 1000, BLOCK_ROWS, 2500, 3 * BLOCK_ROWS] {
                let sum = |keep: &dyn Fn(usize) -> bool| -> u128 {
                    (0..rows).filter(|row| keep(*row)).map(|row| u128::from(values[row])).sum()
                };
                for level in Level::all() {
                    let got = level.run(Sum { blocks, rows, selected: None });
                    assert_eq!(got, sum(&|_| true), "{rows} rows of {width} bits, {level:?}");
                    for seed in 0..4 {
                        let bits = some_bits(seed, rows.div_ceil(64));
                        let expected = sum(&|row| bits[row / 64] >> (row % 64) & 1 == 1);
                        let got = level.run(Sum { blocks, rows, selected: Some(&bits) });
                        assert_eq!(got, expected, "some of {rows} rows of {width} bits, {level:?}");
                    }
                }
            }
        });
    }
}

/// Checks predicates on plain (not packed) values against a loop over separately computed comparison keys.
fn check_plain<T: Plain>(of: impl Fn(u64) -> T, key: impl Fn(T) -> u64) {
    for rows in [0, 1, 63, 64, 65, 1000] {
        let bits = <T::Key as Lane>::BITS;
        let values: Vec<T> = numbers(rows as u64, rows, bits).into_iter().map(&of).collect();
        let mut keys: Vec<u64> = values.iter().map(|value| key(*value)).collect();
        keys.resize(rows.div_ceil(64) * 64, 0);
        for (seed, level) in (0..8).flat_map(|seed| Level::all().map(move |level| (seed, level))) {
            let mut before = some_bits(seed, rows.div_ceil(64));
            if let (Some(last), true) = (before.last_mut(), rows % 64 > 0) {
                *last &= (1 << (rows % 64)) - 1;
            }
            let inside = seed % 2 == 0;
            let (low, high) = (1 << (3 * seed), 1 << (bits - 1 - seed as u32));
            let (from, span) = (T::Key::truncate(low), T::Key::truncate(high - low));
            let mut alive = before.clone();
            level.run(RetainPlain { values: &values, low: from, span, inside, alive: &mut alive });
            let expected = plain(&before, &keys, |v| (low..=high).contains(&v) == inside);
            assert_eq!(alive, expected, "{rows} rows from {low}, {level:?}");
        }
    }
}

#[test]
fn plain_values_are_kept_as_a_loop_keeps_them() {
    // Sorts as `total_cmp` does, except that -0.0 equals 0.0.
    let of_f64 = |value: f64| {
        let rank = |v: f64| v.to_bits() as i64 ^ ((v.to_bits() as i64 >> 63) as u64 >> 1) as i64;
        (rank(if value == 0.0 { 0.0 } else { value }) as u64).wrapping_add(1 << 63)
    };
    let of_f32 = |value: f32| {
        let rank = |v: f32| v.to_bits() as i32 ^ ((v.to_bits() as i32 >> 31) as u32 >> 1) as i32;
        u64::from((rank(if value == 0.0 { 0.0 } else { value }) as u32).wrapping_add(1 << 31))
    };
    check_plain(f64::from_bits, of_f64);
    check_plain(|bits| f32::from_bits(bits as u32), of_f32);
}
