//! Comparisons of a slice with one value, as a bitmap: 64 rows to a word, the first in the lowest bit.

use crate::lanes::Lane;
use farpool_model::CompareOp;

/// Writes whether each value compares to `literal` in this way. Bits behind the last value are cleared.
pub(crate) fn compare<L: Lane>(op: CompareOp, values: &[L], literal: L, out: &mut [u64]) {
    match op {
        CompareOp::Eq => fill(values, out, |value| value == literal),
        CompareOp::NotEq => fill(values, out, |value| value != literal),
        CompareOp::Lt => fill(values, out, |value| value < literal),
        CompareOp::LtEq => fill(values, out, |value| value <= literal),
        CompareOp::Gt => fill(values, out, |value| value > literal),
        CompareOp::GtEq => fill(values, out, |value| value >= literal),
    }
}

/// Writes whether each value lies between `low` and `high`, both included. Bits behind the last value are
/// cleared.
pub(crate) fn within<L: Lane>(values: &[L], low: L, high: L, out: &mut [u64]) {
    fill(values, out, |value| (value >= low) & (value <= high));
}

#[inline(always)]
fn fill<L: Lane>(values: &[L], out: &mut [u64], holds: impl Fn(L) -> bool + Copy) {
    let (whole, rest) = values.as_chunks::<64>();
    for (word, values) in out.iter_mut().zip(whole) {
        *word = word_of(values, holds);
    }
    if !rest.is_empty() {
        let bits = rest.iter().enumerate().map(|(bit, value)| u64::from(holds(*value)) << bit);
        out[whole.len()] = bits.fold(0, |word, bit| word | bit);
    }
}

/// A byte for each value first, because that loop becomes vector compares; the bytes then become bits.
#[inline(always)]
fn word_of<L: Lane>(values: &[L; 64], holds: impl Fn(L) -> bool) -> u64 {
    let mut bytes = [0u8; 64];
    for (byte, value) in bytes.iter_mut().zip(values) {
        *byte = u8::from(holds(*value));
    }
    bits_of(&bytes)
}

/// The lowest bit of each byte. The multiplication brings the eight bits of a word together in its top byte.
#[inline(always)]
fn bits_of(bytes: &[u8; 64]) -> u64 {
    let (words, _) = bytes.as_chunks::<8>();
    let gathered =
        words.iter().map(|word| u64::from_le_bytes(*word).wrapping_mul(0x0102_0408_1020_4080) >> 56);
    gathered.enumerate().fold(0, |bits, (byte, value)| bits | value << (8 * byte))
}

/// Clears the bits at and behind `rows`.
pub(crate) fn clear_behind(words: &mut [u64], rows: usize) {
    let used = rows % 64;
    if used > 0
        && let Some(last) = words.get_mut(rows / 64)
    {
        *last &= (1 << used) - 1;
    }
}
