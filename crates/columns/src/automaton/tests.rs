//! Tests automata for LIKE, run over the stored form of strings, against searches in the strings themselves.

use super::*;
use crate::EncodingKind;
use crate::encode::encode;
use arrow_array::{Array, ArrayRef, BinaryViewArray, StringViewArray};
use std::sync::Arc;

/// Returns an automaton that accepts strings which contain `literal`. `padding` copies of the last state are added.
fn contains(literal: &[u8], padding: usize) -> Automaton {
    let states = literal.len() + 1 + padding;
    let step = |state: usize, byte: u8| {
        if state >= literal.len() {
            return literal.len() + (state + 1 - literal.len()) % (padding + 1);
        }
        let seen = [&literal[..state], &[byte]].concat();
        (0..=seen.len().min(literal.len())).rev().find(|n| seen.ends_with(&literal[..*n])).unwrap_or(0)
    };
    let next = (0..states).map(|s| std::array::from_fn(|byte| step(s, byte as u8) as u8)).collect();
    Automaton::new(0, next, (0..states).map(|state| state >= literal.len()).collect()).unwrap()
}

#[test]
fn compressed_and_plain_texts_match_as_their_bytes_do() {
    let text = |i: usize| match i % 5 {
        0 => String::new(),
        1 => format!("the quick brown fox {} jumps \u{fc}ber {}", i * 7919 % 1009, i % 13),
        2 => "fofofox".repeat(i % 4),
        3 => format!("{}\u{1F98A}fo{}", i * 31 % 997, "x".repeat(i % 3)),
        _ => format!("lazy dogs {}", i * 104_729 % 100_003),
    };
    let few: ArrayRef = Arc::new(StringViewArray::from_iter_values((0..300).map(text)));
    let many: ArrayRef = Arc::new(StringViewArray::from_iter_values((0..5000).map(text)));
    for (array, kind) in [(few, EncodingKind::PlainBytes), (many, EncodingKind::Fsst)] {
        let chunk = encode(&array).unwrap();
        assert_eq!(chunk.encoding(), kind);
        for (literal, padding) in [("fox", 0), ("\u{1F98A}", 20), ("ox 7", 40), ("", 0)] {
            let automaton = contains(literal.as_bytes(), padding);
            let texts = chunk.texts(&automaton).unwrap();
            for (start, matching) in [(0, true), (0, false), (1024, true)] {
                let rows = array.len().saturating_sub(start);
                if rows == 0 {
                    continue;
                }
                let mut before = vec![0x7777_ffff_0000_fff1_u64; rows.div_ceil(64)];
                if !rows.is_multiple_of(64) {
                    *before.last_mut().unwrap() &= (1 << (rows % 64)) - 1;
                }
                let mut alive = before.clone();
                texts.retain(matching, start, &mut alive);
                for row in 0..rows {
                    let found = text(start + row).contains(literal);
                    assert_eq!(automaton.is_match(text(start + row).as_bytes()), found);
                    let expected = before[row / 64] >> (row % 64) & 1 == 1 && found == matching;
                    assert_eq!(alive[row / 64] >> (row % 64) & 1 == 1, expected, "{:?}", text(start + row));
                }
            }
        }
    }
}

#[test]
fn automata_that_lead_nowhere_are_refused() {
    assert!(Automaton::new(0, vec![[1; 256]], vec![true]).is_none());
    assert!(Automaton::new(1, vec![[0; 256]], vec![true]).is_none());
    assert!(Automaton::new(0, vec![[0; 256]; STATES_MAX + 1], vec![true; STATES_MAX + 1]).is_none());
}

/// Returns an automaton with random transitions, except that most bytes lead from every state to the same state.
fn forgetful(next: &mut impl FnMut() -> u64) -> Automaton {
    let states = 1 + next() as usize % 7;
    let accepts: Vec<bool> = (0..states).map(|_| next().is_multiple_of(2)).collect();
    let home: Vec<u8> = (0..states)
        .map(|state| (0..states).find(|home| accepts[*home] == accepts[state]).unwrap() as u8)
        .collect();
    let step = |state: usize, byte: usize, random: u64| {
        if byte < 0xf0 && byte % 8 != 1 { home[state] } else { (random % states as u64) as u8 }
    };
    let steps = (0..states).map(|state| std::array::from_fn(|byte| step(state, byte, next())));
    Automaton::new(0, steps.collect(), accepts).unwrap()
}

#[test]
fn what_is_left_out_does_not_change_the_answer() {
    let mut state = 88_172_645_463_325_252_u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state >> 5
    };
    // Strings of some words, and of bytes that have no symbol; some are longer than a slot of 64 bytes.
    let mut text = |longest: u64| {
        let parts = next() % longest;
        let part = |random: u64| match random % 9 {
            0 => vec![(random >> 8) as u8],
            1 => vec![255, (random >> 8) as u8],
            word => b"the quick brown fox jumps over a lazy dog"[..4 * word as usize].to_vec(),
        };
        (0..parts).flat_map(|_| part(next())).collect::<Vec<u8>>()
    };
    for (longest, rows) in [(4, 1500), (12, 1500), (200, 300)] {
        let texts: Vec<Vec<u8>> =
            (0..rows).map(|row| [text(longest), row.to_string().into()].concat()).collect();
        let array: ArrayRef = Arc::new(BinaryViewArray::from_iter_values(&texts));
        let few: ArrayRef = Arc::new(BinaryViewArray::from_iter_values(&texts[..40]));
        let mut random = longest;
        let mut random = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            random >> 33
        };
        for array in [few, array] {
            let chunk = encode(&array).unwrap();
            let mut thinned = 0;
            for _ in 0..20 {
                let automaton = forgetful(&mut random);
                let found = chunk.texts(&automaton).unwrap();
                thinned += usize::from(found.repeats.is_some());
                let mut alive = vec![u64::MAX; array.len().div_ceil(64)];
                *alive.last_mut().unwrap() >>= alive.len() * 64 - array.len();
                found.retain(true, 0, &mut alive);
                for (row, text) in texts[..array.len()].iter().enumerate() {
                    assert_eq!(alive[row / 64] >> (row % 64) & 1 == 1, automaton.is_match(text), "{text:?}");
                }
            }
            assert!(thinned > 5, "{thinned} of {longest}");
        }
    }
}
